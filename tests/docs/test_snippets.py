"""Every python and console snippet of README and docs runs, page by page, each page from top to bottom in a folder of its own.

A python snippet whose first line is `# file: NAME` is written to NAME for the commands below it; any other is run. In a console snippet a
line that starts with `$ ` is a command (`# exits N` at its end: with that status); the lines below it are what it must print, in order, with
`…` for what differs from run to run; lines that are not shown do not matter.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN_ONLY = {"text", "toml", "ini", "yaml", "mermaid", "json"}
TIMEOUT_S = 150


class Snippet(NamedTuple):
    language: str
    text: str


class Command(NamedTuple):
    line: str
    status: int
    output: list[str]


def snippets(page: Path) -> list[Snippet]:
    return [Snippet(*found) for found in FENCE.findall(page.read_text())]


def commands(text: str) -> Iterator[Command]:
    """The commands of a console snippet. A line that ends in a backslash goes on in the next one."""
    for block in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, output = re.sub(r"\\\n(> )?\s*", " ", block).partition("\n")
        line, _, remark = line.partition("  # exits ")
        yield Command(line, int(remark or 0), [shown.rstrip() for shown in output.splitlines() if shown.strip() not in ("", "…", "...")])


def missing(expected: list[str], printed: str) -> list[str]:
    """The first expected line that is not printed after those before it, with what comes after it; empty when all are."""
    at = 0
    lines = [line.rstrip() for line in printed.splitlines()]
    for number, want in enumerate(expected):
        pattern = re.compile(".*".join(re.escape(part.strip()) for part in want.split("…")))
        found = next((i for i in range(at, len(lines)) if pattern.fullmatch(lines[i].strip())), None)
        if found is None:
            return expected[number:]
        at = found + 1
    return []


def in_this_environment(line: str) -> str:
    """`make demo` would build an environment of its own: what its recipe runs at last is run here. Of other targets the recipe is only asked for."""
    if not line.startswith("make "):
        return line
    recipe = subprocess.run([*line.split(), "--dry-run", "-C", str(ROOT)], capture_output=True, text=True, check=True, timeout=60).stdout
    if line.split()[1] == "demo":
        last = next(text for text in reversed(recipe.splitlines()) if "demo" in text and not text.startswith("make"))
        return last.replace(".venv/bin/", "")
    return f"test -n {recipe.strip()[:20]!r}"


def run_console(text: str, folder: Path, environment: dict[str, str]) -> None:
    for command in commands(text):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", in_this_environment(command.line)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == command.status, f"$ {command.line}\n{done.stdout}{done.stderr}"
        assert missing(command.output, done.stdout + done.stderr) == [], f"$ {command.line}\n{done.stdout}{done.stderr}"


def run_python(text: str, folder: Path, environment: dict[str, str]) -> None:
    if named := re.match(r"# file: (\S+)\n", text):
        (folder / named[1]).write_text(text)
        return
    done = subprocess.run([sys.executable, "-c", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(s.language in ("python", "console") for s in snippets(page))], ids=lambda p: str(p.relative_to(ROOT))
)
def test_snippets_run(page: Path, tmp_path: Path, llmtrace_dirs: tuple[Path, Path]) -> None:
    environment = {
        **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120", "NO_COLOR": "1", "CUDA_VISIBLE_DEVICES": "",
        "LLMTRACE_DIR": str(llmtrace_dirs[0]), "LLMTRACE_RING_DIR": str(llmtrace_dirs[1]),
    }  # fmt: skip
    folder = tmp_path / "work"
    folder.mkdir()
    for snippet in snippets(page):
        if snippet.language == "console":
            run_console(snippet.text, folder, environment)
        elif snippet.language == "python":
            run_python(snippet.text, folder, environment)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_snippet_escapes_the_test_by_its_language(page: Path) -> None:
    assert {s.language for s in snippets(page)} <= SHOWN_ONLY | {"python", "console"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_commands_are_read_with_status_output_and_continuation() -> None:
    text = "$ one \\\n>   more  # exits 2\nshown …\n\n$ two\n"
    assert list(commands(text)) == [Command("one  more", 2, ["shown …"]), Command("two", 0, [])]


def test_a_line_that_is_not_printed_is_missed() -> None:
    assert missing(["a … c"], "x\na b c\n") == []
    assert missing(["a … d", "e"], "a b c\n") == ["a … d", "e"]
    assert missing(["b", "a"], "a\nb\n") == ["a"]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "README.md"], ids=lambda p: str(p.relative_to(ROOT)))
def test_every_page_is_reached_from_the_index_of_its_folder_or_of_the_docs(page: Path) -> None:
    index = page.parent / "README.md" if (page.parent / "README.md").exists() else ROOT / "docs" / "README.md"
    assert f"]({page.relative_to(index.parent)})" in index.read_text()
