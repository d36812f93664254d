"""Journals written as an agent writes them, from the records that a test names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from llmtrace.frames import Epoch, encode, encode_description, known_schemas
from llmtrace.incidents import SEVERITY, incident_attributes
from llmtrace.journal import KIND_BITS, Journal, RingRow
from llmtrace.names import GENERAL, INCIDENT, LOG, SCHEMAS, STEP
from llmtrace.record import Identity, Incident, Process, Record
from tests.support.cases import BASE_NS

OFFSET_NS = BASE_NS - 7_000_000_000
"""Wall minus monotonic: rings hold small monotonic times."""
BY_NAME = {schema.name: schema for schema in SCHEMAS if schema.name}


def frame(record: Record, position: int) -> tuple[int, int, bytes]:
    """The record as its ring holds it: lines and steps by position, the rest in the general form."""
    schema = BY_NAME.get(record.name, GENERAL) if record.name in (LOG, STEP) else GENERAL
    own = {name: getattr(record, name) for name in ("name", "kind", "severity", "body", "step", "duration_ns")}
    own["attributes"] = record.attributes or None
    values = [own.get(field, record.attributes.get(field)) for field in schema.fields]
    return schema.id, position, encode([record.time_ns - OFFSET_NS, *values])


def write(path: Path, records: Iterable[Record], processes: Iterable[Process] = (), incidents: Iterable[Incident] = ()) -> Path:
    """A directory with a journal of these; a record's process is made up where it is not among `processes`. Gives the directory."""
    path.mkdir(parents=True, exist_ok=True)
    known = {process.identity.span_id: process for process in processes}
    own: defaultdict[str, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda r: r.time_ns):
        own[record.identity.span_id].append(record)
        known.setdefault(record.identity.span_id, Process(identity=record.identity, started_ns=BASE_NS, last_ns=record.time_ns))
    journal = Journal.open(path / "journal.1.sqlite", max_bytes=1 << 30, max_age_s=1e9)
    with journal.transaction() as transaction:
        for span, process in known.items():
            transaction.put_ring(row(process, own[span]))
            _append(transaction, span, own[span])
        for incident in incidents:
            span = next(span for span, process in known.items() if process.identity.trace_id == incident.trace_id)
            body = [incident.detected_ns - OFFSET_NS, INCIDENT, "event", SEVERITY, incident.summary, None, None, None, None, incident_attributes(incident)]
            transaction.append_derived(span, encode(body), OFFSET_NS)
    journal.close()
    return path


def _append(transaction: object, span: str, records: list[Record]) -> None:
    position = 0
    for bulk in (False, True):
        frames = []
        for record in records:
            if (record.kind in ("span", "sample")) == bulk:
                frames.append(frame(record, position))
                position += 4 + len(frames[-1][2])
        kinds = sum({KIND_BITS[record.kind] for record in records})
        transaction.append(span, frames, OFFSET_NS, bulk=bulk, kinds=kinds)  # type: ignore[attr-defined]


def row(process: Process, records: list[Record], *, epochs: Iterable[Identity] = ()) -> RingRow:
    description = known_schemas()
    identities = list(epochs) or list(dict.fromkeys([*(record.identity for record in records), process.identity]))
    for identity in identities:
        first = min((record.time_ns for record in records if record.identity == identity), default=BASE_NS)
        description.epochs.append(Epoch(first - OFFSET_NS, identity))
    return RingRow(
        span_id=process.identity.span_id,
        identity=identities[-1],
        description=[encode_description(description)],
        count=len(records),
        started_ns=process.started_ns,
        last_ns=max([process.last_ns, *(record.time_ns for record in records)]),
        ending=process.ending,
        ended_ns=process.ended_ns,
        exit_code=process.exit_code,
        step=process.last_step,
        phase=process.phase,
        progress_ns=process.progress_ns,
    )
