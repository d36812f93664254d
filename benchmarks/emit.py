"""Emitting one step record: its values by position, encoded and committed to the ring. Beside it, a write() of 250 bytes in the same run."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.table import Row, interleaved, is_pgo, machine
from llmtrace import frames, names
from llmtrace.ring import create_ring

BUDGET_US = 2.0
"""On a PGO build; 1.4 to 2 times as much without, so the second budget is the one that holds everywhere."""

BUDGET_WRITES = 2.5
CALLS, ROUNDS = 20_000, 15
SPAN = "00f067aa0ba902b7"


def rows() -> Iterable[Row]:
    """Of one record of schema llmtrace.step with all its phases: 45 bytes."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, tempfile.TemporaryFile(dir="/tmp") as file:
        ring = create_ring(Path(folder), Path(folder), span_id=SPAN, wanted_bytes=4 << 20)
        if ring is None:
            raise RuntimeError("there is no room for a ring in /dev/shm")
        seen = interleaved(candidates(ring.append, ring.progress, file.fileno()), calls=CALLS, rounds=ROUNDS)
    idle, write, emit = (seen[name] / 1000 for name in ("nothing", "write", "emit"))
    emit, write = emit - idle, write - idle
    control = f"write() of 250 B {write:.2f} us"
    on_pgo = "" if is_pgo() else f"2 us is for a PGO build; this one has none: {emit:.2f} us"
    yield Row(what="emit a step record", measured=emit, unit="us", budget=BUDGET_US if is_pgo() else None, control=control, why=on_pgo)
    yield Row(what="emit a step record, in write()s of 250 B", measured=emit / write, unit="x", budget=BUDGET_WRITES, control=control)
    yield Row(what="of it: commit to the ring", measured=seen["commit"] / 1000 - idle, unit="us", budget=None, control=control)
    yield Row(what="progress word", measured=seen["progress"] / 1000 - idle, unit="us", budget=None, control=control)


def candidates(append: Callable[[int, bytes], None], progress: Callable[[int, int], None], descriptor: int) -> dict[str, Callable[[], object]]:
    step = next(schema for schema in names.SCHEMAS if schema.name == names.STEP).id
    encode, monotonic_ns, write, block = frames.encode, time.monotonic_ns, os.pwrite, b"x" * 250
    ready = encode([monotonic_ns(), 21_000_000, 1234, 1_000_000, 7_000_000, 9_000_000, 2_000_000, 1_500_000, 0, 32, 4096])

    def emit() -> None:
        append(step, encode([monotonic_ns(), 21_000_000, 1234, 1_000_000, 7_000_000, 9_000_000, 2_000_000, 1_500_000, 0, 32, 4096]))

    return {
        "nothing": lambda: None,
        "write": lambda: write(descriptor, block, 0),
        "emit": emit,
        "commit": lambda: append(step, ready),
        "progress": lambda: progress(1234, 2),
    }


def main() -> None:
    print(machine())
    for row in rows():
        print(f"{row.what}: {row.measured:.2f} {row.unit} ({row.verdict}); {row.control}")


if __name__ == "__main__":
    main()
