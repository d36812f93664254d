"""Whoever interrupts an append, wherever: each record is there once, whole, or was counted. The writer's own threads included."""

from __future__ import annotations

import dis
import gc
import itertools
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmtrace.ring import RingReader, RingWriter, layout, writer
from llmtrace.ring.create import lay_out


@pytest.fixture
def new_ring() -> Iterator[Callable[[int], RingWriter]]:
    """Makes rings of a capacity, one after the other; each replaces the one before."""
    open_ones: list[int] = []

    def make(capacity: int) -> RingWriter:
        size = layout.SMALL_HEADER + capacity
        while open_ones:
            os.close(open_ones.pop())
        open_ones.append(os.memfd_create("ring"))
        os.ftruncate(open_ones[0], size)
        return RingWriter(lay_out(open_ones[0], size, "1", header_bytes=layout.SMALL_HEADER), Path(f"/proc/self/fd/{open_ones[0]}"))

    yield make
    os.close(open_ones.pop())


MakeRing = Callable[[int], RingWriter]


def contents(ring: RingWriter) -> tuple[list[bytes], int]:
    """The payloads that a reader finds, and how many records it says are lost."""
    assert ring.path
    reader = RingReader(ring.path)
    try:
        reading = reader.read(0, 0)
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


@pytest.fixture(scope="module", params=["by_settrace", "by_monitoring"] if sys.version_info >= (3, 12) else ["by_settrace"])
def way(request: pytest.FixtureRequest) -> str:
    """Of the module, so that all tests of one way run first: CPython 3.13.0 traces no opcodes any more once they were monitored."""
    return request.param


@pytest.mark.parametrize("nested", [1, "lap"])
@pytest.mark.parametrize(("capacity", "places"), [(512, range(26, 66, 3)), (2048, [0, 1, 6, 7, 8, 9, 100, 128, 203, 204, 205, 206, 207, 208])])
def test_an_opcode_tracer_that_emits_tears_nothing_wherever_it_does(
    new_ring: MakeRing, way: str, nested: int | str, capacity: int, places: Sequence[int]
) -> None:
    """At every opcode of an append, in all places of a lap: within a segment, across, at its start, at the lap's end."""
    interruptions = 0
    emitted = capacity // 16 if nested == "lap" else int(nested)  # of 16 bytes: that many come back to the same place
    for before in places:
        for at in range(10_000):
            ring = new_ring(capacity)
            expected = [bytes([before]) * (before % 13)] * before
            for payload in expected:
                ring.append(1, payload)
            inner = [b"inside %05d" % number for number in range(emitted)]

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
            found, lost = contents(ring)
            kept = [payload for payload in found if payload.startswith((b"inside", b"the", b"after"))]
            once = [*inner, b"the interrupted one"] if kept[-2] == b"the interrupted one" else [b"the interrupted one", *inner]
            assert len(found) + lost == before + emitted + 2
            assert kept == [*once, b"after"][-len(kept) :]
            assert found == [*expected, *once, b"after"][-len(found) :]
    assert interruptions > 500


def test_a_tracer_that_emits_at_every_opcode_does_not_hold_an_append_up(new_ring: MakeRing, way: str) -> None:
    ring = new_ring(1 << 20)
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
    found, lost = contents(ring)
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


def test_a_garbage_collector_that_emits_tears_nothing(new_ring: MakeRing) -> None:
    """CPython 3.11 collects at any allocation of a container: a finalizer may run wherever one is made."""
    ring = new_ring(1 << 20)
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
    found, lost = contents(ring)
    assert lost == 0
    assert [p for p in found if p.startswith(b"plain")] == [b"plain %d" % n for n in range(2000)]
    assert [p for p in found if p.startswith(b"coll")] == [b"collector %d" % n for n in range(written)]
    assert written > 500


class Emitter:
    """Appends `source number` records, and lets finalizers do so too."""

    def __init__(self, ring: RingWriter) -> None:
        self.ring = ring
        self.numbers: dict[str, itertools.count[int]] = {}
        self.handled: list[None] = []

    def emit(self, source: str) -> None:
        number = next(self.numbers.setdefault(source, itertools.count()))
        self.ring.append(1, f"{source} {number}".encode())

    def handle(self) -> None:
        self.handled.append(None)
        for _ in range(3):
            self.emit("signal")


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
def test_threads_signals_and_finalizers_at_once_lose_and_double_nothing(new_ring: MakeRing, exclusive: bool) -> None:
    ring = new_ring(64 << 20)
    if exclusive:
        ring.append = writer.exclusive(ring.append, ring.count_cut)
    emitter = Emitter(ring)

    def work(source: str) -> None:
        for _ in range(3000):
            emitter.emit(source)
            Dying(emitter)

    previous = signal.signal(signal.SIGALRM, lambda number, frame: emitter.handle())
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    threads = [threading.Thread(target=work, args=(f"thread {n}",)) for n in range(4)]
    try:
        for thread in threads:
            thread.start()
        work("main")
        while len(emitter.handled) < 20:
            emitter.emit("main")
        for thread in threads:
            thread.join()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    gc.collect()
    found, lost = contents(ring)
    by_source: dict[str, list[int]] = {}
    for text in map(bytes.decode, found):
        source, _, number = text.rpartition(" ")
        by_source.setdefault(source, []).append(int(number))
    written = {source: next(count) for source, count in emitter.numbers.items()}
    left_out = int(ring._words[layout.CUT])
    assert lost == 0
    assert left_out == 0 or exclusive, "only the line before a lock can be too long"
    assert sum(map(len, by_source.values())) + left_out == sum(written.values())
    assert all(len(set(numbers)) == len(numbers) and set(numbers) <= set(range(written[source])) for source, numbers in by_source.items())
    assert all(numbers == sorted(numbers) for numbers in (by_source.get(f"thread {n}", []) for n in range(4)))
    assert len(by_source["signal"]) > 20
    assert any(source.startswith("finalizer") for source in by_source)


def test_ctrl_c_at_any_opcode_leaves_the_record_there_once_or_not_at_all(new_ring: MakeRing, way: str) -> None:

    def interrupt() -> None:
        raise KeyboardInterrupt

    for at in range(10_000):
        ring = new_ring(8192)
        ring.append(1, b"before")
        interruption = Interruption(at, interrupt)
        try:
            with getattr(interruption, way)():
                ring.append(1, b"interrupted")
        except KeyboardInterrupt:
            pass
        ring.append(1, b"after")
        found, lost = contents(ring)
        assert lost == 0
        assert found in ([b"before", b"after"], [b"before", b"interrupted", b"after"])
        if not interruption.reached:
            break
    assert at > 20


def test_a_fork_at_any_opcode_leaves_the_parents_ring_to_the_parent(new_ring: MakeRing) -> None:
    """A signal handler may fork in the middle of an append, and the child then goes on with that append."""
    for at in range(0, 10_000, 3):
        ring = new_ring(8192)
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
        assert contents(ring) == ([b"once", b"after"], 0)
        reader = RingReader(ring.path)
        assert (reader.header().ended, reader.header().step) == ("running", None)
        reader.close()
        if not interruption.reached:
            break
    assert at > 20


def test_descriptions_and_counters_from_many_threads_are_all_there(new_ring: MakeRing, quick_switches: None) -> None:
    ring = new_ring(512)

    def work(name: str) -> None:
        for number in range(60):
            assert ring.describe(f"{name} {number:02}".encode())
            ring.count_cut()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ring.path
    reader = RingReader(ring.path)
    assert sorted(reader.descriptions()) == sorted(f"{name} {number:02}".encode() for name in "abcd" for number in range(60))
    assert reader.header().cut == 240
    reader.close()
