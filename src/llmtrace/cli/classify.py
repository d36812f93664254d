"""`classify`: what a line of a log is evidence of, line by line and without any store."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from .shared import Json, NoColor, make_console, refuse, write_json

if TYPE_CHECKING:
    from rich.text import Text

    from ..show.rows import ClassRow

FLAWED = "replace"
"""How bytes that are no UTF-8 are read: as U+FFFD, for one broken byte must not cost the rest of a log."""


def classify(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="Lines of text, or of JSON {id, text}; else standard input.")] = None,
    as_json: Json = False,
    no_color: NoColor = False,
) -> None:
    """Say what lines of a log are evidence of.

    Each line's category, and whether it is a cause or a symptom.
    """
    if as_json:
        for _, row in _classified(_lines(file)):
            write_json(row)
        return
    console = make_console(no_color)
    for text, row in _classified(_lines(file)):
        if row.category != "unknown":
            console.print(_shown(text, row), soft_wrap=True)


def _lines(file: str | None) -> Iterator[bytes]:
    if file is None or file == "-":
        yield from sys.stdin.buffer
        return
    try:
        with open(file, "rb") as stream:
            yield from stream
    except OSError as error:
        refuse(f"{file}: {error.strerror or error}")


def _classified(lines: Iterable[bytes]) -> Iterator[tuple[str, ClassRow]]:
    from ..diagnose.catalogue import classify as judge
    from ..show.rows import ClassRow

    for number, line in enumerate(lines, 1):
        name, text = _name_and_text(line, number)
        if text.strip():
            found = judge(text)
            yield text, ClassRow(name, found.category, found.role, found.reason)


def _name_and_text(line: bytes, number: int) -> tuple[str | int, str]:
    """The id and text of a JSON line; any other line is its own text, and its number its id."""
    import json

    decoded = line.decode("utf-8", FLAWED).rstrip("\r\n")
    if decoded.lstrip().startswith("{"):
        try:
            given = json.loads(decoded)
        except (ValueError, RecursionError):
            return number, decoded
        if isinstance(given, dict) and isinstance(text := given.get("text"), str):  # type: ignore[reportUnknownMemberType]
            name = given.get("id")  # type: ignore[reportUnknownMemberType, reportUnknownVariableType]
            return (name if isinstance(name, (str, int)) else number), text
    return number, decoded


def _shown(text: str, row: ClassRow) -> Text:
    from rich.text import Text

    from ..show.clean import cut, one_line

    style = "bold red" if row.role == "root_cause" else "yellow" if row.role != "benign" else "dim"
    return Text.assemble((f"{row.id}  {row.category}/{row.role}  ", style), cut(one_line(text), 300))
