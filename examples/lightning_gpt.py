"""A small GPT with Lightning on four ranks of this machine; llmtrace is one callback.

    python examples/lightning_gpt.py [--fault oom|kill|exception|none] [--at 60] [--steps 120] [--ranks 4]

Rank 2 (the last one where there are fewer) breaks in step AT; then: llmtrace context last
"""

from __future__ import annotations

import argparse
import logging
import warnings

import torch
from faults import FAULTS, misbehave
from lightning import LightningModule, Trainer, seed_everything
from tiny_gpt import TinyGPT, batches
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from llmtrace import LLMTraceCallback

log = logging.getLogger("train")


class Text(IterableDataset[Tensor]):
    """Each rank draws its own batches, so nothing has to be split."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.rank = 0

    def __iter__(self):
        return batches(8, self.steps, seed=self.rank)


class GPT(LightningModule):
    def __init__(self, fault: str, at: int) -> None:
        super().__init__()
        self.gpt = TinyGPT()
        self.fault, self.at = fault, at

    def training_step(self, text: Tensor, index: int) -> Tensor:
        if index == self.at and self.global_rank == min(2, self.trainer.world_size - 1):
            text = misbehave(self.fault, text)
        loss = self.gpt(text)
        self.log("loss", loss)
        log.info("step %d loss %.3f", index, loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--at", type=int, default=60)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--ranks", type=int, default=4)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    warnings.filterwarnings("ignore", module="lightning")
    torch.set_num_threads(1)
    seed_everything(0, verbose=False)
    data = Text(options.steps)
    trainer = Trainer(
        accelerator="cpu",
        devices=options.ranks,
        strategy="ddp",
        max_epochs=1,
        max_steps=options.steps,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        callbacks=[LLMTraceCallback(job="tiny-gpt")],
    )
    data.rank = trainer.global_rank
    trainer.fit(GPT(options.fault, options.at), DataLoader(data, batch_size=None))


if __name__ == "__main__":
    main()
