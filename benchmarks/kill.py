"""Lines lost by kill -9: a process logs as fast as it can and is killed at a random moment; what it had said is compared with what is left of it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.table import Row, machine
from llmtrace.ring import RingReader, find_rings

KILLS = 40
LONGEST_S = 0.4
PROGRAM = """
import logging, mmap, os, sys
from benchmarks.kill import handlers
folder, way = sys.argv[1:]
log = logging.getLogger("benchmark")
log.setLevel(logging.INFO)
log.propagate = False
hold = handlers[way](log, folder)
said = mmap.mmap(os.open(folder + "/said", os.O_RDWR), 8)
with memoryview(said).cast("Q") as count:
    print("ready", flush=True)
    while True:
        log.info("line %d", count[0])
        count[0] += 1
"""
"""`said` is counted up once the call has returned: on a tmpfs, so that it outlives the process."""


def rows() -> Iterable[Row]:
    """Lines whose call had returned and that nobody finds afterwards, the sum over all kills."""
    lost = {way: sum(lost_lines(way, moment) for moment in moments()) for way in handlers}
    control = f"stdlib QueueHandler and a thread that writes: {lost['queue']:,} in {KILLS} kills"
    yield Row(what=f"lines lost by kill -9, {KILLS} times", measured=lost["ring"], unit="lines", budget=0, control=control)


def moments() -> list[float]:
    chance = random.Random(7)
    return [chance.uniform(0.001, LONGEST_S) for _ in range(KILLS)]


def lost_lines(way: str, after_s: float) -> int:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        said = Path(folder, "said")
        said.write_bytes(bytes(8))
        with subprocess.Popen([sys.executable, "-c", PROGRAM, folder, way], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(after_s)
            process.send_signal(signal.SIGKILL)
        return max(0, int.from_bytes(said.read_bytes(), sys.byteorder) - readers[way](Path(folder)))  # one more than said: killed between the two


def log_into_ring(_log: object, folder: str) -> object:
    """As a rank does: no handler at all."""
    from llmtrace.config import resolve
    from llmtrace.rank.instruments import logs
    from llmtrace.rank.tracer import Tracer
    from llmtrace.record import Identity
    from llmtrace.ring import create_ring

    tracer = Tracer(resolve({}, {}, "/nonexistent"), Identity(trace_id="1" * 32, span_id="00f067aa0ba902b7", rank=0))
    ring = create_ring(Path(folder), Path(folder), span_id="00f067aa0ba902b7", wanted_bytes=64 << 20)
    if ring is None:
        raise RuntimeError("there is no room for a ring in /dev/shm")
    tracer.cell.fill(ring)
    tracer.describe_all()
    return tracer, logs.instrument.install(tracer)


def log_into_queue(log: object, folder: str) -> object:
    """As the usual clients do: a queue, and a thread that empties it."""
    import logging
    from logging.handlers import QueueHandler, QueueListener
    from queue import SimpleQueue

    queue: SimpleQueue[object] = SimpleQueue()
    assert isinstance(log, logging.Logger)
    log.addHandler(QueueHandler(queue))  # type: ignore[arg-type]
    listener = QueueListener(queue, logging.FileHandler(folder + "/lines"))  # type: ignore[arg-type]
    listener.start()
    return listener


def lines_in_ring(folder: Path) -> int:
    (path,) = find_rings(folder, folder)
    reader = RingReader(path)
    total, tail, count = 0, 0, 0
    while (reading := reader.read(tail, count)).tail != tail:
        total, tail, count = total + len(reading.frames), reading.tail, reading.count
    reader.close()
    return total


def lines_in_file(folder: Path) -> int:
    path = folder / "lines"
    return path.read_text().count("\n") if path.exists() else 0


handlers: dict[str, Callable[..., object]] = {"ring": log_into_ring, "queue": log_into_queue}
readers: dict[str, Callable[[Path], int]] = {"ring": lines_in_ring, "queue": lines_in_file}


def main() -> None:
    print(machine())
    for row in rows():
        print(f"{row.what}: {row.measured:.0f} {row.unit} ({row.verdict}); {row.control}")


if __name__ == "__main__":
    main()
