"""`doctor`."""

from __future__ import annotations
from .shared import refuse


def doctor() -> None:
    """What holds on this machine."""
    refuse("not there yet")
