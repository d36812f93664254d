"""What a program calls: decorated functions keep their nature, and everything does nothing while tracing is off."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import llmtrace
from llmtrace.guard import guard
from llmtrace.names import FAILURE, PROCESS, PROCESS_ACTION, PROCESS_ENDING, STEP
from llmtrace.rank.runtime import host
from tests.conftest import Directories
from tests.support.ranks import Ring, no_agent, rings


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMTRACE", "0")


@pytest.fixture
def traced(llmtrace_dirs: Directories, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Tracing may be turned on; gives a function that turns it off and reads what the process's rings hold."""
    monkeypatch.delenv("LLMTRACE", raising=False)
    host.runs.number = 0
    host.last = None
    with no_agent() as directory:

        def finish() -> list[Ring]:
            while host.runtime is not None:
                llmtrace.stop()
            return rings(directory)

        yield finish
        finish()


@pytest.mark.usefixtures("off")
def test_with_llmtrace_0_all_is_a_no_op() -> None:
    @llmtrace.trace(job="x")
    def train(a: int, *, b: int) -> int:
        assert llmtrace.current() is None
        return a + b

    assert llmtrace.start(job="y") is None
    assert train(1, b=2) == 3
    with llmtrace.phase("eval"):
        llmtrace.event("x", value=object())
    assert list(llmtrace.steps([1, 2])) == [1, 2]
    assert host.runtime is None
    llmtrace.stop()


def test_phase_event_steps_and_current_do_nothing_before_a_start() -> None:
    with pytest.raises(KeyError), llmtrace.phase("eval"):
        raise KeyError
    llmtrace.event("x")
    assert list(llmtrace.steps(iter("ab"))) == ["a", "b"]
    assert len(llmtrace.steps([1, 2, 3])) == 3
    assert llmtrace.current() is None


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class Class:
    def __call__(self) -> None:
        return None


@pytest.mark.parametrize("thing", [generator, async_generator, Class, functools.partial(generator), 7, "train"])
def test_what_is_no_function_that_trains_is_refused_at_once(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"llmtrace\.trace"):
        llmtrace.trace(thing)
    with pytest.raises(TypeError, match=r"llmtrace\.trace"):
        llmtrace.trace(job="x")(thing)


@pytest.mark.parametrize("settings", [{"ring_bytes": "much"}, {"colour": "red"}, {"trace_id": "12"}, {"workload": "sleep"}])
def test_a_setting_that_can_never_be_right_raises_where_it_is_written(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        llmtrace.trace(**settings)
    with pytest.raises(ValueError, match=next(iter(settings))):
        llmtrace.start(**settings)
    assert host.runtime is None


def test_a_decorated_function_keeps_name_signature_and_kind() -> None:
    @llmtrace.trace
    def train(rate: float = 0.1, *layers: int, seed: int) -> str:
        """Docs."""
        return "done"

    @llmtrace.trace(job="x")
    async def atrain() -> None: ...

    assert train.__name__ == "train"
    assert train.__doc__ == "Docs."
    assert list(inspect.signature(train).parameters) == ["rate", "layers", "seed"]
    assert inspect.iscoroutinefunction(atrain)
    assert not inspect.iscoroutinefunction(train)


def test_the_outermost_call_is_a_run_and_the_next_one_another(traced: Any) -> None:
    @llmtrace.trace
    def inner() -> int:
        return host.runs.number

    @llmtrace.trace(job="outer")
    def outer() -> int:
        assert inner() == host.runs.number
        return host.runs.number

    assert [outer(), outer(), inner()] == [1, 2, 3]
    (ring,) = traced()
    actions = [(r.attributes[PROCESS_ACTION], r.identity.run) for r in ring.named(PROCESS)]
    assert actions == [("started", 1), ("finished", 1), ("started", 2), ("finished", 2), ("started", 3), ("finished", 3)]
    assert ring.identity.job == "outer"
    assert ring.header.ended == "clean"


def test_an_exception_leaves_as_it_came_and_is_recorded_once(traced: Any) -> None:
    error = ValueError("bad batch")

    @llmtrace.trace
    def inner() -> None:
        raise error

    @llmtrace.trace
    def outer() -> None:
        inner()

    with pytest.raises(ValueError, match="bad batch") as raised:
        outer()
    assert raised.value is error
    (ring,) = traced()
    (failure,) = ring.named(FAILURE)
    assert "bad batch" in (failure.body or "")
    assert ring.named(PROCESS)[-1].attributes[PROCESS_ENDING] == "raised"


def test_a_coroutine_function_is_traced_until_it_has_run(traced: Any) -> None:
    @llmtrace.trace
    async def train() -> int:
        await asyncio.sleep(0)
        llmtrace.event("inside")
        return 5

    assert asyncio.run(train()) == 5
    (ring,) = traced()
    names = [record.name for record in ring.records if record.name in ("inside", PROCESS)]
    assert names == [PROCESS, "inside", PROCESS]


def test_a_loop_over_steps_counts_them_and_its_waiting(traced: Any) -> None:
    llmtrace.start()
    for item in llmtrace.steps(range(4)):
        current = host.tracer.steps.current if host.tracer else None
        assert current == item
        if item == 2:
            break
    (ring,) = traced()
    assert [record.step for record in ring.named(STEP)] == [0, 1, 2]
    assert all(record.attributes["llmtrace.step.data_wait_ns"] >= 0 for record in ring.named(STEP))


def test_a_loader_that_fails_fails_as_it_would(traced: Any) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("disk")

    llmtrace.start()
    with pytest.raises(OSError, match="disk"):
        list(llmtrace.steps(broken()))
    (ring,) = traced()
    assert len(ring.named(STEP)) == 1


def test_a_phase_of_any_name_is_a_span_with_its_time(traced: Any) -> None:
    llmtrace.start()
    with llmtrace.phase("eval"):
        with llmtrace.phase("forward"):
            pass
    (ring,) = traced()
    (span,) = ring.named("llmtrace.phase")
    assert (span.kind, span.attributes["llmtrace.phase.name"]) == ("span", "eval")
    assert span.duration_ns is not None
    assert "eval" in ring.description.phases.values()


def test_starts_join_and_as_many_stops_end_them(traced: Any, capfd: pytest.CaptureFixture[str]) -> None:
    guard.warnings.clear()
    first = llmtrace.start(job="a")
    assert llmtrace.start(job="b") is first
    assert "job" in capfd.readouterr().err
    identity = llmtrace.current()
    assert identity is not None
    assert identity.job == "a"
    llmtrace.stop()
    assert llmtrace.current() is not None
    llmtrace.stop()
    assert llmtrace.current() is None
    (ring,) = traced()
    assert len(ring.named(PROCESS)) == 2


def test_a_start_after_a_stop_is_a_new_span_and_run_of_the_same_trace(traced: Any) -> None:
    llmtrace.start()
    llmtrace.stop()
    llmtrace.start()
    before, after = traced()
    assert before.identity.trace_id == after.identity.trace_id
    assert before.identity.attempt == after.identity.attempt
    assert after.identity.linked_span_id == before.identity.span_id != after.identity.span_id
    assert (before.identity.run, after.identity.run) == (1, 2)


def test_without_a_place_for_rings_training_goes_on_and_one_line_says_why(
    traced: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    guard.warnings.clear()
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("LLMTRACE_DIR", str(file))
    monkeypatch.setattr("llmtrace.directory.DEFAULT_ROOT", str(file))

    @llmtrace.trace
    def train() -> int:
        llmtrace.event("x")
        return 1

    assert train() == 1
    assert capfd.readouterr().err.count("tracing is off") == 1
    assert traced() == []


def test_a_step_that_an_exception_broke_off_is_no_step(traced: Any) -> None:
    @llmtrace.trace
    def train() -> None:
        for item in llmtrace.steps(range(4)):
            if item == 2:
                raise ValueError("broken off")

    with pytest.raises(ValueError, match="broken off"):
        train()
    (ring,) = traced()
    assert [record.step for record in ring.named(STEP)] == [0, 1]
    assert ring.header.step == 2
