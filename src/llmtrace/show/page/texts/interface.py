"""What the page's own controls say: buttons, axes, filters."""

from __future__ import annotations

from typing import Final

INTERFACE: Final[dict[str, tuple[str, str]]] = {}
