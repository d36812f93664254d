"""A browser for whoever sits before this machine."""

from __future__ import annotations

import os
import sys


def has_display() -> bool:
    """Whether a window could be seen here."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def show(url: str) -> bool:
    """Open `url` in the browser of this display; False where there is no display, or no browser."""
    if not has_display():
        return False
    import webbrowser

    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
