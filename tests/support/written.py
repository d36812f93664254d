"""A context written to disk as an agent would have left it, for what reads journals."""

from __future__ import annotations

from pathlib import Path

from llmtrace.directory import JOURNAL_NAME
from llmtrace.frames import Description, Epoch, encode, encode_description
from llmtrace.incidents import incident_attributes
from llmtrace.journal import Journal, RingRow
from llmtrace.names import GENERAL, INCIDENT
from llmtrace.record import FATAL, Process, Record
from llmtrace.sources.context import Context

PER_CHUNK = 200


def write_journal(path: Path, context: Context) -> None:
    """The journal of `context` in `path`, its wall clock taken for the monotonic one."""
    path.mkdir(parents=True, exist_ok=True)
    journal = Journal.open(path / JOURNAL_NAME, max_bytes=1 << 30, max_age_s=1e9)
    try:
        for process in context.processes:
            _write_process(journal, process, [r for r in context.records if r.identity.span_id == process.identity.span_id])
        if (incident := context.incident) is not None:
            span = next(p.identity.span_id for p in context.processes if p.identity.rank == incident.culprit.rank)
            values = (INCIDENT, "event", FATAL, _whole(incident.summary), None, None, None, None, incident_attributes(incident))
            with journal.transaction() as transaction:
                transaction.append_derived(span, encode([incident.detected_ns, *values]), 0)
    finally:
        journal.close()


def _write_process(journal: Journal, process: Process, records: list[Record]) -> None:
    who = process.identity
    description = Description(schemas=[GENERAL], epochs=[Epoch(0, who)])
    row = RingRow(
        span_id=who.span_id,
        identity=who,
        description=[encode_description(description)],
        started_ns=process.started_ns,
        last_ns=process.last_ns,
        ending=process.ending,
        ended_ns=process.ended_ns,
        exit_code=process.exit_code,
        step=process.last_step,
        phase=process.phase,
        progress_ns=process.progress_ns,
        pid=who.pid,
        lost=process.lost,
    )
    frames = [(GENERAL.id, int(record.id.rpartition("-")[2], 16), _payload(record)) for record in records]
    with journal.transaction() as transaction:
        transaction.put_ring(row)
        for start in range(0, len(frames), PER_CHUNK):
            transaction.append(who.span_id, frames[start : start + PER_CHUNK], 0, bulk=False)


def _payload(record: Record) -> bytes:
    body = None if record.body is None else _whole(record.body)
    return encode([record.time_ns, record.name, record.kind, record.severity, body, record.step, record.duration_ns, None, None, record.attributes])


def _whole(text: str) -> str:
    """Without the lone surrogates, which a rank replaces before they reach its ring."""
    return text.encode(errors="surrogatepass").decode(errors="replace")
