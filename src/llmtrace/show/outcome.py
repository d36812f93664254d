"""How a job ended that nothing broke: when, after how long and how many steps, and with which exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from ..names import PROCESS, PROCESS_ACTION
from .page.model import Words
from .phrases import MS_NS, joined, say
from .story import Standing, Story

NOTABLE_NS: Final = 500_000_000
"""From here on it is said how long processes took to be gone after their program had ended."""


class Finish(msgspec.Struct, frozen=True):
    """When the last program ended and the last process was gone, in wall-clock nanoseconds, and since when the first process ran."""

    started_ns: int
    ended_ns: int
    gone_ns: int


def finish(story: Story) -> Finish:
    """Of a job all of whose ranks ended."""
    said = {record.identity.span_id: record.time_ns for record in story.context.records if _says_end(record.name, record.attributes.get(PROCESS_ACTION))}
    gone = {standing.process.identity.span_id: _gone_ns(standing) for standing in story.standings}
    return Finish(
        started_ns=min(standing.process.started_ns for standing in story.standings),
        ended_ns=max(said.get(span, gone_ns) for span, gone_ns in gone.items()),
        gone_ns=max(gone.values()),
    )


def _says_end(name: str, action: object) -> bool:
    return name == PROCESS and action == "finished"


def _gone_ns(standing: Standing) -> int:
    return standing.process.ended_ns if standing.process.ended_ns is not None else standing.process.last_ns


def is_clean(story: Story) -> bool:
    """All ranks here ended, and ended well."""
    return story.incident is None and bool(story.standings) and all(standing.process.ending == "clean" for standing in story.standings)


def codes_seen(story: Story) -> bool:
    """Whether every rank's exit code is known, and 0."""
    return all(standing.process.exit_code == 0 for standing in story.standings)


def clean_sentence(story: Story) -> Words:
    end = finish(story)
    ended, took = end.ended_ns // MS_NS, end.ended_ns - end.started_ns
    what = joined(_what(story))
    return say("sentence.clean_with", ended=ended, took=took, what=what) if what else say("sentence.clean", ended=ended, took=took)


def _what(story: Story) -> Iterator[Words]:
    """The steps as far as all of them are in the window, and the exit codes."""
    last = [standing.last_step for standing in story.standings if standing.last_step is not None]
    first = [standing.steps[0].step for standing in story.standings if standing.steps and standing.process.started_ns >= story.window.start_ns]
    begun = min((step for step in first if step is not None), default=None)
    if last and begun is not None and len(first) == len(story.standings) and begun < max(last):
        yield say("sentence.steps", count=max(last) - begun + 1, first=begun, last=max(last))
    elif last:
        yield say("sentence.last_step", last=max(last))
    if codes_seen(story):
        yield say("sentence.codes")


def gone_words(story: Story) -> Words:
    """When the processes were gone, where that was notably later than the end of the program; else ""."""
    end = finish(story)
    late_ns = end.gone_ns - end.ended_ns
    return say("head.gone", ended=end.ended_ns // MS_NS, late=late_ns) if late_ns >= NOTABLE_NS else ""
