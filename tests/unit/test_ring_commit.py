"""Whoever interrupts an append, wherever: each record is there once, whole, or was counted. The writer's own threads included."""

from __future__ import annotations

import dis
import gc
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmtrace.ring import RingReader, RingWriter, layout, writer
from llmtrace.ring.create import lay_out

CAPACITY = 512
"""16 segments of 32 bytes: a frame in two begins a segment or crosses into one, and a lap is short."""


def new_ring(path: Path, capacity: int = CAPACITY) -> RingWriter:
    size = layout.SMALL_HEADER + capacity
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.ftruncate(descriptor, size)
    file = lay_out(descriptor, size, "1", header_bytes=layout.SMALL_HEADER)
    os.close(descriptor)
    return RingWriter(file, path)


def contents(path: Path, tail: int = 0, count: int = 0) -> tuple[list[bytes], int]:
    reader = RingReader(path)
    try:
        reading = reader.read(tail, count)
        assert reading.count == reader.header().count
        return [reading.data[frame.start : frame.end] for frame in reading.frames], reading.lost
    finally:
        reader.close()


OUR_CODE = writer.__file__


class Interruption:
    """Calls `act` once, before the opcode number `at` of llmtrace's writer; `reached` tells whether there was one."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self.left, self.act, self.reached = at, act, False

    def count(self) -> None:
        if self.left == 0:
            self.reached = True
            self.act()
        self.left -= 1

    @contextmanager
    def by_settrace(self) -> Iterator[None]:
        def trace(frame: types.FrameType, event: str, argument: object) -> object:
            if frame.f_code.co_filename != OUR_CODE:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                self.count()
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(before)

    @contextmanager
    def by_monitoring(self) -> Iterator[None]:
        monitoring = sys.monitoring  # type: ignore[attr-defined]
        tool, event = 4, monitoring.events.INSTRUCTION
        monitoring.use_tool_id(tool, "llmtrace's test")

        def instruction(code: types.CodeType, offset: int) -> None:
            if code.co_filename == OUR_CODE:
                self.count()

        monitoring.register_callback(tool, event, instruction)
        monitoring.set_events(tool, event)
        try:
            yield
        finally:
            monitoring.set_events(tool, 0)
            monitoring.register_callback(tool, event, None)
            monitoring.free_tool_id(tool)


WAYS = ["by_settrace", "by_monitoring"] if sys.version_info >= (3, 12) else ["by_settrace"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("nested", [1, 2, 32], ids=["one", "two", "a whole lap, to the same place"])
def test_an_opcode_tracer_that_emits_tears_nothing_wherever_it_does(tmp_path: Path, way: str, nested: int) -> None:
    """Every opcode of an append, from every place in a lap: within a segment, across, at its start, at the lap's end."""
    path = tmp_path / "ring"
    interruptions = 0
    for before in range(0, 70, 1 if nested == 1 else 7):
        for at in range(10_000):
            ring = new_ring(path)
            expected = [bytes([before]) * (before % 13)] * before
            for payload in expected:
                ring.append(1, payload)
            inner = [b"inside %05d" % number for number in range(nested)]  # 12 + 4 bytes: 32 of them are one lap

            def emit(ring: RingWriter = ring, inner: list[bytes] = inner) -> None:
                for payload in inner:
                    ring.append(2, payload)

            interruption = Interruption(at, emit)
            with getattr(interruption, way)():
                ring.append(3, b"the interrupted one")
            ring.append(1, b"after")
            if not interruption.reached:
                break
            interruptions += 1
            found, lost = contents(path)
            kept = [payload for payload in found if payload.startswith((b"inside", b"the", b"after"))]
            once = [*inner, b"the interrupted one"] if kept[-2] == b"the interrupted one" else [b"the interrupted one", *inner]
            assert len(found) + lost == before + nested + 2
            assert kept == [*once, b"after"][-len(kept) :]
            assert found == [*expected, *once, b"after"][-len(found) :]
    assert interruptions > 500


@pytest.mark.parametrize("way", WAYS)
def test_a_tracer_that_emits_at_every_opcode_does_not_hold_an_append_up(tmp_path: Path, way: str) -> None:
    ring = new_ring(tmp_path / "ring", 1 << 20)
    emitted = 0

    def emit() -> None:
        nonlocal emitted
        ring.append(2, b"inside %d" % emitted)
        emitted += 1

    class Always(Interruption):
        def count(self) -> None:
            self.act()

    with getattr(Always(0, emit), way)():
        for number in range(200):
            ring.append(1, b"outside %d" % number)
    found, lost = contents(tmp_path / "ring")
    assert lost == 0
    assert [p for p in found if p.startswith(b"out")] == [b"outside %d" % n for n in range(200)]
    assert [p for p in found if p.startswith(b"ins")] == [b"inside %d" % n for n in range(emitted)]
    assert emitted > 200 * 20


def test_the_commit_is_one_call_of_c_code() -> None:
    """Between the look at the state and HEAD there is no bytecode at all, so nothing of Python's can come between."""
    assert type(writer.RUN) is types.BuiltinFunctionType
    assert {type(step) for step in (writer.CALL, *writer.STEPS)} <= {types.BuiltinFunctionType, types.MethodDescriptorType}
    assert writer.STEPS[0] is list.index
    append = next(c for c in writer.make_append.__code__.co_consts if isinstance(c, types.CodeType) and c.co_name == "append")
    for code in (append, writer.compare_and_store.__code__):
        stores = [i for i in dis.get_instructions(code) if i.opname in ("STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR")]
        assert stores == [], f"{code.co_name} stores something outside of the one call"


def test_a_garbage_collector_that_emits_tears_nothing(tmp_path: Path) -> None:
    """CPython 3.11 collects at any allocation of a container: a finalizer may run wherever one is made."""
    ring = new_ring(tmp_path / "ring", 1 << 20)
    written = 0

    def emit(phase: str, info: dict[str, int]) -> None:
        nonlocal written
        if phase == "start":
            ring.append(2, b"collector %d" % written)
            written += 1

    before = gc.get_threshold()
    gc.callbacks.append(emit)
    gc.set_threshold(1)
    try:
        for number in range(2000):
            ring.append(1, b"plain %d" % number)
            _ = [number]
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(emit)
    found, lost = contents(tmp_path / "ring")
    assert lost == 0
    assert [p for p in found if p.startswith(b"plain")] == [b"plain %d" % n for n in range(2000)]
    assert [p for p in found if p.startswith(b"coll")] == [b"collector %d" % n for n in range(written)]
    assert written > 500


class Emitter:
    """Appends `source number` records, and lets finalizers do so too."""

    def __init__(self, ring: RingWriter) -> None:
        self.ring = ring
        self.written: dict[str, int] = {}

    def emit(self, source: str) -> None:
        number = self.written[source] = self.written.get(source, -1) + 1
        self.ring.append(1, f"{source} {number}".encode())


class Dying:
    def __init__(self, emitter: Emitter) -> None:
        self.emitter, self.me = emitter, self

    def __del__(self) -> None:
        source = f"finalizer in {threading.get_ident()}"
        self.emitter.emit(source)


@pytest.fixture
def quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("exclusive", [False, True], ids=["with a GIL", "as without one"])
@pytest.mark.usefixtures("quick_switches")
def test_threads_signals_and_finalizers_at_once_lose_and_double_nothing(tmp_path: Path, exclusive: bool) -> None:
    ring = new_ring(tmp_path / "ring", 8 << 20)
    if exclusive:
        ring.append = writer.exclusive(ring.append, ring.count_cut)
    emitter = Emitter(ring)
    stop = time.monotonic() + 1.0

    def work(source: str) -> None:
        while time.monotonic() < stop:
            emitter.emit(source)
            Dying(emitter)

    previous = signal.signal(signal.SIGALRM, lambda number, frame: [emitter.emit("signal") for _ in range(3)])
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    threads = [threading.Thread(target=work, args=(f"thread {n}",)) for n in range(4)]
    try:
        for thread in threads:
            thread.start()
        work("main")
        for thread in threads:
            thread.join()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    gc.collect()
    found, lost = contents(tmp_path / "ring")
    by_source: dict[str, list[int]] = {}
    for text in map(bytes.decode, found):
        source, _, number = text.rpartition(" ")
        by_source.setdefault(source, []).append(int(number))
    assert lost == 0
    assert {source: len(numbers) - 1 for source, numbers in by_source.items()} == emitter.written
    assert all(sorted(numbers) == list(range(len(numbers))) for numbers in by_source.values())
    assert all(by_source[f"thread {n}"] == sorted(by_source[f"thread {n}"]) for n in range(4))
    assert len(by_source["signal"]) > 100
    assert any(source.startswith("finalizer") for source in by_source)


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_at_any_opcode_leaves_the_record_there_once_or_not_at_all(tmp_path: Path, way: str) -> None:
    path = tmp_path / "ring"

    def interrupt() -> None:
        raise KeyboardInterrupt

    for at in range(10_000):
        ring = new_ring(path)
        ring.append(1, b"before")
        interruption = Interruption(at, interrupt)
        try:
            with getattr(interruption, way)():
                ring.append(1, b"interrupted")
        except KeyboardInterrupt:
            pass
        ring.append(1, b"after")
        found, lost = contents(path)
        assert lost == 0
        assert found in ([b"before", b"after"], [b"before", b"interrupted", b"after"])
        if not interruption.reached:
            break
    assert at > 20


def test_a_fork_at_any_opcode_leaves_the_parents_ring_to_the_parent(tmp_path: Path) -> None:
    """A signal handler may fork in the middle of an append, and the child then goes on with that append."""
    path = tmp_path / "ring"
    for at in range(10_000):
        ring = new_ring(path, 8192)
        kept = ring.append
        parent = os.getpid()
        children: list[int] = []
        interruption = Interruption(at, lambda children=children: children.append(os.fork()))
        with interruption.by_settrace():
            kept(1, b"once")
        if os.getpid() != parent:
            for _ in range(50):
                kept(2, b"of a child")
            ring.progress(9, 9)
            ring.end("raised")
            os._exit(0)
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        kept(1, b"after")
        assert contents(path) == ([b"once", b"after"], 0)
        reader = RingReader(path)
        assert (reader.header().ended, reader.header().step) == ("running", None)
        reader.close()
        if not interruption.reached:
            break
    assert at > 20


def test_descriptions_and_counters_from_many_threads_are_all_there(tmp_path: Path, quick_switches: None) -> None:
    ring = new_ring(tmp_path / "ring")

    def work(name: str) -> None:
        for number in range(60):
            assert ring.describe(f"{name} {number:02}".encode())
            ring.count_cut()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reader = RingReader(tmp_path / "ring")
    assert sorted(reader.descriptions()) == sorted(f"{name} {number:02}".encode() for name in "abcd" for number in range(60))
    assert reader.header().cut == 240
    reader.close()
