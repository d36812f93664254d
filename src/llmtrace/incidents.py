"""Incidents as records and back: an incident is an event like any other, so that every store and sink carries it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from .names import INCIDENT
from .record import FATAL, Culprit, Incident, Record, Value, Window

BEFORE_NS, AFTER_NS = 30_000_000_000, 5_000_000_000
"""The window of an incident: from 30 s before its onset to 5 s after its detection."""

_PREFIX = f"{INCIDENT}."
_LINK = "links."


def incident_id(trace_id: str, node: str, first_evidence: str) -> str:
    """12 hex digits, the same however often the same evidence is judged."""
    return hashlib.sha256(f"{trace_id}/{node}/{first_evidence}".encode()).hexdigest()[:12]


def incident_window(onset_ns: int, detected_ns: int) -> Window:
    return Window(onset_ns - BEFORE_NS, detected_ns + AFTER_NS)


def incident_attributes(incident: Incident) -> dict[str, Value]:
    """An incident's facts as flat attributes; absent facts are absent, lists are joined with blanks."""
    facts: dict[str, Value | None] = {
        "id": incident.id,
        "attempt": incident.attempt,
        "onset_ns": incident.onset_ns,
        "detected_ns": incident.detected_ns,
        "category": incident.category,
        "role": incident.role,
        "reason": incident.reason,
        "culprit_rank": incident.culprit.rank,
        "culprit_node": incident.culprit.node,
        "culprit_gpu": incident.culprit.gpu,
        "window_start_ns": incident.window.start_ns,
        "window_end_ns": incident.window.end_ns,
        "evidence": " ".join(incident.evidence) or None,
        "symptoms": " ".join(map(str, incident.symptoms)) or None,
        "merged": " ".join(incident.merged) or None,
        **{_LINK + name: link for name, link in incident.links.items()},
    }
    return {_PREFIX + name: value for name, value in facts.items() if value is not None}


def incident_of(record: Record) -> Incident:
    """The incident that a record of the name llmtrace.incident holds; raises KeyError on one that holds none."""
    found = {name.removeprefix(_PREFIX): value for name, value in record.attributes.items() if name.startswith(_PREFIX)}
    start, end = found["window_start_ns"], found["window_end_ns"]
    return msgspec.convert(
        {
            **{name: found[name] for name in ("id", "onset_ns", "detected_ns", "category", "role", "reason")},
            "attempt": found.get("attempt", ""),
            "trace_id": record.identity.trace_id,
            "summary": record.body or "",
            "culprit": Culprit(rank=found.get("culprit_rank"), node=found.get("culprit_node"), gpu=found.get("culprit_gpu")),  # type: ignore[arg-type]
            "window": Window(start, end),  # type: ignore[arg-type]
            "evidence": str(found.get("evidence", "")).split(),
            "symptoms": [int(rank) for rank in str(found.get("symptoms", "")).split()],
            "merged": str(found.get("merged", "")).split(),
            "links": {name.removeprefix(_LINK): str(link) for name, link in found.items() if name.startswith(_LINK)},
        },
        Incident,
    )


def latest(records: Iterable[Record]) -> list[Incident]:
    """The newest word on each incident, oldest onset first."""
    found = {incident.id: incident for incident in map(incident_of, sorted(records, key=lambda r: r.time_ns))}
    return sorted(found.values(), key=lambda incident: incident.onset_ns)


SEVERITY = FATAL
