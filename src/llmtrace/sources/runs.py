"""The runs that a source knows: one row a trace, attempt and run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from ..names import PROCESS, PROCESS_ACTION, PROCESS_ENDING
from ..record import Process, Record, Run, Window
from .base import Source

State = Literal["running", "finished", "failed", "lost"]


class Part(msgspec.Struct, frozen=True):
    """One process's part in one run. Times are wall-clock nanoseconds; `ended_ns` is None while it runs."""

    process: Process
    run: int
    state: State
    started_ns: int
    ended_ns: int | None
    last_step: int | None


def runs(source: Source) -> list[Run]:
    """Every run, oldest first. A process that never learned its trace counts with its launch, else alone."""
    groups: defaultdict[tuple[str, str], list[Process]] = defaultdict(list)
    for process in source.processes():
        if process.identity.role == "rank":
            groups[process.identity.trace_id, process.identity.attempt].append(process)
    found = [run for ranks in groups.values() for run in _runs(ranks, _events(source, ranks))]
    return sorted(found, key=lambda run: (run.started_ns, run.run))


def _runs(ranks: Iterable[Process], events: Mapping[str, Sequence[Record]]) -> list[Run]:
    parts: defaultdict[int, list[Part]] = defaultdict(list)
    for process in ranks:
        for part in parts_of(process, events.get(process.identity.span_id, ())):
            parts[part.run].append(part)
    return [_run(number, own) for number, own in sorted(parts.items())]


def _run(number: int, parts: Sequence[Part]) -> Run:
    states = {part.state for part in parts}
    state: State = "failed" if "failed" in states else "running" if "running" in states else "lost" if "lost" in states else "finished"
    known = parts[0].process.identity
    identities = [part.process.identity for part in parts]
    return Run(
        trace_id=known.trace_id,
        attempt=known.attempt,
        run=number,
        job=next((identity.job for identity in identities if identity.job), ""),
        state=state,
        started_ns=min(part.started_ns for part in parts),
        ended_ns=None if any(part.ended_ns is None for part in parts) else max(part.ended_ns or 0 for part in parts),
        nodes=sorted({identity.node for identity in identities if identity.node}),
        ranks=len({identity.span_id if identity.rank is None else identity.rank for identity in identities}),
        last_step=max((part.last_step for part in parts if part.last_step is not None), default=None),
    )


def _events(source: Source, ranks: Sequence[Process]) -> Mapping[str, Sequence[Record]]:
    """Beginnings and ends of runs by span, looked up only where the processes alone do not tell them: several runs, or none ended yet."""
    asked = [process for process in ranks if process.identity.run > 1 or process.ending == "running"]
    found: defaultdict[str, list[Record]] = defaultdict(list)
    if not asked:
        return found
    several = any(process.identity.run > 1 for process in asked)
    last_ns = max(process.last_ns for process in asked)
    start_ns = min(process.started_ns for process in asked) if several else min(process.last_ns for process in asked) - 10_000_000_000
    for record in source.records(asked[0].identity.trace_id, Window(start_ns, last_ns + 1), kinds=("event",)):
        if record.name == PROCESS and record.attributes.get(PROCESS_ACTION) in ("started", "finished"):
            found[record.identity.span_id].append(record)
    return found


def parts_of(process: Process, events: Sequence[Record]) -> list[Part]:
    """The process's runs. Without its own word on them it has one, from its start to its end."""
    last = max(1, process.identity.run)
    numbers = sorted({max(1, record.identity.run) for record in events} | {last})
    return [_part(process, number, number == last, [r for r in events if max(1, r.identity.run) == number]) for number in numbers]


def _part(process: Process, number: int, is_last: bool, events: Sequence[Record]) -> Part:
    started = next((r.time_ns for r in events if r.attributes.get(PROCESS_ACTION) == "started"), process.started_ns)
    finished = next((r for r in reversed(events) if r.attributes.get(PROCESS_ACTION) == "finished"), None)
    step = process.last_step if is_last else None
    if finished is not None and not (is_last and failed(process)):
        state: State = "finished" if finished.attributes.get(PROCESS_ENDING) == "clean" else "failed"
        return Part(process, number, state, started, finished.time_ns, step)
    if not is_last:
        return Part(process, number, "finished", started, started, step)
    state = state_of(process)
    return Part(process, number, state, started, None if state == "running" else process.ended_ns or process.last_ns, step)


def state_of(process: Process) -> State:
    if failed(process):
        return "failed"
    return "running" if process.ending == "running" else "lost" if process.ending == "unknown" else "finished"


def failed(process: Process) -> bool:
    """It ended, and not well: an exception, a signal, or an exit code that is not 0."""
    return process.ending in ("raised", "killed") or (process.ending != "running" and process.exit_code not in (None, 0))
