"""Regular expressions taken apart: alternatives, and the words that every match of one holds.

A log has a million lines and the catalogue hundreds of alternatives. Looking for a word that a match must hold costs a
twentieth of trying the expression, so each is tried, and compiled, only where its word is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[:=!<iP][=!]?|\{\d*,?\d*\}|.", re.DOTALL)
"""An escape, a class, the beginning of a group, a repetition, or one character."""


def tokens(pattern: str) -> Iterator[tuple[str, int]]:
    """(token, depth): depth 0 is outside of all groups; a group's parentheses count as inside."""
    depth = 0
    for found in _TOKEN.finditer(pattern):
        token = found[0]
        if token[0] == "(":
            depth += 1
        yield token, depth
        if token == ")":
            depth -= 1


def alternatives(pattern: str) -> list[str]:
    """The pattern cut at each `|` outside of groups."""
    parts = [""]
    for token, depth in tokens(pattern):
        if token == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    return parts


def needed_word(alternative: str) -> str:
    """The longest text that every match holds, as far as it stands outside of groups; empty where there is none."""
    runs = [""]
    for token, depth in tokens(alternative):
        if depth or token[0] in "[.^$+" or (token[0] == "\\" and token[1].isalnum()):
            runs.append("")
        elif token[0] in "?*{":  # what stands before it need not be there
            runs[-1] = runs[-1][:-1]
            runs.append("")
        else:
            runs[-1] += token[-1]
    return max(reversed(runs), key=len)  # of equally long ones the last: it is the more particular


class Alternative:
    """One alternative of the catalogue: the word it needs, and the expression, compiled when first tried."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.word = needed_word(source)

    @cached_property
    def expression(self) -> re.Pattern[str]:
        return re.compile(self.source, re.MULTILINE)


def any_of(words: Iterable[str]) -> str:
    """An expression that finds whether one of many words is in a text, as a tree of their letters: 550 words cost what 20 do."""
    tree: Tree = {}
    for word in words:
        node = tree
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}
    return _branches(tree)


Tree = dict[str, "Tree"]


def _branches(tree: Tree) -> str:
    if "" in tree:
        return ""
    parts = [re.escape(letter) + _branches(below) for letter, below in sorted(tree.items())]
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
