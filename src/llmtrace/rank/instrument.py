"""What an instrument is: one file in rank/instruments with a module-level `instrument`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from .tracer import Tracer

Undo = Callable[[], None]
"""Takes back what an installation or subscription did; safe to call twice."""


class Requirement(msgspec.Struct, frozen=True):
    """The module an instrument needs, and the versions it was checked with: `minimum` included, `maximum` not.

    An instrument is installed once its module has been imported; outside the range it is left out, with one warning.
    """

    module: str
    minimum: str = ""
    maximum: str = ""


class Instrument(Protocol):
    """Feeds one kind of signal into a tracer. `requires` is None where Python alone is enough."""

    name: str
    requires: Requirement | None

    def install(self, tracer: Tracer) -> Undo: ...
