"""The runs that a source knows: one row a trace, attempt and run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

from ..record import Process, Run
from .base import Source

State = Literal["running", "finished", "failed", "lost"]


def runs(source: Source) -> list[Run]:
    """Every run, oldest first; a process that never learned its trace counts with its launch, else alone."""
    groups: defaultdict[tuple[str, str], list[Process]] = defaultdict(list)
    for process in source.processes():
        if process.identity.role == "rank":
            groups[process.identity.trace_id, process.identity.attempt].append(process)
    found = [run for (trace_id, attempt), ranks in groups.items() for run in _attempt(trace_id, attempt, ranks)]
    return sorted(found, key=lambda run: (run.started_ns, run.run))


def _attempt(trace_id: str, attempt: str, ranks: list[Process]) -> list[Run]:
    """The runs of one attempt. TODO: one row a run."""
    return [_run(trace_id, attempt, number, ranks) for number in sorted({max(1, process.identity.run) for process in ranks})]


def _run(trace_id: str, attempt: str, number: int, ranks: list[Process]) -> Run:
    state = state_of(ranks)
    steps = [process.last_step for process in ranks if process.last_step is not None]
    return Run(
        trace_id=trace_id,
        attempt=attempt,
        run=number,
        job=next((p.identity.job for p in ranks if p.identity.job), ""),
        state=state,
        started_ns=min(p.started_ns for p in ranks),
        ended_ns=None if state == "running" else max(p.ended_ns or p.last_ns for p in ranks),
        nodes=sorted({p.identity.node for p in ranks if p.identity.node}),
        ranks=len({p.identity.span_id if p.identity.rank is None else p.identity.rank for p in ranks}),
        last_step=max(steps, default=None),
    )


def state_of(ranks: Iterable[Process]) -> State:
    """`failed` as soon as one rank failed, `lost` where an end was never seen, `running` while one runs."""
    ranks = list(ranks)
    if any(failed(process) for process in ranks):
        return "failed"
    if any(process.ending == "running" for process in ranks):
        return "running"
    return "lost" if any(process.ending == "unknown" for process in ranks) else "finished"


def failed(process: Process) -> bool:
    """It ended, and not well: an exception, a signal, or an exit code that is not 0."""
    return process.ending in ("raised", "killed") or (process.ending != "running" and process.exit_code not in (None, 0))
