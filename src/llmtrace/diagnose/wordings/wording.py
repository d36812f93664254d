"""One line of the catalogue's table."""

from __future__ import annotations

import msgspec


class Wording(msgspec.Struct, frozen=True):
    """One kind of saying: what it means, and the regular expressions (any of them, anywhere, ^ and $ at each line's ends)."""

    category: str
    role: str
    reason: str
    patterns: tuple[str, ...]


def says(category: str, role: str, reason: str, *patterns: str) -> Wording:
    return Wording(category, role, reason, patterns)
