"""A small job of two ranks on two nodes that breaks at second 100, and the sources that hold it."""

from __future__ import annotations

from pathlib import Path

from llmtrace.incidents import incident_window
from llmtrace.record import Culprit, Incident, Window
from llmtrace.sources.base import Source
from llmtrace.sources.journal import JournalSource
from llmtrace.sources.merged import Merged
from tests.support.cases import TRACE, death, failure, line, lost_peer, ns, process, step, who
from tests.support.journals import write

OTHER = "7b" * 16
RECORDS = [
    *(line(who(r, "ab"[r]), 60 + n, f"step {n} marker-{r}", severity=9, step=n) for n in range(40) for r in (0, 1)),
    *(step(who(r, "ab"[r]), 60.5 + n, n) for n in range(40) for r in (0, 1)),
    failure(who(1, "b"), 100, "ValueError", "bad batch"),
    lost_peer(0, 100.1, node="a"),
    death(who(1, "b"), 101, 1),
    line(who(0, "c", trace=OTHER, span="c" * 16), 70, "another job", severity=9),
]
PROCESSES = [process(0, "killed", -15, 101.3, node="a"), process(1, "raised", 1, 101, node="b")]
WHOLE = Window(ns(0), ns(200))


def incident(name: str = "1nc1dent0001", onset: float = 100, **facts: object) -> Incident:
    known: dict[str, object] = {
        "id": name,
        "trace_id": TRACE,
        "attempt": "1",
        "onset_ns": ns(onset),
        "detected_ns": ns(onset + 0.1),
        "category": "program_error",
        "role": "root_cause",
        "summary": "rank 1 failed",
        "reason": "an exception",
        "culprit": Culprit(rank=1, node="b"),
        "window": incident_window(ns(onset), ns(onset + 0.1)),
    }
    return Incident(**(known | facts))  # type: ignore[arg-type]


def journal(folder: Path) -> Source:
    return JournalSource(write(folder / "all", RECORDS, PROCESSES, [incident()]))


def two_journals(folder: Path) -> Source:
    parts = [[r for r in RECORDS if r.identity.node == node] for node in "abc"]
    first = write(folder / "a", parts[0], PROCESSES[:1])
    second = write(folder / "b", parts[1], PROCESSES[1:], [incident()])
    return Merged([JournalSource(first), JournalSource(second), JournalSource(write(folder / "c", parts[2]))])
