"""What all tests share: folders of their own for journal and rings, an environment without a job in it, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # how long an example takes says how busy the machine is
settings.load_profile("untimed")

SHM = Path("/dev/shm")
JOB_VARIABLES = (
    "LLMTRACE",
    "SLURM_",
    "TORCHELASTIC_",
    "OTEL_",
    "KUBERNETES_",
    "MASTER_",
    "TRACEPARENT",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "NODE_RANK",
)


class Directories(NamedTuple):
    """Where a test's llmtrace keeps its things: `path` is LLMTRACE_DIR, `rings` is LLMTRACE_RING_DIR on a tmpfs."""

    path: Path
    rings: Path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--installed", action="store_true", help="refuse to test anything but a llmtrace installed from its wheel")
    parser.addoption("--leave-within", type=float, default=15.0, help="seconds that processes which tests started may take to leave at the end")


def pytest_configure(config: pytest.Config) -> None:
    for name in [name for name in os.environ if name.startswith(JOB_VARIABLES)]:
        del os.environ[name]
    shelter = Path(tempfile.mkdtemp(prefix="llmtrace-tests-", dir=SHM))
    config.stash[SHELTER] = shelter
    # Where a test, or a process that it starts, forgets to choose: never the real folders of this user.
    os.environ.update(LLMTRACE_DIR=str(shelter / "default"), LLMTRACE_RING_DIR=str(shelter), OMP_NUM_THREADS="1", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    if config.getoption("--installed"):
        refuse_source_tree()


def refuse_source_tree() -> None:
    import llmtrace

    home = Path(str(llmtrace.__file__)).resolve()
    if not home.is_relative_to(Path(sys.prefix).resolve()):
        raise pytest.UsageError(f"llmtrace is imported from {home}, not from the wheel in {sys.prefix}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What needs a GPU runs by itself where there is one; README lists it as unverified until it has."""
    return True if collection_path.name == "gpu" and not Path("/dev/nvidiactl").exists() else None


@pytest.fixture
def llmtrace_dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Directories]:
    """A fresh LLMTRACE_DIR and LLMTRACE_RING_DIR, both in the environment; the rings are removed afterwards."""
    rings = Path(tempfile.mkdtemp(prefix="rings-", dir=request.config.stash[SHELTER]))
    path = tmp_path / "llmtrace"
    monkeypatch.setenv("LLMTRACE_DIR", str(path))
    monkeypatch.setenv("LLMTRACE_RING_DIR", str(rings))
    yield Directories(path, rings)
    shutil.rmtree(rings, ignore_errors=True)


SHELTER = pytest.StashKey[Path]()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """No process of a test may stay: whoever names the session's folders is given the time an agent has to leave, then the session fails."""
    time.sleep(0.3)  # of a process that was started a moment ago /proc does not name the environment yet
    left = remaining(session.config)
    until = time.monotonic() + session.config.getoption("--leave-within")
    while left and time.monotonic() < until:
        time.sleep(0.1)
        left = remaining(session.config)
    for pid, command in left.items():
        session.config.stash.setdefault(LEFT, []).append(f"{pid}: {command}")
        kill(pid)
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


LEFT = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(LEFT, []):
        terminalreporter.write_line(f"FAILED: a process was left behind and has been killed: {line}", red=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[SHELTER], ignore_errors=True)


def remaining(config: pytest.Config) -> dict[int, str]:
    """Processes other than this one whose environment or command line names the session's folders: pid -> command line."""
    shelter = str(config.stash[SHELTER]).encode()
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            if command and shelter in (entry / "environ").read_bytes() + command:
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # it ended while we looked, or is another user's
            continue
    return found


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
