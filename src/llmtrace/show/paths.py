"""Paths as short as a screen asks for."""

from __future__ import annotations

from .clean import one_line
from .view import View

KEPT = 2
"""So many last parts of a path still tell one file of a program from another."""


def place(line: object, view: View) -> str:
    """`gpt/train.py:88 in main` of `/home/ada/gpt/train.py:88 in main`: on a terminal relative to where the reader is, else its last parts."""
    text = one_line(str(line))
    if not view.wrap or view.whole:
        return text
    path, colon, rest = text.partition(":")
    here = f"{view.here.rstrip('/')}/"
    parts = path.split("/")
    short = path.removeprefix(here) if view.here and path.startswith(here) else "/".join(parts[-KEPT:]) if len(parts) > KEPT + 1 else path
    return short + colon + rest
