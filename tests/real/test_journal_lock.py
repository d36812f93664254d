"""The agent's lock among processes: it goes with its holder, and nothing else takes or loses it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmtrace.directory import AgentLock, Directory, agent_alive

HOLD = """
import sys
from pathlib import Path
from llmtrace.directory import AgentLock, Directory
lock = AgentLock(Directory(*map(Path, sys.argv[1:])))
print(lock.acquire(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path) -> Directory:
    return Directory(tmp_path, tmp_path / "tmpfs", tmp_path / "rings")


@contextmanager
def holder(place: Directory) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(place.path), str(place.rings), str(place.registry)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_lock_goes_with_a_killed_agent_and_not_before(place: Directory) -> None:
    for _ in range(5):
        with holder(place) as process:
            assert said(process) == "True"
            for _ in range(20):  # asking opens and closes the file, which would free a POSIX lock held here
                assert agent_alive(place)
            with holder(place) as second:
                assert said(second) == "False"
            assert not AgentLock(place).acquire()
            assert agent_alive(place)
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert not agent_alive(place)


def test_an_agents_own_questions_do_not_free_its_lock(place: Directory) -> None:
    lock = AgentLock(place)
    assert lock.acquire()
    assert agent_alive(place)
    with holder(place) as process:
        assert said(process) == "False"
    lock.release()
