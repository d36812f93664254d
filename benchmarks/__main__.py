"""`make bench`: every benchmark of this folder in a process of its own, and one table. `python -m benchmarks emit imports` runs only those."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.table import Row, machine

HERE = Path(__file__).resolve().parent
NOT_BENCHMARKS = {"__init__", "__main__", "table", "big_window"}
TIMEOUT_S = 900


def found() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NOT_BENCHMARKS and not path.stem.startswith("_"))


def measure(name: str) -> list[Row]:
    """The rows of one benchmark, measured in a fresh interpreter; one that fails is a row too."""
    command = [sys.executable, "-m", "benchmarks", "--rows", name]
    done = subprocess.run(command, cwd=HERE.parent, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False)
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        return [Row(what=name, measured=0, unit="", budget=None, why=f"FAILED with status {done.returncode}")]
    return msgspec.json.decode(lines[-1], type=list[Row])


def print_rows(name: str) -> None:
    """Of a child: its rows as the last line of its output."""
    rows = list(importlib.import_module(f"benchmarks.{name}").rows())
    print(msgspec.json.encode(rows).decode(), flush=True)


def amount(value: float, unit: str) -> str:
    return f"{value:,.3g} {unit}" if abs(value) < 1000 else f"{value:,.0f} {unit}"


def as_table(rows: list[Row]) -> Table:
    table = Table("what", "measured", "beside it, in the same run", "budget", "verdict", title=machine(), title_justify="left")
    for row in rows:
        measured = amount(row.measured, row.unit) if row.unit else "-"
        budget = "-" if row.budget is None else f"{'>=' if row.at_least else '<='} {amount(row.budget, row.unit)}"
        table.add_row(row.what, measured, row.control, budget, row.verdict)
    return table


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--rows"]:
        print_rows(arguments[1])
        return 0
    rows: list[Row] = []
    for name in arguments or found():
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += measure(name)
    Console(width=None if sys.stdout.isatty() else 160).print(as_table(rows))
    return 1 if any(row.verdict == "MISSED" or row.verdict.startswith("FAILED") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
