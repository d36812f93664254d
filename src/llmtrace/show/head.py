"""The top of the view: what happened, who, since when, and what the others did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from ..names import FAILURE_LINE
from .clean import cut, one_line
from .columns import hung, hung_text
from .fates import fates
from .paths import place
from .story import Story, ending, plainly, rank_list, where
from .strips import step_time_ns
from .times import SECOND_NS, ago, clock, date, day_and_clock, length
from .view import View
from .words import category_words, role_words

FRESH_NS: Final = 300 * SECOND_NS
"""How long ago an incident was is said while that is what one wants to know."""


def head(story: Story, view: View) -> Iterator[RenderableType]:
    """One sentence, then the facts by name; broken in a pipe too: this part is for people alone."""
    yield hung_text(_sentence(story, view), view.width, 2)
    yield Text("")
    yield from hung([(Text(name, "dim"), value) for name, value in _facts(story, view)], view.width)


def _sentence(story: Story, view: View) -> Text:
    if story.incident is None:
        return _calm(story)
    text = plainly(one_line(story.incident.summary)) or f"{category_words(story.incident.category)} on {_culprit_name(story)}"
    return Text(f"{view.glyphs.died} {cut(text, 600)}", "bold red")


def _calm(story: Story) -> Text:
    """Without an incident: does it run, or how did it end?"""
    ranks = story.standings
    running = [standing for standing in ranks if standing.process.ending == "running"]
    if not ranks:
        return Text("No rank of this trace was there in this stretch of time.", "bold yellow")
    steps = [standing.last_step for standing in ranks if standing.last_step is not None]
    reached = f" at step {max(steps):,}" if steps else ""
    if running:
        speed = step_time_ns(running)
        pace = f", {length(speed)} a step" if speed else ""
        return Text(f"The job runs{reached}{pace}; no incident so far.", "bold green")
    if all(standing.process.ending == "clean" for standing in ranks):
        return Text(f"The job finished cleanly{reached}; nothing broke.", "bold green")
    return Text(f"The job has ended{reached}, without an incident.", "bold yellow")


def _facts(story: Story, view: View) -> Iterator[tuple[str, Text]]:
    incident = story.incident
    if incident is not None:
        yield "what", Text(f"{category_words(incident.category)} ({incident.category}); {role_words(incident.role, incident.category)}")
        if incident.reason:
            yield "why", Text(cut(plainly(one_line(incident.reason)), 400))
        yield "who", _who(story, view)
        yield "since", _since(story, view)
    for number, line in enumerate(fates(story)):
        yield ("others" if incident is not None else "ranks") if number == 0 else "", line
    yield "job", _job(story)
    if missing := _missing(story):
        yield "missing", Text(missing, "yellow")


def _who(story: Story, view: View) -> Text:
    text = Text(_culprit_name(story), "bold")
    standing = story.culprit
    if standing is None:
        return text
    pid, there = standing.process.identity.pid, where(standing)
    line = standing.trouble.attributes.get(FAILURE_LINE) if standing.trouble is not None else None
    parts = [f", pid {pid}" if pid else "", f", in {there}" if there else "", f", at {place(line, view)}" if line else ""]
    silent = story.zero_ns - standing.process.last_ns
    if standing.trouble is None and standing.process.ending != "running" and silent > 0:
        parts.append(f", last heard {length(silent)} before")
    return text.append("".join(parts) + f"; {ending(standing.process)}", "not bold")


def _culprit_name(story: Story) -> str:
    culprit = story.incident.culprit if story.incident else None
    if culprit is None or (culprit.rank is None and culprit.node is None):
        return "no rank can be named yet"
    parts = [
        f"rank {culprit.rank}" if culprit.rank is not None else "",
        f"on {one_line(culprit.node)}" if culprit.node else "",
        f"GPU {one_line(culprit.gpu)}" if culprit.gpu else "",
    ]
    return " ".join(part for part in parts if part)


def _since(story: Story, view: View) -> Text:
    incident = story.incident
    assert incident is not None
    text = Text(clock(incident.onset_ns), "bold")
    late, age = length(incident.detected_ns - incident.onset_ns), view.now_ns - incident.onset_ns
    text.append(f" ({date(incident.onset_ns)}), detected {late} later at {clock(incident.detected_ns)}", "not bold")
    text.append(f"; {ago(incident.onset_ns, view.now_ns)}" if age < FRESH_NS else "", "not bold")
    return text


def _job(story: Story) -> Text:
    identities = [standing.process.identity for standing in story.standings]
    name = next((identity.job for identity in identities if identity.job), "")
    nodes = sorted({identity.node for identity in identities if identity.node})
    ranks = len({identity.rank if identity.rank is not None else identity.span_id for identity in identities})
    parts = [one_line(name), f"{ranks} rank{'s' * (ranks != 1)} on {_nodes(nodes)}"]
    world = max((identity.world_size or 0 for identity in identities), default=0)
    if world > ranks:
        parts.append(f"of {world} in all")
    restart = max((identity.restart for identity in identities), default=0)
    if restart:
        parts.append(f"restart {restart}")
    start = min((standing.process.started_ns for standing in story.standings), default=0)
    if start:
        parts.append(f"started {day_and_clock(start)}")
    if story.workers:
        parts.append(f"{len(story.workers)} worker process{'es' * (len(story.workers) != 1)}")
    parts.append(f"trace {one_line(story.context.trace_id)}")
    return Text(", ".join(part for part in parts if part))


def _nodes(nodes: Sequence[str]) -> str:
    if len(nodes) > 3:
        return f"{len(nodes)} nodes"
    return ", ".join(map(one_line, nodes)) or "one node"


def _missing(story: Story) -> str:
    """What was lost on the way here, said plainly."""
    lost = [(standing.rank, standing.process.lost) for standing in story.standings if standing.process.lost]
    parts = [f"{sum(count for _, count in lost):,} records were overwritten before they were read (rank {rank_list(rank for rank, _ in lost)})"] if lost else []
    parts += [f"{count:,} {reason.replace('_', ' ')}" for reason, count in sorted(story.context.drops.items()) if count]
    return "; ".join(parts)
