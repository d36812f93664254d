"""Detection, the first of the consumers: failures and deaths in, incidents out.

One cascade is one incident: whatever fails in a trace and attempt after an incident opened belongs to it and refines it, until
steps come again. Who caused it is `diagnose`'s to say; this decides when to ask, when to wait, and when to speak.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from ..clock import monotonic_ns
from ..diagnose import Verdict, diagnose
from ..guard import shield
from ..incidents import SEVERITY, incident_attributes, incident_id, incident_of, incident_window
from ..journal import Chunk, JournalReader
from ..links import Links
from ..names import FAILURE, INCIDENT, OOM
from ..record import WARN, Culprit, Incident, Process, Record
from .cascade import Cascade
from .consumers import Derived
from .obituary import event
from .rows import Rows

PATIENCE_NS: Final = 500_000_000
"""How long symptoms alone wait for a cause on their own node (DESIGN part 5)."""
SETTLE_NS: Final = 500_000_000
"""An incident is refined at most twice a second: hundreds of ranks die in one cascade."""
RECALL_NS: Final = 600_000_000_000
"""How far back an agent that takes over looks for the evidence of what may still be going on."""
FORGET_NS: Final = 3600 * 1_000_000_000


class Key(NamedTuple):
    trace_id: str
    attempt: str


class Detection:
    """The consumer. `recall` rebuilds its state from the journal, so that a killed agent's successor goes on where it was.

    `links` leads to an incident; `noted` hears of each that the journal has, and when it was told, as often as it says something new.
    """

    name = "detection"
    bulk: bool | None = False

    def __init__(self, rows: Rows, links: Callable[[Incident], Links], noted: Callable[[Incident, int], None]) -> None:
        self._rows, self._links, self._noted = rows, links, noted
        self._cascades: dict[Key, Cascade] = {}

    def recall(self, reader: JournalReader, cursor: int) -> None:
        """What was seen up to chunk `cursor`: incidents, and the evidence of the last minutes, to be judged again."""
        for chunk in reader.incident_chunks():
            self._learn(chunk)
        now_ns = time.time_ns()
        for chunk in reader.chunks_between(now_ns - RECALL_NS, now_ns + RECALL_NS, bulk=False):
            if chunk.id <= cursor:
                self._learn(chunk)

    def take(self, chunks: Sequence[Chunk]) -> list[Derived]:
        for chunk in chunks:
            self._learn(chunk)
        return self.turn()

    def _learn(self, chunk: Chunk) -> None:
        if chunk.severity < WARN:
            return
        for record in self._rows.records(chunk):
            if record.name == INCIDENT:
                self._recognise(record)
            elif record.severity >= WARN or record.name in (FAILURE, OOM):
                self._note(record)

    def _recognise(self, record: Record) -> None:
        cascade, incident = self._cascade(record), incident_of(record)
        if cascade.incident is not None and cascade.incident.id != incident.id:  # between the two training went on
            cascade.since_ns = incident.onset_ns - PATIENCE_NS
        cascade.incident, cascade.span_id = incident, record.identity.span_id
        self._noted(incident, record.time_ns)

    def _note(self, record: Record) -> None:
        cascade = self._cascade(record)
        if (
            cascade.incident is not None
            and cascade.last_ns() < record.time_ns
            and cascade.recovered(self._rows.of(record.identity.trace_id, record.identity.attempt))
        ):
            cascade.close()
        cascade.add(record)

    def _cascade(self, record: Record) -> Cascade:
        return self._cascades.setdefault(Key(record.identity.trace_id, record.identity.attempt), Cascade())

    def turn(self) -> list[Derived]:
        """Judge where something is new or waited for."""
        now_ns = monotonic_ns()
        busy = [(key, cascade) for key, cascade in self._cascades.items() if cascade.fresh or cascade.waits_until is not None]
        return [derived for key, cascade in busy if now_ns >= cascade.quiet_until for derived in self._judge(key, cascade, now_ns)]

    def _judge(self, key: Key, cascade: Cascade, now_ns: int) -> list[Derived]:
        processes = self._rows.processes(key.trace_id, key.attempt, cascade.since_ns)
        verdict = ask(cascade, processes)
        if verdict is None or (cascade.incident is None and was_asked_for(cascade, verdict)):
            cascade.fresh, cascade.waits_until = False, None
            return []
        if cascade.incident is None and not verdict.candidate:
            cascade.waits_until = cascade.waits_until or now_ns + PATIENCE_NS
            if now_ns < cascade.waits_until:
                return []
        cascade.fresh, cascade.waits_until, cascade.quiet_until = False, None, now_ns + SETTLE_NS
        incident = self._incident(key, cascade, verdict)
        if incident == cascade.incident:
            return []
        cascade.incident = incident
        return [Derived(cascade.span_id, event(now_ns, INCIDENT, SEVERITY, incident.summary, None, incident_attributes(incident)))]

    def _incident(self, key: Key, cascade: Cascade, verdict: Verdict) -> Incident:
        """The cascade's incident by the newest verdict; its id and the time of its detection stay what they were."""
        before = cascade.incident
        if before is None or not cascade.span_id:
            first = verdict.evidence[0] if verdict.evidence else cascade.failures[0].id
            cascade.span_id = first.partition("-")[0]
        detected_ns = before.detected_ns if before else time.time_ns()
        incident = Incident(
            id=before.id if before else self._new_id(key, cascade, verdict),
            trace_id=key.trace_id,
            attempt=key.attempt,
            onset_ns=verdict.onset_ns,
            detected_ns=detected_ns,
            category=verdict.category,
            role=verdict.role,
            summary=verdict.summary,
            reason=verdict.reason,
            culprit=verdict.culprit,
            window=incident_window(verdict.onset_ns, detected_ns),
            evidence=verdict.evidence,
            symptoms=verdict.symptoms,
        )
        return msgspec.structs.replace(incident, links=self._links(incident))

    def _new_id(self, key: Key, cascade: Cascade, verdict: Verdict) -> str:
        first = next((record for record in cascade.failures if record.id in verdict.evidence[:1]), cascade.failures[0])
        return incident_id(key.trace_id, first.identity.node, first.id)

    def idle(self) -> bool:
        return not any(cascade.fresh or cascade.waits_until is not None for cascade in self._cascades.values())

    def forget(self) -> None:
        """Let go of what has been over for an hour."""
        old_ns = time.time_ns() - FORGET_NS
        for key, cascade in list(self._cascades.items()):
            if cascade.last_ns() < old_ns and not cascade.fresh and not self._rows.of(key.trace_id, key.attempt):
                del self._cascades[key]


def was_asked_for(cascade: Cascade, verdict: Verdict) -> bool:
    """Whether a user ended the job (Ctrl-C) and all the rest followed from that; a cause before it is one all the same."""
    asked_ns = cascade.interrupted_ns()
    return asked_ns is not None and (not verdict.candidate or asked_ns <= verdict.onset_ns)


def ask(cascade: Cascade, processes: Sequence[Process]) -> Verdict | None:
    """Diagnosis over the cascade. Where ours fails the fault is real all the same: an incident that says what failed first."""
    with shield("diagnose"):
        return diagnose(cascade.evidence(), processes, time.time_ns())
    first = min(cascade.failures, key=lambda record: record.time_ns)
    return Verdict(
        category="unknown",
        role="ambiguous",
        culprit=Culprit(rank=first.identity.rank, node=first.identity.node or None),
        onset_ns=first.time_ns,
        evidence=[first.id],
        symptoms=[],
        reason="diagnosis failed, this is what failed first",
        summary=f"rank {first.identity.rank}: {first.body or first.name}",
        candidate=True,
    )
