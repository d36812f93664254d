"""What is said of the job: what broke, who, since when, what the others did, what to do next."""

from __future__ import annotations

from typing import Final

VERDICT: Final[dict[str, tuple[str, str]]] = {}
