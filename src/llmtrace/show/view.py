"""How the reader wants it: what the sections of the terminal view are told besides the facts."""

from __future__ import annotations

import os
from typing import Final

import msgspec


class Glyphs(msgspec.Struct, frozen=True):
    """The few signs that are no letters; each is one column wide but for the ASCII dots and arrow."""

    alive: str
    failed: str
    died: str
    clean: str
    onset: str
    tick: str
    culprit: str
    dots: str
    dot: str
    rule: str
    arrow: str


UNICODE: Final = Glyphs("·", "!", "✗", "■", "▼", "╷", "▶", "…", "·", "─", "→")
ASCII: Final = Glyphs(".", "!", "X", "=", "v", "'", ">", "...", "-", "-", "->")


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:  # removed while we stand in it
        return ""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """`width` in columns; `wrap` breaks long lines there (in a pipe, where lines are for grep, only those of the head are broken); `options` goes into
    the commands that are proposed (`--dir ...`); `whole` shows every line uncut; `here` is what paths are shown relative to;
    `kinds` and `rank` choose what the interleaved log holds: the lanes and the verdict are always of everybody."""

    now_ns: int
    width: int = 80
    ascii_only: bool = False
    wrap: bool = True
    options: str = ""
    whole: bool = False
    here: str = msgspec.field(default_factory=_here)
    kinds: frozenset[str] | None = None
    rank: int | None = None

    @property
    def glyphs(self) -> Glyphs:
        return ASCII if self.ascii_only else UNICODE
