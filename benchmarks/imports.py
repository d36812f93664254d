"""What llmtrace adds to a process's start: its import in a rank after torch, and the idle line of the .pth in every other process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from benchmarks.table import Row, is_pgo

IMPORT_BUDGET_MS, PTH_BUDGET_MS = 30.0, 0.2
IMPORTS, STARTS = 5, 21
PTH = Path(__file__).resolve().parents[1] / "integrations" / "llmtrace-auto" / "llmtrace-auto.pth"

RANK = """
import sys, time
import torch, torch.distributed
before, begun = set(sys.modules), time.process_time()
import llmtrace
llmtrace.trace, llmtrace.start
from llmtrace.rank.loading import own_instruments
from importlib import import_module
for name in own_instruments(): import_module(name)
ended = time.process_time()
import llmtrace.cli.main
print((ended - begun) * 1e3, (time.process_time() - ended) * 1e3)
"""
IDLE = """
import sys, time
line = open(sys.argv[1]).readline()
begun = time.perf_counter()
exec(line)
print((time.perf_counter() - begun) * 1e3)
"""


def rows() -> Iterable[Row]:
    """CPU milliseconds of everything that a rank imports, all instruments included; wall milliseconds of the line, compiled as site does."""
    seen = [run(RANK) for _ in range(IMPORTS)]
    rank, command = median(found[0] for found in seen), median(found[1] for found in seen)
    why = "" if is_pgo() else "a build without PGO"
    yield Row(
        what="import llmtrace in a rank after torch",
        measured=rank,
        unit="ms",
        budget=IMPORT_BUDGET_MS,
        control=f"the command line's imports {command:.0f} ms",
        why=why,
    )
    line = median(run(IDLE, str(PTH))[0] for _ in range(STARTS))
    yield Row(what="the .pth line without LLMTRACE", measured=line, unit="ms", budget=PTH_BUDGET_MS, control="one import statement more than nothing", why=why)


def run(program: str, *arguments: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=300, check=True, env={"PATH": "/usr/bin:/bin"})
    return [float(word) for word in done.stdout.split()]
