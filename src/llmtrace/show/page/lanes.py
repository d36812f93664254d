"""The lanes of a page: the culprit's first, then node by node; ranks that did the same share one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Final

import msgspec

from ...names import phase_attribute
from ...record import Identity
from ..clean import one_line
from ..fates import happenings
from ..folds import FOLD_ABOVE, ended, label, likeness, pace, reached, resident, unusual
from ..phrases import say
from ..story import ORDER, Standing, Story, rank_list
from ..strips import Scale, step_time_ns, stretches
from ..words import phase_words
from .axis import US_NS, Axis
from .model import Lane, Mark, MarkKind, PhaseName, Words

MEMBERS_MAX: Final = 128
"""So many ranks' own segments are sent: at 10 steps/s and 5 phases a rank's window is 20 KB, so these are 2.5 MB; above it a lane shows one of its ranks."""
LANES_MAX: Final = 24
"""So many lanes are on a screen: where ranks folded by node make more, they are folded across nodes."""
FAR_BEHIND: Final = 2
"""A rank so many steps behind the middle one did something else, however coarse the fold."""
RANKS_NAMED: Final = 24
"""Characters of a list of ranks beside a lane."""

Likeness = Callable[[Standing], tuple[object, ...]]


class Phases:
    """The phases that occur, each by its place: those of a step as they follow one another, then whatever else is met."""

    def __init__(self, usual: Iterable[str] = ()) -> None:
        self._places: dict[str, int] = {name: place for place, name in enumerate(usual)}

    def place(self, name: str) -> int:
        found = self._places.get(name)
        return self._places.setdefault(name, len(self._places)) if found is None else found

    def names(self) -> list[PhaseName]:
        return [PhaseName(name=one_line(name), words=phase_words(name)) for name in self._places]


def _usual(standings: Sequence[Standing]) -> Iterator[str]:
    """The phases of a step that took any time, in their order."""
    for phase in ORDER:
        attribute = phase_attribute(phase)
        if any(step.attributes.get(attribute) for standing in standings for step in standing.steps):
            yield phase


class Places(msgspec.Struct, frozen=True):
    """The lane in which a process is found, by its span; of a worker, which has none, that of its rank."""

    by_span: dict[str, int]
    by_rank: dict[tuple[str, int | None], int]

    def of(self, identity: Identity) -> int | None:
        """None for whoever has no lane: a launcher, an agent."""
        if identity.span_id in self.by_span:
            return self.by_span[identity.span_id]
        return self.by_rank.get((identity.node, identity.rank)) if identity.rank is not None else None


class Picture(msgspec.Struct, frozen=True):
    lanes: list[Lane]
    phases: list[PhaseName]
    places: Places
    merged: int
    """How many ranks are in lanes that show but one of theirs; 0 where each can be unfolded."""


def picture(story: Story, axis: Axis) -> Picture:
    """All lanes, and where in them each process is."""
    groups, drawing = folded(story), Drawing(story, axis)
    unfold = len(story.standings) <= MEMBERS_MAX
    lanes = [drawing.lane(group, unfold) for group in groups]
    placed = [(standing, place) for place, group in enumerate(groups) for standing in group]
    places = Places(
        {standing.process.identity.span_id: place for standing, place in placed},
        {(standing.process.identity.node, standing.rank): place for standing, place in reversed(placed)},
    )
    return Picture(lanes, drawing.phases.names(), places, 0 if unfold else sum(len(group) for group in groups if len(group) > 1))


def folded(story: Story) -> list[list[Standing]]:
    """Who shares a lane, in the order of the lanes: each rank alone while they are few, else by node, else across nodes, else by what matters alone."""
    if len(story.standings) <= FOLD_ABOVE:
        return _in_order([[standing] for standing in story.standings], story)
    levels: list[Likeness] = [lambda standing: (standing.process.identity.node, *likeness(standing)), likeness, _coarse(story)]
    found = [_grouped(story.standings, level) for level in levels]
    return _in_order(next((groups for groups in found if len(groups) <= LANES_MAX), found[-1]), story)


def _grouped(standings: Iterable[Standing], level: Likeness) -> list[list[Standing]]:
    groups: dict[tuple[object, ...], list[Standing]] = {}
    for standing in standings:
        groups.setdefault(level(standing), []).append(standing)
    return list(groups.values())


def _coarse(story: Story) -> Likeness:
    """How it ended, and whether it stayed behind; not in which step or phase."""
    steps = [standing.last_step for standing in story.standings if standing.last_step is not None]
    least = median(steps) - FAR_BEHIND if steps else 0
    return lambda standing: (*likeness(standing)[:6], standing.last_step is not None and standing.last_step < least)


def _in_order(groups: Iterable[list[Standing]], story: Story) -> list[list[Standing]]:
    """The culprit, its node, the other nodes as their ranks come; in a node who failed first, then the smaller group; of single ranks, as they come."""
    nodes: dict[str, int] = {}
    for standing in story.standings:
        nodes.setdefault(standing.process.identity.node, len(nodes))
    guilty = story.culprit.process.identity.node if story.culprit else story.incident.culprit.node if story.incident else None
    alone = len(story.standings) <= FOLD_ABOVE

    def order(group: list[Standing]) -> tuple[object, ...]:
        across = len({standing.process.identity.node for standing in group}) > 1
        node = group[0].process.identity.node
        return not group[0].culprit, not across and node != guilty, 0 if across else nodes[node], not alone and not group[0].bad, 0 if alone else len(group)

    return sorted(groups, key=order)


class Drawing:
    """Makes lanes on one axis; the phases that occur in any of them are counted together."""

    def __init__(self, story: Story, axis: Axis) -> None:
        self._story, self._axis = story, axis
        self.phases = Phases(_usual(story.standings))

    def lane(self, group: Sequence[Standing], unfold: bool) -> Lane:
        """Ranks that did the same as one of them, the middle one, did it."""
        shown = middle(group)
        process, start_us = shown.process, max(self._axis.us(shown.process.started_ns), self._axis.start_us)
        nodes = {standing.process.identity.node for standing in group}
        return Lane(
            label=self._label(group),
            node=one_line(process.identity.node) if len(nodes) == 1 else "",
            ranks=[standing.rank for standing in group],
            culprit=shown.culprit,
            bad=shown.bad,
            start_us=start_us,
            end_us=self._end_us(shown),
            notes=list(self._notes(group, shown, len(nodes))),
            marks=sorted(self._marks(shown), key=lambda mark: mark.at_us),
            segments=self.segments(shown, start_us),
            members=[self.lane([standing], unfold=False) for standing in group] if unfold and len(group) > 1 else [],
        )

    def _label(self, group: Sequence[Standing]) -> Words:
        if len(group) == 1:
            return label(group, self._story)
        ranks = rank_list(standing.rank for standing in group)
        return say("lane.folded", count=len(group), ranks=ranks) if len(ranks) <= RANKS_NAMED else say("who.count", count=len(group))

    def _notes(self, group: Sequence[Standing], shown: Standing, nodes: int) -> Iterator[Words]:
        yield ended(group, self._story)
        different = unusual(shown) if len(group) == 1 else ""
        yield from (words for words in (different, reached(shown), pace(group), resident(group, self._story)) if words)
        if nodes > 1:
            yield say("lane.nodes", count=nodes)
        if len(group) > 1:
            yield say("lane.shown", who=label([shown], self._story))

    def _end_us(self, standing: Standing) -> int | None:
        """None where it goes on beyond the window."""
        process = standing.process
        ended_ns = process.ended_ns if process.ended_ns is not None else process.last_ns
        return None if process.ending == "running" or ended_ns >= self._axis.end_ns else max(self._axis.us(ended_ns), self._axis.start_us)

    def _marks(self, standing: Standing) -> Iterator[Mark]:
        process, told = standing.process, [happening.words for happening in happenings(standing)]
        if process.started_ns > self._axis.start_ns:
            yield from self._mark("started", process.started_ns, say("mark.started"))
        if standing.trouble is not None and standing.trouble_ns is not None:
            yield from self._mark("failed", standing.trouble_ns, told[0])
        if process.ended_ns is not None:
            clean = process.ending == "clean" and not standing.bad
            how = told[-1] if told and (standing.trouble is None or len(told) > 1) else say("mark.clean" if clean else "mark.died")
            yield from self._mark("clean" if clean else "died", process.ended_ns, how)

    def _mark(self, kind: MarkKind, time_ns: int, words: Words) -> Iterator[Mark]:
        if self._axis.start_ns <= time_ns < self._axis.end_ns:
            yield Mark(at_us=self._axis.us(time_ns), kind=kind, words=words)

    def segments(self, standing: Standing, at_us: int) -> list[int]:
        """Triples (time since the segment before, length, phase) from `at_us` on; within the window, in order, without overlap."""
        axis, place_of, found, at = self._axis, self.phases.place, list[int](), at_us
        zero_ns, end_us = axis.zero_ns, axis.end_us
        for part in stretches(standing, Scale(axis.start_ns, axis.end_ns, 1)):
            start, end = (part.start_ns - zero_ns) // US_NS, (part.end_ns - zero_ns) // US_NS
            start, end = start if start > at else at, end if end < end_us else end_us
            if end > start:
                place = place_of(part.phase)
                found += (start - at, end - start, -1 - place if part.open else place)
                at = end
        return found


def middle(group: Sequence[Standing]) -> Standing:
    """The one whose steps are neither the fastest nor the slowest."""
    if len(group) == 1:
        return group[0]
    ordered = sorted(group, key=lambda standing: (step_time_ns([standing]) or 0, standing.rank or 0))
    return ordered[(len(ordered) - 1) // 2]
