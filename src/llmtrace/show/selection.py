"""Which records are read as a log: lines and events, each thing said once; of the culprit those that it said last."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from ..names import FAILURE, INCIDENT, PROCESS, PROCESS_ACTION, PROCESS_ENDING
from ..record import Record
from .story import Standing, Story

SAID_NS: Final = 1_000_000_000
"""A process that says that an exception ends it, so soon after that exception, says it twice."""


def wanted(records: Iterable[Record], kinds: Collection[str] | None = None, rank: int | None = None, whole: bool = False) -> list[Record]:
    """Lines and events, or the kinds and the rank that were asked for. The incident itself stands in the head."""
    asked = kinds or ("log", "event")
    chosen = [record for record in records if record.kind in asked and record.name != INCIDENT and rank in (None, record.identity.rank)]
    return chosen if whole else _without_echoes(chosen)


def _without_echoes(records: Sequence[Record]) -> list[Record]:
    """Less the `finished` of a process right after the exception that ended it."""
    raised_ns: dict[str, int] = {}
    kept: list[Record] = []
    for record in records:
        if record.name == FAILURE:
            raised_ns[record.identity.span_id] = record.time_ns
        facts = record.attributes
        ends = record.name == PROCESS and facts.get(PROCESS_ACTION) == "finished" and facts.get(PROCESS_ENDING) == "raised"
        if not ends or record.time_ns - raised_ns.get(record.identity.span_id, 0) > SAID_NS:
            kept.append(record)
    return kept


def last_words(story: Story, speaker: Standing, lines: int) -> list[Record]:
    """So many of a rank's last lines, and its events among and after them: the last is how it ended, where that is on record."""
    span = speaker.process.identity.span_id
    said = wanted(record for record in story.context.records if record.identity.span_id == span)
    first = [place for place, record in enumerate(said) if record.kind == "log"][-lines:][:1]
    return said[first[0] :] if first else [record for record in said if record.attributes.get(PROCESS_ACTION) != "started"]
