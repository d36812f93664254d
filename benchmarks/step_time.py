"""A real step with tracing on and off: two ranks of one DDP job take turns in blocks, so that the machine's drift hits both alike."""

from __future__ import annotations

import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from benchmarks.table import Row

BLOCKS, STEPS, WARM = 21, 60, 5
"""Rounds of three blocks (off, on, off again), steps a block, and how many at its start do not count."""
SLEEP_S = 0.012
"""What makes the step the usual 21 ms on two small cores: the rest is a real forward, backward and all-reduce."""


class Times(msgspec.Struct):
    """Milliseconds of each step: tracing off, on, and off again."""

    off: list[float] = []
    on: list[float] = []
    again: list[float] = []


def rows() -> Iterable[Row]:
    with tempfile.TemporaryDirectory(prefix="llmtrace-bench-") as folder, tempfile.TemporaryDirectory(prefix="llmtrace-bench-", dir="/dev/shm") as rings:
        environment = {**os.environ, "LLMTRACE_DIR": folder, "LLMTRACE_RING_DIR": rings, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "benchmarks.step_time", f"{folder}/times"]
        subprocess.run(command, env=environment, cwd=Path(__file__).parent.parent, check=True, timeout=600, stdout=subprocess.DEVNULL)
        times = msgspec.json.decode(Path(f"{folder}/times").read_bytes(), type=Times)
    off, on, again = (statistics.median(values) for values in (times.off, times.on, times.again))
    noise = abs(again / off - 1) * 100
    base = statistics.median([*times.off, *times.again])
    control = f"off {off:.2f} ms, off again {again:.2f} ms (A/A {noise:.2f} %), on {on:.2f} ms"
    yield Row(what="a 21 ms step of two ranks, on / off - 1", measured=(on / base - 1) * 100, unit="%", budget=max(noise, 0.8), control=control)
    plain = sorted([*times.off, *times.again])
    added = percentile(sorted(times.on), 0.999) - percentile(plain, 0.999)
    control = f"off {percentile(plain, 0.5):.2f} / {percentile(plain, 0.99):.2f} / {percentile(plain, 0.999):.2f} ms at p50 / p99 / p99.9"
    yield Row(what="the same, added at p99.9", measured=added, unit="ms", budget=1.0, control=control)


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def main(target: str) -> None:
    import torch.distributed as dist

    import llmtrace

    dist.init_process_group("gloo")
    step = make_step()
    logging.basicConfig(level=logging.WARNING)
    times = Times()
    for _ in range(BLOCKS):
        times.off += block(step)
        llmtrace.start()
        times.on += block(step)
        llmtrace.stop()
        times.again += block(step)
    if dist.get_rank() == 0:
        Path(target).write_bytes(msgspec.json.encode(times))
    dist.barrier()
    dist.destroy_process_group()


def make_step() -> Callable[[], None]:
    from torch import nn, ones, optim
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.ReLU()))))
    optimizer = optim.SGD(model.parameters(), lr=0.001)
    batch, log = ones(64, 256), logging.getLogger("bench")

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        log.info("a step")
        time.sleep(SLEEP_S)

    return step


def block(step: Callable[[], None]) -> list[float]:
    """Milliseconds of each step of one block."""
    found: list[float] = []
    for number in range(STEPS):
        start = time.perf_counter()
        step()
        if number >= WARM:
            found.append((time.perf_counter() - start) * 1000)
    return found


if __name__ == "__main__":
    main(sys.argv[1])
