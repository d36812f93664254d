"""What the commands share: their options, how they refuse, and how they write."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, NoReturn, ParamSpec

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from ..show.rows import IncidentRow, Row, RunRow
    from ..sources.base import Source

P = ParamSpec("P")

Json = Annotated[bool, typer.Option("--json", help="JSON for programs instead of a view for people.")]
Dirs = Annotated[list[str] | None, typer.Option("--dir", metavar="DIR", help="A journal's directory; given several times, they are read as one.")]
SourceKind = Annotated[str, typer.Option("--source", metavar="journal", help="Where to read; now only the journal.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours; also by NO_COLOR, and wherever the output is no terminal.")]


def refuse(sentence: str, code: int = 1) -> NoReturn:
    """One line on stderr, then the exit code: 1 for what is not there, 2 for bad usage."""
    from ..show.clean import one_line

    print(f"llmtrace: {one_line(sentence)}", file=sys.stderr)
    raise typer.Exit(code)


def open_reading(dirs: Sequence[str] | None, kind: str) -> Source:
    """The source that the options name; refuses what cannot be read, and where there is none."""
    try:
        return _open(dirs, kind)
    except LookupError as error:
        refuse(str(error.args[0]))


def open_listing(dirs: Sequence[str] | None, kind: str) -> Source | None:
    """The same for a command that lists: where nothing has been traced yet there is nothing to list, and that is no error."""
    try:
        return _open(dirs, kind)
    except LookupError as error:
        if any(not os.path.isdir(name) for name in dirs or ()):
            refuse(str(error.args[0]))
        return None


def _open(dirs: Sequence[str] | None, kind: str) -> Source:
    if kind != "journal":
        refuse(f"--source {kind} is not there yet; allowed: journal", 2)
    from ..sources.open import open_source

    try:
        return open_source(list(dirs or ()), kind)
    except (OSError, ValueError) as error:
        refuse(str(error))


def refusing(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose journal turns out to be unreadable half-way says so in one line."""

    @functools.wraps(command)
    def call(*args: P.args, **options: P.kwargs) -> None:
        from ..journal import JournalError

        try:
            command(*args, **options)
        except JournalError as error:
            refuse(str(error))

    return call


def write_json(rows: Row | list[RunRow] | list[IncidentRow]) -> None:
    """One line of JSON, always UTF-8, whatever the terminal speaks."""
    from ..show.rows import encode

    sys.stdout.buffer.write(encode(rows) + b"\n")


def make_console(no_color: bool) -> Console:
    """A console on stdout that no text can break: what its encoding lacks is replaced, markup and emoji are off."""
    from rich.console import Console

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # type: ignore[reportAttributeAccessIssue]
    colors = None if no_color or os.environ.get("NO_COLOR") else "auto"
    return Console(markup=False, emoji=False, highlight=False, color_system=colors, force_terminal=None if sys.stdout.isatty() else False)
