"""The journal: bytes and CPU a record when written, and the time to read a window back, beside a row a record in SQLite.

    python -m benchmarks journal              the table's rows: 10 million records, a minute or two
    python benchmarks/journal.py 1000000      the same with a million

What a node of 8 ranks writes: 2,100 records a second (steps, samples and lines, about 110 bytes each), one transaction a second.
"""

from __future__ import annotations

import os
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sized
from pathlib import Path
from typing import NamedTuple

import msgspec

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.table import Row, is_pgo
from llmtrace.frames import Decoder, Description, Epoch, encode, encode_description, known_schemas, merge_descriptions
from llmtrace.journal import KIND_BITS, Journal, JournalReader, RingRow
from llmtrace.record import INFO, Identity, Record, Window
from llmtrace.sources.context import context
from llmtrace.sources.journal import JournalSource

S = 1_000_000_000
BEGIN = 1_796_000_000 * S
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
RANKS, STEPS, SAMPLES, LINES = 8, 10, 190, 62  # a rank and second: 262 records and a half
PREPARED = 30  # different seconds, used again and again with new times and positions
FIRST_S = 1000  # the monotonic clock's when the job began
SECOND_BYTES = 1 << 15  # of a ring, from one second's first frame to the next one's
WINDOW_S = 30
RECORDS = 10_000_000
ROUNDS = 7

Frame = tuple[int, int, bytes]


class Second:
    """What one rank leaves in one second: lines apart from bulk, as the agent hands them over."""

    def __init__(self, number: int, rank: int) -> None:
        made = random.Random(number * RANKS + rank)
        start_ns = (FIRST_S + number) * S
        bulk = [
            (3, encode([start_ns + i * S // STEPS, S // STEPS - made.randrange(10**6), i, *(made.randrange(10**7) for _ in range(4)), None, None, 32]))
            for i in range(STEPS)
        ]
        bulk += [
            (5, encode([start_ns + i * S // SAMPLES, number * STEPS + i % STEPS, made.choice(["train/loss", "train/grad_norm", "lr"]), made.random()]))
            for i in range(SAMPLES)
        ]
        lines = [
            (
                2,
                encode(
                    [
                        start_ns + i * S // LINES,
                        INFO,
                        f"step {number * STEPS} loss {made.random():.4f} lr {made.random():.6f} tokens/s {made.randrange(10**5)}",
                        i,
                        "train",
                        "/home/user/job/train.py",
                        120 + i % 3,
                        "MainThread",
                    ]
                ),
            )
            for i in range(LINES)
        ]
        made_all = sorted(bulk + lines, key=lambda frame: frame[1][2:10])  # one after another in the ring, as they were emitted
        frames = list(placed(made_all, number * SECOND_BYTES))
        self.bulk, self.lines = [frame for frame in frames if frame[0] != 2], [frame for frame in frames if frame[0] == 2]

    def after(self, rounds: int) -> Second:
        """The same `rounds` times PREPARED seconds later: new times and positions, outside of what is measured."""
        later = object.__new__(Second)
        later.bulk, later.lines = moved(self.bulk, rounds), moved(self.lines, rounds)
        return later


def placed(made: list[tuple[int, bytes]], position: int) -> Iterator[Frame]:
    for kind, payload in made:
        yield kind, position, payload
        position += 4 + len(payload)


def moved(frames: list[Frame], rounds: int) -> list[Frame]:
    by_ns, by_bytes = rounds * PREPARED * S, rounds * PREPARED * SECOND_BYTES
    return [(kind, at + by_bytes, p[:2] + (int.from_bytes(p[2:10], "big") + by_ns).to_bytes(8, "big") + p[10:]) for kind, at, p in frames]


def span(rank: int) -> str:
    return f"{rank + 1:016x}"


def row(rank: int, last_ns: int) -> RingRow:
    early = Identity(span_id=span(rank), node="node-a")
    identity = msgspec.structs.replace(early, trace_id=TRACE, rank=rank, world_size=RANKS)  # learned a second after the start
    parts = [encode_description(known_schemas()), encode_description(Description(epochs=[Epoch(0, early), Epoch((FIRST_S + 1) * S, identity)]))]
    return RingRow(span_id=span(rank), identity=identity, description=parts, started_ns=BEGIN, last_ns=last_ns, boot_id="0" * 32, pid=rank)


def seconds() -> list[list[Second]]:
    return [[Second(number, rank) for rank in range(RANKS)] for number in range(PREPARED)]


def records_of(prepared: list[list[Second]]) -> float:
    """Records a second of the whole node."""
    return sum(len(second.bulk) + len(second.lines) for ranks in prepared for second in ranks) / len(prepared)


def written(prepared: list[list[Second]], number_of_seconds: int) -> Iterator[tuple[int, list[Second]]]:
    """Each second with its number, one after the other, of one boot."""
    for number in range(number_of_seconds):
        yield number, [second.after(number // PREPARED) for second in prepared[number % PREPARED]]


def write_chunks(path: Path, prepared: list[list[Second]], number_of_seconds: int) -> float:
    """Nanoseconds of CPU for all."""
    journal = Journal.open(path, max_bytes=64 << 30, max_age_s=1e9)
    used = 0
    for number, ranks in written(prepared, number_of_seconds):
        start = time.process_time_ns()
        with journal.transaction() as transaction:
            for rank, second in enumerate(ranks):
                transaction.put_ring(row(rank, BEGIN + (FIRST_S + number + 1) * S))
                transaction.append(span(rank), second.bulk, BEGIN, bulk=True, kinds=KIND_BITS["span"] | KIND_BITS["sample"], severity=INFO)
                transaction.append(span(rank), second.lines, BEGIN, bulk=False, kinds=KIND_BITS["log"], severity=INFO)
        used += time.process_time_ns() - start
    journal.close()
    return used


def write_rows(path: Path, prepared: list[list[Second]], number_of_seconds: int) -> float:
    """The peer: a row a record, the time indexed, the same transactions and settings; nanoseconds of CPU for all."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = NORMAL",
        "CREATE TABLE record (time_ns INTEGER, ring INTEGER, kind INTEGER, position INTEGER, payload BLOB)",
        "CREATE INDEX by_time ON record (time_ns)",
    ):
        connection.execute(statement)
    used = 0
    for _, ranks in written(prepared, number_of_seconds):
        start = time.process_time_ns()
        connection.execute("BEGIN")
        for rank, second in enumerate(ranks):
            for frames in (second.bulk, second.lines):
                connection.executemany(
                    "INSERT INTO record VALUES (?, ?, ?, ?, ?)", [(int.from_bytes(p[2:10], "big") + BEGIN, rank, kind, at, p) for kind, at, p in frames]
                )
        connection.execute("COMMIT")
        used += time.process_time_ns() - start
    connection.close()
    return used


def forget_pages(path: Path) -> None:
    """Drop the file from the page cache, as far as the system lets us; nobody may have it open."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def read_frames(path: Path, window: Window) -> list[Frame]:
    with JournalReader(path) as reader:
        return [frame for chunk in reader.chunks_between(window.start_ns, window.end_ns) for frame in chunk.frames()]


def read_context(path: Path, window: Window) -> list[Record]:
    """All of what a person waits for: the journal opened, the trace found, its processes, incidents and records."""
    source = JournalSource(path.parent)
    found = context(source, TRACE, at_ns=window.start_ns, before_ns=0, after_ns=window.end_ns - window.start_ns)
    source.close()
    return found.records


def read_rows(path: Path, window: Window) -> list[Record | None]:
    connection = sqlite3.connect(path)
    decoders = [Decoder(merge_descriptions(row(rank, 0).description)) for rank in range(RANKS)]
    query = "SELECT time_ns, ring, kind, position, payload FROM record WHERE time_ns >= ? AND time_ns < ? ORDER BY time_ns"
    found: list[Record | None] = [
        decoders[ring].record(kind, payload, at, BEGIN) for _, ring, kind, at, payload in connection.execute(query, (window.start_ns, window.end_ns))
    ]
    connection.close()
    return found


class Taken(NamedTuple):
    """Milliseconds for one window, medians, the page cache dropped before each reading; and its records."""

    wall_ms: float
    cpu_ms: float
    records: int


def timed(read: Callable[[Path, Window], Sized], path: Path, window: Window) -> Taken:
    """What was read is given up after the clock has stopped."""
    walls: list[float] = []
    cpus: list[float] = []
    records = 0
    for _ in range(ROUNDS):
        forget_pages(path)
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        found = read(path, window)
        walls.append((time.perf_counter_ns() - wall) / 1e6)
        cpus.append((time.process_time_ns() - cpu) / 1e6)
        records = len(found)
        del found
    return Taken(statistics.median(walls), statistics.median(cpus), records)


def rows(records: int = RECORDS) -> Iterator[Row]:
    prepared = seconds()
    rate = records_of(prepared)
    few, many = int(min(records, 500_000) / rate), int(records / rate)
    with tempfile.TemporaryDirectory(prefix="llmtrace-bench-") as folder:
        chunks, peer, long = Path(folder) / "short.sqlite", Path(folder) / "rows.sqlite", Path(folder) / "journal.1.sqlite"
        used, peer_used = write_chunks(chunks, prepared, few), write_rows(peer, prepared, few)
        size, peer_size = chunks.stat().st_size / few / rate, peer.stat().st_size / few / rate
        yield Row(what="journal, bytes a record", measured=size, unit="B", budget=40, control=f"a row a record {peer_size:.0f} B")
        cost, peer_cost = used / few / rate / 1000, peer_used / few / rate / 1000
        yield Row(what="journal, CPU a record", measured=cost, unit="us", budget=2, control=f"a row a record {peer_cost:.1f} us")
        write_chunks(long, prepared, many)
        middle = BEGIN + (FIRST_S + many // 2) * S
        window = Window(middle, middle + WINDOW_S * S)
        peer_middle = BEGIN + (FIRST_S + few // 2) * S
        found, bare = timed(read_context, long, window), timed(read_frames, long, window)
        beside = timed(read_rows, peer, Window(peer_middle, peer_middle + WINDOW_S * S))
        control = (
            f"of it CPU {found.cpu_ms:.0f} ms; without decoding {bare.wall_ms:.0f} (CPU {bare.cpu_ms:.0f}) ms; "
            f"a row a record, out of {few * rate:,.0f}, {beside.wall_ms:.0f} (CPU {beside.cpu_ms:.0f}) ms"
        )
        why = "" if is_pgo() else "budget is for a PGO build; this one is 1.4 to 2 times slower"
        what = f"window of {WINDOW_S} s ({found.records:,} records) out of {many * rate:,.0f}"
        yield Row(what=what, measured=found.wall_ms, unit="ms", budget=100 if is_pgo() else None, control=control, why=why)


if __name__ == "__main__":
    for found in rows(int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS):
        print(f"{found.what}: {found.measured:.3g} {found.unit} (budget {found.budget}; {found.control})")
