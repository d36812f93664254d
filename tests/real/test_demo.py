"""`llmtrace demo`: a real job breaks, and its view answers what happened."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Directories

LLMTRACE = str(Path(sys.executable).parent / "llmtrace")
pytestmark = pytest.mark.timeout(600)


def demo(fault: str, path: Path) -> str:
    done = subprocess.run([LLMTRACE, "demo", "--fault", fault, "--dir", str(path)], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr + (path / "job.log").read_text(errors="replace")
    return done.stdout


@pytest.mark.parametrize(
    ("fault", "category", "sentence"),
    [("oom", "host_oom", "host memory"), ("kill", "process_death", "was killed"), ("exception", "program_error", "holds no text")],
)
def test_the_demo_breaks_a_rank_and_shows_it(llmtrace_dirs: Directories, fault: str, category: str, sentence: str) -> None:
    text = demo(fault, llmtrace_dirs.path)
    first = next(line for line in text.splitlines() if line.startswith("✗"))
    assert "rank 2" in first
    assert sentence in first
    assert f"({category})" in text
    assert re.search(r"▶rank 2 .*step 60", text)
    assert re.search(r"^others +rank", text, re.MULTILINE)
    assert re.search(r"step 59 loss \d", text[text.index("Last lines of rank 2") :])
    assert f"--dir {llmtrace_dirs.path} --rank 2 --all | less" in text
    (page,) = (llmtrace_dirs.path / "pages").glob("*.html")  # the agent's, and the demo waits for it
    assert f"The same as a page: {page}\n" in text
    assert page.read_text().rstrip().endswith("</html>")


def test_the_demo_without_a_fault_shows_a_clean_end(llmtrace_dirs: Directories) -> None:
    text = demo("none", llmtrace_dirs.path)
    first = " ".join(text.split()).partition("nothing broke.")[0]  # whether all exit codes were seen depends on who reaps first
    assert re.search(r"finished cleanly at .*\b119\b", first)
    assert "✗" not in text
    assert f"The same as a page: {llmtrace_dirs.path / 'page.html'}\n" in text
    assert (llmtrace_dirs.path / "page.html").read_text().rstrip().endswith("</html>")
