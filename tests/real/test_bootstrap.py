"""LLMTRACE=1 and not a line of code: under python and torchrun, with children, and beside a sitecustomize of the site's own."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmtrace.bootstrap import environment, never_trains, site_folder
from llmtrace.directory import Directory
from llmtrace.names import FAILURE, STEP
from tests.conftest import Directories
from tests.support.ranks import no_agent, program, rings, run, torchrun

ROOT = Path(__file__).resolve().parents[2]
TRAIN = """
import logging, os, sys
import torch
logging.basicConfig(level=logging.INFO)
log = logging.getLogger("train")

def train(group):
    if group:
        torch.distributed.init_process_group("gloo")
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        log.info("step %d", step)
        optimizer.zero_grad()
        model(torch.ones(2, 2)).mean().backward()
        optimizer.step()

if __name__ == "__main__":
    train("group" in sys.argv)
"""


@pytest.fixture
def quiet(llmtrace_dirs: Directories) -> Iterator[Directory]:
    with no_agent() as found:
        yield found


def tracing(**more: str) -> dict[str, str]:
    """What `llmtrace run` adds to the environment where no .pth is installed."""
    found = environment({**os.environ, **more})
    return {name: found[name] for name in ("LLMTRACE", "PYTHONPATH") if name in found} | more


def test_a_plain_loop_is_traced_from_its_first_optimizer_on(tmp_path: Path, quiet: Directory) -> None:
    done = run(program(TRAIN, tmp_path), **tracing())
    assert done.returncode == 0, done.stderr
    (ring,) = rings(quiet)
    assert ring.bodies() == [f"step {n}" for n in range(4)]
    assert [record.step for record in ring.named(STEP)] == [0, 1, 2, 3]
    assert (ring.header.ended, ring.identity.run, ring.identity.rank) == ("clean", 1, None)


def test_ranks_of_torchrun_are_one_trace_and_one_attempt_and_the_launcher_is_none(tmp_path: Path, quiet: Directory) -> None:
    done = torchrun(program(TRAIN, tmp_path), "group", **tracing())
    assert done.returncode == 0, done.stderr
    found = rings(quiet)
    assert sorted(ring.identity.rank or 0 for ring in found) == [0, 1]
    assert len({(ring.identity.trace_id, ring.identity.attempt) for ring in found}) == 1
    assert all(ring.bodies() == [f"step {n}" for n in range(4)] for ring in found)


EARLY = """
import logging, os, sys, time
import torch
logging.basicConfig(level=logging.INFO)
logging.getLogger("train").info("reading the configuration")
if os.environ["RANK"] == "1":
    raise FileNotFoundError("no such shard")
time.sleep(20)
"""


def test_a_rank_that_fails_before_its_group_and_its_optimizer_says_why(tmp_path: Path, quiet: Directory) -> None:
    done = torchrun(program(EARLY, tmp_path), **tracing())
    assert done.returncode == 1
    found = {ring.identity.rank: ring for ring in rings(quiet)}
    assert found[1].header.ended == "raised"
    assert [record.body for record in found[1].named(FAILURE)] == ["FileNotFoundError: no such shard"]
    assert all(ring.bodies()[0] == "reading the configuration" for ring in found.values())


FIRST = """
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        from torch.distributed import PrefixStore, TCPStore
        store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, False)
        torch.distributed.init_process_group("gloo", store=PrefixStore("first", store), rank=int(os.environ["RANK"]), world_size=2)
        sys.exit(3)
"""
"""The first attempt, under a prefix of its own: gloo of torch 2.15 finds the addresses of the attempt before in the store, and fails in 3 of
4 restarts, traced or not."""


def test_a_restart_is_the_same_trace_another_attempt_and_a_linked_span(tmp_path: Path, quiet: Directory) -> None:
    text = TRAIN.replace("    if group:", FIRST + "    if group:", 1)
    done = run(
        program(text, tmp_path),
        "group",
        before=("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"),
        timeout=150,
        **tracing(),
    )
    assert done.returncode == 0, done.stderr
    found = [ring.identity for ring in rings(quiet)]
    assert len({identity.trace_id for identity in found}) == 1
    assert {identity.restart for identity in found} == {0, 1}
    assert len({(identity.restart, identity.attempt) for identity in found}) == 2
    before = {identity.rank: identity.span_id for identity in found if identity.restart == 0}
    assert {identity.rank: identity.linked_span_id for identity in found if identity.restart == 1}.items() >= {(0, before[0])}


SPAWN = """
import job, os, sys
import torch.multiprocessing as mp

def rank(number):
    os.environ.update(RANK=str(number), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
    job.train(True)

if __name__ == "__main__":
    mp.start_processes(rank, nprocs=2, start_method=sys.argv[2])
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_ranks_that_the_program_spawns_itself_are_ranks(method: str, tmp_path: Path, quiet: Directory) -> None:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program(TRAIN, tmp_path)
    done = run(program(SPAWN, tmp_path, "spawning.py"), str(port), method, **tracing())
    assert done.returncode == 0, done.stderr
    found = rings(quiet)
    assert sorted((ring.identity.rank, ring.identity.role) for ring in found) == [(0, "rank"), (1, "rank")]
    assert len({(ring.identity.trace_id, ring.identity.attempt) for ring in found}) == 1


LOADER = """
import job, logging, sys, torch
import torch.distributed as dist

class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, index):
        logging.getLogger("data").warning("item %d", index)
        return index

if __name__ == "__main__":
    dist.init_process_group("gloo")
    loader = torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context=sys.argv[1])
    list(loader)
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_dataloaders_workers_are_workers_of_their_rank_and_their_lines_are_kept(method: str, tmp_path: Path, quiet: Directory) -> None:
    program(TRAIN, tmp_path)
    done = torchrun(program(LOADER, tmp_path, "loading.py"), method, ranks=1, **tracing())
    assert done.returncode == 0, done.stderr
    found = rings(quiet)
    (rank,) = [ring for ring in found if ring.identity.role == "rank"]
    workers = [ring for ring in found if ring.identity.role == "worker"]
    assert sorted(str(body) for ring in workers for body in ring.bodies()) == [f"item {n}" for n in range(8)]
    assert {ring.identity.parent_span_id for ring in workers} == {rank.identity.span_id}
    assert {ring.identity.trace_id for ring in found} == {rank.identity.trace_id}


def test_what_does_not_train_starts_nothing(tmp_path: Path, quiet: Directory) -> None:
    done = run(program("import torch, sys\nassert not any(m.startswith('llmtrace.rank.runtime') for m in sys.modules)\n", tmp_path), **tracing())
    assert done.returncode == 0, done.stderr
    done = run(program("import sys\nassert 'msgspec' not in sys.modules and 'importlib.util' not in sys.modules\n", tmp_path), **tracing())
    assert done.returncode == 0, done.stderr
    assert rings(quiet) == []


def test_llmtrace_0_beats_it(tmp_path: Path, quiet: Directory) -> None:
    assert environment({"LLMTRACE": "0"})["LLMTRACE"] == "0"
    run(program(TRAIN, tmp_path), **(tracing() | {"LLMTRACE": "0"}))
    assert rings(quiet) == []


def test_the_sites_own_sitecustomize_runs_too(tmp_path: Path, quiet: Directory) -> None:
    own = tmp_path / "own"
    own.mkdir()
    program("import builtins; builtins.own = __file__\n", own, "sitecustomize.py")
    done = run(program("print(own)\n" + TRAIN, tmp_path), **tracing(PYTHONPATH=str(own)) | {"PYTHONPATH": os.pathsep.join([site_folder(), str(own)])})
    assert done.stdout.strip() == str(own / "sitecustomize.py"), done.stderr
    assert len(rings(quiet)) == 1


def test_a_python_without_llmtrace_is_left_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import sitecustomize; print('fine')"],
        env={"PYTHONPATH": site_folder(), "LLMTRACE": "1", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("command", "never"),
    [
        (["python", "-m", "pip", "install"], True),
        (["python", "/usr/bin/pip3", "list"], True),
        (["python", "-c", "from multiprocessing.resource_tracker import main;main(4)"], True),
        (["python", "train.py", "pip"], True),
        (["python", "train.py", "--lr", "pip"], False),
        (["torchrun", "train.py"], False),
        (["python"], False),
    ],
)
def test_helpers_of_python_are_told_by_their_command_line(command: list[str], never: bool) -> None:
    assert never_trains(command) is never


@pytest.fixture(scope="module")
def pth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The .pth as the built wheel of llmtrace-auto carries it."""
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT / "integrations/llmtrace-auto",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if name.endswith(".pth")] == ["llmtrace-auto.pth"]
        return Path(archive.extract("llmtrace-auto.pth", folder))


def read_as_site(pth: Path, times: int) -> str:
    """A program's first lines: what site does with the line of a .pth."""
    return f"[exec(line) for line in open({str(pth)!r}) if line.startswith('import ')] * 1\n" * times


@pytest.mark.parametrize("times", [1, 2])
def test_the_pth_line_begins_tracing_once_however_often_it_is_read(times: int, pth: Path, tmp_path: Path, quiet: Directory) -> None:
    done = run(program(read_as_site(pth, times) + TRAIN, tmp_path), LLMTRACE="1")
    assert done.returncode == 0, done.stderr
    (ring,) = rings(quiet)
    assert [record.step for record in ring.named(STEP)] == [0, 1, 2, 3]


@pytest.mark.parametrize("value", ["", "0"])
def test_the_idle_pth_line_imports_nothing(value: str, pth: Path, tmp_path: Path) -> None:
    text = f"import sys; before = set(sys.modules)\n{read_as_site(pth, 1)}assert set(sys.modules) == before, set(sys.modules) - before\n"
    assert run(program(text, tmp_path), LLMTRACE=value).returncode == 0
