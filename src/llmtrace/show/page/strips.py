"""The measurements on the page's axis: the culprit's own as a curve, that of one other rank too, those of several as a band."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from statistics import median, median_low
from typing import Final

import msgspec

from ..clean import one_line
from ..folds import label
from ..measurements import MEASUREMENTS, Name, Points, measured, partial, unit_of, words_of, worth
from ..story import Story
from .axis import Axis, steps
from .model import Band, Series, Strip, Words

OWN_MAX: Final = 2_000
"""Points of a curve: more than a screen has columns."""
KEPT: Final = 3
"""Of each stretch of a curve that has more: its least, its largest, and the first that is no finite number."""
BAND_MAX: Final = 700
"""Places of a band: one for two pixels of a wide window."""
DIGITS: Final = 6
"""Significant digits of a value: more than a curve shows."""
USERS_MAX: Final = 40
"""Numbers that the user logged: each is 60 KB of the page at most."""


class Strips(msgspec.Struct, frozen=True):
    strips: list[Strip]
    left_out: int
    """How many of the user's numbers are not among them."""


def strips(story: Story, axis: Axis) -> Strips:
    """In the order of the table; the user's own as they came."""
    found = measured(story.context.records, partial(story.standings))
    spans, nodes = _sources(story)
    ends = {standing.process.identity.span_id: standing.process.ended_ns for standing in story.standings if standing.process.ended_ns is not None}
    made: list[Strip] = []
    of_user = left_out = 0
    for name in sorted(found, key=lambda name: (name[0], "" if MEASUREMENTS[name[0]].of_user else name[1])):
        of_user += MEASUREMENTS[name[0]].of_user
        if MEASUREMENTS[name[0]].of_user and of_user > USERS_MAX:
            left_out += 1
        elif (strip := _strip(name, _of_living(found[name], ends), nodes if MEASUREMENTS[name[0]].of_node else spans, axis)) is not None:
            made.append(strip)
    return Strips(made, left_out)


def _of_living(points: Mapping[str, Points], ends: Mapping[str, int]) -> Mapping[str, Points]:
    """Nothing is measured of a process that is gone: what says so was dated by another clock."""
    late = {source: ends[source] for source, found in points.items() if source in ends and found[-1][0] > ends[source]}
    if not late:
        return points
    cut = {source: [point for point in found if point[0] <= late.get(source, point[0])] for source, found in points.items()}
    return {source: found for source, found in cut.items() if found}


def _strip(name: Name, points: Mapping[str, Points], order: Mapping[str, Words], axis: Axis) -> Strip | None:
    """One measurement: of the speaker where it has it, else of the first that has."""
    sources = [source for source in order if source in points and worth(name[0], points[source])]
    if not sources:
        return None
    own, others = sources[0], sources[1:]
    alone = others[0] if len(others) == 1 else None
    return Strip(
        label=words_of(*name),
        unit=unit_of(*name),
        who=order[own],
        own=_series(thinned(points[own]), axis),
        others=band([points[source] for source in others], axis) if len(others) > 1 else None,
        other=_series(thinned(points[alone]), axis) if alone is not None else None,
        other_who=order[alone] if alone is not None else "",
    )


def _sources(story: Story) -> tuple[dict[str, Words], dict[str, Words]]:
    """Spans of ranks, and nodes, with what they are called; the speaker's first."""
    ordered = sorted(story.standings, key=lambda standing: standing is not story.spokesman)
    spans = {standing.process.identity.span_id: label([standing], story) for standing in ordered}
    return spans, {node: one_line(node) for node in (standing.process.identity.node for standing in ordered)}


def _series(points: Points, axis: Axis) -> Series:
    return Series(times_us=steps([axis.us(time_ns) for time_ns, _ in points]), values=[_value(value) for _, value in points])


def _value(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def thinned(points: Points, most: int = OWN_MAX) -> Points:
    """At most `most` points; of each stretch the extremes stay, and what is no finite number."""
    if len(points) <= most:
        return points
    count = most // KEPT
    kept: Points = []
    for index in range(count):
        stretch = points[index * len(points) // count : (index + 1) * len(points) // count]
        finite = [point for point in stretch if math.isfinite(point[1])]
        odd = [point for point in stretch if not math.isfinite(point[1])][:1]
        extremes = [min(finite, key=_number), max(finite, key=_number)] if finite else []
        kept += sorted(set(odd + extremes))
    return kept


def _number(point: tuple[int, float]) -> float:
    return point[1]


def band(ranks: Sequence[Points], axis: Axis, most: int = BAND_MAX) -> Band:
    """Least, median and largest of the ranks at each place of a grid that is as fine as a rank's own points are apart.

    A rank counts once at a place, by its own value: the largest that it has there, else the one before, from its first point to its last.
    """
    length_ns = max(1, axis.end_ns - axis.start_ns)
    apart_ns = median_low([(points[-1][0] - points[0][0]) // max(1, len(points) - 1) for points in ranks])
    cell_ns = max(apart_ns, length_ns // most, 1)
    last_ns: dict[int, int] = {}
    for points in ranks:
        for time_ns, _ in points:
            cell = (time_ns - axis.start_ns) // cell_ns
            last_ns[cell] = max(last_ns.get(cell, time_ns), time_ns)
    places = sorted(last_ns)
    columns = [_held(points, places, axis.start_ns, cell_ns) for points in ranks]
    spread = [_spread(value for column in columns if (value := column.get(place)) is not None) for place in places]
    times = [axis.us(min(axis.start_ns + place * cell_ns + cell_ns // 2, last_ns[place])) for place in places]
    return Band(times_us=steps(times), low=[low for low, _, _ in spread], middle=[middle for _, middle, _ in spread], high=[high for _, _, high in spread])


def _held(points: Points, places: Sequence[int], start_ns: int, cell_ns: int) -> dict[int, float]:
    """One rank's value at each place between its first and its last."""
    own: dict[int, float] = {}
    for time_ns, value in points:
        cell = (time_ns - start_ns) // cell_ns
        there = own.get(cell, math.nan)
        own[cell] = value if not math.isfinite(there) else max(there, value) if math.isfinite(value) else there
    first, last, held = min(own), max(own), math.nan
    found: dict[int, float] = {}
    for place in places[bisect_left(places, first) : bisect_right(places, last)]:
        held = found[place] = own.get(place, held)
    return found


def _spread(values: Iterable[float]) -> tuple[float | None, float | None, float | None]:
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return None, None, None
    middle = median(finite)
    middle = middle if math.isfinite(middle) else median_low(finite)  # the sum of two huge numbers is no number
    return _value(min(finite)), _value(middle), _value(max(finite))
