"""What tests/conftest.py promises to all tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"


def run_pytest(folder: Path, text: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "test_inner.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "--rootdir", str(folder), "--leave-within", "0.5", *arguments, str(folder)]
    return subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False)


def test_a_process_that_a_test_leaves_behind_fails_the_session_and_is_ended(tmp_path: Path) -> None:
    text = "import subprocess\ndef test_it(llmtrace_dirs):\n    print('PID', subprocess.Popen(['sleep', '60']).pid)\n"
    done = run_pytest(tmp_path, text)
    assert done.returncode == 1, done.stdout
    assert "left behind" in done.stdout
    pid = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("PID"))
    command = Path(f"/proc/{pid}/cmdline")
    assert not command.exists() or b"sleep" not in command.read_bytes()


def test_a_job_around_the_tests_is_not_seen_by_them_and_folders_are_fresh(tmp_path: Path) -> None:
    text = """
import os
def test_it(llmtrace_dirs):
    assert "RANK" not in os.environ
    assert "LLMTRACE" not in os.environ
    assert "LLMTRACE_TEAM" not in os.environ
    assert os.environ["LLMTRACE_DIR"] == str(llmtrace_dirs.path)
    assert os.environ["LLMTRACE_RING_DIR"] == str(llmtrace_dirs.rings)
    print("RINGS", llmtrace_dirs.rings)
def test_default():
    assert "/var/tmp" not in os.environ["LLMTRACE_DIR"]
"""
    done = run_pytest(tmp_path, text, RANK="3", LLMTRACE="1", LLMTRACE_TEAM="red", LLMTRACE_DIR="/var/tmp/llmtrace-0")
    assert done.returncode == 0, done.stdout
    rings = next(line.split()[1] for line in done.stdout.splitlines() if "RINGS" in line)
    assert not Path(rings).exists()
    assert not Path(rings).parent.exists()


def test_the_source_tree_is_refused_where_the_wheel_is_asked_for(tmp_path: Path) -> None:
    fake = tmp_path / "elsewhere" / "llmtrace"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("")
    done = run_pytest(tmp_path, "def test_it(): pass\n", "--installed", PYTHONPATH=str(fake.parent))
    assert done.returncode == 4
    assert "not from the wheel" in done.stderr
