"""What both views tell first, fact by fact: what broke, why, who, where, since when, what was before, what became of the others, which job, what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from ..diagnose.shortage import too_large
from ..names import FAILURE_LINE
from ..record import Incident
from .clean import one_line
from .fates import GROUPS, fates
from .hints import MEMORY, manner
from .measurements import partial
from .order import order
from .outcome import NOTABLE_NS, clean_sentence, gone_words, is_clean
from .page.model import Phrase, Words
from .page.reasons import recognised
from .paths import place
from .phrases import MS_NS, joined, say, shortened
from .story import Standing, Story, ending, plainly, rank_list, signal_name, where, who
from .strips import step_time_ns
from .view import View
from .words import category_words, role_words

WHY: Final = 400
"""Characters of a reason."""
LAST_LINE: Final = 80
"""Characters of the culprit's last line."""
REPEATS: Final = frozenset({("reason.uncaught", "program_error"), ("reason.program", "program_error")})
"""Reasons that say no more than the category does."""
UNKNOWN_PLACE: Final = {
    **dict.fromkeys(("killed", "asked", "crashed"), "where.killed"),
    **dict.fromkeys(("left", "clean"), "where.left"),
}
"""Why there is no traceback, by how it ended."""
LAST_STEPS, LONG_STEPS, ENOUGH_STEPS, SEVERAL = 6, 2, 12, 3
"""Two of the last six steps that took three times the median or more are said; of fewer than twelve steps nothing is."""


class Line(msgspec.Struct, frozen=True):
    """`name` is what it begins with, where that is to stand out."""

    words: Words
    name: Words = ""


def facts(story: Story, view: View, started: Callable[[int], Words], with_trace: bool = True) -> Iterator[tuple[str, list[Line]]]:
    """Each fact's label and lines; `started` words the moment of the job's start, `with_trace` says the trace's id beside the job."""
    incident = story.incident
    if incident is not None:
        yield from _of_incident(story, incident, view)
    elif is_clean(story) and (gone := gone_words(story)):
        yield "end", [Line(gone)]
    if others := list(_others(story)):
        yield "others" if incident is not None else "ranks", others
    yield "job", [Line(joined([*_job(story, started), *([say("job.trace", trace=one_line(story.context.trace_id))] if with_trace else [])]))]
    if lost := list(missing(story)):
        yield "missing", [Line(joined(lost, "and.semicolon"))]


def _of_incident(story: Story, incident: Incident, view: View) -> Iterator[tuple[str, list[Line]]]:
    code, category = one_line(incident.category), _category(story, incident)
    yield "what", [Line(say("head.what", category=category, code=code, role=_role(story, incident)))]
    if why := _why(plainly(one_line(incident.reason)), incident.category):
        yield "why", [Line(why)]
    yield "who", [_who(story, view)]
    if place := where_in_program(story, view):
        yield "where", [Line(place)]
    yield "since", [_since(story, incident)]
    if slower := slower_steps(story):
        yield "before", [Line(slower)]


def _category(story: Story, incident: Incident) -> Words:
    """What broke; memory did not run out where one request alone was too large."""
    oom = story.culprit.oom if story.culprit is not None else None
    refused = incident.category in MEMORY and oom is not None and too_large(oom)
    return say(f"refused.{incident.category}") if refused else category_words(incident.category)


def _role(story: Story, incident: Incident) -> Words:
    """What the evidence is worth; of a death how far it is known: which signal, which exit code."""
    code = story.culprit.process.exit_code if story.culprit is not None else None
    if incident.category == "process_death" and incident.role == "ambiguous" and incident.culprit.rank is None:
        return say("end.unnamed")
    if incident.category != "process_death" or incident.role not in ("ambiguous", "root_cause") or not code or manner(story.culprit) == "raised":
        return role_words(incident.role)
    return say("end.signal", signal=signal_name(-code)) if code < 0 else say("end.code", code=code)


def _why(reason: str, category: str) -> Words:
    """ "" where the reason but repeats what broke."""
    short = shortened(reason, WHY)
    words = recognised(reason) if short == reason else short
    return "" if isinstance(words, Phrase) and (words.key, category) in REPEATS else words


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
    return clean_sentence(story) if is_clean(story) else say("sentence.ended", reached=reached)


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
    return Line(joined([joined(parts), *_ends(story, standing)], "and.semicolon"), name)


def _ends(story: Story, standing: Standing) -> Iterator[Words]:
    """How it ended; where its process was gone long after it failed, when."""
    yield ending(standing.process)
    gone_ns = standing.process.ended_ns
    if standing.trouble_ns is not None and gone_ns is not None and gone_ns - standing.trouble_ns >= NOTABLE_NS:
        yield say("head.gone_later", at=gone_ns - story.zero_ns)


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


def where_in_program(story: Story, view: View) -> Words:
    """Of a culprit that left no line of the program: why, what it said last, and at which line another stood; "" where its line is known."""
    culprit = story.culprit
    if culprit is None or culprit.process.ending == "running" or (culprit.trouble is not None and culprit.trouble.attributes.get(FAILURE_LINE)):
        return ""
    return joined(
        [say("where.unknown" if culprit.trouble is not None else UNKNOWN_PLACE.get(manner(culprit), "where.unknown")), *_last_signs(story, culprit, view)],
        "and.semicolon",
    )


def _last_signs(story: Story, culprit: Standing, view: View) -> Iterator[Words]:
    span = culprit.process.identity.span_id
    end_ns = culprit.trouble_ns or culprit.process.last_ns
    lines = [record for record in story.context.records if record.identity.span_id == span and record.kind == "log" and record.time_ns <= end_ns]
    if spoken := next((record for record in reversed(lines) if record.body and record.body.strip()), None):
        yield say("where.last_line", at=spoken.time_ns - story.zero_ns, line=shortened(one_line((spoken.body or "").strip()), LAST_LINE))
    stood = [standing for standing in story.others if standing.trouble is not None and standing.trouble.attributes.get(FAILURE_LINE)]
    if stood:
        first = min(stood, key=lambda standing: standing.trouble_ns or 0)
        line = place(first.trouble.attributes[FAILURE_LINE], view) if first.trouble is not None else ""
        yield say("where.peer", who=who([first.rank]), line=line)


def slower_steps(story: Story) -> Words:
    """Whose last steps before the onset took several times the median; "" where nobody's did."""
    usual, failed = step_time_ns(story.standings), partial(story.standings)
    slow: dict[int | None, int] = {}
    for standing in story.standings:
        took = [step.duration_ns for step in standing.steps if step.duration_ns and step.id not in failed and step.time_ns <= story.zero_ns]
        long = [ns for ns in took[-LAST_STEPS:] if usual and ns >= SEVERAL * usual]
        if len(took) >= ENOUGH_STEPS and len(long) >= LONG_STEPS:
            slow[standing.rank] = max(long)
    return say("head.slower", who=who(list(slow)), most=max(slow.values()), median=usual) if slow and usual else ""


def _since(story: Story, incident: Incident) -> Line:
    onset, detected = incident.onset_ns // MS_NS, incident.detected_ns // MS_NS
    since = say("head.since", onset=onset, late=incident.detected_ns - incident.onset_ns, detected=detected)
    found = order(story)
    if found is not None and found.inferred and found.witness.trouble_ns == incident.onset_ns:
        since = say("head.inferred", since=since, who=who([found.witness.rank]), late=-found.lead_ns)
    return Line(since, say("head.onset", onset=onset))


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
