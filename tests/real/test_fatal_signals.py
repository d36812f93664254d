"""Fatal signals: the stacks of a process that dies of one lie beside its ring, and nobody else's faulthandler is touched."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PRELUDE = """
import ctypes, faulthandler, os, signal, sys
from pathlib import Path
from llmtrace.rank.instruments.failures import FatalSignals
path = Path(sys.argv[1])
def innermost(number):
    os.kill(os.getpid(), number)
"""


def run(program: str, path: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PRELUDE + program, str(path), *map(str, arguments)], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL])
def test_a_fatal_signal_leaves_the_stacks_and_its_own_exit_code(tmp_path: Path, number: signal.Signals) -> None:
    done = run("signals = FatalSignals(path)\ninnermost(int(sys.argv[2]))", tmp_path / "a.fatal", int(number))
    assert done.returncode == -number
    text = (tmp_path / "a.fatal").read_text()
    assert "Fatal Python error" in text
    assert "in innermost" in text
    assert done.stderr == ""


def test_where_faulthandler_is_enabled_already_it_stays_the_users(tmp_path: Path) -> None:
    program = "faulthandler.enable()\nsignals = FatalSignals(path)\nsignals.undo()\nassert faulthandler.is_enabled()\ninnermost(11)"
    done = run(program, tmp_path / "a.fatal")
    assert done.returncode == -signal.SIGSEGV
    assert "in innermost" in done.stderr
    assert not (tmp_path / "a.fatal").exists()


def test_who_enables_it_after_us_gets_it_and_our_descriptor_is_closed(tmp_path: Path) -> None:
    program = (
        "before = len(os.listdir('/proc/self/fd'))\n"
        "signals = FatalSignals(path)\n"
        "assert len(os.listdir('/proc/self/fd')) == before + 1\n"
        "faulthandler.enable()\n"
        "assert len(os.listdir('/proc/self/fd')) == before\n"
        "signals.undo()\n"
        "assert faulthandler.is_enabled()\n"
        "innermost(11)"
    )
    done = run(program, tmp_path / "a.fatal")
    assert "in innermost" in done.stderr
    assert not (tmp_path / "a.fatal").exists()


def test_undo_leaves_nothing_behind_and_it_can_be_done_again(tmp_path: Path) -> None:
    program = (
        "before = len(os.listdir('/proc/self/fd'))\n"
        "for _ in range(3):\n"
        "    signals = FatalSignals(path)\n"
        "    assert faulthandler.is_enabled() and path.exists() and path.stat().st_mode & 0o777 == 0o600\n"
        "    signals.undo()\n"
        "    assert not faulthandler.is_enabled() and not path.exists() and len(os.listdir('/proc/self/fd')) == before\n"
        "    signals.undo()\n"
    )
    done = run(program, tmp_path / "a.fatal")
    assert done.returncode == 0, done.stderr


def test_a_forked_childs_crash_is_not_written_as_its_parents(tmp_path: Path) -> None:
    program = (
        "signals = FatalSignals(path)\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    innermost(11)\n"
        "assert os.waitpid(pid, 0)[1] & 0x7f == 11\n"
        "assert path.read_text() == ''\n"
        "innermost(11)"
    )
    done = run(program, tmp_path / "a.fatal")
    assert done.returncode == -signal.SIGSEGV, done.stderr
    assert (tmp_path / "a.fatal").read_text().count("Fatal Python error") == 1
