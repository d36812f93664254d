"""Time: the monotonic clock orders, the wall clock names. What ties them is read again and again, never assumed."""

from __future__ import annotations

import time
from pathlib import Path

monotonic_ns = time.monotonic_ns
"""CLOCK_MONOTONIC in nanoseconds: the one clock in rings. It is the same for all processes of a boot."""


def wall_minus_monotonic_ns() -> int:
    """What to add to a monotonic time to have wall-clock nanoseconds; the best of five readings, to within a microsecond."""
    best, offset = None, 0
    for _ in range(5):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best:
            best, offset = after - before, wall - (before + after) // 2
    return offset


def boot_id() -> str:
    """The kernel's id of this boot, 32 hex digits; empty where /proc does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    except OSError:
        return ""


def process_start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat (clock ticks since boot): with the pid it names a process for ever; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(text.rpartition(b")")[2].split()[19])
