"""What every source offers, whatever store is behind it. Callers know this and nothing else."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from ..record import Incident, Kind, Process, Record, Window


class Source(Protocol):
    """A store that is read, never written. One that cannot be read raises OSError or the store's own error when it is opened."""

    def processes(self, trace_id: str | None = None) -> list[Process]:
        """Every process that has, or had, a ring: of one trace or of all; in order of their start."""
        ...

    def incidents(self, trace_id: str | None = None) -> list[Incident]:
        """The latest word on each incident, oldest onset first."""
        ...

    def records(self, trace_id: str, window: Window, *, kinds: Collection[Kind] | None = None, rank: int | None = None) -> list[Record]:
        """What was emitted in the window, in order of time; of all kinds and ranks unless told."""
        ...

    def last_time_ns(self, trace_id: str) -> int | None:
        """When the newest record of a trace was emitted, in wall-clock nanoseconds; None where there is none."""
        ...

    def drops(self) -> dict[str, int]:
        """How many records never arrived, by reason; empty where none is missing."""
        ...

    def close(self) -> None: ...
