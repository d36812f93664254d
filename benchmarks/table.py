"""What a benchmark hands to `make bench`: rows. Each module of this folder has `rows() -> Iterable[Row]`; adding one is adding a file."""

from __future__ import annotations

import os
import statistics
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One budget and what was measured for it, beside its control or peer from the same run.

    `measured` and `budget` are in `unit`; the budget holds when `measured <= budget` (`at_least`: when `>=`). `budget` is None where it is
    stated for another machine or build only: then `why` says so and there is no verdict. `control` is ready text: "write() of 250 B 1.13 us".
    """

    what: str
    measured: float
    unit: str
    budget: float | None
    control: str = ""
    at_least: bool = False
    why: str = ""

    @property
    def verdict(self) -> str:
        if self.budget is None:
            return self.why or "-"
        holds = self.measured >= self.budget if self.at_least else self.measured <= self.budget
        return "holds" if holds else "MISSED"


def is_pgo() -> bool:
    """Whether this CPython was built with profile-guided optimisation: the same code is 1.4 to 2 times slower without."""
    built = f"{sysconfig.get_config_var('CONFIG_ARGS')} {sysconfig.get_config_var('PY_CORE_CFLAGS')} {sysconfig.get_config_var('PY_CFLAGS_NODIST')}"
    return "--enable-optimizations" in built or "-fprofile-use" in built


def processor() -> str:
    """The processor's name and how many of its cores we may use."""
    text = Path("/proc/cpuinfo").read_text()
    name = next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(("model name", "CPU part"))), "unknown processor")
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def machine() -> str:
    build = "PGO" if is_pgo() else "no PGO"
    return f"CPython {sys.version.split()[0]} ({build}) on {processor()}"


def interleaved(candidates: dict[str, Callable[[], object]], *, calls: int, rounds: int = 15) -> dict[str, float]:
    """Nanoseconds of CPU a call, the median of `rounds`, each candidate measured in turn in each round so that a busy neighbour hits all alike."""
    seen: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            start = time.process_time_ns()
            for _ in range(calls):
                call()
            seen[name].append((time.process_time_ns() - start) / calls)
    return {name: statistics.median(values) for name, values in seen.items()}
