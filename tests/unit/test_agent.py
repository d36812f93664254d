"""The agent's parts, one by one: what is said of a death, what is seen in a frame, when a cascade is over, who waits for whom."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtrace import clock
from llmtrace.agent import consumers, deaths, tail
from llmtrace.agent.cascade import Cascade, stepped_since
from llmtrace.agent.consumers import Consumer, Derived, Runner, Threaded
from llmtrace.agent.log import BoundedLog
from llmtrace.agent.obituary import event
from llmtrace.agent.rows import Rows
from llmtrace.agent.shapes import Shapes
from llmtrace.agent.store import Store
from llmtrace.agent.tail import Tail
from llmtrace.config import resolve
from llmtrace.directory import Directory, choose
from llmtrace.frames import Description, Epoch, decode_values, encode, encode_description, known_schemas
from llmtrace.guard import guard
from llmtrace.incidents import incident_window
from llmtrace.journal import Chunk, RingRow
from llmtrace.names import FAILURE, SCHEMAS
from llmtrace.record import ERROR, FATAL, INFO, WARN, Culprit, Identity, Incident, Record
from llmtrace.ring import RingReader, RingWriter, create_ring

SPAN = "00000000000000aa"
TRACE = "0af7651916cd43dd8448eb211c80319c"


# deaths


@pytest.mark.parametrize(
    ("word", "code", "ending"),
    [
        ("clean", 0, "clean"),
        ("clean", None, "clean"),
        ("clean", 3, "exited"),
        ("clean", -11, "killed"),
        ("raised", 1, "raised"),
        ("raised", -15, "raised"),
        ("raised", None, "raised"),
        ("running", 7, "exited"),
        ("running", 0, "exited"),
        ("running", -9, "killed"),
        ("running", None, "unknown"),
    ],
)
def test_an_ending_is_the_own_word_and_the_exit_code_together(word: str, code: int | None, ending: str) -> None:
    assert deaths.ending_of(word, code) == ending


@pytest.mark.parametrize(
    ("ending", "code", "is_rank", "severity"),
    [
        ("clean", 0, True, INFO),
        ("exited", 0, True, INFO),
        ("exited", 3, True, FATAL),
        ("killed", -9, True, FATAL),
        ("unknown", None, True, FATAL),
        ("killed", -9, False, ERROR),
        ("exited", 1, False, ERROR),
        ("killed", -15, False, INFO),
        ("unknown", None, False, INFO),
    ],
)
def test_a_death_is_as_severe_as_it_is_for_the_job(ending: str, code: int | None, is_rank: bool, severity: int) -> None:
    assert deaths.severity_of(ending, code, is_rank) == severity  # type: ignore[arg-type]


def test_a_pid_that_was_used_again_is_not_taken_for_the_process_that_had_it() -> None:
    watch = deaths.Watch(os.getpid(), 1, deaths.own_pid_namespace(), clock.boot_id())
    assert watch.life == "gone"
    assert watch.exit_code() is None


def test_of_another_pid_namespace_nothing_is_guessed() -> None:
    watch = deaths.Watch(os.getpid(), clock.process_start_ticks(os.getpid()) or 0, 1, clock.boot_id())
    assert watch.life == "foreign"
    assert watch.fd == -1


def test_a_process_of_another_boot_is_gone() -> None:
    assert deaths.Watch(os.getpid(), clock.process_start_ticks(os.getpid()) or 0, deaths.own_pid_namespace(), "f" * 32).life == "gone"


# frames, before anybody decodes them

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**62), 2**62), st.text(max_size=20))


@given(schema=st.sampled_from(SCHEMAS), time_ns=st.integers(0, 2**63 - 1), values=st.lists(SCALARS, max_size=14))
def test_what_is_seen_in_a_frame_is_what_decoding_would_say(schema, time_ns: int, values: list[object]) -> None:
    shapes = Shapes()
    shapes.learn([encode_description(known_schemas())])
    payload = encode([time_ns, *values])
    bulk, severity = shapes.look(schema.id, payload)
    decoded = dict(zip(schema.fields, decode_values(payload)[1:], strict=False))
    if len(values) >= len(schema.fields):
        assert bulk == (decoded.get("kind", schema.kind) in ("sample", "span"))
        said = decoded.get("severity")
        assert severity == (said if isinstance(said, int) else 0)


@given(schema=st.sampled_from(SCHEMAS), payload=st.binary(max_size=40))
def test_bytes_that_are_no_record_are_looked_at_without_an_error(schema, payload: bytes) -> None:
    shapes = Shapes()
    shapes.learn([encode_description(known_schemas())])
    bulk, severity = shapes.look(schema.id, payload)
    assert isinstance(bulk, bool)
    assert isinstance(severity, int)


def test_a_schema_that_nobody_described_is_kept_and_left_for_readers_to_judge() -> None:
    assert Shapes().look(77, encode([1, 2, 3])) == (False, WARN)


def test_a_description_that_cannot_be_read_spoils_no_other() -> None:
    shapes = Shapes()
    assert shapes.learn([b"\xc1junk", encode_description(known_schemas())])
    assert shapes.knows(2)


# one ring


@pytest.fixture
def directory(llmtrace_dirs) -> Directory:
    found = choose(resolve())
    assert found is not None
    return found


@pytest.fixture
def writer(directory: Directory) -> Iterator[RingWriter]:
    made = create_ring(directory.rings, directory.registry, span_id=SPAN, wanted_bytes=1 << 20)
    assert made is not None
    made.describe(encode_description(known_schemas()))
    made.describe(encode_description(Description(epochs=[Epoch(0, Identity(trace_id=TRACE, span_id=SPAN, rank=0, attempt="1"))])))
    yield made
    made.close()


@pytest.fixture
def store(directory: Directory) -> Iterator[Store]:
    made = Store(directory.journal, resolve())
    yield made
    made.close()


@pytest.fixture
def followed(directory: Directory, writer: RingWriter) -> Iterator[Tail]:
    assert writer.path is not None
    made = Tail(writer.path, directory.rings, RingReader(writer.path), None)
    yield made
    made.close()


def line(writer: RingWriter, body: str, severity: int = INFO) -> None:
    writer.append(2, encode([time.monotonic_ns(), severity, body, None, "train", "a.py", 1, "MainThread", None]))


def save(store: Store, followed: Tail, offset_ns: int) -> None:
    followed.read()
    assert store.write(lambda transaction: followed.put(transaction, offset_ns) or True)
    followed.saved()


def chunks_of(store: Store) -> list[Chunk]:
    return store.read(lambda journal: journal.chunks_after(0, 100)) or []


def test_a_clock_that_steps_back_disorders_nothing(store: Store, followed: Tail, writer: RingWriter) -> None:
    hour = 3600 * 10**9
    offsets = [10 * hour, 10 * hour, 9 * hour, 9 * hour]
    for number, offset_ns in enumerate(offsets):
        line(writer, f"line {number}")
        save(store, followed, offset_ns)
    chunks = chunks_of(store)
    assert [chunk.offset_ns for chunk in chunks] == offsets
    frames = [(position, decode_values(payload)) for chunk in chunks for _, position, payload in chunk.frames()]
    assert [values[2] for _, values in frames] == [f"line {number}" for number in range(4)]
    assert frames == sorted(frames)  # by position, and by the clock that the ring has


def test_a_row_that_did_not_change_is_not_written_again(store: Store, followed: Tail, writer: RingWriter) -> None:
    line(writer, "one")
    save(store, followed, 1000)
    before = followed.row
    save(store, followed, 1500)  # the clocks are read again, and differ by half a microsecond
    assert followed.row == before


def test_what_the_journal_refused_is_read_again(store: Store, followed: Tail, writer: RingWriter) -> None:
    line(writer, "one")
    followed.read()
    followed.rewind()
    line(writer, "two")
    save(store, followed, 0)
    bodies = [decode_values(payload)[2] for chunk in chunks_of(store) for _, _, payload in chunk.frames()]
    assert bodies == ["one", "two"]


def test_of_a_dead_process_everything_is_read_at_once_also_where_stores_may_be_seen_out_of_order(directory: Directory, writer: RingWriter) -> None:
    assert writer.path is not None
    made = Tail(writer.path, directory.rings, RingReader(writer.path, ordered=False), None)
    line(writer, "last word")
    made.die(None, 0)
    made.read()
    assert not made.idle()
    assert len(made._lines) == 1
    made.close()


def test_an_error_is_urgent_and_a_line_waits_for_its_second(followed: Tail, writer: RingWriter, store: Store) -> None:
    save(store, followed, 0)
    line(writer, "calm")
    followed.read()
    now_ns = clock.monotonic_ns()
    assert not followed.due(now_ns)
    assert followed.due(now_ns + tail.FLUSH_NS)
    line(writer, "bad", ERROR)
    followed.read()
    assert followed.due(now_ns)


def test_a_frame_that_holds_no_record_is_counted_and_stops_nothing(followed: Tail, writer: RingWriter, store: Store) -> None:
    writer.append(2, b"\x91")
    line(writer, "after")
    save(store, followed, 0)
    assert (store.read(lambda journal: journal.drops()) or {})["undecodable"] == 1
    assert sum(chunk.count for chunk in chunks_of(store)) == 1


# consumers


class Collector:
    """Takes what it is given; slow or failing where told."""

    def __init__(self, name: str = "collector", *, failures: int = 0, gate: threading.Event | None = None, derives: bool = False) -> None:
        self.name, self.bulk = name, None
        self._failures, self._gate, self._derives = failures, gate, derives
        self.taken: list[int] = []

    def take(self, chunks: Sequence[Chunk]) -> list[Derived] | None:
        if self._gate is not None:
            assert self._gate.wait(10)
        if self._failures:
            self._failures -= 1
            raise RuntimeError("not today")
        self.taken += [chunk.id for chunk in chunks]
        return [Derived(SPAN, event(1, "derived", INFO, str(chunk.id), None, {})) for chunk in chunks if self._derives and chunk.position < 1 << 62]

    def turn(self) -> list[Derived]:
        return []

    def idle(self) -> bool:
        return True


def runner_of(consumer: Consumer, store: Store, followed: Tail) -> Runner:
    rows = Rows()
    assert followed.row is not None
    rows.note(followed.row)
    return Runner(consumer, store, rows)


def cursor_of(store: Store, name: str) -> tuple[int, int]:
    return store.read(lambda journal: journal.cursor(name)) or (0, 0)


def turn_until_idle(runner: Runner) -> None:
    for _ in range(10):
        runner.turn()
    assert runner.idle()


def test_a_consumer_gets_every_chunk_once_and_its_cursor_moves_with_what_it_derived(store: Store, followed: Tail, writer: RingWriter) -> None:
    for number in range(3):
        line(writer, str(number))
        save(store, followed, 0)
    collector = Collector(derives=True)
    turn_until_idle(runner_of(collector, store, followed))
    assert collector.taken == [1, 2, 3, 4, 5, 6]  # the last three are its own
    assert cursor_of(store, "collector") == (6, 1)
    again = Collector(derives=True)
    turn_until_idle(runner_of(again, store, followed))
    assert again.taken == []


def test_a_cursor_does_not_move_without_a_verdict(store: Store, followed: Tail, writer: RingWriter) -> None:
    line(writer, "one")
    save(store, followed, 0)
    gate = threading.Event()
    slow = Collector("slow", gate=gate)
    runner = runner_of(Threaded(slow), store, followed)
    runner.turn()
    assert cursor_of(store, "slow") == (0, 0)
    assert not runner.idle()
    gate.set()
    end = time.monotonic() + 5
    while not runner.idle() and time.monotonic() < end:
        runner.turn()
        time.sleep(0.01)
    assert slow.taken == [1]
    assert cursor_of(store, "slow") == (1, 1)


def test_one_that_is_slow_delays_no_other(store: Store, followed: Tail, writer: RingWriter) -> None:
    gate = threading.Event()
    slow = runner_of(Threaded(Collector("slow", gate=gate)), store, followed_after_a_line(store, followed, writer))
    quick = Collector("quick")
    runner = runner_of(quick, store, followed)
    begin = time.monotonic()
    for runner_ in (slow, runner, slow, runner):
        runner_.turn()
    assert time.monotonic() - begin < 2
    assert quick.taken == [1]
    gate.set()


def followed_after_a_line(store: Store, followed: Tail, writer: RingWriter) -> Tail:
    line(writer, "one")
    save(store, followed, 0)
    return followed


@pytest.fixture
def counted() -> Iterator[None]:
    """The guard's counts, as they were before."""
    before = guard.errors.copy()
    yield
    guard.errors.clear()
    guard.errors.update(before)


@pytest.mark.usefixtures("counted")
def test_a_consumer_that_fails_gets_the_same_again_and_is_passed_over_in_the_end(store: Store, followed: Tail, writer: RingWriter) -> None:
    line(writer, "one")
    save(store, followed, 0)
    recovering = Collector("recovering", failures=2)
    turn_until_idle(runner_of(recovering, store, followed))
    assert recovering.taken == [1]
    hopeless = Collector("hopeless", failures=consumers.TRIES)
    turn_until_idle(runner_of(hopeless, store, followed))
    assert hopeless.taken == []
    assert cursor_of(store, "hopeless") == (1, 1)


# cascades


def failure(step: int | None, time_ns: int = 1000, span_id: str = SPAN, kind: str = "ValueError") -> Record:
    identity = Identity(trace_id=TRACE, span_id=span_id, rank=0)
    return Record(
        id=f"{span_id}-1", time_ns=time_ns, kind="event", name=FAILURE, identity=identity, severity=FATAL, step=step, attributes={"exception.type": kind}
    )


def row(span_id: str = SPAN, **facts: object) -> RingRow:
    base = RingRow(span_id=span_id, identity=Identity(span_id=span_id), description=[], started_ns=0, last_ns=0)
    return msgspec.structs.replace(base, **facts)


def test_a_process_steps_again_when_it_begins_another_step_than_the_one_in_which_it_failed() -> None:
    assert not stepped_since(row(step=5, progress_ns=2000), failure(5))
    assert stepped_since(row(step=6, progress_ns=2000), failure(5))
    assert not stepped_since(row(step=None, progress_ns=2000), failure(5))
    assert not stepped_since(row(step=6, progress_ns=2000), failure(None))


def test_with_the_culprit_dead_it_is_over_when_others_step_on_for_a_while() -> None:
    cascade = Cascade()
    cascade.add(failure(5))
    cascade.incident = incident()
    dead, alive = row(ending="killed", ended_ns=1000), row("00000000000000bb", step=9, progress_ns=2000)
    assert not cascade.recovered([dead, alive])
    assert cascade.recovered([dead, msgspec.structs.replace(alive, progress_ns=12 * 10**9)])


def incident() -> Incident:
    window = incident_window(1000, 1000)
    return Incident(
        id="x",
        trace_id=TRACE,
        attempt="1",
        onset_ns=1000,
        detected_ns=1000,
        category="unknown",
        role="unknown",
        summary="",
        reason="",
        culprit=Culprit(),
        window=window,
    )


def test_what_comes_after_the_end_of_a_cascade_is_another_one() -> None:
    cascade = Cascade()
    cascade.add(failure(5, 1000))
    cascade.close()
    cascade.add(failure(5, 1000))  # told again by an agent that took over
    assert cascade.failures == []
    cascade.add(failure(6, 5000))
    assert len(cascade.failures) == 1
    assert cascade.fresh


def test_a_ctrl_c_is_one_only_at_the_beginning() -> None:
    cascade = Cascade()
    cascade.add(failure(5, 1000))
    cascade.add(failure(5, 500_000_000, kind="KeyboardInterrupt"))
    assert cascade.interrupted_ns() == 500_000_000
    late = Cascade()
    late.add(failure(5, 1000))
    late.add(failure(5, 60 * 10**9, kind="KeyboardInterrupt"))
    assert late.interrupted_ns() is None


def test_a_cascade_keeps_what_failed_first_however_much_follows() -> None:
    cascade = Cascade()
    for number in range(5000):
        cascade.add(msgspec.structs.replace(failure(5, 1000 + number), id=f"{SPAN}-{number:x}"))
    assert len(cascade.failures) <= 500
    assert cascade.evidence()[0].time_ns == 1000


# its log


def test_the_log_is_bounded_and_keeps_the_newest_lines(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "agent.log", limit_bytes=2000)
    for number in range(1000):
        log.write(f"line {number} \udcff\n")
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["agent.log", "agent.log.1"]
    assert all(file.stat().st_size <= 2000 for file in files)
    assert "line 999" in files[0].read_text()


def test_a_log_that_cannot_be_written_fails_nobody(tmp_path: Path) -> None:
    assert BoundedLog(tmp_path / "missing" / "agent.log").write("lost\n") == 5
