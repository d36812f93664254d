"""The journal among processes: killed writers, readers beside them, full disks, read-only folders, copies."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmtrace.frames import decode_values
from llmtrace.journal import DERIVED, Journal, JournalReader
from tests.support import journal_processes
from tests.support.journal_processes import MB, SPAN, numbers, parts, write_rounds

SCRIPT = journal_processes.__file__


@contextmanager
def scenario(name: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, SCRIPT, name, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def finished(*command: str) -> str:
    """The output of a scenario that must end well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def mounting() -> list[str] | None:
    """The command before which another gets a mount namespace of its own; None where this user may not have one."""
    for prefix in (["unshare", "-m"], ["unshare", "-Urm"]):
        if shutil.which("unshare") and subprocess.run([*prefix, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode == 0:
            return prefix
    return None


MOUNTING = mounting()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.1.sqlite"


def test_a_writer_killed_two_hundred_times_loses_nothing_and_doubles_nothing(path: Path) -> None:
    said = 0
    with scenario("fork", path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(200):
            process.stdin.write("\n")
            process.stdin.flush()
            writer = int(process.stdout.readline())
            time.sleep(random.random() * 0.05)
            os.kill(writer, signal.SIGKILL)
            while (line := process.stdout.readline()) != "gone\n":
                said = int(line)
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e12)
    chunks = journal.chunks_after(0, 1 << 30)
    found = numbers(chunks)
    known = journal.ring(SPAN)
    assert known is not None
    assert found == list(range(known.tail))
    assert len(found) >= said > 1000
    assert known.description == parts(known.tail)
    at, _ = journal.cursor("detection")
    consumed = [number for number in numbers([chunk for chunk in chunks if chunk.id <= at]) if number % 10 == 0]
    about = [int(decode_values(payload)[4]) for chunk in chunks for _, position, payload in chunk.frames() if position >= DERIVED]
    assert about == consumed
    assert numbers(chunks, derived=True) == list(range(known.derived))
    assert journal.drops() == {}
    journal.close()


def test_a_reader_sees_whole_transactions_while_another_process_writes(path: Path) -> None:
    with scenario("tail", path) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        reader = JournalReader(path)
        seen = [0]
        until = time.monotonic() + 3
        while time.monotonic() < until:
            rings_before = reader.rings()
            found = sorted(numbers(reader.chunks_between(0, 1 << 62)))
            rings_after = reader.rings()
            assert found == list(range(len(found)))
            assert seen[-1] <= rings_before[0].tail <= len(found) <= rings_after[0].tail
            seen.append(len(found))
        reader.close()
    assert seen[-1] > seen[1]


def test_two_writers_of_one_journal_by_mistake_lose_nothing(path: Path) -> None:
    with scenario("write", path, "1" * 16, 60) as one, scenario("write", path, "2" * 16, 60) as two:
        assert (one.wait(60), two.wait(60)) == (0, 0)
    with JournalReader(path) as reader:
        for span_id in ("1" * 16, "2" * 16):
            assert numbers(reader.chunks_between(0, 1 << 62, [span_id])) == list(range(600))


def test_two_directories_are_two_journals(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    paths = [tmp_path / name / "journal.1.sqlite" for name in ("one", "two")]
    with scenario("write", paths[0], "1" * 16, 20) as one, scenario("write", paths[1], "2" * 16, 30) as two:
        assert (one.wait(60), two.wait(60)) == (0, 0)
    for path, span_id, count in zip(paths, ("1" * 16, "2" * 16), (200, 300), strict=True):
        with JournalReader(path) as reader:
            assert [ring.span_id for ring in reader.rings()] == [span_id]
            assert numbers(reader.chunks_between(0, 1 << 62)) == list(range(count))


@pytest.mark.parametrize("what", ["fill", "begin"])
@pytest.mark.parametrize("how", ["tmpfs", "quota"] if MOUNTING else ["quota"])
def test_a_full_disk_is_one_kind_of_error_and_passes(path: Path, what: str, how: str) -> None:
    if how == "quota":
        said = finished(sys.executable, SCRIPT, what, str(path), str(5 * MB))
    else:
        script = f"mount -t tmpfs -o size=10m none '{path.parent}' && exec '{sys.executable}' '{SCRIPT}' {what} '{path}' 0"
        said = finished(*(MOUNTING or []), "sh", "-c", script)
    assert said.startswith("held")


def expose(path: Path) -> None:
    """Readable by all, writable by none (root aside)."""
    for file in path.parent.iterdir():
        file.chmod(0o444)
    path.parent.chmod(0o555)


@pytest.fixture
def shut() -> Iterator[Path]:
    """A journal's path in a folder that another user can get at."""
    with tempfile.TemporaryDirectory(prefix="llmtrace-tests-", dir="/tmp") as folder:
        yield Path(folder) / "journal.1.sqlite"
        Path(folder).chmod(0o755)


def check_read_without_rights(path: Path) -> None:
    assert finished(sys.executable, SCRIPT, "read", str(path)) == "held\n"


def test_a_closed_journal_is_read_in_a_folder_that_may_not_be_written(shut: Path) -> None:
    write_rounds(shut, SPAN, 10)
    expose(shut)
    check_read_without_rights(shut)


def test_a_live_journal_is_read_in_a_folder_that_may_not_be_written(shut: Path) -> None:
    journal = Journal.open(shut, max_bytes=1 << 30, max_age_s=1e12)
    expose(shut)
    write_rounds(shut, SPAN, 10)
    assert shut.with_name(shut.name + "-wal").stat().st_size > 0
    check_read_without_rights(shut)
    journal.close()


def copy_of_a_live_journal(path: Path, target: Path) -> None:
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e12)
    write_rounds(path, SPAN, 10)
    for suffix in ("", "-wal"):  # by another process: closing a file here would let go of SQLite's locks on it
        subprocess.run(["cp", f"{path}{suffix}", f"{target}{suffix}"], check=True)
    journal.close()
    assert Path(f"{target}-wal").stat().st_size > 0


def test_a_copy_with_its_log_is_read(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.sqlite"
    copy_of_a_live_journal(path, target)
    with JournalReader(target) as reader:
        assert numbers(reader.chunks_between(0, 1 << 62)) == list(range(100))


def test_a_copy_with_its_log_is_read_in_a_folder_that_may_not_be_written(path: Path, shut: Path) -> None:
    copy_of_a_live_journal(path, shut)
    expose(shut)
    check_read_without_rights(shut)


def test_what_a_killed_writer_left_is_read_before_anybody_writes_again(path: Path) -> None:
    with scenario("tail", path) as process:
        assert process.stdout is not None
        for _ in range(20):
            said = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
    with JournalReader(path) as reader:
        found = sorted(numbers(reader.chunks_between(0, 1 << 62)))
    assert found == list(range(len(found)))
    assert len(found) >= int(said)
