"""The window that a person asks for: which incident or trace, from when to when, and everything that is known of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from ..incidents import AFTER_NS, BEFORE_NS
from ..record import Incident, Kind, Process, Record, Window
from .base import Source


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """One window over all nodes and ranks. `processes` are those of the incident's attempt and those that lived in the window."""

    trace_id: str
    incident: Incident | None
    window: Window
    processes: list[Process]
    records: list[Record]
    drops: dict[str, int]


def context(
    source: Source,
    key: str,
    *,
    at_ns: int | None = None,
    before_ns: int = BEFORE_NS,
    after_ns: int = AFTER_NS,
    rank: int | None = None,
    kinds: Collection[Kind] | None = None,
) -> Context:
    """What happened around an incident, or in a trace.

    `key` is an incident's id (also one that was merged into another), a trace id, or the beginning of either that fits only
    one. Without `at_ns` an incident means its own window and a trace its last `before_ns + after_ns`, up to the newest record
    of a job that still runs. Times are wall-clock nanoseconds. Raises LookupError with a sentence that says what there is.
    """
    trace_id, incident = _find(source, key)
    processes = source.processes(trace_id)
    window = _window(source, trace_id, incident, at_ns, before_ns, after_ns)
    shown = incident or _overlapping(source.incidents(trace_id), window)
    return Context(
        trace_id=trace_id,
        incident=shown,
        window=window,
        processes=_concerned(processes, shown, window),
        records=source.records(trace_id, window, kinds=kinds, rank=rank),
        drops=source.drops(),
    )


def _window(source: Source, trace_id: str, incident: Incident | None, at_ns: int | None, before_ns: int, after_ns: int) -> Window:
    if at_ns is not None:
        return Window(at_ns - before_ns, at_ns + after_ns)
    if incident is not None:
        return Window(incident.onset_ns - before_ns, incident.window.end_ns - AFTER_NS + after_ns)
    end_ns = (source.last_time_ns(trace_id) or 0) + 1
    return Window(end_ns - before_ns - after_ns, end_ns)


def _overlapping(incidents: Iterable[Incident], window: Window) -> Incident | None:
    """The newest incident that began within the window: whoever looks at the trace then wants to be told."""
    return next((i for i in reversed(list(incidents)) if window.start_ns <= i.onset_ns < window.end_ns), None)


def _concerned(processes: Iterable[Process], incident: Incident | None, window: Window) -> list[Process]:
    attempt = incident.attempt if incident else None

    def lived(process: Process) -> bool:
        end_ns = process.ended_ns if process.ended_ns is not None else max(process.last_ns, process.progress_ns or 0)
        return process.started_ns < window.end_ns and (process.ending == "running" or end_ns >= window.start_ns)

    return [process for process in processes if process.identity.attempt == attempt or lived(process)]


def _find(source: Source, key: str) -> tuple[str, Incident | None]:
    """The trace, and the incident if it was one that was asked for."""
    wanted = key.strip().lower()
    incidents = source.incidents()
    traces = {process.identity.trace_id for process in source.processes()} - {""} | {incident.trace_id for incident in incidents}
    if wanted in traces:
        return wanted, None
    by_name = {name: incident for incident in incidents for name in (*incident.merged, incident.id)}
    if wanted in by_name:
        return by_name[wanted].trace_id, by_name[wanted]
    found = {(by_name[name].trace_id, by_name[name].id) for name in by_name if wanted and name.startswith(wanted)}
    found |= {(trace, "") for trace in traces if wanted and trace.startswith(wanted)}
    if len(found) != 1:
        raise LookupError(_sentence(key, sorted(found), incidents, traces))
    ((trace, incident_id),) = found
    return trace, by_name.get(incident_id)


def _sentence(key: str, found: list[tuple[str, str]], incidents: list[Incident], traces: set[str]) -> str:
    if found:
        return f"{key!r} begins more than one id: {', '.join(incident_id or trace for trace, incident_id in found)}"
    if not traces:
        return f"nothing is called {key!r}: there is no run and no incident here"
    return f"nothing is called {key!r}; there are {_few('incident', [i.id for i in incidents])} and {_few('trace', sorted(traces))}"


def _few(noun: str, names: list[str], most: int = 5) -> str:
    """`2 incidents (a, b)`, with the newest few named."""
    shown = ", ".join(names[-most:]) + (", ..." if len(names) > most else "")
    return f"{len(names) or 'no'} {noun}{'' if len(names) == 1 else 's'}" + (f" ({shown})" if names else "")
