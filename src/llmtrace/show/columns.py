"""Rows whose last column hangs: wrapped under itself on a terminal, one whole line each in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len, get_character_cell_size
from rich.text import Text

from .view import View

GAP: Final = "  "
ROOM: Final = 20
"""Where less than this is left for the last column, it goes below the others."""
BELOW: Final = 4


def hanging(rows: Sequence[Sequence[Text]], view: View) -> Iterator[Text]:
    """Rows of equally many cells, the first columns as wide as they need, the last as wide as there is room."""
    return hung(rows, view.width if view.wrap else None)


def hung(rows: Sequence[Sequence[Text]], width: int | None) -> Iterator[Text]:
    """The same for a width in columns; None: no line is broken."""
    if not rows:
        return
    widths = [max(cell_len(row[column].plain) for row in rows) for column in range(len(rows[0]) - 1)]
    indent = sum(column + len(GAP) for column in widths)
    for row in rows:
        line = Text()
        for cell, column in zip(row[:-1], widths, strict=True):
            line.append_text(cell).append(" " * (column - cell_len(cell.plain)) + GAP)
        if width is None or width - indent >= min(ROOM, width // 2):
            yield _joined(line, _parts(row[-1], None if width is None else width - indent), indent)
        else:
            line.rstrip()
            yield from wrapped(line, width)
            yield _joined(Text(" " * BELOW), _parts(row[-1], width - BELOW), BELOW)


def hung_text(text: Text, width: int | None, hang: int) -> Text:
    """One text whose lines after the first are indented."""
    lines = [text] if width is None else wrapped(text, width, width - hang)
    return _joined(Text(), lines, hang)


def _parts(text: Text, room: int | None) -> list[Text]:
    lines = list(text.split("\n", allow_blank=True)) or [Text()]
    return lines if room is None else [part for line in lines for part in wrapped(line, room)]


def _joined(line: Text, parts: Sequence[Text], indent: int) -> Text:
    for number, part in enumerate(parts):
        line.append("\n" + " " * indent if number else "").append_text(part)
    return line


def wrapped(text: Text, width: int, later: int | None = None) -> list[Text]:
    """Lines no wider than `width` (`later` from the second on), broken after a blank where there is one, within a word where there is none."""
    plain = text.plain
    if cell_len(plain) <= width:
        return [text]
    cuts: list[int] = []
    while (end := _line_end(plain, cuts[-1] if cuts else 0, later if cuts and later is not None else width)) < len(plain):
        cuts.append(end)
    lines = list(text.divide(cuts))
    for line in lines:
        line.rstrip()
    return lines


def _line_end(plain: str, start: int, room: int) -> int:
    used, blank = 0, start - 1
    for place in range(start, len(plain)):
        used += get_character_cell_size(plain[place])
        if plain[place] == " ":
            blank = place
        elif used > room and place > start:
            return blank + 1 if plain[start : blank + 1].strip() else place
    return len(plain)
