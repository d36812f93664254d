"""The only place that wraps torch: each seam once, with any number of watchers, and undone as it was found.

A seam is wrapped where no public hook serves; SEAMS says which and why. The user's call runs exactly once, outside every
guard, and its exception leaves untouched. A watcher's own error is counted and goes no further. Nothing happens while
torch.compile traces or a CUDA graph is captured. Where another tool wrapped the seam after us, undoing leaves our wrapper in
the chain as a pass-through, and watching again finds it there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NamedTuple, cast

from ..guard import shield, shielded

Undo = Callable[[], None]
Before = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
After = Callable[[Any, Any, BaseException | None], Any]


class Watcher(NamedTuple):
    """`before(instance, args, kwargs)` gives a token; `after(token, result, error)` gets it back when the user's call is over."""

    before: Before
    after: After


class Seam:
    """One attribute of one module or class, wrapped while somebody watches it."""

    def __init__(self, module: str, path: str, why: str) -> None:
        self.module, self.path, self.why = module, path, why
        self._watchers: tuple[Watcher, ...] = ()
        self._proxy: Any = None
        self._original: Any = None

    def watch(self, before: Before, after: After) -> Undo:
        """Be told of every call from now on. Where this torch has no such seam nothing is watched. Returns the undo."""
        owner, name = self._owner()
        if owner is None:
            return _nothing
        watcher = Watcher(shielded(before), shielded(after))
        skip_frames(*watcher, deep=True)
        self._watchers += (watcher,)
        if not self._in_chain(owner, name):
            self._wrap(owner, name)

        def undo() -> None:
            self._watchers = tuple(w for w in self._watchers if w is not watcher)
            if not self._watchers:
                self._unwrap(owner, name)

        return undo

    def _owner(self) -> tuple[Any, str]:
        owner: Any = sys.modules.get(self.module)
        *parents, name = self.path.split(".")
        for parent in parents:
            owner = getattr(owner, parent, None)
        return (owner, name) if owner is not None and name in vars(owner) else (None, name)

    def _in_chain(self, owner: Any, name: str) -> bool:
        """Whether our wrapper is still there, outermost or under the wrappers of other tools."""
        found = cast("Any", vars(owner)[name])
        while found is not None and found is not self._proxy:
            found = cast("Any", getattr(found, "__wrapped__", None))
        return found is not None

    def _wrap(self, owner: Any, name: str) -> None:
        import wrapt  # only in a process that trains

        self._original = original = cast("Callable[..., Any]", vars(owner)[name])
        self._proxy = cast("Any", wrapt.FunctionWrapper(original, _make_wrapper(self)))
        setattr(owner, name, self._proxy)

    def _unwrap(self, owner: Any, name: str) -> None:
        if self._proxy is vars(owner)[name]:
            setattr(owner, name, self._original)
            self._proxy = self._original = None


def _nothing() -> None:
    return None


def _make_wrapper(seam: Seam) -> Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]:
    hands_off = make_hands_off(sys.modules["torch"])

    def wrapper(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        watchers = seam._watchers
        count = len(watchers)
        if count == 0 or hands_off():
            return wrapped(*args, **kwargs)
        if count > 1:
            return call_watched(watchers, wrapped, instance, args, kwargs)
        before, after = watchers[0]
        token = before(instance, args, kwargs)
        try:
            result = wrapped(*args, **kwargs)
        except BaseException as error:
            after(token, None, error)
            raise
        after(token, result, None)
        return result

    def call_watched(watchers: tuple[Watcher, ...], wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tokens = [watcher.before(instance, args, kwargs) for watcher in watchers]
        try:
            result = wrapped(*args, **kwargs)
        except BaseException as error:
            for watcher, token in zip(watchers, tokens, strict=True):
                watcher.after(token, None, error)
            raise
        for watcher, token in zip(watchers, tokens, strict=True):
            watcher.after(token, result, None)
        return result

    skip_frames(wrapper, call_watched)
    return wrapper


def make_hands_off(torch: ModuleType) -> Callable[[], bool]:
    """A function that says whether torch.compile (or export) traces now, or a CUDA graph is being captured: then we do nothing.

    It initialises no CUDA: before CUDA is initialised there is no capture.
    """
    compiling: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", None) or _never
    cuda: Any = getattr(torch, "cuda", None)
    capturing: Callable[[], bool] = getattr(cuda, "is_current_stream_capturing", None) or _never

    def hands_off() -> bool:
        return compiling() or (getattr(cuda, "_initialized", False) and capturing())

    skip_frames(hands_off)
    return hands_off


def _never() -> bool:
    return False


def skip_frames(*functions: Callable[..., Any], deep: bool = False) -> None:
    """Tell torch.compile's frame evaluator to run these functions as they are; `deep` where nothing that they call is the user's.

    Otherwise it compiles our wrapper as a frame of the user's and breaks its graph there. Private, hence the care: torch 2.7 and newer have
    `set_code_exec_strategy`, older ones `skip_code`. torch._dynamo itself is never imported, it takes seconds.
    """
    evaluator: Any = sys.modules.get("torch._C._dynamo.eval_frame")
    with shield("patches.skip_frames"):
        for function in functions:
            code = getattr(function, "__code__", None)
            if code is None or evaluator is None:
                continue
            if hasattr(evaluator, "set_code_exec_strategy"):
                action = evaluator._FrameAction
                evaluator.set_code_exec_strategy(code, evaluator._FrameExecStrategy(action.SKIP, action.SKIP if deep else action.DEFAULT))
            elif hasattr(evaluator, "skip_code"):
                evaluator.skip_code(code)


def watch_optimizer(before: Callable[..., None], after: Callable[..., None]) -> Undo:
    """Torch's own hooks on every optimizer: no patch."""
    optimizer: Any = sys.modules["torch.optim.optimizer"]
    callbacks = (shielded(before), shielded(after))
    skip_frames(*callbacks, deep=True)
    handles = [optimizer.register_optimizer_step_pre_hook(callbacks[0]), optimizer.register_optimizer_step_post_hook(callbacks[1])]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


DATA: Final = Seam(
    "torch.utils.data.dataloader",
    "_BaseDataLoaderIter.__next__",
    "how long the loop waits for data: DataLoader has no hook, and every loader of torch goes through this one method",
)
FORWARD: Final = Seam(
    "torch.nn.parallel.distributed",
    "DistributedDataParallel.forward",
    "where forward begins and ends: a hook on the user's module would show in their model, a global module hook costs 2 us a module",
)
BACKWARD: Final = Seam(
    "torch.autograd",
    "backward",
    "where backward begins and ends: Tensor.backward calls it, and there is no hook for the whole of it",
)
DEFAULT_GROUP: Final = Seam(
    "torch.distributed.distributed_c10d",
    "_update_default_pg",
    "when the job's store and the rank are known: init_process_group has no hook, and a name imported early would escape a patch on it",
)

SEAMS: Final = (DATA, FORWARD, BACKWARD, DEFAULT_GROUP)
"""All that is wrapped; docs/ lists them from here. The optimizer is watched by torch's own global hooks (watch_optimizer)."""
