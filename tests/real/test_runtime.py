"""Start, fork and exit in real processes: every process has a ring of its own, says how it ended, and hangs on nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmtrace.clock import process_start_ticks
from llmtrace.directory import Directory, agent_alive
from llmtrace.identity import fallbacks
from tests.conftest import Directories
from tests.support.ranks import Ring, directory, no_agent, program, rings, run

HEAD = """
import atexit, logging, multiprocessing, os, signal, sys, threading, time
import llmtrace
logging.basicConfig(level=logging.INFO)
log = logging.getLogger("job")
"""


@pytest.fixture
def quiet(llmtrace_dirs: Directories) -> Iterator[Directory]:
    """The rings stay as they were left: no agent comes."""
    with no_agent() as found:
        yield found


def job(text: str, folder: Path) -> Path:
    return program(HEAD + text, folder)


@pytest.mark.parametrize(
    ("body", "code", "ended"),
    [
        ("pass", 0, "clean"),
        ("sys.exit(0)", 0, "clean"),
        ("sys.exit(3)", 3, "raised"),
        ("sys.exit('no')", 1, "raised"),
        ("raise ValueError('x')", 1, "raised"),
        ("raise KeyboardInterrupt", 130, "raised"),
        ("os._exit(7)", 7, "running"),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, "running"),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15, "running"),
    ],
)
def test_the_ring_says_how_the_process_ended_and_the_exit_code_is_its_own(body: str, code: int, ended: str, tmp_path: Path, quiet: Directory) -> None:
    script = job(f"@llmtrace.trace\ndef train():\n    log.info('last words')\n    {body}\ntrain()\n", tmp_path)
    done = run(script)
    assert done.returncode in (code, -2 if code == 130 else code), done.stderr
    (ring,) = rings(quiet)
    assert ring.header.ended == ended
    assert ring.bodies() == ["last words"]


def test_an_exception_outside_any_traced_function_is_no_clean_end_and_a_caught_one_is(tmp_path: Path, quiet: Directory) -> None:
    run(job("llmtrace.start()\nraise ValueError('x')\n", tmp_path))
    run(job("@llmtrace.trace\ndef f():\n    raise ValueError\ntry:\n    f()\nexcept ValueError:\n    pass\n", tmp_path))
    assert [ring.header.ended for ring in rings(quiet)] == ["raised", "clean"]


def test_a_lone_process_has_its_ids_at_once(tmp_path: Path, quiet: Directory) -> None:
    done = run(job("llmtrace.start()\nwho = llmtrace.current()\nprint(who.trace_id, who.attempt, who.rank)\n", tmp_path))
    trace, attempt, rank = done.stdout.split()
    assert (len(trace), len(attempt), rank) == (32, 8, "None")
    (ring,) = rings(quiet)
    assert ring.identity.trace_id == trace


def test_a_rank_without_its_group_claims_nothing(tmp_path: Path, quiet: Directory) -> None:
    done = run(job("llmtrace.start()\nwho = llmtrace.current()\nprint(repr(who.trace_id), who.rank)\n", tmp_path), RANK="3", WORLD_SIZE="4")
    assert done.stdout.split() == ["''", "3"]
    (ring,) = rings(quiet)
    assert ring.identity.attempt == ""


CHILDREN = """
def child(number):
    log.info("in child %d", number)
    if number == 1:
        raise ValueError("child")
    if number == 2:
        os._exit(0)

if __name__ == "__main__":
    llmtrace.start()
    log.info("parent")
    context = multiprocessing.get_context(sys.argv[1])
    children = [context.Process(target=child, args=(n,)) for n in range(3)]
    for one in children: one.start()
    for one in children: one.join()
    log.info("done")
"""


def test_children_of_an_untraced_launcher_claim_no_id_of_their_own_and_share_its_launch(tmp_path: Path, quiet: Directory) -> None:
    script = job(CHILDREN.replace("    llmtrace.start()\n", "", 1).replace('log.info("in child', 'llmtrace.start(); log.info("in child'), tmp_path)
    run(script, "spawn")
    found = [ring.identity for ring in rings(quiet)]
    assert len(found) == 3
    assert {(identity.trace_id, identity.role) for identity in found} == {("", "rank")}
    assert len({identity.launch for identity in found}) == 1
    assert len({assumed["trace_id"] for assumed in fallbacks(found).values()}) == 1


def test_forked_children_have_rings_of_their_own_and_nothing_is_lost(tmp_path: Path, quiet: Directory) -> None:
    run(job(CHILDREN, tmp_path), "fork")
    found = rings(quiet)
    parent = next(ring for ring in found if ring.identity.role == "rank")
    workers = {ring.bodies()[0]: ring for ring in found if ring is not parent}
    assert parent.bodies() == ["parent", "done"]
    assert {body: ring.header.ended for body, ring in workers.items()} == {"in child 0": "clean", "in child 1": "raised", "in child 2": "running"}
    for ring in workers.values():
        assert ring.identity.role == "worker"
        assert ring.header.parent_span == ring.identity.parent_span_id == parent.identity.span_id
        assert ring.identity.trace_id == parent.identity.trace_id
        assert ring.header.capacity < parent.header.capacity


@pytest.mark.parametrize("environ", [{"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, {}], ids=["of a rank", "of a lone process"])
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_children_are_no_second_run(method: str, environ: dict[str, str], tmp_path: Path, quiet: Directory) -> None:
    script = job(CHILDREN.replace('log.info("in child', 'llmtrace.start(); log.info("in child'), tmp_path)
    run(script, method, **environ)
    found = rings(quiet)
    parent = next(ring for ring in found if ring.identity.role == "rank")
    workers = [ring for ring in found if ring is not parent]
    assert len(workers) == 3
    assert {ring.identity.role for ring in workers} == {"worker"}
    assert {ring.identity.trace_id for ring in found} == {parent.identity.trace_id}
    assert {ring.identity.parent_span_id for ring in workers} == {parent.identity.span_id}


LOCKS = """
llmtrace.start()
stop = threading.Event()
def chatter():
    while not stop.is_set():
        log.debug("x"); llmtrace.event("e", text="y" * 200)
        llmtrace.current()
threads = [threading.Thread(target=chatter, daemon=True) for _ in range(4)]
for thread in threads: thread.start()
for number in range(60):
    pid = os.fork()
    if pid == 0:
        llmtrace.event("child", number=number)
        llmtrace.start(); llmtrace.stop()
        os._exit(0)
    until = time.monotonic() + 20
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            sys.exit("a child hangs")
        time.sleep(0.001)
stop.set()
"""


def test_no_lock_of_another_thread_holds_up_a_forked_child(tmp_path: Path, quiet: Directory) -> None:
    done = run(job(LOCKS, tmp_path))
    assert done.returncode == 0, done.stderr
    children = [ring for ring in rings(quiet) if ring.header.parent_span]
    assert sorted(r.attributes["number"] for ring in children for r in ring.named("child")) == list(range(60))


def test_the_interpreter_ends_while_other_threads_log(tmp_path: Path, quiet: Directory) -> None:
    body = """
llmtrace.start()
def chatter():
    while True: log.info('z')
for _ in range(4): threading.Thread(target=chatter, daemon=True).start()
time.sleep(0.3)
"""
    begun = time.monotonic()
    done = run(job(body, tmp_path))
    assert done.returncode in (0, -6), done.stderr[-500:]  # CPython 3.11 itself may abort on a daemon thread that holds stderr
    assert time.monotonic() - begun < 30
    (ring,) = rings(quiet)
    assert ring.header.ended == "clean"


def test_logging_in_a_signal_handler_within_a_record_is_neither_lost_nor_a_deadlock(tmp_path: Path, quiet: Directory) -> None:
    body = """
llmtrace.start()
import itertools
numbers = itertools.count()
def handler(*_):
    llmtrace.event("signal", n=next(numbers))
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
until = time.monotonic() + 1
count = 0
while time.monotonic() < until:
    llmtrace.event("main", n=count); count += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(count, next(numbers))
"""
    done = run(job(body, tmp_path), LLMTRACE_RING_BYTES="64M")
    count, hits = map(int, done.stdout.split())
    (ring,) = rings(quiet)
    assert hits > 50
    assert sorted(r.attributes["n"] for r in ring.named("signal")) == list(range(hits))
    assert [r.attributes["n"] for r in ring.named("main")] == list(range(count))


# The agent


def agent_pid(where: Directory) -> int:
    """The pid of the agent that serves this directory, by its environment; waits until it holds the lock."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if agent_alive(where):
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit() and is_agent(entry, where):
                    return int(entry.name)
        time.sleep(0.05)
    raise AssertionError("no agent came")


def is_agent(entry: Path, where: Directory) -> bool:
    try:
        return b"llmtrace.agent" in (entry / "cmdline").read_bytes() and f"LLMTRACE_DIR={where.path}\0".encode() in (entry / "environ").read_bytes()
    except OSError:
        return False


def ended(pid: int, within_s: float = 25) -> bool:
    until = time.monotonic() + within_s
    while process_start_ticks(pid) is not None:
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_a_launcher_that_waits_for_end_of_file_is_not_held_and_nothing_is_inherited(tmp_path: Path, llmtrace_dirs: Directories) -> None:
    script = job("llmtrace.start()\ntime.sleep(1.5)\n", tmp_path)
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    pipe_name = os.readlink(f"/proc/self/fd/{writing}")
    environ = {**os.environ, "LLMTRACE": "1", "RANK": "0", "WORLD_SIZE": "1", "LLMTRACE_JOB": "mine", "SECRET": "kept"}
    launcher = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=(writing,), env=environ, cwd=tmp_path)
    os.close(writing)
    pid = agent_pid(directory())
    open_files = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    inherited = dict(item.split("=", 1) for item in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in item)
    home, session = os.readlink(f"/proc/{pid}/cwd"), os.getsid(pid)
    output, _ = launcher.communicate(timeout=20)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b""  # end of file, though the agent lives
    assert launcher.returncode == 0, output
    assert pipe_name not in open_files
    assert home == "/"
    assert session != os.getsid(0)
    assert "LLMTRACE" not in inherited
    assert "RANK" not in inherited
    assert "LLMTRACE_JOB" not in inherited
    assert inherited["SECRET"] == "kept"
    assert ended(pid)


def test_the_agent_survives_the_killing_of_the_launchers_group_and_leaves_no_zombie(tmp_path: Path, llmtrace_dirs: Directories) -> None:
    script = job("llmtrace.start()\nlog.info('before the kill')\nprint('up', flush=True)\ntime.sleep(60)\n", tmp_path)
    launcher = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True, cwd=tmp_path)
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == b"up\n"
    pid = agent_pid(directory())
    assert all_children(launcher.pid) == []  # neither the agent nor a zombie of the shell
    os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait(20)
    launcher.stdout.close()
    assert agent_alive(directory())
    assert ended(pid)
    assert not rings(directory())


def all_children(pid: int) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(stat[1]) == pid:
                found.append(int(entry.name))
    return found


def test_a_killed_agent_is_started_again_by_lines_alone_and_by_the_end(tmp_path: Path, llmtrace_dirs: Directories) -> None:
    script = job("llmtrace.start()\nfor n in range(40):\n    log.info('line %d', n)\n    time.sleep(0.2)\n", tmp_path)
    process = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.DEVNULL, cwd=tmp_path)
    first = agent_pid(directory())
    os.kill(first, signal.SIGKILL)
    assert ended(first)
    second = agent_pid(directory())
    assert second != first
    assert process.wait(40) == 0
    assert ended(second)


def lines_of(found: list[Ring]) -> list[str | None]:
    return [body for ring in found for body in ring.bodies()]


def test_after_a_stop_nothing_is_captured_and_the_environment_is_as_it_was(tmp_path: Path, quiet: Directory) -> None:
    body = "before = dict(os.environ)\nllmtrace.start()\nlog.info('in')\nllmtrace.stop()\nlog.info('out')\nassert dict(os.environ) == before\n"
    done = run(job(body, tmp_path))
    assert done.returncode == 0, done.stderr
    assert lines_of(rings(quiet)) == ["in"]


def test_a_process_started_later_is_told_what_was_learned_late(tmp_path: Path, quiet: Directory) -> None:
    body = """
from llmtrace.rank.runtime import host
def child():
    llmtrace.start(); log.info("child")
if __name__ == "__main__":
    llmtrace.start()
    host.tracer.epoch(trace_id="1" * 32, rank=3, attempt="x")
    one = multiprocessing.get_context("spawn").Process(target=child); one.start(); one.join()
"""
    done = run(job(body, tmp_path), RANK="3", WORLD_SIZE="4")
    assert done.returncode == 0, done.stderr
    (worker,) = [ring.identity for ring in rings(quiet) if ring.identity.role == "worker"]
    assert (worker.trace_id, worker.rank, worker.attempt) == ("1" * 32, 3, "x")
