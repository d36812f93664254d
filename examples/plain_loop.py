"""A training loop with no word of llmtrace in it: `LLMTRACE=1`, or `llmtrace run`, is all.

    llmtrace run torchrun --nproc-per-node=2 examples/plain_loop.py [--fault oom|kill|exception|none] [--at 30] [--steps 60]

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

log = logging.getLogger("train")


def train(fault: str, at: int, steps: int) -> float:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(TinyGPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss = torch.zeros(())
    for step, text in enumerate(batches(8, steps, seed=rank)):
        log.info("step %d", step)
        if step == at and rank == dist.get_world_size() - 1:
            text = misbehave(fault, text)
        loss = model(text)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
    return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    print(f"final loss {train(options.fault, options.at, options.steps)!r}", flush=True)


if __name__ == "__main__":
    main()
