"""How sure the verdict is: from what is on record of the culprit, less what is not here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...record import Incident
from ..evidence import found_evidence
from ..fates import happenings
from ..hints import manner
from ..order import order
from ..outcome import codes_seen, is_clean
from ..phrases import joined, say
from ..story import Standing, Story, signal_name, who
from .model import Phrase, Words
from .sentence import absent_key, ended_alike, first_reason

LEVELS: Final = ("confidence.low", "confidence.medium", "confidence.high")
LOW, MEDIUM, HIGH = range(3)
PLAIN: Final = frozenset({"sentence.behind", "sentence.ended_well", "sentence.ended_well_at"})
"""Absence that shows in what is on record: its steps, its end."""
CLOCKS_NS: Final = 50_000_000
"""Two nodes' clocks may differ by so much unseen (diagnose/clocks.py)."""


def confidence(story: Story) -> Phrase | None:
    """High, medium or low, and why; None of a job that still runs, or that ended without an incident and not well."""
    if story.incident is None:
        return _of_clean(story) if is_clean(story) else None
    level, why = _basis(story, story.incident)
    doubts = list(_doubts(story))
    level = max(LOW, level - 1) if doubts else level
    return say(LEVELS[level], why=joined([why, *doubts], "and.semicolon"))


def _of_clean(story: Story) -> Phrase:
    level, why = (HIGH, say("because.clean_codes")) if codes_seen(story) else (MEDIUM, say("because.clean_words"))
    doubts = [say("because.missing", who=who(absent))] if (absent := missing_ranks(story)) else []
    return say(LEVELS[level - len(doubts)], why=joined([why, *doubts], "and.semicolon"))


def _basis(story: Story, incident: Incident) -> tuple[int, Words]:
    culprit, absent, first = story.culprit, absent_key(incident), next(iter(found_evidence(story)), None)
    if incident.culprit.rank is None:
        return LOW, say("because.all" if ended_alike(story, incident) else "because.symptoms")
    if absent is not None or culprit is None:
        return MEDIUM if absent in PLAIN else LOW, say("because.absence")
    if incident.category == "unknown":
        return LOW, say("because.unknown")
    if incident.role == "symptom":
        return LOW, say("because.symptoms")
    if incident.role == "cause_confirmation" or first_reason(incident).key == "reason.ended_and":
        return HIGH, say("because.confirmed")
    if first is not None and first.identity.role == "worker":
        return MEDIUM, say("because.worker")
    if first is not None and first.kind == "log":
        return MEDIUM, say("because.line")
    level, seen, rest = _of_trouble(story, culprit, incident) if culprit.trouble is not None else _of_ending(culprit)
    return level, joined([*_in_order(story, seen), *rest], "and.semicolon")


def _in_order(story: Story, seen: Words) -> Iterator[Words]:
    """What is on record of its end, what came first and by how much: a lost peer may be on record before the end that it tells of."""
    found = order(story)
    if found is None:
        yield seen
        return
    name = who([found.witness.rank])
    if found.lead_ns > 0:
        yield joined([seen, say("because.before", lead=found.lead_ns, who=name)])
        return
    yield seen
    if found.inferred:
        yield say("because.inferred", who=name, late=-found.lead_ns)
    elif any(happening.symptom for happening in happenings(found.witness)[:1]):
        yield say("because.symptom_before", lead=-found.lead_ns, who=name)


def _of_trouble(story: Story, culprit: Standing, incident: Incident) -> tuple[int, Words, list[Words]]:
    """It said itself what was wrong."""
    seen = say("because.own_word")
    if incident.role != "root_cause":
        return MEDIUM, seen, [say("because.own_unclear")]
    earlier = [standing for standing in story.others if (standing.trouble_ns or culprit.trouble_ns or 0) < (culprit.trouble_ns or 0)]
    earlier = [standing for standing in earlier if not any(happening.symptom for happening in happenings(standing)[:1])]
    return (MEDIUM, seen, [say("because.own_cause")]) if earlier else (HIGH, seen, [])


def _of_ending(culprit: Standing) -> tuple[int, Words, list[Words]]:
    """It said nothing, and its end was seen or not."""
    code, how, seen = culprit.process.exit_code, manner(culprit), say("because.seen")
    if how == "crashed":
        return MEDIUM, seen, [say("because.crash")]
    if code is not None and code < 0:
        return MEDIUM, seen, [say("because.signal", signal=signal_name(-code))]
    if how == "raised":
        return MEDIUM, seen, [say("because.unrecorded")]
    return (MEDIUM, seen, [say("because.code")]) if how == "left" else (LOW, say("because.unseen" if culprit.bad else "because.absence"), [])


def _doubts(story: Story) -> Iterator[Words]:
    """What may hide another culprit."""
    if absent := missing_ranks(story):
        yield say("because.missing", who=who(absent))
    if lost := sum(standing.process.lost for standing in story.standings):
        yield say("because.lost", count=lost)
    culprit = story.culprit
    if culprit is None or culprit.trouble_ns is None:
        return
    for standing in story.others:
        near = standing.trouble_ns is not None and abs(standing.trouble_ns - culprit.trouble_ns) < CLOCKS_NS
        if near and standing.process.identity.node != culprit.process.identity.node and not any(happening.symptom for happening in happenings(standing)):
            yield say("because.clocks")
            return


def missing_ranks(story: Story) -> list[int]:
    """Ranks of the job of which there is no process."""
    world = max((standing.process.identity.world_size or 0 for standing in story.standings), default=0)
    return sorted(set(range(world)) - {standing.rank for standing in story.standings})
