"""Whole small jobs under the real runtime, read back from their ring: what the instruments saw of them, to the last record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import Directories

PRELUDE = """
import logging, os, signal, sys, threading
import torch
import llmtrace
from llmtrace.rank import agent_start
agent_start.ensure = lambda *_: None  # nobody reads the ring while the job runs: the test does, afterwards
log = logging.getLogger("job")
torch.set_num_threads(1)

def train(steps=4, hook=lambda step: None):
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step, batch in enumerate(torch.utils.data.DataLoader([*torch.arange(steps * 8.0).reshape(-1, 4) / 10], batch_size=2)):
        log.warning("step %d", step)
        hook(step)
        optimizer.zero_grad()
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()
"""

READ = """
import json, sys
from pathlib import Path
from llmtrace.frames import Decoder, merge_descriptions
from llmtrace.ring.reader import RingReader
found = []
for path in sorted(Path(sys.argv[1]).rglob("*.ring")):
    reader = RingReader(path)
    decoder = Decoder(merge_descriptions(reader.descriptions()))
    reading = reader.read(0, 0)
    records = [decoder.record(f.kind, bytes(reading.data[f.start:f.end]), f.position, 0) for f in reading.frames]
    found.append({"ended": reader.header().ended, "role": decoder.identity_at(1 << 62).role, "records": [
        {"name": r.name, "body": r.body, "step": r.step, "severity": r.severity, "attributes": r.attributes} for r in records]})
print(json.dumps(found))
"""


def run(program: str, directories: Directories, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment}
    return subprocess.run([sys.executable, "-c", PRELUDE + program], env=settings, capture_output=True, text=True, timeout=150)


def rings(directories: Directories) -> list[dict[str, Any]]:
    done = subprocess.run([sys.executable, "-c", READ, str(directories.rings)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def of(ring: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [record for record in ring["records"] if record["name"] == name]


def test_a_decorated_job_that_ends_well(llmtrace_dirs: Directories) -> None:
    done = run("print(llmtrace.trace(train)())", llmtrace_dirs)
    assert done.returncode == 0, done.stderr
    (ring,) = rings(llmtrace_dirs)
    assert ring["ended"] == "clean"
    assert [(record["body"], record["step"]) for record in of(ring, "llmtrace.log")] == [(f"step {step}", step) for step in range(4)]
    assert [record["step"] for record in of(ring, "llmtrace.step")] == [0, 1, 2, 3]
    assert of(ring, "llmtrace.memory")
    assert not of(ring, "llmtrace.failure")


@pytest.mark.parametrize("decorated", [True, False])
def test_an_exception_is_one_failure_with_the_users_line_and_the_exit_of_the_interpreter(llmtrace_dirs: Directories, decorated: bool) -> None:
    program = "def hook(step):\n    if step == 2:\n        raise ValueError('bad batch')\n"
    program += "llmtrace.trace(train)(4, hook)" if decorated else "llmtrace.start()\ntrain(4, hook)"
    done = run(program, llmtrace_dirs)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("ValueError: bad batch")
    (ring,) = rings(llmtrace_dirs)
    (failure,) = of(ring, "llmtrace.failure")
    assert (failure["body"], failure["step"]) == ("ValueError: bad batch", 2)
    assert failure["attributes"]["llmtrace.failure.seen_by"] == ("trace" if decorated else "excepthook")
    assert failure["attributes"]["exception.stacktrace"].rstrip().endswith("ValueError: bad batch")
    assert ring["ended"] == "raised"


def test_host_memory_that_runs_out_is_an_oom_event_before_the_failure(llmtrace_dirs: Directories) -> None:
    done = run("llmtrace.trace(train)(4, lambda step: step == 1 and torch.empty(1 << 50, dtype=torch.uint8))", llmtrace_dirs)
    assert done.returncode == 1
    (ring,) = rings(llmtrace_dirs)
    names = [record["name"] for record in ring["records"]]
    assert names.index("llmtrace.oom") < names.index("llmtrace.failure")
    assert of(ring, "llmtrace.oom")[0]["attributes"]["llmtrace.oom.size_bytes"] == 1 << 50


def test_kill_9_loses_nothing_that_was_logged(llmtrace_dirs: Directories) -> None:
    done = run("llmtrace.trace(train)(4, lambda step: step == 3 and os.kill(os.getpid(), 9))", llmtrace_dirs)
    assert done.returncode == -signal.SIGKILL
    (ring,) = rings(llmtrace_dirs)
    assert ring["ended"] == "running"
    assert [record["body"] for record in of(ring, "llmtrace.log")] == [f"step {step}" for step in range(4)]
    assert len(of(ring, "llmtrace.step")) == 3


def test_a_segmentation_fault_leaves_its_stacks_beside_the_ring(llmtrace_dirs: Directories) -> None:
    done = run("llmtrace.trace(train)(4, lambda step: step == 1 and os.kill(os.getpid(), signal.SIGSEGV))", llmtrace_dirs)
    assert done.returncode == -signal.SIGSEGV
    (fatal,) = llmtrace_dirs.rings.rglob("*.fatal")
    assert "Segmentation fault" in fatal.read_text()
    assert " in train" in fatal.read_text()
    pid, ticks, span = fatal.stem.split("-")
    assert pid.isdecimal()
    assert ticks.isdecimal()
    (ring,) = llmtrace_dirs.rings.rglob("*.ring")
    assert ring.stem == fatal.stem
    assert len(span) == 16


def test_a_forked_workers_lines_are_its_own_and_its_crash_not_its_parents(llmtrace_dirs: Directories) -> None:
    program = (
        "import faulthandler\n"
        "def hook(step):\n"
        "    if step == 1:\n"
        "        pid = os.fork()\n"
        "        if not pid:\n"
        "            log.warning('in the child')\n"
        "            os.kill(os.getpid(), signal.SIGSEGV)\n"
        "        os.waitpid(pid, 0)\n"
        "llmtrace.trace(train)(3, hook)"
    )
    done = run(program, llmtrace_dirs)
    assert done.returncode == 0, done.stderr
    by_role = {ring["role"]: ring for ring in rings(llmtrace_dirs)}
    assert [record["body"] for record in of(by_role["worker"], "llmtrace.log")] == ["in the child"]
    assert "in the child" not in [record["body"] for record in of(by_role["rank"], "llmtrace.log")]
    assert [path.read_text() for path in llmtrace_dirs.rings.rglob("*.fatal")] in ([""], [])


def test_an_exit_while_threads_log_is_clean(llmtrace_dirs: Directories) -> None:
    program = (
        "sys.setswitchinterval(1e-4)  # else each wait for the interpreter costs the main thread 20 ms, traced or not\n"
        "llmtrace.start()\n"
        "def chatter():\n"
        "    while True:\n"
        "        log.warning('still here')\n"
        "logging.getLogger().addHandler(logging.NullHandler())\n"
        "for _ in range(4):\n"
        "    threading.Thread(target=chatter, daemon=True).start()\n"
        "train(3)\n"
    )
    done = run(program, llmtrace_dirs)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "llmtrace:" not in done.stderr
    (ring,) = rings(llmtrace_dirs)
    assert ring["ended"] == "clean"


def test_losses_are_bit_identical_with_tracing_on_and_off(llmtrace_dirs: Directories) -> None:
    program = "print(llmtrace.trace(train)(20).hex())"
    on, off = run(program, llmtrace_dirs), run(program, llmtrace_dirs, LLMTRACE="0")
    assert on.returncode == off.returncode == 0, on.stderr + off.stderr
    assert on.stdout == off.stdout
    assert len(rings(llmtrace_dirs)) == 1


def test_left_out_instruments_are_left_out(llmtrace_dirs: Directories) -> None:
    done = run("llmtrace.trace(train)()", llmtrace_dirs, LLMTRACE_DISABLE="logs,steps")
    assert done.returncode == 0, done.stderr
    (ring,) = rings(llmtrace_dirs)
    assert {record["name"] for record in ring["records"]} == {"llmtrace.process"}
