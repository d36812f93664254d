"""Which ranks share a lane, and what stands beside it: how it ended, how far it came, how fast, how large."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ..names import EXCEPTION_TYPE
from .fates import happenings, shared
from .page.model import Words
from .phrases import say
from .story import Standing, Story, rank_list, signal_name
from .strips import step_time_ns
from .words import phase_words

FOLD_ABOVE: Final = 8
"""Up to here every rank has a lane of its own."""
NAMED: Final = 18
"""A list of ranks longer than this is a number of ranks."""
STATES: Final = {"running": "note.runs", "clean": "note.clean", "raised": "note.raised", "killed": "note.killed", "exited": "note.exited"}


def alike(standings: Iterable[Standing]) -> dict[tuple[object, ...], list[Standing]]:
    """Ranks that did the same, together."""
    groups: dict[tuple[object, ...], list[Standing]] = {}
    for standing in standings:
        groups.setdefault(likeness(standing), []).append(standing)
    return groups


def likeness(standing: Standing) -> tuple[object, ...]:
    """What ranks that share a lane have in common."""
    process = standing.process
    failure = standing.trouble.attributes.get(EXCEPTION_TYPE) if standing.trouble else None
    alone = process.identity.span_id if standing.outlier else ""
    return standing.culprit, standing.bad, process.ending, process.exit_code, failure, alone, standing.last_step, process.phase, bool(standing.steps)


def label(group: Sequence[Standing], story: Story) -> Words:
    """`rank 3`, `rank 3 (1)` where it was started again, `ranks 0, 2-5`, `63 ranks`."""
    if len(group) > 1:
        ranks = rank_list(standing.rank for standing in group)
        return say("who.ranks", ranks=ranks) if len(ranks) + len("ranks ") <= NAMED else say("who.count", count=len(group))
    rank, restart = group[0].rank, group[0].process.identity.restart
    if rank is None:
        return say("who.unknown")
    return say("who.again", rank=rank, restart=restart) if rank in story.again else say("who.rank", ranks=rank)


def ended(group: Sequence[Standing], story: Story) -> Words:
    """How the ranks ended, the first of them when."""
    bad = [standing for standing in group if standing.trouble_ns is not None]
    if not bad:
        return say(STATES.get(group[0].process.ending, "note.unknown"))
    at = min(standing.trouble_ns or 0 for standing in bad) - story.zero_ns
    code, first = bad[0].process.exit_code, happenings(bad[0])[0]
    if first.symptom and not bad[0].culprit:
        return say("note.symptom", what=shared([happenings(standing)[0] for standing in bad]), at=at)
    if bad[0].trouble is not None or not code:
        return say("note.failed", at=at)
    return say("note.signal", signal=signal_name(-code), at=at) if code < 0 else say("note.exit", code=code, at=at)


def reached(standing: Standing, with_phase: bool = True) -> Words:
    """`step 340 backward`, "" where neither is known."""
    step: Words = "" if standing.last_step is None else say("where.step", step=standing.last_step)
    phase: Words = phase_words(standing.phase) if with_phase and standing.phase and standing.process.ending != "clean" else ""
    return say("note.step_phase", step=step, phase=phase) if step and phase else step or phase


def pace(group: Sequence[Standing]) -> Words:
    """How long a step takes; "" where none is known."""
    speed = step_time_ns(group)
    return say("note.speed", time=speed) if speed else ""


def unusual(standing: Standing) -> Words:
    """`own work 91 ms, others 72 ms`: how it differs from the others in its steps; "" where it does not."""
    outlier = standing.outlier
    if outlier is None:
        return ""
    return say("note.data" if outlier.waits else "note.work", own=outlier.own_ns, usual=outlier.usual_ns)


def resident(group: Sequence[Standing], story: Story) -> Words:
    """The memory of the one that was measured last; "" where none was."""
    found = [story.resident[span] for standing in group if (span := standing.process.identity.span_id) in story.resident]
    return say("note.rss", size=max(found)[1]) if found else ""
