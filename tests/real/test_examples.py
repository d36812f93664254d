"""The examples run, break as they are asked to, and come out the same with tracing as without."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Directories

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BIN = Path(sys.executable).parent
pytestmark = pytest.mark.timeout(600)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def torchrun(script: str, *arguments: str, before: tuple[str, ...] = (), **environ: str) -> subprocess.CompletedProcess[str]:
    launch = (str(BIN / "torchrun"), "--nproc-per-node=2", f"--master-port={free_port()}", str(EXAMPLES / script))
    settings = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **environ}
    return subprocess.run([*before, *launch, *arguments], env=settings, capture_output=True, text=True, timeout=300, check=False)


def read(*arguments: str) -> list[dict[str, object]]:
    done = subprocess.run([str(BIN / "llmtrace"), *arguments, "--json"], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def incidents(within_s: float = 15) -> list[dict[str, object]]:
    until = time.monotonic() + within_s
    while not (found := read("incidents")) and time.monotonic() < until:
        time.sleep(0.2)
    return found


def losses(text: str) -> list[str]:
    return sorted(re.findall(r"final loss ([\d.]+)", text))


@pytest.mark.parametrize(("fault", "categories", "word"), [("oom", {"host_oom"}, "256.0 TiB"), ("kill", {"process_death"}, "SIGKILL")])
def test_the_decorated_loop_breaks_and_is_understood(llmtrace_dirs: Directories, fault: str, categories: set[str], word: str) -> None:
    done = torchrun("decorated_loop.py", "--fault", fault, "--at", "15", "--steps", "30")
    assert done.returncode != 0
    (incident,) = incidents()
    assert incident["category"] in categories
    assert incident["culprit"]["rank"] == 1  # type: ignore[index]
    view = subprocess.run([str(BIN / "llmtrace"), "context", "last"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert word in view
    assert re.search(r"▶rank 1 .*step 15", view)


def test_the_plain_loop_is_traced_by_llmtrace_run_alone(llmtrace_dirs: Directories) -> None:
    done = torchrun("plain_loop.py", "--fault", "exception", "--at", "15", "--steps", "30", before=(str(BIN / "llmtrace"), "run"))
    assert done.returncode != 0
    (incident,) = incidents()
    assert (incident["category"], incident["culprit"]["rank"]) == ("program_error", 1)  # type: ignore[index]
    (run,) = read("runs")
    assert (run["state"], run["ranks"], run["job"]) == ("failed", 2, "plain_loop")


@pytest.mark.parametrize(("script", "last_steps"), [("decorated_loop.py", {19}), ("plain_loop.py", {19, 20})])
def test_losses_are_the_same_to_the_bit_with_and_without_tracing(llmtrace_dirs: Directories, script: str, last_steps: set[int]) -> None:
    """Counted by the optimizer alone, the next step has begun when the last one ends: nobody says that it was the last."""
    traced = torchrun(script, "--steps", "20", before=(str(BIN / "llmtrace"), "run"))
    plain = torchrun(script, "--steps", "20", LLMTRACE="0")
    assert len(losses(traced.stdout)) == 2, traced.stderr
    assert losses(traced.stdout) == losses(plain.stdout)
    (run,) = read("runs")
    assert run["state"] == "finished"
    assert run["last_step"] in last_steps
    assert incidents(within_s=0) == []


def test_the_lightning_example_trains_on_two_ranks(llmtrace_dirs: Directories) -> None:
    command = [sys.executable, str(EXAMPLES / "lightning_gpt.py"), "--ranks", "2", "--steps", "10"]
    settings = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "MASTER_PORT": str(free_port())}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (run,) = read("runs")
    assert (run["state"], run["ranks"], run["job"], run["last_step"]) == ("finished", 2, "tiny-gpt", 9)
    assert incidents(within_s=0) == []
