"""Rows whose last column hangs: wrapped under itself on a terminal, one whole line each in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from .view import View

GAP = "  "
TOGETHER = 200
"""Rows a table: its cost grows faster than its length."""


def hanging(rows: Sequence[Sequence[Text]], view: View) -> Iterator[RenderableType]:
    """Rows of equally many cells, the first columns as wide as they need, the last as wide as there is room."""
    if not rows:
        return
    if not view.wrap:
        yield from _whole(rows)
        return
    widths = [max(cell_len(row[column].plain) for row in rows) for column in range(len(rows[0]) - 1)]
    for start in range(0, len(rows), TOGETHER):
        table = Table.grid(padding=(0, len(GAP)))
        for width in widths:
            table.add_column(no_wrap=True, width=width)
        table.add_column(overflow="fold")
        for row in rows[start : start + TOGETHER]:
            table.add_row(*row)
        yield table


def _whole(rows: Sequence[Sequence[Text]]) -> Iterator[Text]:
    widths = [max(cell_len(row[column].plain) for row in rows) for column in range(len(rows[0]) - 1)]
    indent = sum(width + len(GAP) for width in widths)
    for row in rows:
        line = Text()
        for cell, width in zip(row[:-1], widths, strict=True):
            line.append_text(cell)
            line.append(" " * (width - cell_len(cell.plain)) + GAP)
        for number, part in enumerate(row[-1].split("\n", allow_blank=True)):
            line.append("\n" + " " * indent if number else "")
            line.append_text(part)
        yield line
