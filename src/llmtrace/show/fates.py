"""What befell the ranks that are not to blame: each of their ends with its own time from the onset, those who shared a fate together."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from ..diagnose import classify
from ..diagnose.summary import SYMPTOMS
from ..names import FAILURE
from ..record import Record
from .page.model import Phrase, Words
from .page.texts.verdict import HEAD
from .phrases import english, joined, rewritten, say
from .story import LATER_NS, Standing, Story, briefly, ending, said, signal_name, where, who
from .strips import open_since_ns
from .times import after

GROUPS: Final = 6
APART_NS: Final = 500_000_000
CLEANED_NS: Final = 10_000_000_000
"""So soon after a rank's end a launcher has sent the others SIGTERM (torchrun looks every 100 ms, srun at once)."""
_ADDRESS: Final = re.compile(r" ?\[?\b[0-9a-fA-F]*[.:][0-9a-fA-F.:]*\]?:\d{2,5}\b")
"""An address with its port: other for each rank where the fate is one."""


class Happening(msgspec.Struct, frozen=True):
    """`symptom` is the category of what is but a symptom."""

    words: Words
    time_ns: int
    symptom: str = ""


class Fate(msgspec.Struct, frozen=True):
    """Ranks to whom the same happened, and what."""

    group: Sequence[Standing]
    who: Words
    words: Words


def fates(story: Story) -> list[Fate]:
    """The other ranks by what became of them, the largest group first."""
    groups: dict[tuple[str, ...], list[Standing]] = {}
    for standing in story.others:
        groups.setdefault(_likeness(standing, story), []).append(standing)
    ordered = sorted((part for group in groups.values() for part in _at_one_time(group)), key=lambda group: -len(group))
    return [Fate(group, who([standing.rank for standing in group]), _fate(group, story)) for group in ordered]


def _at_one_time(group: Sequence[Standing]) -> Iterator[list[Standing]]:
    """Those who shared a fate, apart where seconds lay between: one that fell much later lost another peer."""
    found: list[Standing] = []
    for standing in sorted(group, key=lambda standing: standing.trouble_ns or 0):
        if found and (standing.trouble_ns or 0) - (found[-1].trouble_ns or 0) > APART_NS:
            yield found
            found = []
        found.append(standing)
    yield found


def happenings(standing: Standing) -> list[Happening]:
    """How a rank failed, and its end where that was another blow."""
    process, code, found = standing.process, standing.process.exit_code, list[Happening]()
    if standing.trouble is not None and standing.trouble_ns is not None:
        found.append(_complaint(standing.trouble, standing.trouble_ns))
    end_ns = process.ended_ns if process.ended_ns is not None else process.last_ns
    if not found and standing.bad:
        found.append(Happening(ending(process), end_ns))
    elif code is not None and code < 0:
        found.append(Happening(say("ending.signal", signal=signal_name(-code)), end_ns))
    return found


def _complaint(trouble: Record, time_ns: int) -> Happening:
    """`lost its peer` where that is what the exception means; its own words stand in the log."""
    text = said(trouble)
    symptom = _symptom(text) if trouble.name == FAILURE else ""
    return Happening(say(f"symptom.{symptom}") if symptom else briefly(text), time_ns, symptom)


@lru_cache(maxsize=2048)
def _symptom(text: str) -> str:
    """The category of what is but a symptom, else ""; kept, since it is asked of the same exceptions again and again."""
    found = classify(text)
    return found.category if found.role == "symptom" and found.category in SYMPTOMS else ""


def _likeness(standing: Standing, story: Story) -> tuple[str, ...]:
    if standing.bad:
        return (english(where(standing)), *(english(_anywhere(happening.words)) for happening in happenings(standing)))
    return (english(calm(standing, story)),)


def _anywhere(words: Words) -> Words:
    """The same without addresses."""
    return rewritten(words, lambda text: _ADDRESS.sub("", text))


def calm(standing: Standing, story: Story) -> Words:
    """How it is with a rank that did not fail."""
    step, place = standing.last_step, where(standing)
    if standing.process.ending == "clean":
        ended = ending(standing.process) if step is None else say("fate.clean_after", ending=ending(standing.process), step=step)
        return joined([ended, say("fate.code", code=0)]) if standing.process.exit_code == 0 else ended
    return say("fate.running_in", ending=say("ending.running"), place=place) if place and story.incident else say("ending.running")


def _fate(group: Sequence[Standing], story: Story) -> Words:
    first = group[0]
    if not first.bad:
        return _silence(calm(first, story), group, story)
    parts: list[Words] = [say("fate.reached", place=place)] if (place := where(first)) else []
    for together in zip(*(happenings(standing) for standing in group), strict=True):
        what = shared(together)
        if isinstance(what, Phrase) and what.key == "ending.signal" and all(cleaned_up(standing, story) for standing in group):
            what = Phrase("ending.cleaned", what.args)
        told = when(what, [happening.time_ns - story.zero_ns for happening in together], story)
        waited = story.culprit is not None and together[0].symptom and all(_waited(happening, story.culprit) for happening in together)
        parts.append(say("fate.waited", what=told, who=who([story.culprit.rank])) if waited and story.culprit else told)
    return joined(parts)


def cleaned_up(standing: Standing, story: Story) -> bool:
    """Whether a SIGTERM can only be its launcher's clean-up: the culprit, on the same node, had ended of its own fault a moment before."""
    culprit, process = story.culprit, standing.process
    if culprit is None or process.exit_code != -signal.SIGTERM or culprit.process.ended_ns is None or process.ended_ns is None:
        return False
    of_its_own = culprit.process.exit_code not in (None, 0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
    together = process.identity.node == culprit.process.identity.node and process.identity.parent_span_id == culprit.process.identity.parent_span_id
    return of_its_own and together and 0 <= process.ended_ns - culprit.process.ended_ns <= CLEANED_NS


def _waited(happening: Happening, culprit: Standing) -> bool:
    """Whether a rank felt the culprit's failure only when its process was gone, long after."""
    gone_ns, failed_ns = culprit.process.ended_ns, culprit.trouble_ns
    if gone_ns is None or failed_ns is None or gone_ns - failed_ns < APART_NS:
        return False
    return abs(happening.time_ns - gone_ns) <= LATER_NS


def shared(together: Sequence[Happening]) -> Words:
    """What happened to one rank or to several, in words that fit all of them."""
    first = together[0]
    if len(together) == 1:
        return first.words
    if f"symptoms.{first.symptom}" in HEAD:
        return say(f"symptoms.{first.symptom}")
    return first.words if len({english(happening.words) for happening in together}) == 1 else _anywhere(first.words)


def when(what: Words, times_ns: Sequence[int], story: Story) -> Words:
    """What happened, and when after the onset: at once, or from the first to the last."""
    if story.incident is None:
        return what
    first, last = min(times_ns), max(times_ns)
    if last - first <= LATER_NS or after(first) == after(last):
        return say("fate.at", what=what, at=first)
    return say("fate.from_to", what=what, first=first, last=last)


def _silence(fate: Words, group: Sequence[Standing], story: Story) -> Words:
    if story.incident is None:
        return fate
    since = [since for standing in group if standing.process.ending == "running" and (since := open_since_ns(standing)) is not None]
    return say("fate.silent", fate=fate, time=story.window.end_ns - min(since)) if since else fate
