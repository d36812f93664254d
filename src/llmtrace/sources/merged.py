"""Several sources (journals of several nodes, or several directories) read as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter

import msgspec

from ..diagnose import Verdict, diagnose
from ..incidents import BEFORE_NS
from ..links import common_links
from ..record import Incident, Kind, Process, Record, Window
from .base import Source

JUDGED_NS = 10_000_000_000
"""How long before the earliest onset the records begin that all nodes' verdict is made of; enough steps to compare clocks by."""

Group = list[tuple[int, Incident]]
"""Incidents that are one cascade, each with its source's number, the earliest onset first."""


class Merged:
    """The union of sources. An incident is judged again over all of them; those of several nodes that are one become one."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)
        self._judged: dict[bytes, Incident] = {}

    def processes(self, trace_id: str | None = None) -> list[Process]:
        found: dict[str, Process] = {}
        for source in self._sources:
            for process in source.processes(trace_id):
                known = found.get(process.identity.span_id)
                if known is None or known.last_ns <= process.last_ns:
                    found[process.identity.span_id] = process
        return sorted(found.values(), key=attrgetter("started_ns"))

    def incidents(self, trace_id: str | None = None) -> list[Incident]:
        told = {i.id: (number, i) for number, source in enumerate(self._sources) for i in source.incidents(trace_id)}
        groups = cascades(sorted(told.values(), key=lambda pair: pair[1].onset_ns))
        return sorted((self._judge([incident for _, incident in group]) for group in groups), key=attrgetter("onset_ns"))

    def records(self, trace_id: str, window: Window, *, kinds: Collection[Kind] | None = None, rank: int | None = None) -> list[Record]:
        found = {record.id: record for source in self._sources for record in source.records(trace_id, window, kinds=kinds, rank=rank)}
        return sorted(found.values(), key=attrgetter("time_ns"))

    def last_time_ns(self, trace_id: str) -> int | None:
        return max((ns for source in self._sources if (ns := source.last_time_ns(trace_id)) is not None), default=None)

    def drops(self) -> dict[str, int]:
        return dict(sum((Counter(source.drops()) for source in self._sources), Counter[str]()))

    def close(self) -> None:
        for source in self._sources:
            source.close()

    def _judge(self, incidents: list[Incident]) -> Incident:
        """One incident of these, judged over all sources; kept, since a reader asks more than once."""
        key = msgspec.msgpack.encode(incidents)
        if key not in self._judged:
            first = incidents[0]
            window = Window(first.onset_ns - JUDGED_NS, max(incident.window.end_ns for incident in incidents))
            processes = [p for p in self.processes(first.trace_id) if p.identity.attempt == first.attempt]
            records = self.records(first.trace_id, window, kinds=("event", "log", "span"))
            self._judged[key] = combined(incidents, diagnose(_of(records, processes), processes, window.end_ns))
        return self._judged[key]


def _of(records: Iterable[Record], processes: Iterable[Process]) -> list[Record]:
    spans = {process.identity.span_id for process in processes}
    return [record for record in records if record.identity.span_id in spans]


def cascades(incidents: Iterable[tuple[int, Incident]]) -> list[Group]:
    """Which are one: of the same trace and attempt, from different sources, with windows that overlap the first one's.

    One source never tells one cascade twice: where it names two incidents, training went on between them.
    """
    groups: list[Group] = []
    for number, incident in incidents:
        group = next((group for group in groups if _belongs(number, incident, group)), None)
        if group is None:
            groups.append([(number, incident)])
        else:
            group.append((number, incident))
    return groups


def _belongs(number: int, incident: Incident, group: Group) -> bool:
    first = group[0][1]
    same_job = (incident.trace_id, incident.attempt) == (first.trace_id, first.attempt)
    return same_job and number not in {other for other, _ in group} and incident.window.overlaps(first.window)


def combined(incidents: Sequence[Incident], verdict: Verdict | None) -> Incident:
    """The earliest of these, with what the verdict over all nodes says; the others' ids, page and links stay valid."""
    first = incidents[0]
    others = [name for incident in incidents for name in (incident.id, *incident.merged) if name != first.id]
    onset_ns = first.onset_ns if verdict is None else verdict.onset_ns
    whole = msgspec.structs.replace(
        first,
        merged=list(dict.fromkeys(others)),
        links=common_links([incident.links for incident in incidents]),
        onset_ns=onset_ns,
        detected_ns=min(incident.detected_ns for incident in incidents),
        window=Window(min(onset_ns - BEFORE_NS, first.window.start_ns), max(incident.window.end_ns for incident in incidents)),
    )
    if verdict is None:
        return whole
    return msgspec.structs.replace(
        whole,
        category=verdict.category,
        role=verdict.role,
        culprit=verdict.culprit,
        evidence=verdict.evidence,
        symptoms=verdict.symptoms,
        reason=verdict.reason,
        summary=verdict.summary,
    )
