"""A training loop of one's own; llmtrace is one decorator, and one word where the batches come from.

    torchrun --nproc-per-node=2 examples/decorated_loop.py [--fault oom|kill|exception|none] [--at 30] [--steps 60]

The last rank breaks in step AT; then: llmtrace context last
"""

from __future__ import annotations

import argparse
import logging

import torch
import torch.distributed as dist
from faults import FAULTS, misbehave
from tiny_gpt import TinyGPT, batches
from torch.nn.parallel import DistributedDataParallel

import llmtrace

log = logging.getLogger("train")


@llmtrace.trace(job="decorated-loop")
def train(fault: str, at: int, steps: int) -> float:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(TinyGPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss = torch.zeros(())
    for step, text in enumerate(llmtrace.steps(batches(8, steps, seed=rank))):
        log.info("step %d", step)
        if step == at and rank == dist.get_world_size() - 1:
            text = misbehave(fault, text)
        loss = model(text)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with llmtrace.phase("eval"):
        llmtrace.event("trained", loss=loss.item())
    dist.destroy_process_group()
    return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(trace_id).8s rank %(rank)s | %(message)s")
    torch.set_num_threads(1)
    print(f"final loss {train(options.fault, options.at, options.steps)!r}", flush=True)


if __name__ == "__main__":
    main()
