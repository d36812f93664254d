"""Reasons come from diagnosis as English text; here they become texts of the table again."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from ..phrases import FIELD, joined, say
from .model import Phrase, Words
from .texts.reasons import REASONS

BREAK: Final = "; "
"""What stands between a verdict's reasons, and within some of them."""
NESTED: Final = frozenset({"ended", "why"})
"""Arguments that are reasons themselves."""
WORD, NUMBER, SIZE, ANY = r"\S+", r"[\d.]+", r"[\d.]+ [KMGTPE]?i?B", rf"(?:(?!{BREAK}).)+?"
FORMS: Final = {
    **dict.fromkeys(("step", "other", "seconds", "code", "ms", "steps"), NUMBER),
    "signal": r"SIG\w+|signal \d+",
    "device": WORD,
    "size": SIZE,
    "free": SIZE,
    "ahead": ANY,
    "ended": ANY,
    "why": ANY,
}
"""What an argument looks like in the text."""


def recognised(text: str) -> Words:
    """A verdict's reason, part by part; a part that is in no table stays as it is."""
    parts, found, start = text.split(BREAK), list[Words](), 0
    while start < len(parts):
        end = next((end for end in range(len(parts), start, -1) if _one(BREAK.join(parts[start:end])) is not None), start + 1)
        one = BREAK.join(parts[start:end])
        found.append(_one(one) or one)
        start = end
    return joined(found, "and.semicolon")


def _one(text: str) -> Phrase | None:
    for key, form in _forms():
        if (match := form.fullmatch(text)) is not None:
            args = {name: _one(value) if name in NESTED else value for name, value in match.groupdict().items()}
            if None not in args.values():
                return say(key, **{name: value for name, value in args.items() if value is not None})
    return None


@cache
def _forms() -> list[tuple[str, re.Pattern[str]]]:
    """Each text of the table as an expression; whole texts before those with arguments."""
    ordered = sorted(REASONS.items(), key=lambda entry: len(FIELD.findall(entry[1][0])))
    return [(key, re.compile("".join(_expressions(english)))) for key, (english, _) in ordered]


def _expressions(english: str) -> list[str]:
    pieces = FIELD.split(english)  # text, name, spelling, text, ...
    return [re.escape(piece) if place % 3 == 0 else f"(?P<{piece}>{FORMS[piece]})" for place, piece in enumerate(pieces) if place % 3 != 2]
