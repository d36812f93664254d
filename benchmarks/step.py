"""What all instruments add to a step: a small loop bare, with hooks that do nothing on the same seams, and with every instrument."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.table import Row, machine
from llmtrace.config import resolve
from llmtrace.rank.loading import install_all
from llmtrace.rank.tracer import Tracer
from llmtrace.record import Identity
from llmtrace.ring import create_ring

BUDGET_US = 20.0
STEPS, ROUNDS = 400, 25
SPAN = "00f067aa0ba902b7"

Undo = Callable[[], object]


def rows() -> Iterable[Row]:
    """CPU time a step: DataLoader in the process, Linear(4, 1), backward, SGD; no collective. Medians of rounds that take turns."""
    loop = make_loop()
    loop(STEPS)  # torch's own first-time work
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        tracer = make_tracer(Path(folder))
        ways: dict[str, Callable[[], Undo]] = {"bare": lambda: lambda: None, "hooks": install_hooks, "all": lambda: install_all(tracer)}
        seen = {name: statistics.median(values) for name, values in measure(loop, ways).items()}
    bare, hooks, everything = seen["bare"], seen["hooks"], seen["all"]
    control = f"bare step {bare:.0f} us, hooks that do nothing +{hooks - bare:.1f} us"
    yield Row(what="all instruments, a step without collectives", measured=everything - bare, unit="us", budget=BUDGET_US, control=control)


def make_tracer(folder: Path) -> Tracer:
    tracer = Tracer(resolve({}, {}, "/nonexistent"), Identity(trace_id="1" * 32, span_id=SPAN, rank=0))
    ring = create_ring(folder, folder, span_id=SPAN, wanted_bytes=4 << 20)
    if ring is None:
        raise RuntimeError("there is no room for a ring in /dev/shm")
    tracer.cell.fill(ring)
    return tracer


def make_loop() -> Callable[[int], None]:
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

    def loop(steps: int) -> None:
        for batch in torch.utils.data.DataLoader([*torch.ones(steps, 4)], batch_size=1):  # pyright: ignore[reportArgumentType] - a list has all that it takes
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()

    return loop


def install_hooks() -> Undo:
    """The least that any tool with these phases would add: nothing on each seam, once before and once after."""
    from llmtrace.rank import patches

    def nothing(*_: Any) -> None:
        return None

    undos = [*(seam.watch(nothing, nothing) for seam in (patches.DATA, patches.BACKWARD)), patches.watch_optimizer(nothing, nothing)]
    return lambda: [undo() for undo in undos]


def measure(loop: Callable[[int], None], ways: dict[str, Callable[[], Undo]]) -> dict[str, list[float]]:
    """Microseconds of CPU a step for each way, round by round."""
    seen: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, install in ways.items():
            undo = install()
            start = time.process_time_ns()
            loop(STEPS)
            seen[name].append((time.process_time_ns() - start) / STEPS / 1000)
            undo()
    return seen


def main() -> None:
    print(machine())
    for row in rows():
        print(f"{row.what}: {row.measured:.2f} {row.unit} ({row.verdict}); {row.control}")


if __name__ == "__main__":
    main()
