"""Markdown of which any text can be a part and stay text: what a job printed makes no link, image, mention, reference, markup or end of a block.

A backslash is not enough: GitHub and GitLab turn `@team`, `#123` and addresses into links after the escapes are gone, but never within code. So words that
could be anything but words stand in code spans, and lines in fences longer than any run of backticks in them (CommonMark 0.31, 4.5 and 6.1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from .clean import one_line

_WORD: Final = re.compile(
    r"""[("']{0,2}(?:[^\W\d_]+(?:['-][^\W\d_]+)*(?:-\d{1,4})?|[+-]?\d+(?:[.,-]\d+)*|\d\d?(?::\d\d){1,2}(?:\.\d+)?)[)"']{0,2}[.,;:?%)…]{0,3}"""
)
"""A word or a number, as in prose: letters with hyphens, digits with points; no dot within letters (a file, a host), no sign that means anything."""

_REFERENCE: Final = re.compile(r"\W*(?:[A-Z]+-\d+|[0-9a-f]{7,64}|www\.)\W*", re.ASCII)
"""An issue (`GH-12`), a commit or the beginning of a host, as those who show Markdown recognise them."""

_AROUND: Final = re.compile(r"""([("']{0,2})(.*?)([)"']{0,2}[.,;:?)]{0,2})""")
_BACKTICKS: Final = re.compile(r"`+")
_NOTE: Final = 8
"""Words of the note that says what is left out, at most."""


def inline(text: str) -> str:
    """One line of prose: plain words stay, runs of anything else become code spans."""
    parts: list[str] = []
    odd: list[str] = []
    for word in [*one_line(text).split(), ""]:
        if word and not (_WORD.fullmatch(word) and not _REFERENCE.fullmatch(word)):
            odd.append(word)
            continue
        if odd:
            parts.append(_odd(" ".join(odd)))
            odd = []
        parts += [word] if word else []
    return " ".join(parts)


def _odd(text: str) -> str:
    """As code, but for the brackets and points of the prose around it."""
    before, core, after = _AROUND.fullmatch(text).groups()  # type: ignore[reportOptionalMemberAccess] (it matches any line)
    return f"{before}{code(core)}{after}" if core else code(text)


def code(text: str) -> str:
    """A code span of any text without a newline; of none at all nothing."""
    if not text:
        return ""
    ticks = "`" * (_longest(text) + 1)
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def cell(text: str) -> str:
    """The same within a table, whose cells a bar ends even in code."""
    return inline(one_line(text).replace("|", "¦"))


def fence(lines: Sequence[str], info: str = "text") -> list[str]:
    """Lines as they are, in a block of their own."""
    ticks = "`" * max(3, *(_longest(line) + 1 for line in lines), 3)
    return [ticks + info, *lines, ticks]


def _longest(text: str) -> int:
    return max(map(len, _BACKTICKS.findall(text)), default=0)


def words(lines: Sequence[str]) -> int:
    """Words as `str.split` counts them."""
    return sum(len(line.split()) for line in lines)


class Block(msgspec.Struct, frozen=True):
    """Lines of a list, a table or (with `info`) a fence; `head` stays in any case. Where there is no room for all the ones nearest to `centre` stay."""

    lines: list[str]
    info: str = ""
    head: list[str] = []
    centre: int = 0

    def fitted(self, most: int) -> list[str]:
        """Markdown of at most `most` words, with a note of what is left out; nothing at all where not even that fits."""
        used = words(self.head) + (2 if self.info else 0)
        if used + words(self.lines) <= most:
            return self._rendered(self.lines)
        kept, room = list[int](), most - used - _NOTE
        for place in sorted(range(len(self.lines)), key=lambda place: abs(place - self.centre)):
            if (room := room - words([self.lines[place]])) < 0:
                break
            kept.append(place)
        note = f"*{len(self.lines) - len(kept):,} lines are left out here.*"
        if not kept:
            return [note] if most >= _NOTE else []
        return [*self._rendered([self.lines[place] for place in sorted(kept)]), "", note]

    def _rendered(self, lines: Sequence[str]) -> list[str]:
        return [*self.head, *(fence(lines, self.info) if self.info else lines)]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """`most` is how many words it may take, heading and notes among them."""

    title: str
    blocks: list[Block]
    most: int

    def fitted(self) -> list[str]:
        heading = [f"## {self.title}", ""]
        found, room = list[str](), self.most - words(heading)
        for block in self.blocks:
            lines = block.fitted(room)
            room -= words(lines)
            found += [*lines, ""] if lines else []
        return [*heading, *found] if found else []
