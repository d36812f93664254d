"""What both views tell first, fact by fact: what broke, why, who, since when, what became of the others, which job, what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from ..names import FAILURE_LINE
from ..record import Incident
from .clean import one_line
from .fates import GROUPS, fates
from .page.model import Words
from .page.reasons import recognised
from .paths import place
from .phrases import MS_NS, joined, say, shortened
from .story import Story, ending, plainly, rank_list, where
from .strips import step_time_ns
from .view import View
from .words import category_words, role_words

WHY: Final = 400
"""Characters of a reason."""


class Line(msgspec.Struct, frozen=True):
    """`name` is what it begins with, where that is to stand out."""

    words: Words
    name: Words = ""


def facts(story: Story, view: View, started: Callable[[int], Words]) -> Iterator[tuple[str, list[Line]]]:
    """Each fact's label and lines; `started` words the moment of the job's start."""
    incident = story.incident
    if incident is not None:
        code, category = one_line(incident.category), category_words(incident.category)
        yield "what", [Line(say("head.what", category=category, code=code, role=role_words(incident.role, incident.category)))]
        if incident.reason:
            yield "why", [Line(_why(plainly(one_line(incident.reason))))]
        yield "who", [_who(story, view)]
        yield "since", [_since(incident)]
    if others := list(_others(story)):
        yield "others" if incident is not None else "ranks", others
    yield "job", [Line(joined(_job(story, started)))]
    if lost := list(missing(story)):
        yield "missing", [Line(joined(lost, "and.semicolon"))]


def _why(reason: str) -> Words:
    short = shortened(reason, WHY)
    return recognised(reason) if short == reason else short


def calm(story: Story) -> Words:
    """The sentence of a job without an incident: does it run, or how did it end?"""
    ranks = story.standings
    if not ranks:
        return say("sentence.empty")
    steps = [standing.last_step for standing in ranks if standing.last_step is not None]
    reached = say("sentence.reached", step=max(steps)) if steps else ""
    if running := [standing for standing in ranks if standing.process.ending == "running"]:
        speed = step_time_ns(running)
        return say("sentence.runs", reached=reached, pace=say("sentence.pace", time=speed) if speed else "")
    clean = all(standing.process.ending == "clean" for standing in ranks)
    return say("sentence.clean" if clean else "sentence.ended", reached=reached)


def _who(story: Story, view: View) -> Line:
    name, standing = culprit_name(story), story.culprit
    if standing is None:
        return Line(name, name)
    pid, there = standing.process.identity.pid, where(standing)
    line = standing.trouble.attributes.get(FAILURE_LINE) if standing.trouble is not None else None
    parts: list[Words] = [name]
    parts += [say("head.pid", pid=pid)] if pid else []
    parts += [say("head.in", place=there)] if there else []
    parts += [say("head.at", line=place(line, view))] if line else []
    silent = story.zero_ns - standing.process.last_ns
    if standing.trouble is None and standing.process.ending != "running" and silent > 0:
        parts.append(say("head.silent", time=silent))
    return Line(joined([joined(parts), ending(standing.process)], "and.semicolon"), name)


def culprit_name(story: Story) -> Words:
    """`rank 3 on node-a`, as far as somebody can be named."""
    culprit = story.incident.culprit if story.incident else None
    if culprit is None or (culprit.rank is None and culprit.node is None):
        return say("who.nobody")
    node, rank, gpu = culprit.node and one_line(culprit.node), culprit.rank, culprit.gpu and one_line(culprit.gpu)
    name: Words = say("who.node", node=node or "") if rank is None else say("who.rank", ranks=rank)
    if rank is not None and node:
        name = say("who.on", who=name, node=node)
    return say("who.gpu", who=name, gpu=gpu) if gpu else name


def _since(incident: Incident) -> Line:
    onset, detected = incident.onset_ns // MS_NS, incident.detected_ns // MS_NS
    return Line(say("head.since", onset=onset, late=incident.detected_ns - incident.onset_ns, detected=detected), say("head.onset", onset=onset))


def _others(story: Story) -> Iterator[Line]:
    found = fates(story)
    if not found and story.incident is not None and story.standings:
        yield Line(say("fate.alone"))
    for fate in found[:GROUPS]:
        yield Line(say("head.fate", who=fate.who, fate=fate.words), fate.who)
    if len(found) > GROUPS:
        yield Line(say("fate.more", count=len(found) - GROUPS))


def _job(story: Story, started: Callable[[int], Words]) -> Iterator[Words]:
    identities = [standing.process.identity for standing in story.standings]
    if name := one_line(next((identity.job for identity in identities if identity.job), "")):
        yield name
    nodes = nodes_words(sorted({identity.node for identity in identities if identity.node}))
    ranks = len({identity.rank if identity.rank is not None else identity.span_id for identity in identities})
    yield say("job.rank_on", nodes=nodes) if ranks == 1 else say("job.ranks_on", ranks=ranks, nodes=nodes)
    world = max((identity.world_size or 0 for identity in identities), default=0)
    if world > ranks:
        yield say("job.world", world=world)
    if restart := max((identity.restart for identity in identities), default=0):
        yield say("job.restart", restart=restart)
    if start := min((standing.process.started_ns for standing in story.standings), default=0):
        yield started(start)
    if workers := len(story.workers):
        yield say("job.worker") if workers == 1 else say("job.workers", count=workers)
    yield say("job.trace", trace=one_line(story.context.trace_id))


def nodes_words(nodes: Sequence[str]) -> Words:
    """The nodes by name while they are few."""
    if len(nodes) > 3:
        return say("job.nodes", count=len(nodes))
    return ", ".join(map(one_line, nodes)) or say("job.one_node")


def missing(story: Story) -> Iterator[Words]:
    """What was lost on the way here, said plainly."""
    lost = [(standing.rank, standing.process.lost) for standing in story.standings if standing.process.lost]
    if lost:
        yield say("missing.lost", count=sum(count for _, count in lost), ranks=rank_list(rank for rank, _ in lost))
    for reason, count in sorted(story.context.drops.items()):
        if count:
            yield say("missing.drop", count=count, reason=drop_words(reason))


def drop_words(reason: str) -> Words:
    return say(f"drop.{reason}") if reason in DROPS else one_line(reason).replace("_", " ")


DROPS: Final = frozenset({"overwritten", "undecodable", "journal_size", "journal_age", "journal_corrupt"})
"""Why records are dropped, as journal and sources count it."""
