"""The page of each incident, written by the agent's child: in time, by whichever agent comes, and at nobody's cost."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from llmtrace.record import Incident
from tests.conftest import Directories
from tests.support.agents import Rank, Seen, agent, alive, start_agent, until

SEEN = Seen()
LLMTRACE = str(Path(sys.executable).parent / "llmtrace")


JOB = """
import logging
import torch

logging.basicConfig(level=logging.INFO)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    logging.info("marker %d", step)
    assert step < 30, "the thirtieth step"
"""


def page_of(incident: Incident) -> Path:
    """The file that the incident's link leads to."""
    link = incident.links["page"]
    assert link is not None
    assert link.startswith("file:///")
    return Path(unquote(urlsplit(link).path))


def incident() -> Incident:
    (found,) = until(SEEN.incidents)
    return found


def whole(page: Path) -> str:
    text = page.read_text()
    assert text.rstrip().endswith("</html>")
    return text


def children(agent_pid: int) -> list[int]:
    """Processes of the agent's that are not over."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and field(int(entry.name), 1) == str(agent_pid) and field(int(entry.name), 0) != "Z":
            found.append(int(entry.name))
    return found


def field(pid: int, number: int) -> str:
    """A field of /proc/PID/stat after the name; empty where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[number]
    except OSError:
        return ""


def resident_kb(pid: int) -> int:
    match = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1])


@pytest.fixture
def gate(llmtrace_dirs: Directories) -> Iterator[Callable[[], Path]]:
    """Makes a pipe where the one incident's page would be: the child stands still at its end until somebody reads."""
    made: list[Path] = []

    def make() -> Path:
        page = page_of(incident())
        page.parent.mkdir(mode=0o700, exist_ok=True)
        os.mkfifo(page)
        made.append(page)
        return page

    yield make
    for page in made:  # a child that still waits goes on to its end
        page.unlink(missing_ok=True)


def read_through(page: Path) -> str:
    """What the child writes into the pipe, once it comes to it; 20 s is the bound, not the measure."""
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(page.read_text()), daemon=True)
    reader.start()
    reader.join(20)
    assert found
    return found[0]


def test_a_real_job_breaks_and_the_page_is_there_when_its_agent_has_left(llmtrace_dirs: Directories, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(JOB)
    done = subprocess.run([LLMTRACE, "run", sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    page = page_of(incident())
    text = until(lambda: page.exists() and whole(page), 20)
    assert "the thirtieth step" in text
    assert "marker 30" in text
    assert f"--dir {llmtrace_dirs.path}" in text  # the commands on it find this journal from anywhere
    until(lambda: not alive(), 15)
    assert [path.name for path in page.parent.iterdir()] == [page.name]


def test_while_others_train_on_the_page_is_written_when_the_window_is_closed(llmtrace_dirs: Directories) -> None:
    with Rank(0) as healthy, agent() as process:
        with Rank(1) as broken:
            broken.tell("step", 3)
            broken.tell("fail", "ValueError", "bad batch")
        told = incident()
        assert not page_of(told).exists()
        healthy.tell("log", 20)
        until(lambda: page_of(told).exists(), 20)
        assert time.time_ns() >= told.window.end_ns
        assert "line 19" in whole(page_of(told))
        until(lambda: children(process.pid) == [])


def test_the_page_of_a_killed_agent_is_written_by_the_next_one(llmtrace_dirs: Directories) -> None:
    with Rank(0) as healthy:
        with agent() as first:
            with Rank(1) as broken:
                broken.tell("fail", "ValueError", "bad batch")
            told = incident()
            first.kill()
        assert not page_of(told).exists()
        with agent():
            until(lambda: page_of(told).exists(), 20)
        assert "bad batch" in whole(page_of(told))
        healthy.tell("log", 1)


def test_an_incident_that_a_later_failure_refined_has_its_page_written_again(llmtrace_dirs: Directories) -> None:
    with Rank(0) as second, Rank(2) as healthy, agent() as process:
        with Rank(1) as first:
            first.tell("fail", "ValueError", "bad batch")
        told = incident()
        until(lambda: page_of(told).exists(), 20)
        written_ns = page_of(told).stat().st_mtime_ns
        second.tell("fail", "RuntimeError", "a late consequence")
        second.send("leave", 1)
        healthy.tell("end", "clean")
        healthy.send("leave", 0)
        assert process.wait(timeout=20) == 0
        assert incident().symptoms != told.symptoms
        assert page_of(told).stat().st_mtime_ns > written_ns
        whole(page_of(told))


def test_the_child_has_nothing_of_the_agent_and_the_agent_is_no_larger_for_it(llmtrace_dirs: Directories, gate: Callable[[], Path]) -> None:
    with Rank(0) as healthy, agent() as process:
        with Rank(1) as broken:
            broken.tell("fail", "ValueError", "bad batch")
        page, before_kb = gate(), resident_kb(process.pid)
        (child,) = until(lambda: children(process.pid), 20)
        until(lambda: sys.executable.encode() in Path(f"/proc/{child}/cmdline").read_bytes() and wait_channel(child), 20)
        names = [os.readlink(entry) for entry in Path(f"/proc/{child}/fd").iterdir()]
        assert {name for name in names if not name.startswith(str(llmtrace_dirs.path)) and name != "/dev/null"} <= {str(page)}
        assert os.readlink(f"/proc/{child}/fd/2") == str(llmtrace_dirs.path / "agent.log")
        variables = dict(line.split("=", 1) for line in Path(f"/proc/{child}/environ").read_text().split("\0") if line)
        assert variables["LLMTRACE"] == "0"
        assert "OMP_NUM_THREADS" not in variables  # of this test's own environment
        assert os.getpriority(os.PRIO_PROCESS, child) >= 10
        assert os.getpgid(child) == child
        assert Path(f"/proc/{child}/oom_score_adj").read_text() == "1000\n"
        assert re.search(r"^Max cpu time +60 ", Path(f"/proc/{child}/limits").read_text(), re.MULTILINE)
        assert resident_kb(process.pid) - before_kb < 2048
        healthy.tell("log", 100)  # rings are tended meanwhile
        until(lambda: len(SEEN.lines(healthy.span_id)) == 100)
        assert "bad batch" in read_through(page)
        until(lambda: children(process.pid) == [])


def wait_channel(pid: int) -> bool:
    """Whether it waits at a pipe's end for somebody to read."""
    return "wait_for_partner" in Path(f"/proc/{pid}/wchan").read_text() or field(pid, 0) == "S"


def test_an_agent_that_must_leave_waits_ten_seconds_and_leaves_the_child_at_its_work(llmtrace_dirs: Directories, gate: Callable[[], Path]) -> None:
    with agent() as process:
        with Rank(0) as healthy, Rank(1) as broken:
            broken.tell("fail", "ValueError", "bad batch")
            broken.send("leave", 1)
            page = gate()
            healthy.tell("end", "clean")
            healthy.send("leave", 0)
            healthy.popen.wait()
        begin = time.monotonic()
        (child,) = until(lambda: children(process.pid), 20)
        assert process.wait(timeout=20) == 0
        assert time.monotonic() - begin > 5
        assert field(child, 0) not in ("", "Z")
        assert "stays for it" in (llmtrace_dirs.path / "agent.log").read_text()
        assert "bad batch" in read_through(page)
        until(lambda: field(child, 0) in ("", "Z"), 20)


def test_a_child_that_is_killed_is_started_again(llmtrace_dirs: Directories, gate: Callable[[], Path]) -> None:
    with Rank(0), agent() as process:
        with Rank(1) as broken:
            broken.tell("fail", "ValueError", "bad batch")
        page = gate()
        (child,) = until(lambda: children(process.pid), 20)
        os.kill(child, signal.SIGKILL)
        until(lambda: children(process.pid) not in ([], [child]), 20)
        assert "bad batch" in read_through(page)
        assert "ended with -9" in (llmtrace_dirs.path / "agent.log").read_text()


@pytest.mark.parametrize("trouble", ["a file", "others may write"])
def test_a_pages_folder_that_cannot_be_used_harms_nothing(llmtrace_dirs: Directories, trouble: str) -> None:
    llmtrace_dirs.path.mkdir(parents=True)
    pages = llmtrace_dirs.path / "pages"
    if trouble == "a file":
        pages.write_text("")
    else:
        pages.mkdir()
        pages.chmod(0o777)
    with Rank(0) as healthy, Rank(1) as broken:
        process = start_agent()
        healthy.tell("log", 10)
        broken.tell("fail", "ValueError", "bad batch")
        broken.send("leave", 1)
        incident()
        healthy.tell("end", "clean")
        healthy.send("leave", 0)
        assert process.wait(timeout=15) == 0
        assert len(SEEN.lines(healthy.span_id)) == 10
        assert len(SEEN.incidents()) == 1
        assert (llmtrace_dirs.path / "agent.log").read_text().count("was not written") == 2


def test_a_disk_without_room_for_a_page_harms_nothing(llmtrace_dirs: Directories) -> None:
    """A bound on a file's size stands for the disk's: what the journal takes is below it, a page is not."""
    with Rank(0) as healthy, agent() as process:
        healthy.tell("log", 10)
        until(lambda: len(SEEN.lines(healthy.span_id)) == 10)
        hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (180_000, hard))
        with Rank(1) as broken:
            broken.tell("fail", "ValueError", "bad batch")
        told = incident()
        healthy.tell("log", 10)
        healthy.tell("end", "clean")
        healthy.send("leave", 0)
        assert process.wait(timeout=20) == 0
        assert len(SEEN.lines(healthy.span_id)) == 20
        assert (llmtrace_dirs.path / "agent.log").read_text().count("cannot be written: File too large") == 2
        assert list(page_of(told).parent.iterdir()) == []
    with Rank(2) as another, agent():  # there is room again: the next agent makes up for it
        another.tell("log", 1)
        until(lambda: page_of(told).exists(), 20)


def test_a_child_that_cannot_write_says_why_in_the_agent_s_log_and_leaves_nothing(llmtrace_dirs: Directories) -> None:
    """A folder where the file should be stands for a disk that takes nothing: root may write where others may not."""
    with Rank(0) as healthy, agent() as process:
        with Rank(1) as broken:
            broken.tell("fail", "ValueError", "bad batch")
        page = page_of(incident())
        page.mkdir(parents=True)
        page.parent.chmod(0o700)
        healthy.tell("end", "clean")
        healthy.send("leave", 0)
        assert process.wait(timeout=20) == 0
        log = (llmtrace_dirs.path / "agent.log").read_text()
        assert log.count("cannot be written: Is a directory") == 2
        assert [path.name for path in page.parent.iterdir()] == [page.name]


def test_with_a_server_configured_the_link_leads_there_and_the_file_is_written_all_the_same(
    llmtrace_dirs: Directories, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMTRACE_PAGE_URL", "https://ops.example/llmtrace/")
    monkeypatch.setenv("LLMTRACE_GRAFANA_URL", "http://grafana.example:3000")
    with agent() as process:
        with Rank(0) as broken:
            broken.tell("fail", "ValueError", "bad batch")
        assert process.wait(timeout=20) == 0
    told = incident()
    assert told.links["page"] == f"https://ops.example/llmtrace/incident/{told.id}"
    assert (told.links["grafana"] or "").startswith("http://grafana.example:3000/explore?")
    assert "kibana" not in told.links
    whole(llmtrace_dirs.path / "pages" / f"{told.id}.html")


def test_the_agent_imports_nothing_of_what_draws_and_reads(llmtrace_dirs: Directories) -> None:
    barred = ("llmtrace.show", "llmtrace.sources", "llmtrace.cli", "jinja2")
    code = f"import sys, llmtrace.agent.main, llmtrace.agent.loop; print([m for m in sys.modules if m.startswith({barred})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
