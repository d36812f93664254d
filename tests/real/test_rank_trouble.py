"""What a second reader broke, in whole processes: children of a lone process, a launcher that is traced itself, two callbacks."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmtrace.bootstrap import environment
from llmtrace.directory import Directory
from llmtrace.names import PROCESS, STEP
from tests.conftest import Directories
from tests.support.ranks import no_agent, program, rings, run


@pytest.fixture
def quiet(llmtrace_dirs: Directories) -> Iterator[Directory]:
    with no_agent() as found:
        yield found


def tracing() -> dict[str, str]:
    """LLMTRACE=1, with or without the .pth in this Python."""
    found = environment({"LLMTRACE": "1"})
    return {name: found[name] for name in ("LLMTRACE", "PYTHONPATH") if name in found}


LOADER = """
import logging, sys, torch

class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index):
        logging.getLogger("data").warning("item %d", index)
        return torch.ones(2)

if __name__ == "__main__":
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context=sys.argv[1]):
        model(batch).mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_lone_processs_dataloader_workers_are_traced_however_they_are_started(method: str, tmp_path: Path, quiet: Directory) -> None:
    done = run(program(LOADER, tmp_path), method, **tracing())
    assert done.returncode == 0, done.stderr
    found = rings(quiet)
    workers = [ring for ring in found if ring.identity.role == "worker"]
    assert [body for ring in workers for body in ring.bodies()] == [f"item {n}" for n in range(4)]
    assert len({ring.identity.trace_id for ring in found}) == 1


LAUNCHER = """
import os, sys, torch
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
    dist.init_process_group("gloo", rank=rank, world_size=2)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], 0.1)
    for _ in range(3):
        (parameter * 1).backward()
        optimizer.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.1)  # so the launcher is traced
    mp.spawn(work, nprocs=2)
"""


def test_ranks_of_a_launcher_that_is_traced_itself_are_whole_ranks(tmp_path: Path, quiet: Directory) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = run(program(LAUNCHER, tmp_path), str(port), **tracing())
    assert done.returncode == 0, done.stderr
    ranks = [ring for ring in rings(quiet) if ring.identity.rank is not None]
    assert sorted((ring.identity.rank, ring.identity.role) for ring in ranks) == [(0, "rank"), (1, "rank")]
    for ring in ranks:
        assert [record.step for record in ring.named(STEP)] == [0, 1, 2]
        assert len(ring.named(PROCESS)) == 2


TWO_CALLBACKS = """
import copy, logging
import lightning.pytorch as pl
import llmtrace, torch

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, index):
        logging.getLogger("user").warning("in step %d", index)
        return self.layer(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

callback = llmtrace.LLMTraceCallback()
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(6, 2)), batch_size=2)

@llmtrace.trace
def train():
    trainer = pl.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                         accelerator="cpu", callbacks=[callback, copy.deepcopy(callback)])
    trainer.fit(Model(), data)

train()
"""


def test_two_callbacks_in_a_traced_function_under_llmtrace_1_are_one_run_and_every_step_is_one(tmp_path: Path, quiet: Directory) -> None:
    done = run(program(TWO_CALLBACKS, tmp_path), **tracing())
    assert done.returncode == 0, done.stderr
    (ring,) = rings(quiet)
    assert [record.step for record in ring.named(STEP)] == [0, 1, 2]
    assert [body for body in ring.bodies() if str(body).startswith("in step")] == ["in step 0", "in step 1", "in step 2"]
    assert len(ring.named(PROCESS)) == 2
