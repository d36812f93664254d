"""What a process did as slices of time that nest or do not touch: its steps with their phases, and every other span in as many lanes as that takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from ..names import PHASE, PHASE_NAME
from ..record import Record
from .clean import cut, one_line
from .page.axis import Axis
from .phrases import english
from .story import Standing
from .strips import Scale, stretches
from .words import phase_words

DEEPEST: Final = 256
"""Slices within one another in a lane: half of what Perfetto's importer takes (kMaxDepth in common/slice_tracker.h of google/perfetto)."""
NAME: Final = 100
"""Characters of a span's name."""
CUT_OFF: Final = " (never finished)"


class Slice(msgspec.Struct, frozen=True):
    """`start` and `end` are microseconds on the axis, `end` is larger; `record` is what it was made of, None of a phase; `finished` is False of what
    was begun and never came to its end."""

    start: int
    end: int
    name: str
    record: Record | None = None
    finished: bool = True


def step_slices(standing: Standing, axis: Axis) -> Iterator[Slice]:
    """Each step, then its phases within it; what was begun after the last one as a step of its own."""
    phases, place, at = list(_phases(standing, axis)), 0, axis.start_us
    for step in _recorded(standing, axis):
        yield step
        first = place
        while place < len(phases) and phases[place].start + phases[place].end <= 2 * step.end:
            place += 1
        yield from _within(phases[first:place], step)
        at = step.end
    yield from _unfinished(phases[place:], at, standing)


def _recorded(standing: Standing, axis: Axis) -> Iterator[Slice]:
    """One after the other: where two overlap by the grain of a clock, the later begins when the earlier ended."""
    at = axis.start_us
    for record in standing.steps:
        start = max(axis.us(record.time_ns - (record.duration_ns or 0)), at)
        at = max(axis.us(record.time_ns), start + 1)
        yield Slice(start, at, "step" if record.step is None else f"step {record.step}", record)


def _phases(standing: Standing, axis: Axis) -> Iterator[Slice]:
    """As the strips have them, within the window and one after the other; the name is "" where none is known."""
    at = axis.start_us
    for part in stretches(standing, Scale(axis.start_ns, axis.end_ns, 1)):
        start, end = max(axis.us(part.start_ns), at), min(axis.us(part.end_ns), axis.end_us)
        if end > start:
            name = english(phase_words(part.phase)) if part.phase else ""
            yield Slice(start, end, name + CUT_OFF if name and part.open else name, finished=not part.open)
            at = end


def _within(phases: Iterable[Slice], whole: Slice) -> Iterator[Slice]:
    for phase in phases:
        start, end = max(phase.start, whole.start), min(phase.end, whole.end)
        if end > start and phase.name:
            yield msgspec.structs.replace(phase, start=start, end=end)


def _unfinished(phases: Sequence[Slice], at: int, standing: Standing) -> Iterator[Slice]:
    phases = [phase for phase in phases if phase.end > at]
    if not phases:
        return
    last, word = standing.steps[-1].step if standing.steps else None, standing.process.last_step
    name = f"step {word}" if word is not None and word != last else "after the last step"
    finished = all(phase.finished for phase in phases)
    whole = Slice(max(phases[0].start, at), phases[-1].end, f"{name} (running)" if finished else name + CUT_OFF, finished=finished)
    yield whole
    yield from _within(phases, whole)


def span_slice(record: Record, axis: Axis) -> Slice:
    """Any span, by the name that `llmtrace.phase` was given, else by its record's."""
    name = str(record.attributes.get(PHASE_NAME) or PHASE) if record.name == PHASE else record.name
    start = max(axis.us(record.time_ns - (record.duration_ns or 0)), axis.start_us)
    return Slice(start, max(axis.us(record.time_ns), start + 1), cut(one_line(name).removeprefix("llmtrace."), NAME), record)


class _Lane(msgspec.Struct):
    """`ends` are those of the slices that are open now, the innermost last."""

    slices: list[Slice]
    ends: list[int]

    def takes(self, found: Slice) -> bool:
        """Whether it lies within all that is open when it begins."""
        while self.ends and self.ends[-1] <= found.start:
            self.ends.pop()
        return len(self.ends) < DEEPEST and (not self.ends or found.end <= self.ends[-1])


def laid_out(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Lanes in each of which slices nest or do not touch, each slice before those within it."""
    lanes: list[_Lane] = []
    for found in sorted(slices, key=lambda found: (found.start, -found.end)):
        lane = next((lane for lane in lanes if lane.takes(found)), None)
        if lane is None:
            lanes.append(lane := _Lane([], []))
        lane.slices.append(found)
        lane.ends.append(found.end)
    return [lane.slices for lane in lanes]
