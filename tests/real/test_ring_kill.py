"""kill -9 at any instant: every acknowledged record is read, whole, once; those overwritten before that are counted exactly."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from zlib import crc32

import pytest

from llmtrace.ring import Reading, RingReader

KILLS = 300
SOURCES = 6
"""Four threads, a signal handler that the timer calls, finalizers."""

NURSERY = r"""
import gc, itertools, mmap, os, signal, sys, threading
from pathlib import Path
from random import Random
from zlib import crc32
from llmtrace.ring import create_ring

folder, registry, acks = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

def storm(number, ring_bytes):
    sys.setswitchinterval(1e-5)
    ring = create_ring(folder, registry, span_id=f"{number + 1:016x}", wanted_bytes=ring_bytes)
    with open(acks, "r+b") as stream:
        acknowledged = memoryview(mmap.mmap(stream.fileno(), 6 << 17))
    counts = [itertools.count() for _ in range(6)]
    noise = Random(number).randbytes(4096)

    def emit(source):
        n = next(counts[source])
        size = 20 + (n * 7919 + source * 31) % 300 if n % 97 else 3000
        body = bytes((source,)) + n.to_bytes(8, "little") + noise[:size]
        ring.append(1 + source, crc32(body).to_bytes(4, "little") + body)
        acknowledged[source << 17 | n] = 1

    class Dying:
        def __init__(self):
            self.me = self
        def __del__(self):
            emit(5)

    def work(source):
        while True:
            emit(source)
            Dying()

    signal.signal(signal.SIGALRM, lambda *_: (emit(4), emit(4)))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
    for source in range(3):
        threading.Thread(target=work, args=(source,), daemon=True).start()
    work(3)

for line in sys.stdin:
    number, ring_bytes = map(int, line.split())
    pid = os.fork()
    if pid == 0:
        storm(number, ring_bytes)
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("dead", flush=True)
"""


class Nursery:
    """Forks processes that emit from all sides at once; each is ready to be killed the moment it exists."""

    def __init__(self, folder: Path, registry: Path, acks: Path) -> None:
        self.folder, self.acks = folder, acks
        command = [sys.executable, "-c", NURSERY, str(folder), str(registry), str(acks)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin
        assert self.process.stdout
        self.input: IO[str] = self.process.stdin
        self.output: IO[str] = self.process.stdout

    def start(self, number: int, ring_bytes: int) -> int:
        self.acks.write_bytes(bytes(SOURCES << 17))
        print(number, ring_bytes, file=self.input, flush=True)
        return int(self.output.readline())

    def ring(self) -> RingReader | None:
        """The ring of the process that was started last; None when it did not come so far."""
        paths = list(self.folder.glob("*.ring"))
        return RingReader(paths[0]) if paths else None

    def kill(self, pid: int) -> set[tuple[int, int]]:
        """End it and wait for that; source and number of each record whose append had returned."""
        subprocess.run(["kill", "-9", str(pid)], check=True)
        assert self.output.readline() == "dead\n"
        return {divmod(one.start(), 1 << 17) for one in re.finditer(b"\x01", self.acks.read_bytes())}


@pytest.fixture
def nursery(tmp_path: Path, llmtrace_dirs: tuple[Path, Path]) -> Iterator[Nursery]:
    (tmp_path / "registry").mkdir()
    acks = Path(llmtrace_dirs[1]) / "acks"
    nursery = Nursery(Path(llmtrace_dirs[1]), tmp_path / "registry", acks)
    yield nursery
    nursery.input.close()
    nursery.process.wait(10)
    nursery.output.close()


def records(reading: Reading) -> list[tuple[int, int]]:
    """Source and number of each record in a reading; fails on one that is torn."""
    found: list[tuple[int, int]] = []
    for frame in reading.frames:
        payload = reading.data[frame.start : frame.end]
        source, number = payload[4], int.from_bytes(payload[5:13], "little")
        assert crc32(payload[4:]) == int.from_bytes(payload[:4], "little"), "torn"
        assert frame.kind == source + 1
        found.append((source, number))
    return found


def read_until_dead(nursery: Nursery, pid: int, live_for_s: float, pause_s: float) -> tuple[list[tuple[int, int]], int, int, set[tuple[int, int]]]:
    """Records that were read, how many are lost, the header's count, acknowledged records."""
    end = time.monotonic() + live_for_s
    reader: RingReader | None = None
    found: list[tuple[int, int]] = []
    tail = count = lost = 0

    def poll(reader: RingReader) -> None:
        nonlocal tail, count, lost
        reading = reader.read(tail, count)
        found.extend(records(reading))
        tail, count, lost = reading.tail, reading.count, lost + reading.lost

    while time.monotonic() < end:
        time.sleep(pause_s)
        reader = reader or nursery.ring()
        if reader:
            poll(reader)
    acknowledged = nursery.kill(pid)
    reader = reader or nursery.ring()
    if reader is None:
        return found, 0, 0, acknowledged
    poll(reader)
    committed = reader.header().count
    assert (tail, count) == (reader.header().head, committed)
    assert reader.header().ended == "running"
    reader.close()
    reader.path.unlink()
    return found, lost, committed, acknowledged


@pytest.mark.timeout(170)
def test_hundreds_of_kills_lose_tear_and_double_nothing(nursery: Nursery) -> None:
    chance = random.Random(3)
    total = overwritten = laps = with_ring = 0
    for number in range(KILLS):
        slow = number % 3 == 0
        pid = nursery.start(number, (64 << 10) if slow else (2 << 20))
        live_for_s = chance.uniform(0, 0.02) if number % 2 else chance.uniform(0.01, 0.08)
        found, lost, committed, acknowledged = read_until_dead(nursery, pid, live_for_s, 0.02 if slow else 0.002)
        assert len(set(found)) == len(found), "twice"
        assert len(found) + lost == committed, "the loss is not exact"
        assert len(acknowledged - set(found)) <= lost, "acknowledged, and neither read nor counted as overwritten"
        for source in range(4):  # a thread's own records are in order
            numbers_in_order = [n for s, n in found if s == source]
            assert numbers_in_order == sorted(numbers_in_order)
        total, overwritten, with_ring = total + committed, overwritten + lost, with_ring + bool(committed)
        laps += bool(lost)
    print(f"{KILLS} kills, {with_ring} with records: {total:,} records, {overwritten:,} overwritten and counted in {laps} runs")
    assert with_ring > KILLS * 0.4
    assert total > 100_000
    assert laps > 10
