"""The journal's writer and reader in one process: transactions, cursors, windows, bounds."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmtrace.frames import encode
from llmtrace.guard import guard
from llmtrace.incidents import SEVERITY
from llmtrace.journal import DERIVED, KIND_BITS, Journal, JournalError, JournalReader, RingRow
from llmtrace.journal.format import LARGEST_BYTES, LONGEST_NS
from llmtrace.names import INCIDENT
from llmtrace.record import INFO, Identity

S = 1_000_000_000
SPAN, OTHER = "a" * 16, "b" * 16
OFFSET = 1_700_000_000 * S
MB = 1 << 20


def ring(span_id: str = SPAN, **facts: object) -> RingRow:
    known: dict[str, object] = {"identity": Identity(span_id=span_id, rank=1), "description": [b"first"], "started_ns": OFFSET, "last_ns": OFFSET, **facts}
    return RingRow(span_id=span_id, **known)  # type: ignore[arg-type]


def lines(first: int, number: int, every_ns: int = S // 100, start: int = 4096) -> list[tuple[int, int, bytes]]:
    """Frames of log lines, `first` onwards, as a ring would hold them one after another."""
    found = []
    for i in range(first, first + number):
        payload = encode([10 * S + i * every_ns, INFO, f"line {i}"])
        found.append((2, start + i * 64, payload))
    return found


def noise(number: int, size: int = 60_000) -> list[tuple[int, int, bytes]]:
    """Frames that do not compress."""
    return [(2, i * (size + 100), encode([10 * S + i, INFO, random.randbytes(size)])) for i in range(number)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.1.sqlite"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    opened = Journal.open(path, max_bytes=64 * MB, max_age_s=1e9)
    yield opened
    opened.close()


@pytest.fixture
def reader(journal: Journal, path: Path) -> Iterator[JournalReader]:
    with JournalReader(path) as opened:
        yield opened


def write(journal: Journal, frames: list[tuple[int, int, bytes]], span_id: str = SPAN, *, bulk: bool = False, offset_ns: int = OFFSET) -> int:
    with journal.transaction() as transaction:
        if journal.ring(span_id) is None:
            transaction.put_ring(ring(span_id))
        return transaction.append(span_id, frames, offset_ns, bulk=bulk)


def test_what_is_appended_comes_back_as_it_was(journal: Journal, reader: JournalReader) -> None:
    frames = lines(0, 100)
    chunk_id = write(journal, frames)
    (chunk,) = reader.chunks_between(0, 1 << 62)
    assert list(chunk.frames()) == frames
    assert (chunk.id, chunk.span_id, chunk.count, chunk.offset_ns, chunk.position) == (chunk_id, SPAN, 100, OFFSET, 4096)
    assert (chunk.first_ns, chunk.last_ns) == (OFFSET + 10 * S, OFFSET + 10 * S + 99 * S // 100)


def test_a_ring_row_comes_back_as_it_was(journal: Journal, reader: JournalReader) -> None:
    row = ring(
        tail=77, count=5, lost=2, ending="exited", ended_ns=9, exit_code=-9, step=4, phase="forward", progress_ns=8, boot_id="f" * 32, pid=3, start_ticks=6
    )
    with journal.transaction() as transaction:
        transaction.put_ring(row)
    assert journal.rings() == reader.rings() == [row]
    assert journal.ring(SPAN) == row
    assert journal.ring(OTHER) is None


def test_a_description_only_grows(journal: Journal) -> None:
    known: list[bytes] = []
    for parts in ([], [b"first"], [b"first"], [b"first", b"second"], [b"first"]):
        with journal.transaction() as transaction:
            transaction.put_ring(ring(description=parts))
        known = max(known, parts, key=len)
        found = journal.ring(SPAN)
        assert found is not None
        assert found.description == known


def test_an_older_row_put_over_a_newer_one_takes_no_progress_back(journal: Journal) -> None:
    for row in (ring(tail=50, count=5, lost=1, derived=2, ending="killed"), ring(tail=40, count=4, lost=0, derived=0, ending="running")):
        with journal.transaction() as transaction:
            transaction.put_ring(row)
    assert journal.ring(SPAN) == ring(tail=50, count=5, lost=1, derived=2, ending="running")


def test_a_transaction_that_fails_leaves_nothing_of_itself(journal: Journal, reader: JournalReader) -> None:
    with pytest.raises(ZeroDivisionError), journal.transaction() as transaction:
        transaction.put_ring(ring())
        transaction.append(SPAN, lines(0, 5), OFFSET, bulk=False)
        transaction.append_derived(SPAN, encode([1, "x", "event", INFO]), OFFSET)
        transaction.move_cursor("sink", 3, 4)
        transaction.count_drop("why", 3)
        raise ZeroDivisionError
    assert (reader.rings(), reader.chunks_between(0, 1 << 62), reader.drops(), journal.cursor("sink")) == ([], [], {}, (0, 0))
    assert write(journal, lines(0, 1)) == 1


def test_a_transaction_inside_another_is_refused_and_harms_neither(journal: Journal) -> None:
    with journal.transaction() as transaction:
        transaction.put_ring(ring())
        with pytest.raises(RuntimeError), journal.transaction():
            pass
        transaction.put_ring(ring(OTHER))
    assert len(journal.rings()) == 2


def test_errors_of_the_caller_pass_as_they_are(journal: Journal) -> None:
    with pytest.raises(FileNotFoundError), journal.transaction():
        raise FileNotFoundError


def test_a_span_without_a_ring_is_refused(journal: Journal) -> None:
    with pytest.raises(LookupError), journal.transaction() as transaction:
        transaction.append(SPAN, lines(0, 1), OFFSET, bulk=False)


def test_no_frames_make_no_chunk(journal: Journal) -> None:
    assert write(journal, []) == 0
    assert journal.chunks_after(0, 10) == []


def test_derived_records_have_ids_that_are_never_used_twice(journal: Journal, reader: JournalReader) -> None:
    ids = []
    for time_ns in (1, 2, 3):
        with journal.transaction() as transaction:
            transaction.put_ring(ring(derived=0))  # the caller's count may be an old one
            ids.append(transaction.append_derived(SPAN, encode([time_ns, "llmtrace.process", "event", INFO]), OFFSET))
    assert ids == [f"{SPAN}-{DERIVED + i:x}" for i in range(3)]
    found = [(position, payload) for chunk in reader.chunks_between(0, 1 << 62, kinds=["event"]) for _, position, payload in chunk.frames()]
    assert [position for position, _ in found] == [DERIVED, DERIVED + 1, DERIVED + 2]
    assert reader.rings()[0].derived == 3


def test_incidents_are_found_without_reading_the_rest(journal: Journal, reader: JournalReader) -> None:
    write(journal, lines(0, 50))
    with journal.transaction() as transaction:
        transaction.append_derived(SPAN, encode([5, "llmtrace.process", "event", INFO]), OFFSET)
        id_ = transaction.append_derived(SPAN, encode([6, INCIDENT, "event", SEVERITY, "it broke"]), OFFSET)
    (chunk,) = reader.incident_chunks()
    assert [f"{chunk.span_id}-{position:x}" for _, position, _ in chunk.frames()] == [id_]
    assert chunk.kinds == KIND_BITS["event"]
    assert chunk.severity == SEVERITY


def test_a_record_is_found_by_its_position(journal: Journal, reader: JournalReader) -> None:
    write(journal, lines(0, 50))
    write(journal, lines(25, 5, start=4096 + 32), bulk=True)
    write(journal, lines(50, 50))
    write(journal, lines(0, 50), OTHER)
    found = reader.chunk_at(SPAN, 4096 + 60 * 64)
    assert found is not None
    assert (found.id, found.span_id) == (3, SPAN)
    bulk = reader.chunk_at(SPAN, 4096 + 32 + 27 * 64)
    assert bulk is not None
    assert bulk.id == 2
    assert reader.chunk_at(SPAN, 4097) is None
    assert reader.chunk_at("c" * 16, 4096) is None


def test_every_question_is_answered_through_an_index(journal: Journal, reader: JournalReader) -> None:
    write(journal, lines(0, 50))
    asked: list[str] = []
    reader._connection.set_trace_callback(asked.append)
    reader.chunks_between(0, 1, [SPAN], True, ["log"])
    reader.incident_chunks()
    reader.chunk_at(SPAN, 4096)
    reader._connection.set_trace_callback(None)
    plans = [[step[3] for step in reader._connection.execute(f"EXPLAIN QUERY PLAN {query}")] for query in asked]
    assert [plan[0].partition(" (")[0] for plan in plans] == [
        "SEARCH c USING INDEX chunk_time",
        "SCAN c USING INDEX chunk_flags",  # a partial index: it holds nothing else
        "SEARCH c USING INDEX chunk_ring",
        "SEARCH c USING INDEX chunk_ring",
    ]


def test_a_window_selects_by_ring_bulk_and_kind(journal: Journal, reader: JournalReader) -> None:
    with journal.transaction() as transaction:
        transaction.put_ring(ring())
        transaction.put_ring(ring(OTHER))
        transaction.append(SPAN, lines(0, 5), OFFSET, bulk=False, kinds=KIND_BITS["log"] | KIND_BITS["event"])
        transaction.append(SPAN, lines(5, 5), OFFSET, bulk=True, kinds=KIND_BITS["span"])
        transaction.append(OTHER, lines(0, 5), OFFSET, bulk=True, kinds=KIND_BITS["sample"])

    def found(**which: object) -> list[int]:
        return [chunk.id for chunk in reader.chunks_between(0, 1 << 62, **which)]  # type: ignore[arg-type]

    assert found() == [1, 3, 2]
    assert found(spans=[SPAN]) == [1, 2]
    assert found(spans=["c" * 16]) == found(spans=[]) == []
    assert found(spans=[SPAN, OTHER, *(f"{i:016x}" for i in range(40_000))]) == [1, 3, 2]
    assert found(bulk=True) == [3, 2]
    assert found(bulk=False) == [1]
    assert found(kinds=["log"]) == found(kinds=["event", "log"]) == [1]
    assert found(kinds=["span", "sample"]) == [3, 2]
    assert found(kinds=[]) == []


def test_a_window_takes_its_start_and_not_its_end(journal: Journal, reader: JournalReader) -> None:
    write(journal, lines(0, 11, every_ns=S // 10))
    first, last = OFFSET + 10 * S, OFFSET + 11 * S
    assert [len(reader.chunks_between(*window)) for window in ((last, last + 1), (last + 1, last + 2), (first - 1, first), (first, first + 1))] == [1, 0, 0, 1]


def test_windows_hold_while_the_clock_steps_back_and_forth(journal: Journal, reader: JournalReader) -> None:
    offsets = [OFFSET, OFFSET - 3600 * S, OFFSET + 60 * S, OFFSET - 1]
    for number, offset_ns in enumerate(offsets):
        write(journal, lines(number * 100, 100), offset_ns=offset_ns)
    for number, offset_ns in enumerate(offsets):
        start_ns = offset_ns + 10 * S + number * S
        found = reader.chunks_between(start_ns, start_ns + S)
        assert number + 1 in [chunk.id for chunk in found]
        for chunk in found:
            assert chunk.first_ns < start_ns + S
            assert chunk.last_ns >= start_ns


def test_the_newest_time_is_that_of_the_rings_written_last(journal: Journal, reader: JournalReader) -> None:
    assert reader.last_time_ns() is None
    write(journal, lines(0, 2))
    assert reader.last_time_ns([OTHER]) is None
    before_ns = reader.last_time_ns([SPAN])
    write(journal, lines(0, 2), OTHER, offset_ns=OFFSET - 3600 * S)
    after_ns = reader.last_time_ns([SPAN, OTHER])
    assert before_ns is not None
    assert after_ns == before_ns - 3600 * S
    assert reader.last_time_ns() == after_ns


def test_a_long_absence_becomes_chunks_that_a_window_finds(journal: Journal, reader: JournalReader) -> None:
    frames = lines(0, 600, every_ns=S // 2)
    write(journal, frames)
    chunks = journal.chunks_after(0, 1000)
    assert len(chunks) > 20
    assert all(chunk.last_ns - chunk.first_ns <= LONGEST_NS for chunk in chunks)
    assert [frame for chunk in chunks for frame in chunk.frames()] == frames
    middle = reader.chunks_between(OFFSET + 110 * S, OFFSET + 111 * S)
    assert frames[200] in [frame for chunk in middle for frame in chunk.frames()]
    assert len(middle) <= 2


def test_large_readings_and_wide_gaps_are_cut(journal: Journal) -> None:
    frames = [*noise(10), (2, 1 << 40, encode([11 * S, INFO, "far"])), (2, 1 << 20, encode([12 * S, INFO, "back"]))]
    write(journal, frames)
    chunks = journal.chunks_after(0, 1000)
    assert [frame for chunk in chunks for frame in chunk.frames()] == frames
    assert all(sum(len(payload) for _, _, payload in chunk.frames()) <= LARGEST_BYTES for chunk in chunks)
    assert [chunk.position for chunk in chunks][-2:] == [1 << 40, 1 << 20]


def test_a_cursor_moves_with_what_its_consumer_derives(journal: Journal) -> None:
    write(journal, lines(0, 10))
    with journal.transaction() as transaction:
        transaction.append_derived(SPAN, encode([1, "x", "event", INFO]), OFFSET)
        transaction.move_cursor("detection", 1, 4)
    assert journal.cursor("detection") == (1, 4)
    assert journal.cursor("sink") == (0, 0)
    assert [(chunk.id, index) for chunk, index in journal.unread("detection", 10)] == [(1, 4), (2, 0)]
    assert [(chunk.id, index) for chunk, index in journal.unread("sink", 1)] == [(1, 0)]
    with journal.transaction() as transaction:
        transaction.move_cursor("detection", 1, 10)
    assert [(chunk.id, index) for chunk, index in journal.unread("detection", 10)] == [(2, 0)]


def test_chunks_are_handed_out_by_class_and_number(journal: Journal) -> None:
    for number in range(6):
        write(journal, lines(number, 1), bulk=number % 2 == 1)
    assert [chunk.id for chunk in journal.chunks_after(1, 3)] == [2, 3, 4]
    assert [chunk.id for chunk in journal.chunks_after(0, 10, bulk=True)] == [2, 4, 6]
    assert [chunk.id for chunk in journal.chunks_after(3, 10, bulk=False)] == [5]


def test_drops_are_counted_by_reason(journal: Journal, reader: JournalReader) -> None:
    with journal.transaction() as transaction:
        transaction.count_drop("a", 2)
        transaction.count_drop("b", 0)
    with journal.transaction() as transaction:
        transaction.count_drop("a", 3)
    assert journal.drops() == reader.drops() == {"a": 5}


def test_it_survives_being_closed_and_opened(path: Path) -> None:
    for number in range(3):
        journal = Journal.open(path, max_bytes=64 * MB, max_age_s=1e9)
        assert len(journal.chunks_after(0, 10)) == number
        write(journal, lines(number, 1))
        journal.close()


def test_only_its_owner_can_read_the_files(journal: Journal, path: Path) -> None:
    write(journal, lines(0, 1))
    modes = {name.name: stat.S_IMODE(name.stat().st_mode) for name in path.parent.iterdir()}
    assert set(modes.values()) == {0o600}
    assert len(modes) == 3


def test_bytes_on_disk_stay_under_the_bound_and_the_oldest_go(path: Path) -> None:
    bound = 32 * MB
    journal = Journal.open(path, max_bytes=bound, max_age_s=1e9)
    written = 0
    largest = 0
    for number in range(60):
        frames = [(2, number * (1 << 24) + i * 70_000, encode([10 * S + number * S + i, INFO, random.randbytes(60_000)])) for i in range(17)]
        write(journal, frames)
        written += len(frames)
        largest = max(largest, sum(file.stat().st_size for file in path.parent.iterdir()))
    kept = journal.chunks_after(0, 10_000)
    dropped = journal.drops()["journal_size"]
    assert largest <= bound
    assert dropped + sum(chunk.count for chunk in kept) == written
    assert sum(len(chunk.blob) for chunk in kept) > bound // 2
    assert kept[-1].position == list(frames)[-1][1] or list(kept[-1].frames())[-1] == frames[-1]
    assert [chunk.id for chunk in kept] == list(range(kept[0].id, kept[-1].id + 1))
    journal.close()


def test_a_bound_that_was_lowered_is_reached_and_the_file_shrinks(path: Path) -> None:
    journal = Journal.open(path, max_bytes=256 * MB, max_age_s=1e9)
    for number in range(80):
        write(journal, [(2, number << 24 | i * 70_000, encode([10 * S + number * S + i, INFO, random.randbytes(60_000)])) for i in range(17)])
    journal.close()
    assert path.stat().st_size > 64 * MB
    journal = Journal.open(path, max_bytes=32 * MB, max_age_s=1e9)
    dropped = journal.prune()
    assert dropped["journal_size"] > 0
    assert sum(file.stat().st_size for file in path.parent.iterdir()) <= 32 * MB
    assert list(journal.chunks_after(0, 10_000)[-1].frames())
    journal.close()


def test_what_is_too_old_goes_by_its_time_of_emission(path: Path) -> None:
    journal = Journal.open(path, max_bytes=64 * MB, max_age_s=60)
    now_ns = time.time_ns()
    write(journal, noise(100), offset_ns=now_ns - 100 * S)
    write(journal, lines(0, 5), offset_ns=now_ns - 20 * S)
    write(journal, lines(0, 7), offset_ns=now_ns - 200 * S)
    before = path.stat().st_size + Path(f"{path}-wal").stat().st_size
    assert journal.prune() == {"journal_age": 107}
    assert journal.prune() == {}
    assert [chunk.count for chunk in journal.chunks_after(0, 10_000)] == [5]
    assert journal.drops() == {"journal_age": 107}
    journal.close()
    assert path.stat().st_size < before // 3


def test_ids_of_chunks_are_not_used_again_when_all_are_gone(path: Path) -> None:
    journal = Journal.open(path, max_bytes=64 * MB, max_age_s=1)
    write(journal, lines(0, 1), offset_ns=0)
    with journal.transaction() as transaction:
        transaction.move_cursor("sink", 1, 1)
    assert journal.prune() == {"journal_age": 1}
    journal.close()
    journal = Journal.open(path, max_bytes=64 * MB, max_age_s=1)
    assert write(journal, lines(1, 1), offset_ns=time.time_ns()) == 2
    assert [chunk.id for chunk, _ in journal.unread("sink", 9)] == [2]
    journal.close()


def test_rings_go_when_they_are_old_and_nothing_of_them_is_left(path: Path) -> None:
    journal = Journal.open(path, max_bytes=64 * MB, max_age_s=7200)
    now_ns = time.time_ns()
    with journal.transaction() as transaction:
        transaction.put_ring(ring("1" * 16, last_ns=now_ns - 9000 * S, ending="killed", ended_ns=now_ns - 9000 * S))
        transaction.put_ring(ring("2" * 16, last_ns=now_ns - 9000 * S, ending="killed", ended_ns=now_ns - 9000 * S))
        transaction.append("2" * 16, lines(0, 1), now_ns - 10 * S, bulk=False)
        transaction.put_ring(ring("3" * 16, last_ns=now_ns - 5000 * S, ending="clean", ended_ns=now_ns - 5000 * S))
        transaction.put_ring(ring("4" * 16, last_ns=now_ns))
    journal.prune()
    assert {row.span_id[0]: row.description for row in journal.rings()} == {"2": [b"first"], "3": [], "4": [b"first"]}
    with journal.transaction() as transaction:
        transaction.put_ring(ring("3" * 16, last_ns=now_ns))
    found = journal.ring("3" * 16)
    assert found is not None
    assert found.description == [b"first"]
    journal.close()


def test_a_reader_that_holds_an_old_state_cannot_make_it_grow_without_end(path: Path) -> None:
    journal = Journal.open(path, max_bytes=32 * MB, max_age_s=1e9)
    write(journal, lines(0, 1))
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN")
    holder.execute("SELECT count(*) FROM chunk").fetchall()
    with pytest.raises(JournalError) as caught:
        for number in range(100):
            write(journal, noise(17))
            assert number < 60
    assert caught.value.trouble == "full"
    assert sum(file.stat().st_size for file in path.parent.iterdir()) <= 32 * MB
    holder.execute("COMMIT")
    last = write(journal, lines(5, 5))
    assert last > 1
    holder.close()
    journal.close()


def test_threads_share_it_without_losing_anything(journal: Journal) -> None:
    def work(number: int) -> None:
        span_id = f"{number:016x}"
        for i in range(30):
            with journal.transaction() as transaction:
                transaction.put_ring(ring(span_id, tail=i + 1))
                transaction.append(span_id, lines(i, 1), OFFSET, bulk=False)
            assert journal.ring(span_id).tail == i + 1  # type: ignore[union-attr]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(journal.chunks_after(0, 1000)) == 120
    assert [row.tail for row in journal.rings()] == [30] * 4


def corrupt(path: Path, at: int, size: int) -> None:
    with open(path, "r+b") as stream:
        stream.seek(at)
        stream.write(os.urandom(size))


@pytest.mark.parametrize("content", [b"", b"not a database, but some text\n" * 1000, b"\0" * 100_000], ids=["empty", "text", "zeros"])
def test_a_file_that_is_no_journal_is_set_aside_and_said(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    said = len(guard.warnings)
    journal = Journal.open(path, max_bytes=64 * MB, max_age_s=1e9)
    assert write(journal, lines(0, 1)) == 1
    aside = path.with_name(path.name + ".damaged")
    if content:
        assert aside.read_bytes() == content
        assert journal.drops() == {"journal_corrupt": 1}
        assert str(aside) in guard.warnings[said]
    else:
        assert not aside.exists()
    journal.close()


def test_another_programs_database_is_set_aside(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE chunk (id INTEGER PRIMARY KEY)")
    other.close()
    journal = Journal.open(path, max_bytes=64 * MB, max_age_s=1e9)
    assert journal.drops() == {"journal_corrupt": 1}
    journal.close()
    with sqlite3.connect(path.with_name(path.name + ".damaged")) as kept:
        assert kept.execute("SELECT count(*) FROM chunk").fetchone() == (0,)
    kept.close()


def test_a_journal_damaged_while_closed_is_set_aside_when_opened(path: Path) -> None:
    journal = Journal.open(path, max_bytes=64 * MB, max_age_s=1e9)
    write(journal, lines(0, 100))
    journal.close()
    corrupt(path, 0, path.stat().st_size)
    with pytest.raises(JournalError) as caught:
        JournalReader(path)
    assert caught.value.trouble == "corrupt"
    journal = Journal.open(path, max_bytes=64 * MB, max_age_s=1e9)
    assert (journal.rings(), journal.drops()) == ([], {"journal_corrupt": 1})
    journal.close()


def test_a_journal_cut_short_is_set_aside(path: Path) -> None:
    journal = Journal.open(path, max_bytes=64 * MB, max_age_s=1e9)
    write(journal, noise(100))
    journal.close()
    os.truncate(path, path.stat().st_size // 2)
    journal = Journal.open(path, max_bytes=64 * MB, max_age_s=1e9)
    assert write(journal, lines(0, 1)) > 0
    assert journal.drops() == {"journal_corrupt": 1}
    journal.close()


def test_damage_found_while_in_use_fails_that_once_and_a_new_journal_begins(path: Path) -> None:
    journal = Journal.open(path, max_bytes=64 * MB, max_age_s=1e9)
    for number in range(200):
        write(journal, lines(number, 50))
    journal.close()
    journal = Journal.open(path, max_bytes=64 * MB, max_age_s=1e9)
    page = 8192
    with sqlite3.connect(path) as spoiler:  # a page of the tree of chunks that opening does not look at
        root = spoiler.execute("SELECT rootpage FROM sqlite_master WHERE name = 'chunk_ring'").fetchone()[0]
    spoiler.close()
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, b"\xff" * page, (root - 1) * page)
    with pytest.raises(JournalError) as caught:
        write(journal, lines(0, 1))
    assert caught.value.trouble == "corrupt"
    assert write(journal, lines(0, 1)) == 1
    assert journal.drops() == {"journal_corrupt": 1}
    journal.close()
    os.close(descriptor)


def test_a_chunk_with_a_flipped_bit_is_left_out_and_said(journal: Journal, reader: JournalReader, path: Path) -> None:
    for number in range(3):
        write(journal, lines(number * 10, 10))
    with sqlite3.connect(path) as other:
        blob = bytearray(other.execute("SELECT blob FROM chunk WHERE id = 2").fetchone()[0])
        blob[len(blob) // 2] ^= 4
        other.execute("UPDATE chunk SET blob = ? WHERE id = 2", (bytes(blob),))
    other.close()
    said = len(guard.warnings)
    assert [len(list(chunk.frames())) for chunk in reader.chunks_between(0, 1 << 62)] == [10, 0, 10]
    assert "chunk 2" in guard.warnings[said]


def test_a_damaged_file_goes_when_it_is_old_or_the_bound_needs_its_place(path: Path) -> None:
    aside = path.with_name(path.name + ".damaged")
    path.write_bytes(b"?" * (31 * MB))
    journal = Journal.open(path, max_bytes=32 * MB, max_age_s=1000)
    write(journal, lines(0, 5))
    journal.prune()
    assert aside.exists()
    write(journal, noise(60))
    journal.prune()
    assert not aside.exists()
    aside.write_bytes(b"?")
    os.utime(aside, (time.time() - 2000,) * 2)
    journal.prune()
    assert not aside.exists()
    journal.close()


def test_a_journal_whose_file_is_taken_away_begins_anew(journal: Journal, path: Path) -> None:
    write(journal, lines(0, 5))
    for file in list(path.parent.iterdir()):
        file.unlink()
    assert write(journal, lines(0, 5)) == 1
    with JournalReader(path) as reader:
        assert len(reader.chunks_between(0, 1 << 62)) == 1


def test_a_journal_whose_folder_is_taken_away_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    journal = Journal.open(folder / "journal.1.sqlite", max_bytes=64 * MB, max_age_s=1e9)
    write(journal, lines(0, 5))
    for file in list(folder.iterdir()):
        file.unlink()
    folder.rmdir()
    with pytest.raises(JournalError) as caught:
        write(journal, lines(0, 5))
    assert caught.value.trouble == "unusable"
    folder.mkdir()
    assert write(journal, lines(0, 5)) == 1
    journal.close()


def test_a_first_opening_that_was_cut_short_is_made_good(path: Path) -> None:
    half = sqlite3.connect(path, isolation_level=None)
    half.execute("PRAGMA journal_mode = WAL")
    half.close()
    journal = Journal.open(path, max_bytes=64 * MB, max_age_s=1e9)
    assert write(journal, lines(0, 1)) == 1
    assert journal.drops() == {}
    journal.close()
    with sqlite3.connect(path) as other:
        assert other.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    other.close()


def test_a_place_that_cannot_be_written_is_one_kind_of_error(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "journal.1.sqlite", Path("/proc/journal.1.sqlite"), tmp_path):
        with pytest.raises(JournalError):
            Journal.open(path, max_bytes=64 * MB, max_age_s=1e9)
    with pytest.raises(JournalError, match="there is no journal"):
        JournalReader(tmp_path / "journal.1.sqlite")
    (tmp_path / "journal.1.sqlite").touch()
    with pytest.raises(JournalError, match="nothing has been written yet"):
        JournalReader(tmp_path / "journal.1.sqlite")


def test_the_bound_leaves_half_of_the_free_space_alone(path: Path) -> None:
    found = os.statvfs(path.parent)
    journal = Journal.open(path, max_bytes=1 << 60, max_age_s=1e9)
    assert journal.max_bytes <= found.f_blocks * found.f_frsize
    journal.close()
    journal = Journal.open(path, max_bytes=1, max_age_s=1e9)
    assert journal.max_bytes == 32 * MB
    journal.close()


@pytest.mark.parametrize("payload", [b"", b"\x93", b"\x93\xcf\x01", b"\xdc", b"\xff" * 40, encode([(1 << 64) - 1, INFO])])
def test_a_damaged_payload_stops_nothing(journal: Journal, reader: JournalReader, payload: bytes) -> None:
    frames = [*lines(0, 3), (2, 1 << 20, payload), *lines(3, 3, start=1 << 21)]
    write(journal, frames)
    found = reader.chunks_between(-(1 << 70), 1 << 70)
    assert sorted(frame for chunk in found for frame in chunk.frames()) == sorted(frames)


def test_an_age_without_end_keeps_everything(path: Path) -> None:
    journal = Journal.open(path, max_bytes=64 * MB, max_age_s=1e300)
    write(journal, lines(0, 3), offset_ns=0)
    assert journal.prune() == {}
    assert len(journal.chunks_after(0, 9)) == 1
    journal.close()


def test_pruning_ends_where_nothing_can_be_given_back(path: Path) -> None:
    """A file that was once rewritten without the setting (by another tool) cannot shrink."""
    journal = Journal.open(path, max_bytes=256 * MB, max_age_s=1)
    for _ in range(3):
        write(journal, noise(100), offset_ns=0)
    journal.close()
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("PRAGMA auto_vacuum = NONE")
        other.execute("VACUUM")
    other.close()
    journal = Journal.open(path, max_bytes=64 * MB, max_age_s=1)
    assert journal.prune() == {"journal_age": 300}
    assert write(journal, lines(0, 1)) > 0
    assert Path(f"{path}-wal").exists()  # readers beside it need the write-ahead log, whoever turned it off
    journal.close()


def test_pruning_ends_where_rings_alone_are_over_the_bound(path: Path) -> None:
    journal = Journal.open(path, max_bytes=32 * MB, max_age_s=1e9)
    with journal.transaction() as transaction:
        for number in range(1000):
            transaction.put_ring(ring(f"{number:016x}", description=[random.randbytes(30_000)]))
    assert journal.prune() == {}
    assert write(journal, lines(0, 1)) > 0
    assert len(journal.rings()) == 1001
    journal.close()
