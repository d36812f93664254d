"""Several sources (journals of several nodes, or several directories) read as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from operator import attrgetter

from ..record import Incident, Kind, Process, Record, Window
from .base import Source


class Merged:
    """The union of sources; incidents of one trace whose windows overlap are one, with the id of the earliest onset."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)

    def processes(self, trace_id: str | None = None) -> list[Process]:
        found = {p.identity.span_id: p for source in self._sources for p in source.processes(trace_id)}
        return sorted(found.values(), key=attrgetter("started_ns"))

    def incidents(self, trace_id: str | None = None) -> list[Incident]:
        found = {i.id: i for source in self._sources for i in source.incidents(trace_id)}
        return sorted(found.values(), key=attrgetter("onset_ns"))

    def records(self, trace_id: str, window: Window, *, kinds: Collection[Kind] | None = None, rank: int | None = None) -> list[Record]:
        found = {r.id: r for source in self._sources for r in source.records(trace_id, window, kinds=kinds, rank=rank)}
        return sorted(found.values(), key=attrgetter("time_ns"))

    def last_time_ns(self, trace_id: str) -> int | None:
        return max((ns for source in self._sources if (ns := source.last_time_ns(trace_id)) is not None), default=None)

    def drops(self) -> dict[str, int]:
        return dict(sum((Counter(source.drops()) for source in self._sources), Counter[str]()))

    def close(self) -> None:
        for source in self._sources:
            source.close()
