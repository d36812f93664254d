"""`llmtrace context` on a journal that a disk scribbled over: what can be read is shown, what is missing is said, and else one line refuses."""

from __future__ import annotations

import random
import shutil
import subprocess
import sysconfig
from pathlib import Path

import msgspec
import pytest

from llmtrace.journal import Journal
from llmtrace.journal.pages import TABLE_LEAF, Pages
from tests.support.cases import line, process, who
from tests.support.journals import OFFSET_NS, frame, write
from tests.support.small_job import incident

PAGE = 8192
SECONDS = 60
LLMTRACE = Path(sysconfig.get_path("scripts")) / "llmtrace"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The journal of a job of two ranks with an incident at its 100th second; each line is long enough for a page of chunks of its own."""
    made = random.Random(1)
    path = write(tmp_path / "job", [], [process(0), process(1, "raised", 1, 101)], [incident()]) / "journal.1.sqlite"
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e9)
    for second in range(SECONDS):
        for rank in (0, 1):
            said = line(who(rank), 41 + second, f"rank {rank} line {second} {made.randbytes(3000).hex()}")
            with journal.transaction() as transaction:
                transaction.append(who(rank).span_id, [frame(said, second << 16)], OFFSET_NS, bulk=False)
    journal.close()
    return path


def overwrite(path: Path, *numbers: int) -> None:
    with open(path, "r+b") as stream:
        for number in numbers:
            stream.seek((number - 1) * PAGE)
            stream.write(b"\xff" + random.Random(number).randbytes(PAGE - 1))


def context(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(LLMTRACE), "context", "last", "--dir", str(path.parent), "--before", "90s", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def bodies(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    found = [msgspec.json.decode(row) for row in done.stdout.splitlines()]
    return [row["body"] for row in found if row["kind"] == "log"]


def leaves(path: Path) -> list[int]:
    """Pages of chunks."""
    pages = Pages(path)
    found = [number for number in pages.leaves(TABLE_LEAF) if any(len(cell.columns()) == 13 for cell in pages.cells(number))]
    pages.close()
    return found


def test_without_its_header_everything_is_shown(path: Path) -> None:
    whole = bodies(context(path, "--json"))
    assert len(whole) == 2 * SECONDS
    overwrite(path, 1)
    done = context(path, "--json")
    assert bodies(done) == whole
    assert len(done.stderr.splitlines()) == 1
    assert "none is lost" in done.stderr


def test_without_some_pages_of_chunks_the_rest_is_shown_and_how_many_are_missing(path: Path) -> None:
    whole = bodies(context(path, "--json"))
    overwrite(path, *leaves(path)[3:20:4])
    done = context(path, "--json")
    rest = bodies(done)
    assert 2 * SECONDS - 20 < len(rest) < 2 * SECONDS
    assert set(rest) < set(whole)
    assert len(done.stderr.splitlines()) == 1
    assert "are lost" in done.stderr
    shown = context(path, "--no-color")
    assert shown.returncode == 0
    assert "chunks lost to damage" in " ".join(shown.stdout.split())
    assert "rank 1" in shown.stdout


def test_the_runs_and_incidents_of_a_damaged_journal_are_listed(path: Path) -> None:
    overwrite(path, 1, *leaves(path)[-1:])
    for command in ("runs", "incidents"):
        done = subprocess.run([LLMTRACE, command, "--json", "--dir", path.parent], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert len(msgspec.json.decode(done.stdout)) == 1


def test_a_damaged_journal_beside_a_sound_one_is_read_with_it(path: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", [line(who(2), 99, "rank 2")], [process(2)])
    overwrite(path, 1)
    found = bodies(context(path, "--json", "--dir", str(other)))
    assert len(found) == 2 * SECONDS + 1


def test_where_nothing_can_be_read_one_line_refuses(path: Path) -> None:
    overwrite(path, *range(1, path.stat().st_size // PAGE + 1))
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    done = context(path)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"llmtrace: {path}")


def test_a_journal_set_aside_is_read_where_it_is_given_its_name_back(path: Path, tmp_path: Path) -> None:
    overwrite(path, *leaves(path)[3:5])
    again = tmp_path / "again"
    again.mkdir()
    shutil.copyfile(path, again / "journal.1.sqlite")
    assert len(bodies(context(again / "journal.1.sqlite", "--json"))) > SECONDS
