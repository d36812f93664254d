"""The measurements on the page's axis: the culprit's own as a curve, the other ranks' as a band."""

from __future__ import annotations

import math
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
    made: list[Strip] = []
    of_user = left_out = 0
    for name in sorted(found, key=lambda name: (name[0], "" if MEASUREMENTS[name[0]].of_user else name[1])):
        of_user += MEASUREMENTS[name[0]].of_user
        if MEASUREMENTS[name[0]].of_user and of_user > USERS_MAX:
            left_out += 1
        elif (strip := _strip(name, found[name], nodes if MEASUREMENTS[name[0]].of_node else spans, axis)) is not None:
            made.append(strip)
    return Strips(made, left_out)


def _strip(name: Name, points: Mapping[str, Points], order: Mapping[str, Words], axis: Axis) -> Strip | None:
    """One measurement: of the speaker where it has it, else of the first that has."""
    sources = [source for source in order if source in points and worth(name[0], points[source])]
    if not sources:
        return None
    own, others = sources[0], [points[source] for source in sources[1:]]
    return Strip(
        label=words_of(*name),
        unit=unit_of(*name),
        who=order[own],
        own=_series(thinned(points[own]), axis),
        others=band(others, axis) if others else None,
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
    """Least, median and largest of all ranks at each place of a grid that is as fine as a rank's own points are apart."""
    length_ns = max(1, axis.end_ns - axis.start_ns)
    apart_ns = median_low([(points[-1][0] - points[0][0]) // max(1, len(points) - 1) for points in ranks])
    cell_ns = max(apart_ns, length_ns // most, 1)
    cells: dict[int, list[float]] = {}
    for points in ranks:
        for time_ns, value in points:
            cells.setdefault((time_ns - axis.start_ns) // cell_ns, []).append(value)
    places = sorted(cells)
    spread = [_spread(cells[place]) for place in places]
    times = [axis.us(axis.start_ns + place * cell_ns + cell_ns // 2) for place in places]
    return Band(times_us=steps(times), low=[low for low, _, _ in spread], middle=[middle for _, middle, _ in spread], high=[high for _, _, high in spread])


def _spread(values: Iterable[float]) -> tuple[float | None, float | None, float | None]:
    finite = [value for value in values if math.isfinite(value)]
    return (_value(min(finite)), _value(median(finite)), _value(max(finite))) if finite else (None, None, None)
