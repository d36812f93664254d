"""A journal that will not take it, folders full of junk, a clock that steps: the agent goes on, and what it lost is counted."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmtrace.clock import process_start_ticks
from llmtrace.ring import layout
from tests.support.agents import Rank, Seen, agent, start_agent, until

SEEN = Seen()


def test_a_journal_that_somebody_locks_delays_and_loses_nothing(llmtrace_dirs) -> None:
    with Rank() as rank, agent() as process:
        rank.tell("log", 5)
        until(lambda: len(SEEN.lines(rank.span_id)) == 5)
        other = sqlite3.connect(llmtrace_dirs.path / "journal.1.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        rank.tell("log", 40, 5)  # eight seconds: longer than a writer waits
        other.execute("ROLLBACK")
        other.close()
        assert process.poll() is None
        rank.tell("end", "clean")
        rank.send("leave", 0)
        assert process.wait(timeout=15) == 0
        assert SEEN.lines(rank.span_id) == [f"line {i}" for i in range(45)]
        assert SEEN.process(rank.span_id).lost == 0
        assert "journal" in (llmtrace_dirs.path / "agent.log").read_text()


def test_a_damaged_journal_is_set_aside_and_counted_and_what_the_ring_still_has_is_in_the_new_one(llmtrace_dirs) -> None:
    journal = llmtrace_dirs.path / "journal.1.sqlite"
    with Rank() as rank:
        with agent():
            rank.tell("log", 5)
            until(lambda: len(SEEN.lines(rank.span_id)) == 5)
        for path in (journal, Path(f"{journal}-wal")):
            with path.open("r+b") as stream:
                stream.write(os.urandom(path.stat().st_size))
        with agent() as process:
            rank.tell("log", 5)
            until(lambda: len(SEEN.lines(rank.span_id)) == 10)
            rank.send("kill")
            rank.popen.wait()
            assert until(SEEN.incidents)[0].culprit.rank == 0
            assert process.wait(timeout=15) == 0
    assert journal.with_name("journal.1.sqlite.damaged").exists()
    assert SEEN.drops()["journal_corrupt"] == 1
    assert "damaged" in (llmtrace_dirs.path / "agent.log").read_text()


def test_a_journal_that_is_deleted_under_it_begins_anew_and_detection_goes_on(llmtrace_dirs) -> None:
    journal = llmtrace_dirs.path / "journal.1.sqlite"
    with Rank(0), Rank(1) as rank, agent():
        rank.tell("log", 5)
        until(lambda: len(SEEN.lines(rank.span_id)) == 5)
        for suffix in ("", "-wal", "-shm"):
            Path(f"{journal}{suffix}").unlink()
        until(lambda: len(SEEN.processes()) == 2)
        rank.tell("log", 5)
        until(lambda: SEEN.lines(rank.span_id)[-1:] == ["line 9"])
        rank.send("kill")
        rank.popen.wait()
        incident = until(SEEN.incidents, 2)[0]
        assert incident.culprit.rank == 1


def test_a_write_ahead_log_that_is_deleted_under_it_costs_nothing(llmtrace_dirs) -> None:
    with Rank(0) as rank, agent() as process:
        rank.tell("log", 20)
        until(lambda: len(SEEN.lines(rank.span_id)) == 20)
        (llmtrace_dirs.path / "journal.1.sqlite-wal").unlink()
        rank.tell("log", 20)
        until(lambda: len(SEEN.lines(rank.span_id)) == 40)
        rank.tell("end", "clean")
        rank.send("leave", 0)
        assert process.wait(timeout=15) == 0
        assert len(SEEN.lines(rank.span_id)) == 40


def test_a_full_disk_harms_no_rank_and_what_still_lies_in_the_ring_arrives_when_there_is_room(llmtrace_dirs) -> None:
    with Rank() as rank, agent() as process:
        rank.tell("log", 5)
        until(lambda: len(SEEN.lines(rank.span_id)) == 5)
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, hard))  # every write beyond fails, as on a full disk
        begin = time.monotonic()
        rank.tell("log", 2000)
        assert time.monotonic() - begin < 2
        time.sleep(2.5)
        assert process.poll() is None
        assert len(SEEN.lines(rank.span_id)) == 5
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (soft, hard))
        until(lambda: len(SEEN.lines(rank.span_id)) == 2005)
        assert SEEN.lines(rank.span_id) == [f"line {i}" for i in range(2005)]


def test_what_a_ring_overwrote_while_the_disk_was_full_is_counted_exactly(llmtrace_dirs) -> None:
    with Rank() as rank, agent() as process:
        rank.tell("log", 1)
        until(lambda: len(SEEN.lines(rank.span_id)) == 1)
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, hard))
        total = int(rank.tell("log", 150_000))
        time.sleep(1.5)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (soft, hard))
        until(lambda: SEEN.lines(rank.span_id)[-1:] == [f"line {total - 1}"], 20)
        lost = SEEN.process(rank.span_id).lost
        assert lost > 0
        assert len(SEEN.lines(rank.span_id)) + lost == total


def test_a_journal_that_cannot_be_made_keeps_the_agent_trying_and_the_ring_in_place(llmtrace_dirs) -> None:
    journal = llmtrace_dirs.path / "journal.1.sqlite"
    with Rank() as rank:
        journal.mkdir()
        with agent() as process:
            rank.tell("log", 5)
            time.sleep(1.5)
            assert process.poll() is None
            journal.rmdir()
            until(lambda: len(SEEN.lines(rank.span_id)) == 5)


def test_when_the_last_rank_is_gone_it_leaves_even_if_the_journal_never_came_and_leaves_the_ring(llmtrace_dirs) -> None:
    journal = llmtrace_dirs.path / "journal.1.sqlite"
    with Rank() as rank:
        journal.mkdir()
        process = start_agent()
        rank.tell("log", 5)
        rank.tell("end", "clean")
        rank.send("leave", 0)
        begin = time.monotonic()
        assert process.wait(timeout=20) == 0
        assert 5 < time.monotonic() - begin < 15
        assert len(list(llmtrace_dirs.rings.rglob("*.ring"))) == 1
    journal.rmdir()
    with agent() as process:
        assert process.wait(timeout=10) == 0
    assert len(SEEN.lines(rank.span_id)) == 5


def test_junk_beside_the_rings_disturbs_nobody_and_stays(llmtrace_dirs) -> None:
    with Rank() as rank:
        folder = next(llmtrace_dirs.rings.rglob("*.ring")).parent
        junk = [folder / name for name in ("x.ring", "1-2-3.ring", "note.txt")]
        junk[0].write_bytes(b"")
        junk[1].write_bytes(os.urandom(100_000))
        junk[2].write_text("hello")
        (llmtrace_dirs.path / "rings" / "999999999-1-00000000000000aa").symlink_to("/proc/999999999/fd/3")
        with agent() as process:
            rank.tell("log", 5)
            until(lambda: len(SEEN.lines(rank.span_id)) == 5)
            rank.tell("end", "clean")
            rank.send("leave", 0)
            assert process.wait(timeout=10) == 0
        assert all(path.exists() for path in junk)
        assert list((llmtrace_dirs.path / "rings").iterdir()) == []


def test_a_link_that_cannot_be_followed_blinds_nobody_and_goes_once_its_process_is_gone(llmtrace_dirs) -> None:
    with Rank(0) as rank, agent() as process:
        registry = llmtrace_dirs.path / "rings"
        for name in (f"{rank.popen.pid}-{process_start_ticks(rank.popen.pid)}-{'a' * 16}", f"{rank.popen.pid}-1-{'b' * 16}"):
            os.symlink("x" * 300, registry / name)  # neither there nor not there, as /proc/PID/fd of another user is
        rank.tell("log", 5)
        until(lambda: len(SEEN.lines(rank.span_id)) == 5)
        assert [path.name[-1] for path in registry.iterdir()] == ["a"]
        rank.tell("end", "clean")
        rank.send("leave", 0)
        assert process.wait(timeout=15) == 0


def test_a_ring_that_turns_bad_stops_no_other(llmtrace_dirs) -> None:
    with Rank(0) as bad, Rank(1) as good, agent() as process:
        until(lambda: len(SEEN.processes()) == 2)
        ring = next(path for path in llmtrace_dirs.rings.rglob("*.ring") if bad.span_id in path.name)
        with ring.open("r+b") as stream:
            stream.seek(4096 + (28 << 10))
            stream.write(os.urandom(1 << 16))
        bad.tell("log", 100)
        good.tell("log", 100)
        until(lambda: len(SEEN.lines(good.span_id)) == 100)
        for rank in (bad, good):
            rank.tell("end", "clean")
            rank.send("leave", 0)
        assert process.wait(timeout=15) == 0
        assert SEEN.process(good.span_id).ending == "clean"
        assert SEEN.process(bad.span_id).ending == "clean"


@pytest.mark.parametrize(
    "damage", [(layout.PID, 1), (layout.PID, 1 << 63), (layout.PROGRESS, 1 << 63), (layout.DESCRIBED, 1 << 40), (layout.STARTED_NS, (1 << 64) - 1)]
)
def test_a_ring_whose_header_was_overwritten_stops_no_other(llmtrace_dirs, damage: tuple[int, int]) -> None:
    word, value = damage
    with Rank(0) as bad, Rank(1) as good:
        ring = next(path for path in llmtrace_dirs.rings.rglob("*.ring") if bad.span_id in path.name)
        with agent() as process:
            until(lambda: len(SEEN.processes()) == 2)
            overwrite(ring, word, value)
            bad.tell("log", 10)
            good.tell("log", 10)
            until(lambda: len(SEEN.lines(good.span_id)) == 10)
            process.kill()
            process.wait()
        with agent():  # one that never saw it whole
            good.tell("log", 10)
            until(lambda: len(SEEN.lines(good.span_id)) == 20)
            good.send("kill")
            assert until(SEEN.incidents)[0].culprit.rank == 1


def overwrite(ring: Path, word: int, value: int) -> None:
    """As a rank's native code does that writes where it must not."""
    with ring.open("r+b") as stream:
        stream.seek(8 * word)
        stream.write(value.to_bytes(8, "little"))


def test_a_job_without_a_tmpfs_is_read_from_its_memory_and_its_last_words_after_a_kill(llmtrace_dirs, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLMTRACE_RING_DIR", str(tmp_path))  # on a disk: rings become memory files
    with Rank(1) as rank, agent() as process:
        rank.tell("log", 3)
        until(lambda: len(SEEN.lines(rank.span_id)) == 3)
        rank.tell("log", 3)
        rank.send("kill")
        rank.popen.wait()
        assert until(SEEN.incidents)[0].culprit.rank == 1
        assert len(SEEN.lines(rank.span_id)) == 6
        assert process.wait(timeout=10) == 0
        assert list((llmtrace_dirs.path / "rings").iterdir()) == []


def test_without_a_directory_to_work_in_it_ends_with_status_1(tmp_path: Path) -> None:
    environment = {**os.environ, "LLMTRACE_DIR": "/proc/nothing"}
    code = "import llmtrace.directory as d; d.DEFAULT_ROOT = '/proc/nothing'; from llmtrace.agent.main import main; raise SystemExit(main([]))"
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=20, check=False).returncode == 1
