"""The agent at its design load: 8 rings, 2,100 records a second; and how long after a kill -9 the incident is in the journal.

The load is that of the design's table: each of 8 ranks at 10 steps a second, 200 spans and samples and 62.5 lines a second and rank.
CPU is user and system time of the agent from /proc/PID/stat, resident memory its VmRSS, after a warm-up.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.table import Row

RINGS, TICKS_A_SECOND, BULK_A_TICK, LINES_A_SECOND = 8, 10, 20, 62.5
WARM_S, MEASURED_S, KILLS = 5.0, 30.0, 10

WRITER = """
import sys, time, os, signal
from llmtrace import frames, identity
from llmtrace.config import resolve
from llmtrace.directory import choose
from llmtrace.record import Identity
from llmtrace.ring import create_ring
rings, per_tick, bulk, lines = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
directory = choose(resolve())
LINE = "step %d: loss 2.2%d, 31.5 samples/s on the training split"
writers = []
for rank in range(rings):
    span = identity.new_span_id()
    writer = create_ring(directory.rings, directory.registry, span_id=span, wanted_bytes=4 << 20, share=rings)
    who = Identity(trace_id="ab" * 16, attempt="1", span_id=span, rank=rank, world_size=rings, node="bench", pid=os.getpid())
    writer.describe(frames.encode_description(frames.known_schemas()))
    writer.describe(frames.encode_description(frames.Description(epochs=[frames.Epoch(0, who)], phases={1: "forward"})))
    writers.append(writer)
print("ready", flush=True)
begin, tick, written = time.monotonic(), 0, 0.0
while True:
    tick += 1
    written += lines / per_tick
    for writer in writers:
        now = time.monotonic_ns()
        writer.progress(tick, 1)
        writer.append(3, frames.encode([now, 21000000, tick, 1000000, 8000000, 9000000, 2000000, 500000, None, 32, 65536]))
        for n in range(bulk - 1):
            writer.append(5, frames.encode([now + n, tick, "train/loss_%d" % n, 2.25 + n / (tick + 1)]))
        for n in range(int(written)):
            writer.append(2, frames.encode([now + n, 9, LINE % (tick, n), tick, "train", "/app/train.py", 120, "MainThread", None]))
    written -= int(written)
    time.sleep(max(0.0, begin + tick / per_tick - time.monotonic()))
"""


def rows() -> Iterator[Row]:
    idle, _ = measured(per_tick=TICKS_A_SECOND, bulk=0, lines=0.0)
    busy, memory = measured(per_tick=TICKS_A_SECOND, bulk=BULK_A_TICK, lines=LINES_A_SECOND)
    yield Row(
        what="agent, 8 rings, 2,100 records/s: CPU",
        measured=busy,
        unit="% of a core",
        budget=2.0,
        control=f"8 rings with 10 steps/s only {idle:.2f} % of a core",
    )
    yield Row(what="agent, 8 rings, 2,100 records/s: memory", measured=memory, unit="MB RSS", budget=60.0, control=f"a bare interpreter {bare_memory():.0f} MB")
    times = sorted(kill_to_incident() for _ in range(KILLS))
    yield Row(
        what="kill -9 -> incident in the journal", measured=statistics.median(times), unit="s", budget=1.0, control=f"worst of {KILLS}: {times[-1]:.3f} s"
    )


@contextmanager
def folders() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="llmtrace-bench-") as path, tempfile.TemporaryDirectory(prefix="llmtrace-bench-", dir="/dev/shm") as rings:
        yield {**os.environ, "LLMTRACE_DIR": path, "LLMTRACE_RING_DIR": rings}


@contextmanager
def writer(environment: dict[str, str], *arguments: float) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", WRITER, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def agent(environment: dict[str, str]) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-m", "llmtrace.agent"], env=environment)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def measured(*, per_tick: float, bulk: int, lines: float) -> tuple[float, float]:
    """(% of a core, MB of resident memory) of an agent under this load."""
    with folders() as environment, writer(environment, RINGS, per_tick, max(bulk, 1), lines), agent(environment) as pid:
        time.sleep(WARM_S)
        before, begin = cpu_s(pid), time.monotonic()
        time.sleep(MEASURED_S)
        return 100 * (cpu_s(pid) - before) / (time.monotonic() - begin), resident_mb(pid)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1000


def bare_memory() -> float:
    code = "print(next(l for l in open('/proc/self/status') if l.startswith('VmRSS')).split()[1])"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) / 1000


def kill_to_incident() -> float:
    """Seconds from the signal to the time of detection that the incident's record carries; it is in the journal, or this fails."""
    from llmtrace.sources.journal import JournalSource

    with folders() as environment, writer(environment, 1, 10.0, 1, 10.0) as process, agent(environment):
        path = Path(environment["LLMTRACE_DIR"])
        time.sleep(2.0)
        killed_ns = time.time_ns()
        process.kill()
        end = time.monotonic() + 5
        while time.monotonic() < end:
            source = JournalSource(path)
            found = source.incidents()
            source.close()
            if found:
                return (time.time_ns() - killed_ns) / 1e9
            time.sleep(0.005)
    raise RuntimeError("no incident within 5 s of a kill -9")
