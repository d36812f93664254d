"""One cascade: what went wrong in one attempt of a job, until it is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ..journal import RingRow
from ..names import EXCEPTION_TYPE, FAILURE, OOM, PROCESS, PROCESS_EXIT_CODE
from ..record import ERROR, Incident, Record
from .deaths import SIGINT

RECOVERED_NS: Final = 10_000_000_000
"""Steps of others this long after the last sign of trouble: training goes on without those who died."""
EVIDENCE: Final = 500
"""Failures, and lines, kept for a cascade: the earliest decide."""
TOGETHER_NS: Final = 1_000_000_000
"""An interrupt reaches the ranks of a node within this time of each other."""


class Cascade:
    """Evidence and incident of one trace and attempt. Times are wall-clock nanoseconds, but for `waits_until` and `quiet_until` (monotonic)."""

    def __init__(self) -> None:
        self.failures: list[Record] = []
        self.lines: deque[Record] = deque(maxlen=EVIDENCE)
        self.incident: Incident | None = None
        self.span_id = ""
        self.since_ns = 0
        self.waits_until: int | None = None
        self.quiet_until = 0
        self.fresh = False

    def add(self, record: Record) -> None:
        if record.time_ns < self.since_ns:
            return
        if not is_failure(record):
            self.lines.append(record)
        elif len(self.failures) < EVIDENCE:
            self.failures.append(record)
            self.fresh = True

    def evidence(self) -> list[Record]:
        return sorted([*self.failures, *self.lines], key=lambda record: record.time_ns)

    def close(self) -> None:
        """It is over: what fails from here on is another incident."""
        self.since_ns = self.last_ns() + 1
        self.failures, self.incident, self.waits_until, self.fresh = [], None, None, False
        self.lines.clear()

    def last_ns(self) -> int:
        """The last sign of trouble."""
        return max([record.time_ns for record in self.failures], default=self.incident.detected_ns if self.incident else 0)

    def recovered(self, rows: Sequence[RingRow]) -> bool:
        """Whether steps come again: of whoever failed and lives, else, where all of those are dead, of the others for a while."""
        failed = {record.identity.span_id: record for record in self.failures}
        living = [row for row in rows if row.ending == "running"]
        mine = [row for row in living if row.span_id in failed]
        if mine:
            return all(stepped_since(row, failed[row.span_id]) for row in mine)
        return any(row.step is not None and (row.progress_ns or 0) > self.last_ns() + RECOVERED_NS for row in living)

    def interrupted_ns(self) -> int | None:
        """When somebody pressed Ctrl-C, where that is how it began: a user who ends a job wants no incident."""
        interrupts = [record.time_ns for record in self.failures if is_interrupt(record)]
        first_ns = min((record.time_ns for record in self.failures), default=0)
        return min(interrupts) if interrupts and min(interrupts) - first_ns < TOGETHER_NS else None


def stepped_since(row: RingRow, record: Record) -> bool:
    """Whether the process has begun another step than that in which it failed (or, unknown which, moves on for a while)."""
    if row.step is None or row.progress_ns is None:
        return False
    if record.step is None:
        return row.progress_ns > record.time_ns + RECOVERED_NS
    return row.step > record.step and row.progress_ns > record.time_ns


def is_failure(record: Record) -> bool:
    """What makes us ask: a failure, an out-of-memory or a bad death of a rank. A worker's is its rank's to tell."""
    if record.identity.role == "worker":
        return False
    return record.name in (FAILURE, OOM) or (record.name == PROCESS and record.severity >= ERROR)


def is_interrupt(record: Record) -> bool:
    kind = str(record.attributes.get(EXCEPTION_TYPE, "")).rpartition(".")[2]
    return kind == "KeyboardInterrupt" or (record.name == PROCESS and record.attributes.get(PROCESS_EXIT_CODE) == -SIGINT)
