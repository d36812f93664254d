"""LLMTraceCallback: tracing for a Lightning Trainer, for `lightning` and for `pytorch_lightning`.

Lightning is never imported here. The callback's class is completed when one is made: it then also derives from the Callback of
whatever Lightning the program has imported, of both where it has both.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from ..clock import monotonic_ns
from ..config import resolve
from ..guard import shield, shielded
from .instrument import Undo
from .patches import watch_optimizer
from .runtime import Runtime, host

if TYPE_CHECKING:
    from .steps import Steps
    from .tracer import Tracer

HOMES: Final = ("lightning.pytorch", "pytorch_lightning")
VALIDATION: Final = "validation"


class Phases:
    """One phase of the batch at a time, on top of whatever the user's own phases are; those are never ended from here."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._now = ""

    def switch(self, phase: str) -> None:
        """End our phase and begin `phase`, or none where it is empty. Nothing happens while a phase of the user's runs inside ours."""
        if self._now and self._steps.phase != self._now:
            return
        if self._now:
            self._steps.leave()
        if phase:
            self._steps.enter(phase)
        self._now = phase


class Fit:
    """One fit: its run, its steps with their phases, and the numbers that the user logs."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.tracer: Tracer = runtime.tracer
        self._steps = self.tracer.steps
        self._phases = Phases(self._steps)
        self._counts = self._steps.claim("lightning")
        self._number = self._global_step = self._samples = 0
        self._gap_since_ns = self._waited_ns = self._charged_ns = 0
        self._manual = False
        self._written: dict[str, int] = {}
        self._undo: Undo | None = None

    def start(self, trainer: Any, module: Any) -> None:
        """The loop is about to run: where its count stands (after a resume not at 0), and when its optimizers step."""
        loop = getattr(getattr(trainer, "fit_loop", None), "epoch_loop", None)
        self._global_step = int(trainer.global_step)
        self._number = int(getattr(loop, "_batches_that_stepped", self._global_step))
        self._manual = not getattr(module, "automatic_optimization", True)
        self._undo = watch_optimizer(_ignore, self._after_optimizer)
        if self._counts:
            self._steps.begin(self._number)
        self._open_gap()

    def batch_start(self, trainer: Any) -> None:
        """The batch is on its device: what was waited for it is known, forward begins."""
        self.write_numbers(trainer)
        self._close_gap()
        if self._counts:
            self._steps.begin(self._number)
        self._phases.switch("forward")

    def backward_start(self) -> None:
        self._phases.switch("backward")

    def backward_end(self) -> None:
        self._phases.switch("forward" if self._manual else "")

    def optimizer_start(self) -> None:
        """Just before the step; the optimizer's own pre hook fires before forward, for Lightning hands forward over as a closure."""
        self._phases.switch("optimizer")

    def _after_optimizer(self, *_: Any) -> None:
        self._phases.switch("forward" if self._manual else "")

    def batch_end(self, trainer: Any, batch: Any) -> None:
        """One llmtrace.step where an optimizer stepped, however many micro-batches went before; else a sign of life."""
        self._phases.switch("")
        self._samples += samples_in(batch)
        global_step = int(trainer.global_step)
        if global_step == self._global_step:
            self.tracer.progress()
        else:
            self._global_step = global_step
            if self._counts:
                self._steps.end(samples=self._samples or None)
            self._number += 1
            self._samples = 0
        self._open_gap()

    def validation_start(self) -> None:
        self._phases.switch(VALIDATION)

    def validation_end(self, trainer: Any) -> None:
        self._phases.switch("")
        self.write_numbers(trainer)

    def _open_gap(self) -> None:
        steps = self._steps
        self._gap_since_ns, self._waited_ns, self._charged_ns = monotonic_ns(), steps.spent_ns("data_wait"), steps.accounted_ns

    def _close_gap(self) -> None:
        """A loader that is not torch's shows no wait of its own: then it is the time between two batches, less the phases in it."""
        if self._steps.spent_ns("data_wait") == self._waited_ns:
            inside_ns = self._steps.accounted_ns - self._charged_ns
            self._steps.add("data_wait", max(0, monotonic_ns() - self._gap_since_ns - inside_ns))

    def write_numbers(self, trainer: Any) -> None:
        """What self.log has given since the last time, as Lightning holds it after each batch: nothing is computed, synchronised or moved.

        The public properties would compute epoch values, and that may be a collective.
        """
        connector = getattr(trainer, "_logger_connector", None)
        logged: dict[str, Any] = getattr(connector, "_logged_metrics", None) or {}
        others: dict[str, Any] = getattr(connector, "_callback_metrics", None) or {}
        step = self._steps.current if self._steps.last is None else self._steps.last
        for name, value in (*logged.items(), *((name, value) for name, value in others.items() if is_unlogged(name, logged))):
            if self._written.get(name) != id(value):  # the old object was alive when the new one was made, so ids tell them apart
                self._written[name] = id(value)
                self.tracer.publish("metric", name, value, step)

    def close(self, error: BaseException | None) -> None:
        """The fit has ended, by an exception or not."""
        with shield("lightning.close"):
            if self._undo is not None:
                self._undo()
            self._phases.switch("")
        host.leave(self.runtime, error, "lightning")


def _ignore(*_: Any) -> None:
    return None


def is_unlogged(name: str, logged: dict[str, Any]) -> bool:
    """Whether a callback metric is none of the logged ones under another name: Lightning forks `loss` into `loss_step` and `loss_epoch`."""
    return not {name, f"{name}_step", f"{name}_epoch"} & logged.keys()


def samples_in(batch: Any, depth: int = 3) -> int:
    """The first dimension of the first tensor in a batch (itself, or in lists, tuples and dicts); 0 where there is none."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) and isinstance(shape[0], int) else 0
    items = cast("Iterable[Any]", batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ())
    return next((found for item in items if depth and (found := samples_in(item, depth - 1))), 0)


if TYPE_CHECKING:
    Base: Any = object  # to a type checker it is a Callback of either package: which one only the running program knows
else:
    Base = object


class LLMTraceCallback(Base):  # pyright: ignore[reportUntypedBaseClass]
    """Traces each fit of a Trainer: `Trainer(callbacks=[LLMTraceCallback()])`.

    Settings are those of `llmtrace.start`; an unknown name or an impossible value raises ValueError. A fit is a run; a step is what
    one optimizer step concludes, numbered as Lightning's loggers number it. It can be pickled and copied, and does nothing where
    LLMTRACE=0.
    """

    _fit: Fit | None = None

    def __new__(cls, *args: Any, **settings: Any) -> LLMTraceCallback:
        return object.__new__(completed(cls))

    def __init__(self, **settings: Any) -> None:
        resolve(settings, {}, "")
        self._settings = settings

    def __getattr__(self, name: str) -> Any:
        """Made before Lightning was imported, asked now for something of Lightning's: complete it."""
        whole = completed(type(self))
        if whole is type(self) or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.__class__ = whole
        return getattr(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        state = {name: value for name, value in self.__dict__.items() if name != "_fit"}
        return _remake, (named(type(self)),), state

    def setup(self, trainer: Any, pl_module: Any, stage: str | None = None) -> None:
        if str(getattr(stage, "value", stage)) in ("fit", "None") and self._leads(trainer):
            self._enter()

    def _leads(self, trainer: Any) -> bool:
        """Whether we are the first of our kind in this Trainer: a second one would count every step again."""
        ours = (callback for callback in getattr(trainer, "callbacks", None) or () if isinstance(callback, LLMTraceCallback))
        return next(ours, self) is self

    @shielded
    def _enter(self) -> None:
        if self._fit is None and (runtime := host.enter(self._settings)) is not None:
            self._fit = Fit(runtime)

    @shielded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._fit is not None:
            self._fit.start(trainer, pl_module)

    @shielded
    def on_train_batch_start(self, trainer: Any, *_: Any, **__: Any) -> None:
        if self._fit is not None:
            self._fit.batch_start(trainer)

    @shielded
    def on_before_backward(self, *_: Any, **__: Any) -> None:
        if self._fit is not None:
            self._fit.backward_start()

    @shielded
    def on_after_backward(self, *_: Any, **__: Any) -> None:
        if self._fit is not None:
            self._fit.backward_end()

    @shielded
    def on_before_optimizer_step(self, *_: Any, **__: Any) -> None:
        if self._fit is not None:
            self._fit.optimizer_start()

    @shielded
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *_: Any, **__: Any) -> None:
        if self._fit is not None:
            self._fit.batch_end(trainer, batch)

    @shielded
    def on_validation_start(self, trainer: Any, *_: Any, **__: Any) -> None:
        if self._fit is not None and not getattr(trainer, "sanity_checking", False):
            self._fit.validation_start()

    @shielded
    def on_validation_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        if self._fit is not None and not getattr(trainer, "sanity_checking", False):
            self._fit.validation_end(trainer)

    @shielded
    def on_train_epoch_start(self, trainer: Any, *_: Any, **__: Any) -> None:
        if self._fit is not None:
            self._fit.write_numbers(trainer)

    @shielded
    def on_train_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        if self._fit is not None:
            self._fit.write_numbers(trainer)

    @shielded
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The last hook that Lightning calls when something breaks, wherever it was; also before `setup` was reached."""
        if getattr(getattr(trainer, "state", None), "fn", None) == "fit" and self._leads(trainer):
            self._enter()
        if (fit := self._fit) is None:
            return
        with shield("lightning.numbers"):
            fit.write_numbers(trainer)
        self._fit = None
        fit.close(exception)

    @shielded
    def teardown(self, trainer: Any, pl_module: Any, stage: str | None = None) -> None:
        fit, self._fit = self._fit, None
        if fit is not None:
            fit.write_numbers(trainer)
            fit.close(None)


def completed(cls: type[Any]) -> type[Any]:
    """`cls` with the Callback of each Lightning that has been imported among its bases; without one where none has been."""
    plain = named(cls)
    callbacks = (getattr(sys.modules.get(home), "Callback", None) for home in HOMES)
    bases = tuple(base for base in callbacks if isinstance(base, type) and not issubclass(plain, base))
    return _complete(plain, bases) if bases else plain


def named(cls: type[Any]) -> type[Any]:
    """The class that the user knows, and that can be pickled by its name."""
    return cls.__mro__[1] if vars(cls).get("_completed") else cls


@functools.cache
def _complete(cls: type[Any], bases: tuple[type[Any], ...]) -> type[Any]:
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__, "_completed": True}
    return type(cls.__name__, (cls, *bases), names)


def _remake(cls: type[LLMTraceCallback]) -> LLMTraceCallback:
    return cls.__new__(cls)
