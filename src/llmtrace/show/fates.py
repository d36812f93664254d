"""What befell the ranks that are not to blame: each of their ends with its own time from the onset, those who shared a fate together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from rich.text import Text

from ..diagnose import classify
from ..diagnose.summary import SYMPTOMS
from ..names import FAILURE
from ..record import Record
from .story import LATER_NS, Standing, Story, briefly, ending, said, signal_name, where, who
from .strips import open_since_ns
from .times import after, length

GROUPS: Final = 6
APART_NS: Final = 500_000_000
_ADDRESS: Final = re.compile(r" ?\[?\b[0-9a-fA-F]*[.:][0-9a-fA-F.:]*\]?:\d{2,5}\b")
"""An address with its port: other for each rank where the fate is one."""


class Happening(msgspec.Struct, frozen=True):
    words: str
    time_ns: int


def fates(story: Story) -> Iterator[Text]:
    """The other ranks by what became of them, the largest group first."""
    groups: dict[tuple[str, ...], list[Standing]] = {}
    for standing in story.others:
        groups.setdefault(_likeness(standing, story), []).append(standing)
    if not groups and story.incident is not None and story.standings:
        yield Text("there are none: it was alone")
    ordered = sorted((part for group in groups.values() for part in _at_one_time(group)), key=lambda group: -len(group))
    for group in ordered[:GROUPS]:
        yield Text(who([standing.rank for standing in group]), "bold").append(f": {_fate(group, story)}", "not bold")
    if len(ordered) > GROUPS:
        yield Text(f"and {len(ordered) - GROUPS} more groups: see the lanes below")


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
        found.append(Happening(_complaint(standing.trouble), standing.trouble_ns))
    end_ns = process.ended_ns if process.ended_ns is not None else process.last_ns
    if not found and standing.bad:
        found.append(Happening(ending(process), end_ns))
    elif code is not None and code < 0:
        found.append(Happening(f"killed by {signal_name(-code)}", end_ns))
    return found


def _complaint(trouble: Record) -> str:
    """`lost its peer` where that is what the exception means; its own words stand in the log."""
    found = classify(said(trouble)) if trouble.name == FAILURE else None
    if found is not None and found.role == "symptom" and found.category in SYMPTOMS:
        return SYMPTOMS[found.category]
    return briefly(said(trouble))


def _likeness(standing: Standing, story: Story) -> tuple[str, ...]:
    if standing.bad:
        return (where(standing), *(_ADDRESS.sub("", happening.words) for happening in happenings(standing)))
    return (_calm(standing, story),)


def _calm(standing: Standing, story: Story) -> str:
    step, place = standing.last_step, where(standing)
    if standing.process.ending == "clean":
        return ending(standing.process) + ("" if step is None else f" after step {step:,}")
    return f"still running{f', in {place}' if place and story.incident else ''}"


def _fate(group: Sequence[Standing], story: Story) -> str:
    first = group[0]
    if not first.bad:
        return _calm(first, story) + _silence(group, story)
    parts = [f"got as far as {place}" if (place := where(first)) else ""]
    for together in zip(*(happenings(standing) for standing in group), strict=True):
        words = together[0].words if len({happening.words for happening in together}) == 1 else _ADDRESS.sub("", together[0].words)
        words = words.replace(" its ", " their ") if len(group) > 1 else words
        parts.append(words + _when([happening.time_ns - story.zero_ns for happening in together], story))
    return ", ".join(part for part in parts if part)


def _when(times_ns: Sequence[int], story: Story) -> str:
    if story.incident is None:
        return ""
    first, last = min(times_ns), max(times_ns)
    if last - first <= LATER_NS or after(first) == after(last):
        return f" {after(first)}"
    return f" {after(first).removesuffix(' s')} to {after(last)}"


def _silence(group: Sequence[Standing], story: Story) -> str:
    if story.incident is None:
        return ""
    since = [since for standing in group if standing.process.ending == "running" and (since := open_since_ns(standing)) is not None]
    return f" (no progress for {length(story.window.end_ns - min(since))})" if since else ""
