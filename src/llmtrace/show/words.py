"""What categories, roles and phases are called; one that the table does not know goes by its own name."""

from __future__ import annotations

from typing import Final

from .clean import one_line
from .page.model import Words
from .page.texts.verdict import HEAD
from .phrases import say

CATEGORIES: Final = frozenset(key.removeprefix("category.") for key in HEAD if key.startswith("category."))
ROLES: Final = frozenset(key.removeprefix("role.") for key in HEAD if key.startswith("role."))
PHASES: Final = frozenset(key.removeprefix("phase.") for key in HEAD if key.startswith("phase."))


def category_words(category: str) -> Words:
    return say(f"category.{category}") if category in CATEGORIES else _plain(category)


def role_words(role: str) -> Words:
    return say(f"role.{role}") if role in ROLES else _plain(role)


def phase_words(phase: str) -> Words:
    """Also of a step whose phase is not known, which is ""."""
    if not phase:
        return say("phase.unknown")
    return say(f"phase.{phase}") if phase in PHASES else _plain(phase)


def _plain(name: str) -> str:
    return one_line(name).replace("_", " ")
