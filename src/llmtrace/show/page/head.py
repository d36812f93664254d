"""The top of a page: one sentence, how sure it is, the facts, what to do next."""

from __future__ import annotations

from collections.abc import Iterator

from ..advice import command, commands
from ..facts import facts, missing
from ..hints import next_words
from ..phrases import MS_NS, say
from ..story import Story, who
from ..view import View
from .confidence import confidence, missing_ranks
from .model import Command, Fact, Head, State, Words
from .sentence import sentence
from .whole import whole


def head(story: Story, view: View) -> Head:
    """What is missing is no fact here, nor is the trace: they stand by themselves on the page."""
    advice = next_words(story)
    told = facts(story, view, lambda start_ns: say("job.started", at=start_ns // MS_NS), with_trace=False)
    return Head(
        state=state(story),
        sentence=sentence(story),
        confidence=confidence(story),
        facts=[Fact(label=say(f"label.{name}"), lines=[line.words for line in lines]) for name, lines in told if name != "missing"],
        advice=[advice] if advice else [],
        commands=list(_commands(story, view.options)),
    )


def state(story: Story) -> State:
    if story.incident is not None:
        return "broke"
    endings = {standing.process.ending for standing in story.standings}
    return "empty" if not endings else "running" if "running" in endings else "clean" if endings == {"clean"} else "ended"


def _commands(story: Story, options: str) -> Iterator[Command]:
    yield Command(why=say("why.same"), command=whole(command(story, options)))
    for shell, why in commands(story, options):
        yield Command(why=why, command=whole(shell))


def not_here(story: Story) -> Iterator[Words]:
    """What the verdict could not look at."""
    if absent := missing_ranks(story):
        present = {standing.rank for standing in story.standings} - {None}
        yield say("missing.ranks", who=who(absent), count=len(absent), world=len(absent) + len(present))
    yield from missing(story)
