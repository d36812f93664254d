"""What a second reader broke: odd settings, objects that fail when they are looked at, phases and scopes used in unforeseen ways."""

from __future__ import annotations

import collections
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import llmtrace
from llmtrace.bootstrap.finder import when_imported
from llmtrace.config import resolve
from llmtrace.frames import Description, Epoch, encode_description, known_schemas
from llmtrace.guard import Guard, guard, tried
from llmtrace.identity import TOLD_BYTES, facts, traceparent
from llmtrace.names import FAILURE, PROCESS, PROCESS_ACTION, STEP
from llmtrace.rank.instruments.logs import instrument as logs
from llmtrace.rank.runtime import ENDED_IN_MEMORY, Runtime, host
from llmtrace.rank.steps import MOST_PHASES
from llmtrace.ring.layout import PAGE, SMALL_HEADER
from tests.conftest import Directories
from tests.support.ranks import Ring, no_agent, rings
from tests.support.recorder import Recorder

NOWHERE = "/nonexistent"


class Failing(Exception):
    """An error whose own text fails, too."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Resisting:
    """An object that fails whichever way it is looked at."""

    def __str__(self) -> str:
        raise Failing

    __repr__ = __str__

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class UncountableList(list[int]):
    def __len__(self) -> int:
        raise RuntimeError("no length")


class NoModule:
    pass


NoModule.__module__ = None  # type: ignore[assignment]


@pytest.fixture
def traced(llmtrace_dirs: Directories, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Tracing may be turned on; gives a function that turns it off and reads what the process's rings hold."""
    monkeypatch.delenv("LLMTRACE", raising=False)
    host.runs.number, host.last = 0, None
    with no_agent() as directory:

        def finish() -> list[Ring]:
            while host.runtime is not None:
                llmtrace.stop()
            return rings(directory)

        yield finish
        finish()


# Settings


@pytest.mark.parametrize("text", ["0x" + "1" * 30, "+" + "1" * 31, "1_" * 16, "\u0661" * 32], ids=["0x", "sign", "underscores", "another script"])
def test_what_python_reads_as_a_hex_number_is_not_therefore_a_trace_id(text: str) -> None:
    assert resolve({}, {"LLMTRACE_TRACE_ID": text}, NOWHERE).trace_id == ""
    assert traceparent(f"00-{text}-00f067aa0ba902b7-01") == ""
    with pytest.raises(ValueError, match="32 hex digits"):
        resolve({"trace_id": text}, {}, NOWHERE)


def test_a_slip_in_the_unit_of_the_rings_size_does_not_take_the_machines_memory() -> None:
    assert resolve({}, {"LLMTRACE_RING_BYTES": "4" + "0" * 40}, NOWHERE).ring_bytes == 4 << 20
    with pytest.raises(ValueError, match="at most 1G"):
        resolve({"ring_bytes": "2G"}, {}, NOWHERE)


def test_an_argument_with_nul_can_never_be_a_folder() -> None:
    with pytest.raises(ValueError, match="NUL"):
        resolve({"dir": "a\0b"}, {}, NOWHERE)


@pytest.mark.parametrize("text", ["llmtrace = 3", 'llmtrace = ["job"]'])
def test_a_file_whose_llmtrace_is_no_table_is_ignored(text: str, tmp_path: Path) -> None:
    (tmp_path / "llmtrace.toml").write_text(text)
    assert resolve({}, {}, str(tmp_path / "llmtrace.toml")).origins["job"] == "default"


def test_enabled_false_is_off_wherever_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, traced: Any) -> None:
    assert llmtrace.start(enabled=False) is None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llmtrace.toml").write_text("enabled = false\n")
    assert llmtrace.start() is None
    assert llmtrace.current() is None


HOSTILE = {
    "bytes that are no UTF-8": os.fsdecode(b"a\xff\xfe"),
    "very long": "é" * 40_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("name", ["LLMTRACE_NODE", "LLMTRACE_JOB", "LLMTRACE_TEAM", "LLMTRACE_MODEL", "LLMTRACE_ENV", "SLURM_JOB_NAME"])
def test_no_name_from_outside_keeps_an_identity_from_being_stored(name: str, text: str) -> None:
    found = facts(resolve({}, {name: text}, NOWHERE), {name: text})
    assert len(encode_description(Description(epochs=[Epoch(0, found)]))) < 10 * TOLD_BYTES


def test_an_identity_of_the_longest_names_fits_into_a_childs_ring() -> None:
    names = {f"LLMTRACE_{name}": "n" * 1000 for name in ("NODE", "JOB", "TEAM", "MODEL", "ENV")}
    whole = Description(schemas=known_schemas().schemas, epochs=[Epoch(1 << 60, facts(resolve({}, names, NOWHERE), names))])
    assert len(encode_description(whole)) + 4 < SMALL_HEADER - PAGE


def test_a_rank_that_no_ring_can_hold_is_no_rank() -> None:
    assert facts(resolve({}, {}, NOWHERE), {"RANK": "9" * 30, "WORLD_SIZE": "2"}).rank is None


def test_a_program_whose_name_is_no_utf_8_is_traced(traced: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [os.fsdecode(b"/x/j\xff.py")])
    llmtrace.start()
    llmtrace.event("here")
    (ring,) = traced()
    assert ring.named("here")
    assert ring.identity.job == "j\\udcff"


def test_a_start_that_fails_half_way_leaves_nothing_on(traced: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = logging.Logger.callHandlers
    with monkeypatch.context() as broken:
        broken.setattr("llmtrace.rank.tracer.Tracer.describe_all", lambda _: 1 / 0)
        assert llmtrace.start() is None
    assert llmtrace.current() is None
    assert logging.Logger.callHandlers is found
    assert llmtrace.start() is not None


# Guard and values


def test_an_error_whose_own_text_fails_does_not_reach_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    own = Guard()
    own.report("a place", Failing())
    assert own.errors["a place"] == 1
    assert "Failing" in own.warnings[0]


def test_a_warning_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    own = Guard()
    own.warn("x" * 100_000)
    assert len(own.warnings[0]) < 1100


def test_tried_lets_the_user_stop_the_program() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tried(stop, otherwise=None)


ODD = {
    "resisting": Resisting(),
    "list without a length": UncountableList(),
    "module is None": NoModule(),
    "int of 6000 digits": 10**6000,
    "error with a resisting argument": ValueError(Resisting()),
    "keys that resist": {Resisting(): 1}.keys(),
    "nested tensor": torch.nested.nested_tensor([torch.ones(1)], layout=torch.jagged),
    "sparse": torch.sparse_coo_tensor([[0]], [1.0], (1,), check_invariants=True),
}


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_a_value_that_fails_costs_no_event_its_other_values(value: object) -> None:
    recorder, before = Recorder(), collections.Counter(guard.errors)
    recorder.tracer.emit("odd", attributes={"odd": value, "good": 1})
    (record,) = recorder.records("odd")
    assert record.attributes["good"] == 1
    assert len(str(record.attributes["odd"])) <= 300
    assert guard.errors == before


def test_a_tensor_under_vmap_is_described(traced: Any) -> None:
    llmtrace.start()

    def inner(x: torch.Tensor) -> torch.Tensor:
        llmtrace.event("within", value=x)
        return x

    torch.vmap(inner)(torch.zeros(3))
    (ring,) = traced()
    assert ring.named("within")


@pytest.mark.parametrize("name", [1, None, b"x", Resisting()], ids=["int", "None", "bytes", "resisting"])
def test_an_event_under_a_name_that_is_no_text_is_kept(name: Any, traced: Any) -> None:
    llmtrace.start()
    llmtrace.event(name, good=1)
    (ring,) = traced()
    assert [record for record in ring.records if record.attributes.get("good") == 1]


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
@pytest.mark.parametrize("how", ["argument", "message", "extra", "structlog's"])
def test_a_line_with_an_object_that_fails_is_a_line(how: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    recorder, log, before = Recorder(), logging.getLogger("odd.line"), collections.Counter(guard.errors)
    undo = recorder.install(logs)
    if how == "argument":
        log.warning("before %s", value)
    elif how == "message":
        log.warning(value)
    elif how == "extra":
        log.warning("with extra", extra={"odd": value})
    else:
        log.warning({"event": value})
    undo()
    (record,) = recorder.records()
    assert record.body
    assert guard.errors == before


# Runs


def runs(found: list[Ring]) -> list[int]:
    return [record.identity.run for ring in found for record in ring.named(PROCESS) if record.attributes[PROCESS_ACTION] == "finished"]


def test_a_stop_ends_the_run_of_its_start_also_while_tracing_stays_on(traced: Any) -> None:
    @llmtrace.trace
    def train() -> int:
        who = llmtrace.current()
        assert who is not None
        return who.run

    assert train() == 1
    llmtrace.start()
    llmtrace.stop()
    assert train() == 3
    assert runs(traced()) == [1, 2, 3]


def test_where_the_stack_ends_within_traced_functions_the_run_still_ends(traced: Any) -> None:
    @llmtrace.trace
    def deeper(n: int) -> int:
        return deeper(n + 1)

    with pytest.raises(RecursionError):
        deeper(0)
    assert host.runs.depth == 0
    (ring,) = traced()
    assert ring.named(FAILURE)


def test_traced_functions_in_many_threads_leave_no_run_open(traced: Any) -> None:
    @llmtrace.trace
    def train(n: int) -> None:
        if n:
            train(n - 1)

    threads = [threading.Thread(target=train, args=(5,)) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert host.runs.depth == 0


class Methods:
    @llmtrace.trace
    @staticmethod
    def static(x: int) -> int:
        return x

    @llmtrace.trace
    @classmethod
    def of_class(cls, x: int) -> tuple[type, int]:
        return cls, x


def test_trace_above_staticmethod_and_classmethod_leaves_them_what_they_are(traced: Any) -> None:
    assert (Methods().static(1), Methods.static(2)) == (1, 2)
    assert (Methods().of_class(1), Methods.of_class(2)) == ((Methods, 1), (Methods, 2))
    assert runs(traced()) == [1, 2, 3, 4]


def test_a_signal_handler_may_start_and_stop_within_a_start(traced: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def handler(*_: object) -> None:
        llmtrace.start()
        llmtrace.stop()
        seen.append(True)

    def begin(runtime: Any) -> None:
        signal.raise_signal(signal.SIGUSR1)
        original(runtime)

    original = Runtime.begin
    before = signal.signal(signal.SIGUSR1, handler)
    monkeypatch.setattr("llmtrace.rank.runtime.Runtime.begin", begin)
    try:
        finished = threading.Event()
        threading.Thread(target=lambda: finished.wait(20) or os._exit(99), daemon=True).start()  # a deadlock would block pytest, too
        assert llmtrace.start() is not None
        finished.set()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [True]


def test_many_starts_without_a_tmpfs_keep_a_bounded_number_of_descriptors(traced: Any) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    for _ in range(ENDED_IN_MEMORY + 20):
        runtime = llmtrace.start(ring_dir=NOWHERE, ring_bytes=100_000)
        assert runtime is not None and runtime.directory is not None
        llmtrace.stop()
    assert descriptors() - before <= 2 * ENDED_IN_MEMORY + 2  # the memory file's own, and that of its mapping
    for link in runtime.directory.registry.iterdir():
        link.unlink()


# Steps and phases


def steps(recorder: Recorder) -> list[int | None]:
    return [record.step for record in recorder.records(STEP)]


def in_thread(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_phase_of_another_thread_before_training_does_not_take_the_steps(traced: Any) -> None:
    llmtrace.start()
    leave = threading.Event()
    entered = threading.Event()

    def prefetch() -> None:
        with llmtrace.phase("decode"):
            entered.set()
        leave.wait(20)

    thread = threading.Thread(target=prefetch)
    thread.start()
    entered.wait(20)
    for _ in llmtrace.steps(range(3)):
        pass
    leave.set()
    thread.join()
    (ring,) = traced()
    assert [record.step for record in ring.named(STEP)] == [0, 1, 2]


def test_a_training_thread_that_has_ended_leaves_the_steps_to_the_next() -> None:
    recorder = Recorder()
    counted = recorder.tracer.steps

    def fold() -> None:
        for _ in range(2):
            counted.begin()
            counted.enter("forward")
            counted.leave()
            counted.end()

    in_thread(fold)
    in_thread(fold)
    assert steps(recorder) == [0, 1, 2, 3]


def test_names_of_phases_without_end_cost_neither_memory_nor_the_rings_description(traced: Any) -> None:
    runtime = llmtrace.start()
    assert runtime is not None
    for number in range(3 * MOST_PHASES):
        with llmtrace.phase(f"{number} {'é' * 300}"):
            pass
    assert len(runtime.tracer.steps._times) <= MOST_PHASES + 1
    runtime.tracer.epoch(job="learned late")
    (ring,) = traced()
    assert ring.identity.job == "learned late"


def test_one_phase_object_may_be_used_within_itself(traced: Any) -> None:
    runtime = llmtrace.start()
    assert runtime is not None
    again = llmtrace.phase("again")
    with again, again:
        assert runtime.tracer.steps.phase == "again"
    assert runtime.tracer.steps.phase == ""


def test_a_phase_whose_name_fails_is_a_phase(traced: Any) -> None:
    llmtrace.start()
    with llmtrace.phase(Resisting()):  # type: ignore[arg-type]
        pass
    (ring,) = traced()
    assert ring.named("llmtrace.phase")


# Waiting for modules


def test_who_waits_for_a_module_while_it_arrives_is_called_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "arriving_module.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    called: list[str] = []

    def first() -> None:
        called.append("first")
        when_imported("arriving_module", lambda: called.append("second"))

    when_imported("arriving_module", first)
    import arriving_module  # type: ignore[import-not-found]  # noqa: F401

    assert called == ["first", "second"]
