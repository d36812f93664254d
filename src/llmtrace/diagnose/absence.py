"""Rule 3, absence is evidence: with nothing but symptoms, whoever said nothing, or stayed behind, is the one to look at."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..record import Identity, Process
from .evidence import LATE_NS, Evidence, ended_well


class Absent(msgspec.Struct, frozen=True):
    """Who was missing, since when (where that is known) and how it shows. `process` is None for a rank that was never seen."""

    identity: Identity
    reason: str
    says: str
    process: Process | None = None
    since_ns: int | None = None


def find_absent(symptoms: Sequence[Evidence], ranks: Sequence[Process]) -> Absent | None:
    """The one rank that was missing, behind or silent while the others failed; None where it is not one."""
    failed = {e.span_id for e in symptoms if e.breaks}
    silent = [process for process in ranks if process.identity.span_id not in failed and process.ending != "clean"]
    return _left_early(symptoms, ranks) or _behind(ranks) or _only_silent(silent, ranks) or _stopped_earlier(silent or ranks) or _never_seen(ranks)


def _left_early(symptoms: Sequence[Evidence], ranks: Sequence[Process]) -> Absent | None:
    """The one rank that ended well, too early: it returned, or called sys.exit(0), while the others trained on."""
    first_ns = min(e.time_ns for e in symptoms)
    left = [p for p in ranks if p.ended_ns is not None and ended_well(p) and p.ended_ns <= first_ns + LATE_NS]
    if len(left) != 1 or len(ranks) < 2:
        return None
    (process,) = left
    says = f"ended well{'' if process.last_step is None else f' at step {process.last_step}'} while the others went on"
    return Absent(process.identity, f"it {says}", says, process, min(process.progress_ns or first_ns, process.ended_ns or first_ns))


def _behind(ranks: Sequence[Process]) -> Absent | None:
    steps = sorted({process.last_step for process in ranks if process.last_step is not None})
    last = [process for process in ranks if process.last_step == steps[0]] if len(steps) > 1 else []
    if len(last) != 1:
        return None
    says = f"stayed at step {steps[0]} while others had come to step {steps[-1]}"
    return Absent(last[0].identity, f"it {says}", says, last[0])


def _only_silent(silent: Sequence[Process], ranks: Sequence[Process]) -> Absent | None:
    if len(silent) != 1 or len(ranks) < 2:
        return None
    says = "said nothing while the others failed"
    return Absent(silent[0].identity, f"it {says}", says, silent[0])


def _stopped_earlier(ranks: Sequence[Process]) -> Absent | None:
    """Two ranks of one step are told apart by their last progress only where it lies well apart."""
    ordered = sorted((process for process in ranks if process.progress_ns is not None), key=lambda p: p.progress_ns or 0)
    if len(ordered) < 2 or (ordered[1].progress_ns or 0) - (ordered[0].progress_ns or 0) < LATE_NS:
        return None
    early_s = ((ordered[1].progress_ns or 0) - (ordered[0].progress_ns or 0)) / 1e9
    says = f"made its last progress {early_s:.1f} s before any other rank"
    return Absent(ordered[0].identity, f"it {says}", says, ordered[0])


def _never_seen(ranks: Sequence[Process]) -> Absent | None:
    """The one rank of the job that is not among those read: on a node whose journal is not here, perhaps."""
    sizes = {process.identity.world_size for process in ranks} - {None}
    seen = {process.identity.rank for process in ranks}
    missing = set(range(max(size or 0 for size in sizes))) - seen if sizes else set[int]()
    if len(missing) != 1:
        return None
    (rank,) = missing
    known = ranks[0].identity
    return Absent(Identity(trace_id=known.trace_id, attempt=known.attempt, rank=rank), "it is the only rank of which nothing was read", "was not seen here")
