"""The one sentence: what broke, where, when, and what the other ranks did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from ...diagnose.shortage import amount, too_large
from ...names import EXCEPTION_MESSAGE, OOM_FREE, OOM_SIZE
from ...record import Incident, Process, Record
from ..clean import one_line
from ..evidence import found_evidence
from ..facts import calm, culprit_name, nodes_words
from ..fates import Happening, fates, happenings, shared
from ..hints import CRASHES, manner
from ..order import order
from ..phrases import MS_NS, english, joined, say
from ..story import Standing, Story, briefly, ending, said, signal_name, where, who
from ..words import category_words
from .model import Phrase, Words
from .reasons import recognised

GROUPS: Final = 2
"""So many fates of the others; the facts below have all of them."""

ABSENT: Final = {
    "reason.absent_early": "sentence.ended_well",
    "reason.absent_early_at": "sentence.ended_well_at",
    "reason.absent_behind": "sentence.behind",
    "reason.absent_silent": "sentence.silent",
    "reason.absent_progress": "sentence.early",
    "reason.absent_unseen": "sentence.unseen",
}
"""A culprit whom nothing but absence names: the reason for it, and how that is told."""
MEMORY: Final = {"gpu_oom": "sentence.gpu_oom", "host_oom": "sentence.host_oom"}
REFUSED: Final = {"gpu_oom": "sentence.gpu_refused", "host_oom": "sentence.host_refused"}
"""The same where one request was too large for any state of the memory."""
TOLD: Final = frozenset({"process_death", "program_error", "unknown"})
"""Categories that say no more than the ending does."""
PLACED: Final = {
    "sentence.gpu_oom": "sentence.gpu_oom_in",
    "sentence.host_oom": "sentence.host_oom_in",
    "sentence.gpu_refused": "sentence.gpu_refused_in",
    "sentence.host_refused": "sentence.host_refused_in",
    "sentence.raised": "sentence.raised_in",
    "sentence.crashed": "sentence.crashed_in",
    "sentence.signal": "sentence.signal_in",
    "sentence.died": "sentence.died_in",
    "sentence.unrecorded": "sentence.unrecorded_in",
    "sentence.killed": "sentence.killed_in",
    "sentence.code": "sentence.code_in",
    "sentence.ended_well": "sentence.ended_well_in",
    "sentence.gone": "sentence.gone_in",
}
"""What happened, and the same with its place."""


class Told(msgspec.Struct):
    """What happened to ranks that were not to blame, in a few words; `at` is when to the first of them."""

    words: Words
    group: list[Standing]
    at: int | None
    symptom: str = ""


def sentence(story: Story) -> Words:
    incident = story.incident
    if incident is None:
        return calm(story)
    whole, found = _all_together(story, incident), order(story)
    what, onset = whole or _what(story, incident), incident.onset_ns // MS_NS
    if found is not None and found.inferred and absent_key(incident) is None:
        what = say("sentence.recorded", what=what, at=found.own_ns - story.zero_ns)
    others = "" if whole else joined(_others(story, incident), "and.semicolon")
    return say("sentence.broke_and", what=what, onset=onset, others=others) if others else say("sentence.broke", what=what, onset=onset)


def absent_key(incident: Incident) -> str | None:
    """How the culprit's absence is told, where nothing else names it."""
    return ABSENT.get(first_reason(incident).key)


def first_reason(incident: Incident) -> Phrase:
    """The first of the verdict's reasons, a phrase without a key where it is none that we know."""
    words = recognised(incident.reason)
    while isinstance(words, Phrase) and words.key == "and.semicolon" and isinstance(first := words.args["a"], str | Phrase):
        words = first
    return words if isinstance(words, Phrase) else Phrase("")


def _what(story: Story, incident: Incident) -> Words:
    if incident.culprit.rank is None:
        return say("sentence.nobody", category=category_words(incident.category))
    name, standing, first = culprit_name(story), story.culprit, next(iter(found_evidence(story)), None)
    if (key := absent_key(incident)) is not None:
        return say(key, who=name, **_strings(first_reason(incident)))
    if (worker := _worker(story, first)) is not None:
        return _ended(say("sentence.worker", who=name), worker, "", incident)
    if standing is None or (standing.trouble is None and first is not None and first.kind == "log"):
        what = say("sentence.category", who=name, category=category_words(incident.category))
        return say("sentence.detail", what=what, detail=briefly(said(first))) if first is not None and first.kind == "log" else what
    if standing.trouble is not None:
        return _failed(name, standing, standing.trouble, incident)
    return _ended(name, standing.process, where(standing), incident)


def _worker(story: Story, first: Record | None) -> Process | None:
    """The worker process whose end was the cause."""
    span = first.identity.span_id if first is not None and first.identity.role == "worker" else None
    return next((process for process in story.workers if process.identity.span_id == span), None)


def _failed(name: Words, standing: Standing, trouble: Record, incident: Incident) -> Words:
    """It said itself what was wrong."""
    place, what = where(standing), briefly(said(trouble))
    if incident.category in MEMORY:
        return _short_of_memory(name, standing, place, what, incident.category)
    if manner(standing) == "crashed":
        return _in(place, "sentence.crashed", who=name, what=briefly(one_line(str(trouble.attributes.get(EXCEPTION_MESSAGE, "")))) or what)
    return _in(place, "sentence.raised", who=name, what=what)


def _short_of_memory(name: Words, standing: Standing, place: Words, what: Words, category: str) -> Words:
    """That memory ran out, or that one request was more than there could be."""
    asked, free = (amount(standing.oom, size) if standing.oom is not None else None for size in (OOM_SIZE, OOM_FREE))
    if standing.oom is not None and asked is not None and too_large(standing.oom):
        refused = _in(place, REFUSED[category], who=name, size=asked)
        return refused if free is None else say("sentence.detail", what=refused, detail=say("event.free", size=free))
    return say("sentence.detail", what=_in(place, MEMORY[category], who=name), detail=_asked(asked, free) or what)


def _in(place: Words, key: str, **args: str | int | float | Phrase) -> Phrase:
    """The text of that key, or the one that says where as well."""
    return say(PLACED[key], place=place, **args) if place else say(key, **args)


def _asked(asked: float | None, free: float | None) -> Words:
    if asked is None:
        return ""
    return say("sentence.asked", size=asked) if free is None else say("sentence.asked_free", size=asked, free=free)


def _ended(name: Words, process: Process, place: Words, incident: Incident) -> Words:
    """It left no word: how it ended; else what is wrong with it."""
    code, category = process.exit_code, category_words(incident.category)
    if process.ending == "running":
        return say("sentence.category", who=name, category=category)
    if process.ending == "clean" and not code:
        return _in(place, "sentence.ended_well", who=name)
    what = _end(name, process, place)
    return what if incident.category in TOLD else say("sentence.detail", what=what, detail=category)


def _end(name: Words, process: Process, place: Words) -> Phrase:
    code = process.exit_code
    if code is not None and code < 0:
        return _in(place, "sentence.died" if -code in CRASHES else "sentence.signal", who=name, signal=signal_name(-code))
    if process.ending == "raised":
        return _in(place, "sentence.unrecorded", who=name)
    if code:
        return _in(place, "sentence.code", who=name, code=code)
    return _in(place, "sentence.killed" if process.ending == "killed" else "sentence.ended_well" if code == 0 else "sentence.gone", who=name)


def _all_together(story: Story, incident: Incident) -> Words:
    """Nobody is named and all are gone alike: that is the whole story; else ""."""
    if not ended_alike(story, incident):
        return ""
    how, name = ending(story.standings[0].process), who([standing.rank for standing in story.standings])
    nodes = nodes_words(sorted({standing.process.identity.node for standing in story.standings if standing.process.identity.node}))
    if how.key == "ending.signal":
        return say("sentence.all_signal", who=name, nodes=nodes, **_strings(how))
    return say("sentence.all_gone", who=name, nodes=nodes) if how.key == "ending.unseen" else say("sentence.all", who=name, nodes=nodes, ending=how)


def ended_alike(story: Story, incident: Incident) -> bool:
    """Whether nobody is named because all of the ranks are gone in the same way, without a word."""
    endings = {english(ending(standing.process)) for standing in story.standings}
    silent = all(standing.bad and standing.trouble is None for standing in story.standings)
    return incident.culprit.rank is None and len(endings) == 1 and silent


def _strings(phrase: Phrase) -> dict[str, str]:
    return {name: value for name, value in phrase.args.items() if isinstance(value, str)}


def _others(story: Story, incident: Incident) -> Iterator[Words]:
    told, then, found = _told(story), incident.culprit.rank is not None and absent_key(incident) is None, order(story)
    inferred = found is not None and found.inferred
    for number, one in enumerate(told[:GROUPS]):
        name = who([standing.rank for standing in one.group])
        if one.at is None:
            yield say("sentence.while", who=name, what=one.words)
        else:
            yield _followed(name, one, incident, first=then and number == 0, inferred=inferred)
    if rest := sum(len(one.group) for one in told[GROUPS:]):
        yield say("sentence.rest", count=rest)


def _followed(name: Words, one: Told, incident: Incident, *, first: bool, inferred: bool) -> Words:
    """What happened to others and when: that it followed is said only where it came later, what follows from it where it did not."""
    at = one.at or 0
    if first and inferred and one.symptom:
        return say("sentence.felt", who=name, what=one.words, at=at, culprit=who([incident.culprit.rank]))
    return say("sentence.then" if first and at > 0 else "sentence.also", who=name, what=one.words, at=at)


def _told(story: Story) -> list[Told]:
    """The fates of the others, those with one first blow together wherever it met them."""
    found: dict[str, Told] = {}
    for fate in fates(story):
        firsts = [happened[0] for standing in fate.group if (happened := happenings(standing))]
        words = _blow(firsts) if firsts else _calm(fate.group)
        at = min(first.time_ns for first in firsts) - story.zero_ns if firsts else None
        one = found.setdefault(english(words), Told(words, [], at, firsts[0].symptom if firsts else ""))
        one.group.extend(fate.group)
        one.at = min((time for time in (one.at, at) if time is not None), default=None)
    largest = sorted(found.values(), key=lambda one: (one.at is None, -len(one.group)))
    return sorted(largest[:GROUPS], key=lambda one: (one.at is None, one.at)) + largest[GROUPS:]


def _blow(firsts: Sequence[Happening]) -> Words:
    """As a predicate: `lost their peer`, `were killed by SIGTERM`, `failed as well: ...`."""
    words, many = shared(firsts), len(firsts) > 1
    if firsts[0].symptom:
        return words
    if isinstance(words, Phrase) and words.key == "ending.signal":
        return Phrase("sentence.were_signal" if many else "sentence.was_signal", words.args)
    if isinstance(words, Phrase) and words.key.startswith("ending."):
        return words
    return say("sentence.failed", what=words)


def _calm(group: Sequence[Standing]) -> Words:
    if group[0].process.ending != "running":
        return ending(group[0].process)
    return say("sentence.runs_on" if len(group) == 1 else "sentence.run_on")
