"""The agent as a process: alone, out of the job's way, there as long as a rank lives and no longer, and exact."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.agents import Rank, Seen, agent, alive, start_agent, until

SEEN = Seen()


def test_everything_a_rank_says_is_journalled_and_its_ring_is_removed_when_the_agent_has_left(llmtrace_dirs) -> None:
    with Rank() as rank, agent() as process:
        rank.tell("log", 500)
        rank.tell("end", "clean")
        rank.send("leave", 0)
        assert process.wait(timeout=10) == 0
        assert SEEN.lines(rank.span_id) == [f"line {i}" for i in range(500)]
        assert list(llmtrace_dirs.rings.rglob("*.ring")) == []
        assert not alive()


def test_lines_of_a_running_job_can_be_read_within_two_seconds(llmtrace_dirs) -> None:
    with Rank() as rank, agent():
        rank.tell("log", 5)
        until(lambda: len(SEEN.lines(rank.span_id)) == 5, 2)
        rank.tell("step", 7)
        until(lambda: SEEN.process(rank.span_id).last_step == 7, 2)
        assert SEEN.process(rank.span_id).ending == "running"


def test_two_jobs_in_one_directory_are_two_traces(llmtrace_dirs) -> None:
    with Rank(trace="1" * 32) as one, Rank(trace="2" * 32) as two, agent() as process:
        one.tell("log", 10)
        two.tell("log", 20)
        one.send("kill")
        two.tell("end", "clean")
        two.send("leave", 0)
        assert process.wait(timeout=10) == 0
        assert len(SEEN.lines(one.span_id, "1" * 32)) == 10
        assert len(SEEN.lines(two.span_id, "2" * 32)) == 20
        assert [incident.trace_id for incident in SEEN.incidents()] == ["1" * 32]


def test_a_second_agent_leaves_at_once(llmtrace_dirs) -> None:
    with Rank(), agent() as first:
        second = subprocess.run([sys.executable, "-m", "llmtrace.agent"], timeout=10, check=False)
        assert second.returncode == 0
        assert first.poll() is None


def test_no_signal_meant_for_the_job_ends_it_while_a_rank_lives(llmtrace_dirs) -> None:
    with Rank() as rank, agent() as process:
        rank.tell("log", 1)
        until(lambda: SEEN.lines(rank.span_id))  # it serves, so its signals are set
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            os.kill(process.pid, number)
        rank.tell("log", 1)
        until(lambda: len(SEEN.lines(rank.span_id)) == 2)
        assert process.poll() is None
        rank.tell("end", "clean")
        rank.send("leave", 0)
        assert process.wait(timeout=10) == 0


def test_it_has_a_session_and_a_priority_of_its_own_and_nothing_that_was_open_before(llmtrace_dirs, tmp_path: Path) -> None:
    with (tmp_path / "held").open("w") as held, Rank() as rank, agent(pass_fds=[held.fileno()]) as process:
        rank.tell("log", 1)
        until(lambda: SEEN.lines(rank.span_id))
        assert os.getsid(process.pid) == process.pid
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 10
        assert os.readlink(f"/proc/{process.pid}/cwd") == "/"
        open_files = [os.readlink(entry) for entry in Path(f"/proc/{process.pid}/fd").iterdir()]
        assert str(tmp_path / "held") not in open_files
        assert not [name for name in open_files if name.startswith("pipe:")]


def test_a_launcher_that_reads_a_pipe_to_its_end_is_not_held_up(llmtrace_dirs) -> None:
    with Rank():
        launcher = subprocess.Popen(["/bin/sh", "-c", f"{sys.executable} -m llmtrace.agent & echo started"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = launcher.communicate(timeout=10)  # to the end of the file, which the agent had inherited
        assert output == b"started\n"
        until(alive)
        time.sleep(0.3)
        assert alive()


def test_it_says_nothing_into_the_job_but_in_a_log_of_its_own(llmtrace_dirs) -> None:
    with Rank() as rank:
        (next(llmtrace_dirs.rings.rglob("*.ring")).parent / "1-1-00000000000000aa.ring").write_bytes(b"not a ring")
        process = start_agent(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        rank.tell("end", "clean")
        rank.send("leave", 0)
        output, errors = process.communicate(timeout=15)
        assert (output, errors) == (b"", b"")
        assert "passed over" in (llmtrace_dirs.path / "agent.log").read_text()


def test_killed_fifty_times_it_journals_every_record_once_and_in_order(llmtrace_dirs) -> None:
    count, choice = 15_000, random.Random(7)
    with Rank() as rank:
        rank.send("log", count, 400)
        for _ in range(50):
            process = start_agent()
            time.sleep(choice.uniform(0.0, 0.25))
            process.kill()
            process.wait()
        with agent() as process:
            assert rank._answer() == str(count)
            rank.tell("end", "clean")
            rank.send("leave", 0)
            assert process.wait(timeout=20) == 0
        assert SEEN.lines(rank.span_id) == [f"line {i}" for i in range(count)]
        assert SEEN.process(rank.span_id).lost == 0
        assert len(SEEN.deaths()) == 1


def test_ten_thousand_lines_a_second_for_ten_seconds_arrive_whole(llmtrace_dirs) -> None:
    with Rank() as rank, agent() as process:
        for _ in range(100):  # in bursts of a tenth of a second
            begin = time.monotonic()
            rank.tell("log", 1000)
            time.sleep(max(0.0, begin + 0.1 - time.monotonic()))
        rank.tell("end", "clean")
        rank.send("leave", 0)
        assert process.wait(timeout=20) == 0
        assert SEEN.process(rank.span_id).lost == 0
        assert SEEN.lines(rank.span_id) == [f"line {i}" for i in range(100_000)]


def test_ranks_that_come_while_it_leaves_are_never_left_alone(llmtrace_dirs) -> None:
    """Each rank starts an agent only where none holds the lock, as ranks do, at times around the agent's leaving."""
    choice, spans, started = random.Random(3), [], []
    for _ in range(12):
        with Rank() as rank:
            if not alive():
                started.append(start_agent())
            rank.tell("log", 3)
            rank.tell("end", "clean")
            spans.append(rank.span_id)
            rank.send("leave", 0)
            rank.popen.wait()
        time.sleep(choice.uniform(0.95, 1.25))
    until(lambda: not alive())
    assert [len(SEEN.lines(span)) for span in spans] == [3] * 12
    for process in started:
        process.wait(timeout=10)


def test_a_worker_that_outlives_its_rank_does_not_keep_it_for_ever(llmtrace_dirs) -> None:
    with Rank() as rank, agent() as process:
        pid = int(rank.tell("worker", "sleep", "40").split()[0])
        rank.send("kill")
        rank.popen.wait()
        begin = time.monotonic()
        try:
            assert process.wait(timeout=20) == 0
            assert time.monotonic() - begin > 5
            assert len(list(llmtrace_dirs.rings.rglob("*.ring"))) == 1  # the next agent reads its end
        finally:
            os.kill(pid, signal.SIGKILL)


def test_as_a_service_it_stays_without_ranks_and_leaves_when_told(llmtrace_dirs) -> None:
    with agent("--service") as process:
        time.sleep(1.5)
        assert process.poll() is None
        with Rank() as rank:
            rank.tell("log", 4)
            until(lambda: len(SEEN.lines(rank.span_id)) == 4)
            process.terminate()
            assert process.wait(timeout=10) == 0


def test_it_leaves_when_its_directory_is_taken_away(llmtrace_dirs) -> None:
    with Rank() as rank, agent() as process:
        rank.tell("log", 1)
        until(lambda: SEEN.lines(rank.span_id))
        shutil.rmtree(llmtrace_dirs.path)
        assert process.wait(timeout=10) == 0
