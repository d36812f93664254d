"""One line through stdlib logging, with us on the way and without: the same logger, a handler that does nothing, the same run."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from benchmarks.table import Row, interleaved, machine
from llmtrace.config import resolve
from llmtrace.rank.instruments import logs
from llmtrace.rank.tracer import Tracer
from llmtrace.record import Identity
from llmtrace.ring import create_ring

BUDGET_US, BUDGET_P99_US = 4.0, 50.0
CALLS, ROUNDS, LINES = 5_000, 21, 100_000
SPAN = "00f067aa0ba902b7"


class NoOp(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        return None


class Untouched(logging.Logger):
    """A logger whose lines do not pass us, whatever is installed: it keeps the method that it found."""

    callHandlers = logging.Logger.callHandlers  # noqa: N815


def rows() -> Iterable[Row]:
    """The line is "step %d loss %.3f" at INFO, 24 characters when formatted. CPU time a line, and the tail of wall time line by line."""
    with traced():
        beside, ours = make_logger(Untouched), make_logger(logging.Logger)
        seen = interleaved({"beside": line_through(beside), "ours": line_through(ours)}, calls=CALLS, rounds=ROUNDS)
        tails = tail_us(line_through(beside), line_through(ours))
    added = (seen["ours"] - seen["beside"]) / 1000
    control = f"no-op handler {seen['beside'] / 1000:.2f} us, with us {seen['ours'] / 1000:.2f} us"
    yield Row(what="one log line, added to a no-op handler", measured=added, unit="us", budget=BUDGET_US, control=control)
    control = f"no-op handler {tails[0]:.1f} us, with us {tails[1]:.1f} us"
    yield Row(what="99th percentile of a log line, added", measured=tails[1] - tails[0], unit="us", budget=BUDGET_P99_US, control=control)


@contextmanager
def traced() -> Generator[None]:
    """The logs instrument on a ring of its own, without an agent."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        tracer = Tracer(resolve({}, {}, "/nonexistent"), Identity(trace_id="1" * 32, span_id=SPAN, rank=0))
        ring = create_ring(Path(folder), Path(folder), span_id=SPAN, wanted_bytes=4 << 20)
        if ring is None:
            raise RuntimeError("there is no room for a ring in /dev/shm")
        tracer.cell.fill(ring)
        undo = logs.instrument.install(tracer)
        yield
        undo()


def make_logger(kind: type[logging.Logger]) -> logging.Logger:
    log = kind("benchmark")
    log.addHandler(NoOp())
    return log


def line_through(log: logging.Logger) -> Callable[[], object]:
    return lambda: log.info("step %d loss %.3f", 1234, 0.125)


def tail_us(*candidates: Callable[[], object]) -> list[float]:
    """The 99th percentile of each in microseconds of wall time, in turns of 100 lines so that all meet the same neighbours."""
    seen: list[list[int]] = [[] for _ in candidates]
    clock = time.perf_counter_ns
    for _ in range(LINES // 100):
        for candidate, times in zip(candidates, seen, strict=True):
            for _ in range(100):
                start = clock()
                candidate()
                times.append(clock() - start)
    return [sorted(times)[len(times) * 99 // 100] / 1000 for times in seen]


def main() -> None:
    print(machine())
    for row in rows():
        print(f"{row.what}: {row.measured:.2f} {row.unit} ({row.verdict}); {row.control}")


if __name__ == "__main__":
    main()
