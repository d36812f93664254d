"""Every word that a page says of itself, in each language: one table, by key."""

from __future__ import annotations

from typing import Final

from .interface import INTERFACE
from .verdict import VERDICT

LANGUAGES: Final = ("en", "zh")

TEXTS: Final[dict[str, tuple[str, str]]] = {**VERDICT, **INTERFACE}
"""key -> (English, Chinese). `{name}` is an argument of the phrase, `{name:clock}`, `{name:length}`, `{name:size}`, `{name:number}` say how it is spelled."""


def table(language: str) -> dict[str, str]:
    """The texts of one language; raises ValueError for one that there is none of."""
    place = LANGUAGES.index(language)
    return {key: words[place] for key, words in TEXTS.items()}
