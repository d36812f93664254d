"""The failure catalogue: what a line says broke (category), and what the line is evidence of (role).

Rules are of kinds, with the wordings that versions of torch, NCCL, gloo, drivers, kernels, Slurm and Kubernetes have used for
them; the table lies in `wordings`. The first rule that fits wins, and no rule is a result: `unknown`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import msgspec

from .patterns import Alternative, alternatives, any_of
from .wordings import WORDINGS


class Classification(msgspec.Struct, frozen=True):
    """What a text says: `category` what broke, `role` what the text is evidence of, `reason` why we think so."""

    category: str
    role: str
    reason: str


UNKNOWN: Final = Classification("unknown", "ambiguous", "no rule of the catalogue fits")

LONGEST: Final = 5_000
"""Characters of a text that are looked at, from both its ends: an exception says what it is in its first or last line."""


@cache
def rules() -> list[tuple[Alternative, Classification]]:
    """The table, alternative by alternative, in order."""
    return [(Alternative(source), Classification(w.category, w.role, w.reason)) for w in WORDINGS for pattern in w.patterns for source in alternatives(pattern)]


@cache
def _first_look() -> re.Pattern[str]:
    return re.compile(any_of(_plain(alternative.word) for alternative, _ in rules()))


@cache
def _words() -> list[str]:
    return [alternative.word for alternative, _ in rules()]


def suspicious(text: str) -> bool:
    """Whether `classify` could say more than unknown, at a tenth of its cost: most lines of a log hold none of the rules' words."""
    return _first_look().search(_plain(text)) is not None


def _plain(text: str) -> str:
    return text.lower().replace("info", "")  # every line says INFO, and "inf" is a rule's word


def classify(text: str) -> Classification:
    """What one line, or the whole text of an exception, says. Never raises; `unknown` is a result."""
    if len(text) > 2 * LONGEST:
        text = f"{text[:LONGEST]}\n{text[-LONGEST:]}"
    if not suspicious(text):
        return UNKNOWN
    for place in [place for place, word in enumerate(_words()) if word in text]:
        alternative, found = rules()[place]
        if alternative.expression.search(text):
            return found
    return UNKNOWN
