"""`demo`: break a real job of four ranks, then look at what llmtrace has of it: in the terminal, and as a page."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .shared import NoColor, refuse

if TYPE_CHECKING:
    from ..sources.base import Source
    from ..sources.context import Context

RANKS, STEPS, AT = 4, 120, 60
FAULTS = {
    "oom": "rank 2 will ask for more memory than there is",
    "kill": "rank 2 will be killed with SIGKILL",
    "exception": "rank 2 will raise an exception",
    "none": "nothing will break",
}
PATIENCE_S = 10
"""How long the incident, and then its page, is waited for once the job is gone; usually the one is there before, and the other within two seconds."""


def demo(
    fault: Annotated[str, typer.Option("--fault", metavar="|".join(FAULTS), help="What breaks.")] = "oom",
    directory: Annotated[str | None, typer.Option("--dir", metavar="DIR", help="Where to keep what was traced; else a new folder below /tmp.")] = None,
    no_color: NoColor = False,
) -> None:
    """Break a small job and show what happened.

    Four ranks of this machine train a small GPT, and one of them breaks.
    """
    if fault not in FAULTS:
        refuse(f"--fault {fault!r}; allowed: {', '.join(FAULTS)}", 2)
    if missing := [name for name in ("torch", "lightning") if find_spec(name) is None]:
        refuse(f"the demo trains with torch and Lightning; missing here: {', '.join(missing)} (pip install 'llmtrace[lightning]')")
    script = _script()
    path = Path(directory).absolute() if directory else Path(tempfile.mkdtemp(prefix="llmtrace-demo-"))
    path.mkdir(0o700, parents=True, exist_ok=True)
    print(f"{RANKS} ranks train a small GPT on the text of Python's own help; {FAULTS[fault]} in step {AT}.", flush=True)
    took, code = _train(script, fault, path)
    print(f"The job ended with exit code {code} after {took:.0f} s; what it printed is in {path / 'job.log'}.\n", flush=True)
    _show(path, fault, no_color)


def _script() -> Path:
    """The example that the demo runs: in the wheel it lies beside the package's modules, in a checkout at the top."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "examples", package.parents[1] / "examples"):
        if (folder / "lightning_gpt.py").is_file():
            return folder / "lightning_gpt.py"
    refuse("this installation came without its examples")


def _train(script: Path, fault: str, path: Path) -> tuple[float, int]:
    """Run the job with its journal in `path`; seconds and exit code."""
    environ = {**os.environ, "LLMTRACE_DIR": str(path), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    for name in [name for name in environ if name in ("LLMTRACE", "LLMTRACE_TRACE_ID", "LLMTRACE_RUN_ID", "TRACEPARENT") or name.startswith("SLURM_")]:
        del environ[name]  # a demo in somebody's shell or allocation is a job of its own
    command = [sys.executable, str(script), "--fault", fault, "--at", str(AT), "--steps", str(STEPS), "--ranks", str(RANKS)]
    begun = time.monotonic()
    with open(path / "job.log", "wb") as log:
        job = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False)
    return time.monotonic() - begun, job.returncode


def _show(path: Path, fault: str, no_color: bool) -> None:
    from ..sources.context import context
    from ..sources.open import open_source
    from .browser import show
    from .reading import newest, print_context

    try:
        source = open_source([str(path)])
    except LookupError as error:
        refuse(f"{error}; llmtrace doctor says what is in the way")
    if fault != "none":
        _wait_for_incident(source)
    found = context(source, newest(source))
    print_context(found, no_color, options=_options(path))
    page = _page(path, found)
    print(f"\nThe same as a page: {page}", flush=True)
    if sys.stdout.isatty():
        show(page.as_uri())


def _options(path: Path) -> str:
    return f"--dir {shlex.quote(str(path))}"


def _page(path: Path, found: Context) -> Path:
    """The page that the agent writes while it leaves; without an incident it writes none, and this does."""
    from ..links import page_file
    from .files import write_out
    from .reading import file_data

    if found.incident is not None:
        page = page_file(path / "pages", found.incident.id)
        if _wait_for(page.is_file):
            return page
    page = path / "page.html"
    write_out(str(page), file_data("--html", found, "", _options(path)))
    return page


def _wait_for_incident(source: Source) -> None:
    """Until there is an incident and every rank's end is known, or patience ends."""
    _wait_for(lambda: bool(source.incidents()) and all(process.ending != "running" for process in source.processes()))


def _wait_for(question: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while not (answer := question()) and time.monotonic() < until:
        time.sleep(0.1)
    return answer
