"""`llmtrace context --html`, `--markdown`, `--perfetto`: files that are whole or not there, and what is refused."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.contexts import TRACE, exception, hostile
from tests.support.written import write_journal

LLMTRACE = str(Path(sys.executable).parent / "llmtrace")


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal")
    write_journal(path, exception())
    return path


def context(journal: Path, *arguments: str, **more: object) -> subprocess.CompletedProcess[bytes]:
    command = [LLMTRACE, "context", "last", "--dir", str(journal), *arguments]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, **more)  # type: ignore[call-overload]


def refused(done: subprocess.CompletedProcess[bytes], code: int) -> str:
    assert done.returncode == code
    assert done.stdout == b""
    (line,) = done.stderr.decode(errors="replace").splitlines()
    return line


def test_each_file_is_written_and_named(journal: Path, tmp_path: Path) -> None:
    names = [tmp_path / name for name in ("page.html", "report.md", "trace.json")]
    done = context(journal, "--html", str(names[0]), "--markdown", str(names[1]), "--perfetto", str(names[2]))
    assert (done.returncode, done.stderr) == (0, b"")
    assert [line.partition(": ")[0] for line in done.stdout.decode().splitlines()] == [str(name) for name in names]
    assert names[0].read_text().rstrip().endswith("</html>")
    assert TRACE in names[1].read_text()
    assert "traceEvents" in json.loads(names[2].read_bytes())
    assert sorted(tmp_path.iterdir()) == sorted(names)


@pytest.mark.parametrize("option", ["--html", "--markdown", "--perfetto"])
def test_a_dash_is_stdout_and_nothing_else_is_printed(journal: Path, tmp_path: Path, option: str) -> None:
    done = context(journal, option, "-", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    written = context(journal, option, "file", cwd=tmp_path)
    assert written.returncode == 0
    if option == "--perfetto":
        assert json.loads(done.stdout)
    assert done.stdout[:100] == (tmp_path / "file").read_bytes()[:100]
    assert not (tmp_path / "-").exists()


def test_the_language_is_the_page_s(journal: Path) -> None:
    assert b'"language":"zh"' in context(journal, "--html", "-", "--lang", "zh").stdout
    assert b'"language":""' in context(journal, "--html", "-").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--html", "-", "--json"), "--html and --json exclude each other"),
        (("--html", "x", "--rank", "1"), "--html and --rank exclude each other"),
        (("--perfetto", "x", "--kind", "log"), "--perfetto and --kind exclude each other"),
        (("--markdown", "x", "--all"), "--markdown and --all exclude each other"),
        (("--html", "-", "--markdown", "-"), "only one of --html, --markdown can go to stdout"),
        (("--html", "x", "--lang", "tlh"), "allowed: en, zh"),
        (("--lang", "zh"), "--lang is for --html"),
    ],
)
def test_what_cannot_be_had_together_is_bad_usage(journal: Path, tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    assert says in refused(context(journal, *arguments, cwd=tmp_path), 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no/such/folder/page.html", "No such file or directory"),
        (".", "Is a directory"),
        ("/dev/full", "No space left on device"),
        ("x" * 300, "File name too long"),
        ("", "Is a directory"),
    ],
)
def test_what_cannot_be_written_is_said_in_one_line(journal: Path, tmp_path: Path, name: str, says: str) -> None:
    assert f"--html {name}: cannot be written: {says}" in refused(context(journal, "--html", name, cwd=tmp_path), 1)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_leaves_what_was_there(journal: Path, tmp_path: Path) -> None:
    """A bound on a file's size stands for the disk's."""
    page = tmp_path / "page.html"
    page.write_text("the old one")
    done = context(journal, "--html", str(page), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)))
    assert "cannot be written: File too large" in refused(done, 1)
    assert page.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [page]


def test_a_file_that_was_there_is_replaced_at_once_and_keeps_its_mode(journal: Path, tmp_path: Path) -> None:
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.write_text("the old one")
    page.chmod(0o640)
    link.symlink_to(page)
    with page.open() as reader:
        assert context(journal, "--html", str(link)).returncode == 0
        assert reader.read() == "the old one"  # who has it open keeps it
    assert link.is_symlink()
    assert stat.S_IMODE(page.stat().st_mode) == 0o640
    assert "</html>" in page.read_text()


def test_a_pipe_and_a_device_are_written_to_and_stay_what_they_are(journal: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()), daemon=True)
    reader.start()
    assert context(journal, "--html", str(pipe)).returncode == 0
    reader.join(20)
    assert "</html>" in found[0]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert context(journal, "--html", "/dev/null").returncode == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("name", ["two\nlines.html", "\udcff.html", "tab\t.html", "中文.html"])
def test_a_file_may_have_any_name(journal: Path, tmp_path: Path, name: str) -> None:
    done = context(journal, "--html", name, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout.decode().splitlines()) == 1
    assert (tmp_path / name).is_file()


@pytest.mark.parametrize("option", ["--html", "--markdown", "--perfetto"])
def test_hostile_lines_come_out_as_text(tmp_path: Path, option: str) -> None:
    write_journal(tmp_path, hostile())
    done = context(tmp_path, option, "-")
    assert (done.returncode, done.stderr) == (0, b"")
    done.stdout.decode(errors="strict")
    assert b"\x1b[2J" not in done.stdout


def test_the_command_works_without_its_script(journal: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "llmtrace.cli", "runs", "--dir", str(journal), "--json"], capture_output=True, timeout=60, check=True)
    assert json.loads(done.stdout)[0]["trace_id"] == TRACE


def test_incidents_name_their_links(journal: Path) -> None:
    done = subprocess.run([LLMTRACE, "incidents", "--dir", str(journal), "--json"], capture_output=True, timeout=60, check=True)
    assert json.loads(done.stdout)[0]["links"] == {"page": None, "grafana": None, "kibana": None}
