"""The interleaved log: every rank's lines and events on one time line, the tail around the onset."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from rich.console import RenderableType
from rich.text import Text

from ..record import Record
from .columns import hanging
from .evidence import entry, rank_of
from .order import followers
from .phrases import english
from .selection import wanted
from .story import Story, rank_list
from .times import clock
from .view import View

BEFORE: Final = 12
AFTER: Final = 12
WHO: Final = 16
ALIKE_NS: Final = 1_000_000_000
ALIKE_FROM: Final = 8
"""From this many ranks on, lines that differ only in numbers are one entry."""
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


class Entry(msgspec.Struct):
    """A record, and the ranks that said the same at the same time; `exactly` where to the letter."""

    record: Record
    who: list[str]
    ranks: list[int | None]
    exactly: bool = True


def log(story: Story, view: View) -> Iterator[RenderableType]:
    """The last entries before the onset and the first after it; every one where the reader asked for all."""
    records = wanted(story.context.records, view.kinds, view.rank, view.whole)
    if not records:
        yield Text("There are no such records in this window.", "dim")
        return
    entries = [Entry(record, [english(rank_of(record))], [record.identity.rank]) for record in records] if view.whole else _alike(records, story)
    before = [entry for entry in entries if entry.record.time_ns < story.zero_ns]
    after = entries[len(before) :]
    first, last = (0, len(after)) if view.whole else (max(0, len(before) - BEFORE), AFTER)
    if first:
        yield Text(f"{first:,} earlier entries", "dim")
    if not all(found.exactly for found in before[first:] + after[:last]):
        yield Text("~ lines that differ in their numbers only are one entry, which shows the first of them", "dim")
    yield from _hung(before[first:], story, view)
    if story.incident is not None:
        yield _onset(story, view)
    yield from _hung(after[:last], story, view)
    if len(after) > last:
        yield Text(f"{len(after) - last:,} later entries", "dim")


def _hung(entries: Sequence[Entry], story: Story, view: View) -> Iterator[RenderableType]:
    less = followers(story)
    yield from hanging([entry(found.record, story, view, _who(found), followed=found.record.identity.span_id in less) for found in entries], view)


def _alike(records: Sequence[Record], story: Story) -> list[Entry]:
    """One entry for what several ranks said within a second, where the order of what each of them said survives.

    What the culprit said is never folded away, and nothing is moved across the onset or an event of the culprit.
    """
    many = len(story.standings) >= ALIKE_FROM
    guilty = story.culprit.process.identity.span_id if story.culprit else None
    entries: list[Entry] = []
    recent: dict[tuple[object, ...], int] = {}
    latest: dict[str, int] = {}
    barrier = 0
    for record in records:
        if record.time_ns >= story.zero_ns and entries and entries[-1].record.time_ns < story.zero_ns:
            barrier = len(entries)
        body = record.body or str(record.attributes)
        own = record.identity.span_id == guilty
        key = (record.name, record.severity, own, record.step, _NUMBER.sub("#", body) if many else body)
        span = record.identity.span_id
        index = recent.get(key, -1)
        if own or index < barrier or latest.get(span, -1) >= index or record.time_ns - entries[index].record.time_ns > ALIKE_NS:
            index = recent[key] = len(entries)
            entries.append(Entry(record, [], []))
        if own and record.kind == "event":
            barrier = len(entries)
        latest[span] = index
        found = entries[index]
        found.who.append(english(rank_of(record)))
        found.ranks.append(record.identity.rank)
        found.exactly = found.exactly and record.body == found.record.body
    return entries


def _who(entry: Entry) -> str:
    if len(entry.who) == 1:
        return entry.who[0]
    name = f"ranks {rank_list(entry.ranks)}"
    name = name if len(name) <= WHO else f"{len(entry.who)} ranks"
    return name if entry.exactly else f"{name} ~"


def _onset(story: Story, view: View) -> Text:
    title = f" onset {clock(story.zero_ns)} "
    return Text(view.glyphs.rule * 4 + title + view.glyphs.rule * max(0, view.width - len(title) - 4), "bold red", no_wrap=True, overflow="crop")
