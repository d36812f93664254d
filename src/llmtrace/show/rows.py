"""The JSON of the reading commands: one struct a row, absent facts null, times integers in wall-clock nanoseconds."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from ..record import ERROR, FATAL, INFO, WARN, Culprit, Incident, Kind, Record, Run, Value, Window


class RunRow(msgspec.Struct, frozen=True):
    trace_id: str | None
    attempt: str | None
    run: int
    job: str | None
    state: str
    started_ns: int
    ended_ns: int | None
    nodes: list[str]
    ranks: int
    last_step: int | None


class Links(msgspec.Struct, frozen=True):
    page: str | None = None
    grafana: str | None = None
    kibana: str | None = None


class IncidentRow(msgspec.Struct, frozen=True):
    id: str
    trace_id: str | None
    onset_ns: int
    detected_ns: int
    category: str
    role: str
    summary: str
    culprit: Culprit
    window: Window
    evidence: list[str]
    links: Links


class RecordRow(msgspec.Struct, frozen=True):
    id: str
    time_ns: int
    kind: Kind
    name: str
    severity: str
    body: str | None
    duration_ns: int | None
    trace_id: str | None
    span_id: str | None
    parent_span_id: str | None
    rank: int | None
    node: str | None
    step: int | None
    attributes: dict[str, Value]


class ClassRow(msgspec.Struct, frozen=True):
    """One classified line: `id` as it was given, or the line's number."""

    id: str | int
    category: str
    role: str
    reason: str


Row = RunRow | IncidentRow | RecordRow | ClassRow

_LEVELS: Final = ((FATAL, "FATAL"), (ERROR, "ERROR"), (WARN, "WARN"), (INFO, "INFO"))


def severity_text(number: int) -> str:
    """OpenTelemetry's short name of a severity number; TRACE counts as DEBUG."""
    return next((name for least, name in _LEVELS if number >= least), "DEBUG")


def run_row(run: Run) -> RunRow:
    return RunRow(
        run.trace_id or None, run.attempt or None, run.run, run.job or None, run.state, run.started_ns, run.ended_ns, run.nodes, run.ranks, run.last_step
    )


def incident_row(incident: Incident) -> IncidentRow:
    return IncidentRow(
        id=incident.id,
        trace_id=incident.trace_id or None,
        onset_ns=incident.onset_ns,
        detected_ns=incident.detected_ns,
        category=incident.category,
        role=incident.role,
        summary=incident.summary,
        culprit=incident.culprit,
        window=incident.window,
        evidence=incident.evidence,
        links=Links(**{name: incident.links.get(name) for name in ("page", "grafana", "kibana")}),
    )


def record_row(record: Record) -> RecordRow:
    who = record.identity
    return RecordRow(
        record.id,
        record.time_ns,
        record.kind,
        record.name,
        severity_text(record.severity),
        record.body,
        record.duration_ns,
        who.trace_id or None,
        record.span_id or who.span_id or None,
        record.parent_span_id or who.parent_span_id or None,
        who.rank,
        who.node or None,
        record.step,
        _finite(record.attributes),
    )


def _finite(attributes: dict[str, Value]) -> dict[str, Value]:
    """NaN and the infinities as the words that OTLP's JSON has for them (protobuf's JSON mapping): JSON has no such number."""
    if all(not isinstance(value, float) or math.isfinite(value) for value in attributes.values()):
        return attributes
    return {name: _word(value) if isinstance(value, float) and not math.isfinite(value) else value for name, value in attributes.items()}


def _word(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_encode = msgspec.json.Encoder().encode


def encode(row: Row | list[RunRow] | list[IncidentRow]) -> bytes:
    """JSON in UTF-8, one line. A lone surrogate, which UTF-8 cannot hold, becomes U+FFFD."""
    try:
        return _encode(row)
    except UnicodeEncodeError:
        return _encode(_whole(msgspec.to_builtins(row)))


def _whole(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(item) for item in value]  # type: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {_whole(name): _whole(item) for name, item in value.items()}  # type: ignore[reportUnknownVariableType]
    return value
