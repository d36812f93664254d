"""Seams: the user's call exactly once and unguarded, any number of watchers, and clean undoing in company."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch
import wrapt

from llmtrace.guard import guard
from llmtrace.rank import patches


class Shop:
    """Somebody else's class, with a method to watch."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def sell(self, *args: object, **kwargs: object) -> str:
        self.calls.append((*args, *kwargs.items()))
        if args and isinstance(args[0], BaseException):
            raise args[0]
        return "sold"


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    module = types.ModuleType("some_library")
    module.Shop = type("Shop", (Shop,), {"sell": Shop.sell})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_library", module)
    monkeypatch.setattr(guard, "errors", type(guard.errors)())
    return module.Shop  # type: ignore[attr-defined]


@pytest.fixture
def seam() -> patches.Seam:
    return patches.Seam("some_library", "Shop.sell", "a test")


class Diary:
    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []

    def before(self, instance: Any, args: Any, kwargs: Any) -> int:
        self.lines.append(("before", type(instance).__name__, args, kwargs))
        return len(self.lines)

    def after(self, token: Any, result: Any, error: BaseException | None) -> None:
        self.lines.append(("after", token, result, error))


def test_watchers_see_arguments_result_and_their_own_token(shop: type[Any], seam: patches.Seam) -> None:
    diary = Diary()
    seam.watch(diary.before, diary.after)
    thing = shop()
    assert thing.sell(1, colour="red") == "sold"
    assert thing.calls == [(1, ("colour", "red"))]
    assert diary.lines == [("before", "Shop", (1,), {"colour": "red"}), ("after", 1, "sold", None)]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, StopIteration])
def test_the_users_exception_leaves_untouched(shop: type[Any], seam: patches.Seam, kind: type[BaseException]) -> None:
    diary, error = Diary(), kind("mine")
    seam.watch(diary.before, diary.after)
    thing = shop()
    with pytest.raises(kind) as caught:
        thing.sell(error)
    assert caught.value is error
    assert error.__cause__ is None
    assert error.__context__ is None
    assert len(thing.calls) == 1
    assert diary.lines[-1] == ("after", 1, None, error)


def test_a_failing_watcher_is_counted_and_the_others_go_on(shop: type[Any], seam: patches.Seam) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("ours")

    diary = Diary()
    seam.watch(refuse, refuse)
    seam.watch(diary.before, diary.after)
    thing = shop()
    assert thing.sell() == "sold"
    assert len(thing.calls) == 1
    assert len(diary.lines) == 2
    assert sum(guard.errors.values()) == 2


def test_two_watchers_wrap_once_and_the_last_to_leave_unwraps(shop: type[Any], seam: patches.Seam) -> None:
    original = vars(shop)["sell"]
    first, second = seam.watch(Diary().before, Diary().after), seam.watch(Diary().before, Diary().after)
    assert vars(shop)["sell"].__wrapped__ is original
    first()
    assert vars(shop)["sell"] is not original
    second()
    assert vars(shop)["sell"] is original


def test_under_another_tools_wrapper_undo_leaves_a_pass_through_and_watching_again_does_not_wrap_twice(shop: type[Any], seam: patches.Seam) -> None:
    diary, theirs = Diary(), []

    def other(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        theirs.append("called")
        return wrapped(*args, **kwargs)

    undo = seam.watch(diary.before, diary.after)
    shop.sell = wrapt.FunctionWrapper(vars(shop)["sell"], other)
    outermost = vars(shop)["sell"]
    undo()
    assert vars(shop)["sell"] is outermost
    assert shop().sell() == "sold"
    assert diary.lines == []
    seam.watch(diary.before, diary.after)
    assert vars(shop)["sell"] is outermost
    thing = shop()
    thing.sell()
    assert len(thing.calls) == 1
    assert len(diary.lines) == 2
    assert theirs == ["called", "called"]


def test_a_seam_that_another_tool_put_back_is_wrapped_anew(shop: type[Any], seam: patches.Seam) -> None:
    diary, original = Diary(), vars(shop)["sell"]
    undo = seam.watch(diary.before, diary.after)
    shop.sell = original  # a tool restores what it had found before us
    undo()
    assert vars(shop)["sell"] is original
    seam.watch(diary.before, diary.after)
    shop().sell()
    assert len(diary.lines) == 2


@pytest.mark.parametrize(("module", "path"), [("not_imported_anywhere", "Shop.sell"), ("some_library", "Shop.gone"), ("some_library", "Gone.sell")])
def test_where_the_seam_does_not_exist_nothing_is_watched(shop: type[Any], module: str, path: str) -> None:
    before = dict(vars(shop))
    patches.Seam(module, path, "a test").watch(Diary().before, Diary().after)()
    assert dict(vars(shop)) == before
    assert not guard.errors


def test_nothing_happens_while_a_program_is_traced_for_export(shop: type[Any], seam: patches.Seam) -> None:
    diary, thing = Diary(), shop()
    seam.watch(diary.before, diary.after)

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            thing.sell()
            return x * 2

    torch.export.export(Model(), (torch.ones(2),), strict=False)
    assert thing.calls
    assert diary.lines == []


def test_all_seams_exist_in_this_torch_and_say_why() -> None:
    for seam in patches.SEAMS:
        assert seam._owner()[0] is not None, seam.path
        assert len(seam.why) > 20


@pytest.mark.parametrize("what", ["loop", "ddp"])
def test_torch_compile_makes_the_same_graphs_with_us(what: str, tmp_path: Any) -> None:
    from torch._dynamo.testing import CompileCounter
    from torch._dynamo.utils import counters

    def graphs() -> tuple[int, int, int]:
        torch._dynamo.reset()
        counters.clear()
        counter = CompileCounter()
        model = torch.nn.Linear(4, 4)

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = model(x).relu().sum()
            loss.backward()
            return loss * 2

        compiled = torch.compile(step if what == "loop" else torch.nn.parallel.DistributedDataParallel(model), backend=counter)
        for _ in range(3):
            found = compiled(torch.ones(2, 4))
            if what == "ddp":
                found.sum().backward()
        return counter.frame_count, counter.op_count, sum(counters["graph_break"].values())

    hook = sys.excepthook
    if what == "ddp":
        torch.distributed.init_process_group("gloo", init_method=(tmp_path / "store").as_uri(), rank=0, world_size=1)
    diary = Diary()
    try:
        without = graphs()
        undos = [seam.watch(diary.before, diary.after) for seam in patches.SEAMS]
        assert graphs() == without
        for undo in undos:
            undo()
    finally:
        if what == "ddp":
            torch.distributed.destroy_process_group()
        sys.excepthook = hook
    assert diary.lines
