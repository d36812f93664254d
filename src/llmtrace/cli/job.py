"""`run`, `off` and `agent`: what starts and stops tracing."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from .shared import Dirs, refuse

if TYPE_CHECKING:
    from ..record import Identity
    from ..ring import RingReader

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""What a shell exits with for a command that it cannot run."""


def run(
    command: Annotated[list[str], typer.Argument(metavar="CMD...", help="The command and its arguments, as without llmtrace.")],
    directory: Annotated[str | None, typer.Option("--dir", metavar="DIR", help="LLMTRACE_DIR for this job.")] = None,
    name: Annotated[str | None, typer.Option("--job", metavar="NAME", help="LLMTRACE_JOB for this job.")] = None,
) -> None:
    """Run a command with tracing on.

    It is on in every Python process of it that trains; the exit code is the command's.
    """
    from ..bootstrap import environment

    given = {"LLMTRACE_DIR": directory and os.path.abspath(directory), "LLMTRACE_JOB": name}
    environ = {**os.environ, **{variable: value for variable, value in given.items() if value}}
    _become(command, environment(environ))


def _become(command: list[str], environ: dict[str, str]) -> NoReturn:
    """Replace this process: signals, exit code and pid are then the command's own."""
    sys.stdout.flush()
    if command[0].startswith("-"):
        refuse(f"{command[0]}: there is no such option; what comes after the options is the command", 2)
    program = shutil.which(command[0], path=environ.get("PATH"))
    if program is None and "/" not in command[0]:
        refuse(f"{command[0]}: there is no such command", NOT_FOUND)
    try:
        os.execve(program or command[0], command, environ)
    except OSError as error:
        refuse(f"{command[0]}: {error.strerror}", NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


def agent(directory: Annotated[str | None, typer.Option("--dir", metavar="DIR", help="Instead of LLMTRACE_DIR.")] = None) -> None:
    """Run the agent as a service.

    It serves all jobs of LLMTRACE_DIR, and stays when the last rank is gone.
    """
    from ..config import resolve
    from ..directory import choose

    chosen = choose(resolve({"dir": directory} if directory else None))
    if chosen is None:
        refuse("there is no directory that could hold the journal; llmtrace doctor says why")
    if directory and chosen.path != Path(directory).absolute():
        refuse(f"--dir {directory} cannot hold the journal")  # ranks go elsewhere then, but who names a place means that place
    environ = {**os.environ, "LLMTRACE_DIR": str(chosen.path)}
    os.execve(sys.executable, [sys.executable, "-P", "-m", "llmtrace.agent", "--service"], environ)


def off(
    key: Annotated[str, typer.Argument(metavar="JOB", help="A job's name, or a trace id or the start of one.")],
    on: Annotated[bool, typer.Option("--on", help="Turn it on again.")] = False,
    dirs: Dirs = None,
) -> None:
    """Turn a running job's tracing off, or on again.

    At once: its ranks record nothing more until `--on`, and train on.
    """
    from ..ring import RingError
    from .rings import folders, running

    rings = list(running(folders(dirs or ())))
    meant = [(reader, identity) for reader, identity in rings if _is_meant(identity, key)]
    if len({identity.trace_id for _, identity in meant}) > 1 and all(identity.job != key for _, identity in meant):
        refuse(f"{key!r} begins more than one trace: {', '.join(sorted({identity.trace_id for _, identity in meant}))}")
    if not meant:
        refuse(f"no running job is called {key!r}; {_there_is(rings)}")
    try:
        for reader, _ in meant:
            reader.set_off(not on)
    except RingError as error:
        refuse(str(error))
    processes = f"{len(meant)} process{'es' * (len(meant) != 1)}"
    print(f"Tracing is {'on again' if on else 'off'} in {processes} of {', '.join(sorted({_name(identity) for _, identity in meant}))}.")


def _is_meant(identity: Identity, key: str) -> bool:
    return bool(key) and (identity.job == key or identity.trace_id.startswith(key.lower()))


def _name(identity: Identity) -> str:
    from ..show.clean import one_line

    return " ".join(part for part in (one_line(identity.job), identity.trace_id and f"(trace {identity.trace_id})") if part) or "a job without a name"


def _there_is(rings: list[tuple[RingReader, Identity]]) -> str:
    names = sorted({_name(identity) for _, identity in rings})
    return f"there {'is' if len(names) == 1 else 'are'} {', '.join(names)}" if names else "none is running here"
