"""What both views say in llmtrace's own words: texts of the table with their arguments, and how Python spells them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, reduce
from typing import Final

from .clean import SLACK
from .page.model import Phrase, Words
from .page.texts import table
from .times import after, clock, date, length, size

FIELD: Final = re.compile(r"\{(\w+)(?::(\w+))?\}")
"""An argument's place in a text, and how it is spelled there."""

MS_NS: Final = 1_000_000

SPELLINGS: Final[dict[str, Callable[[int], str]]] = {
    "clock": lambda ms: clock(ms * MS_NS),
    "date": lambda ms: date(ms * MS_NS),
    "length": length,
    "offset": after,
    "size": size,
    "number": "{:,}".format,
}
"""`clock` and `date` take milliseconds since 1970, `length` and `offset` nanoseconds, `size` bytes."""


def say(key: str, **args: str | int | float | Phrase) -> Phrase:
    return Phrase(key, dict(args))


def joined(parts: Iterable[Words], by: str = "and.comma") -> Words:
    """Several as one, "" where there is none."""
    return reduce(lambda a, b: say(by, a=a, b=b), parts) if (parts := list(parts)) else ""


def shortened(text: str, most: int) -> Words:
    """About `most` characters of it, and how many more there are."""
    return text if len(text) <= most + SLACK else say("and.more", text=text[:most], count=len(text) - most)


def rewritten(words: Words, function: Callable[[str], str]) -> Words:
    """The same with the job's own words in it changed."""
    if isinstance(words, str):
        return function(words)
    return Phrase(words.key, {name: rewritten(value, function) if isinstance(value, str | Phrase) else value for name, value in words.args.items()})


def english(words: Words) -> str:
    return spelled(words, "en")


def spelled(words: Words, language: str) -> str:
    """The text itself, in one of the table's languages."""
    if isinstance(words, str):
        return words
    return FIELD.sub(lambda field: _argument(words.args[field[1]], field[2], language), _texts(language)[words.key])


def _argument(value: str | int | float | Phrase, how: str | None, language: str) -> str:
    if isinstance(value, Phrase):
        return spelled(value, language)
    return SPELLINGS[how](value) if how and not isinstance(value, str) else str(value)  # type: ignore[arg-type]


@cache
def _texts(language: str) -> dict[str, str]:
    return table(language)
