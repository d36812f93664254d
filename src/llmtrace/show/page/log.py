"""The log of a page: every line and event of the window, by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ...names import EXCEPTION_STACKTRACE, FAILURE
from ...record import Record
from ..clean import one_line
from ..evidence import describe, rank_of
from ..order import followers
from ..phrases import say
from ..selection import last_words, wanted
from ..story import Story
from ..view import View
from .axis import Axis, steps
from .lanes import Places
from .model import Log, Speaker, Words
from .whole import whole

ROWS_MAX: Final = 60_000
"""Lines and events of a page: at 110 bytes each these are 6.6 MB, which leaves room for the picture in 8."""
TEXT_MAX: Final = 12_000_000
"""Characters of all their texts together: a few lines of a megabyte each weigh as much as all the others."""
LAST: Final = 8
"""Lines of the culprit that stand by themselves."""


class Lines(msgspec.Struct, frozen=True):
    log: Log
    rows: dict[str, int]
    """The row of each record, by its id."""


def lines(story: Story, axis: Axis, places: Places, view: View) -> Lines:
    """What the terminal's log chooses, each rank's own."""
    found = wanted(story.context.records)
    records = nearest(found, axis.zero_ns, ROWS_MAX, TEXT_MAX)
    speakers: dict[str, int] = {}
    columns = [speakers.setdefault(record.identity.span_id, len(speakers)) for record in records]
    first = dict(zip(reversed(columns), reversed(records), strict=True))
    rows = {record.id: row for row, record in enumerate(records)}
    less = followers(story)
    log = Log(
        times_us=steps([axis.us(record.time_ns) for record in records]),
        speaker=columns,
        severity=[record.severity for record in records],
        texts=[whole(record.body or "") if record.kind == "log" else _event(record, view) for record in records],
        events=[row for row, record in enumerate(records) if record.kind != "log"],
        effects=[row for row, record in enumerate(records) if record.kind != "log" and record.identity.span_id in less and record.time_ns >= axis.zero_ns],
        last=[rows[record.id] for record in _last(story) if record.id in rows],
        speakers=[_speaker(first[speaker], story, places) for speaker in range(len(speakers))],
        left_out=len(found) - len(records),
    )
    return Lines(log, rows)


def _last(story: Story) -> list[Record]:
    return last_words(story, story.spokesman, LAST) if story.spokesman is not None else []


def nearest(records: Sequence[Record], zero_ns: int, rows: int, text: int) -> Sequence[Record]:
    """Of records in order of time the ones nearest to a moment: at most so many, with so many characters."""
    first, last, length = 0, len(records), sum(len(record.body or "") for record in records)
    while last - first > rows or (length > text and last > first):
        from_start = zero_ns - records[first].time_ns > records[last - 1].time_ns - zero_ns
        length -= len(records[first if from_start else last - 1].body or "")
        first, last = (first + 1, last) if from_start else (first, last - 1)
    return records[first:last]


def _event(record: Record, view: View) -> Words:
    """A failure's traceback follows its first line."""
    words = describe(record, view)
    trace = record.attributes.get(EXCEPTION_STACKTRACE) if record.name == FAILURE else None
    return say("event.traced", what=words, traceback=whole(str(trace))) if trace else words


def _speaker(record: Record, story: Story, places: Places) -> Speaker:
    identity = record.identity
    guilty = story.culprit is not None and identity.span_id == story.culprit.process.identity.span_id
    return Speaker(words=rank_of(record), rank=identity.rank, node=one_line(identity.node), culprit=guilty, lane=places.of(identity))
