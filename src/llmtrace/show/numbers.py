"""The measurements on the same stretch of time: step time, memory, and what the user logged, as small curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

import msgspec
from rich.console import RenderableType
from rich.text import Text

from ..names import MEMORY, METRIC, METRIC_NAME, METRIC_VALUE
from ..record import Record
from .clean import cut, one_line
from .columns import hanging
from .story import Standing, Story
from .strips import cut_short
from .times import length, size
from .view import View

BLOCKS: Final = "▁▂▃▄▅▆▇█"
METRICS: Final = 6
MEMORIES: Final = (
    ("llmtrace.memory.rss_bytes", "host memory"),
    ("llmtrace.memory.allocated_bytes", "GPU memory, allocated"),
    ("llmtrace.memory.reserved_bytes", "GPU memory, reserved"),
)
"""Attribute, words; one that stays 0 is left out."""


class Series(msgspec.Struct, frozen=True):
    """Points in time order; `unit` is how their values are spelled."""

    name: str
    points: Sequence[tuple[int, float]]
    unit: str = ""


def numbers(story: Story, view: View) -> Iterator[RenderableType]:
    """A row a measurement of the culprit (of the first rank where there is none), and how it compares where that says something."""
    speaker = story.spokesman or next(iter(story.standings), None)
    if speaker is None:
        return
    rows = [_row(series, story, view) for series in _all(speaker, story)]
    if rows:
        if (comparison := _comparison(speaker, story)) is not None:
            rows.insert(1, comparison)
        yield from hanging(rows, view)


def _all(speaker: Standing, story: Story) -> Iterator[Series]:
    """Step time first, then memory, then the user's own by name."""
    steps = [(step.time_ns, float(step.duration_ns)) for step in speaker.steps if step.duration_ns and not cut_short(speaker, step)]
    if len(steps) > 1:
        yield Series("step time", steps, "ns")
    own = [record for record in story.context.records if record.kind == "sample" and record.identity.span_id == speaker.process.identity.span_id]
    for attribute, words in MEMORIES:
        found = [(record.time_ns, value) for record in own if record.name == MEMORY and (value := _number(record, attribute)) is not None]
        if any(value for _, value in found):
            yield Series(words, found, "bytes")
    logged: dict[str, list[tuple[int, float]]] = {}
    for record in own:
        if record.name == METRIC and (value := _number(record, METRIC_VALUE)) is not None:
            logged.setdefault(str(record.attributes.get(METRIC_NAME, "")), []).append((record.time_ns, value))
    for name, points in list(logged.items())[:METRICS]:
        yield Series(cut(one_line(name), 30), points)


def _number(record: Record, attribute: str) -> float | None:
    value = record.attributes.get(attribute)
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _row(series: Series, story: Story, view: View) -> Sequence[Text]:
    values = [value for _, value in series.points]
    odd = any(not math.isfinite(value) for value in values)
    finite = [value for value in values if math.isfinite(value)]
    change = (
        f"{_spelled(values[0], series.unit)} {view.glyphs.arrow} {_spelled(values[-1], series.unit)}"
        if values[0] != values[-1]
        else _spelled(values[0], series.unit)
    )
    middle = f", median {_spelled(median(finite), series.unit)}, most {_spelled(max(finite), series.unit)}" if series.unit == "ns" and finite else ""
    cells = 20 if view.width < 120 else 48
    curve = "" if view.ascii_only else sparkline(series.points, story.window.start_ns, story.zero_ns, cells)
    return Text(series.name), Text(curve, "cyan"), Text(change + middle, "bold red" if odd else "")


def _spelled(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return length(int(value)) if unit == "ns" else size(value) if unit == "bytes" else f"{value:.4g}"


def sparkline(points: Sequence[tuple[int, float]], start_ns: int, end_ns: int, cells: int) -> str:
    """The last value in each cell of time as a block of its height, held until the next; `?` where it is no finite number."""
    start_ns, cells = max(start_ns, points[0][0]), min(cells, len(points))
    found: list[float | None] = [None] * cells
    for time_ns, value in points:
        found[min(cells - 1, max(0, (time_ns - start_ns) * cells // max(1, end_ns - start_ns)))] = value
    for index in range(1, cells):
        found[index] = found[index - 1] if found[index] is None else found[index]
    finite = [value for value in found if value is not None and math.isfinite(value)]
    least, most = min(finite, default=0.0), max(finite, default=0.0)
    return "".join(_block(value, least, most) for value in found)


def _block(value: float | None, least: float, most: float) -> str:
    if value is None:
        return " "
    if not math.isfinite(value):
        return "?"
    span = most / 2 - least / 2  # halves: the difference of two huge numbers is no number
    return BLOCKS[3] if span <= 0 else BLOCKS[min(7, int((value / 2 - least / 2) / span * 8))]


def _comparison(speaker: Standing, story: Story) -> Sequence[Text] | None:
    """The other ranks' median step where it is another: a straggler shows here."""
    own = [step.duration_ns for step in speaker.steps if step.duration_ns]
    others = [step.duration_ns for standing in story.standings if standing is not speaker for step in standing.steps if step.duration_ns]
    if not own or not others or abs(median(own) - median(others)) < 0.1 * median(others):
        return None
    return Text("other ranks' steps"), Text(""), Text(f"median {length(int(median(others)))}")
