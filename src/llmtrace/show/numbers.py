"""The measurements on the same stretch of time: step time, memory, and what the user logged, as small curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

import msgspec
from rich.console import RenderableType
from rich.text import Text

from .columns import hanging
from .folds import label
from .measurements import HOST_FREE, MEASUREMENTS, NODE, measured, number, partial, unit_of, words_of, worth
from .phrases import english, say
from .story import Standing, Story
from .times import length, size
from .view import View

BLOCKS: Final = "▁▂▃▄▅▆▇█"
METRICS: Final = 6


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
    found = list(_all(speaker, story))
    rows = [_row(series, view) for series in found]
    if rows:
        if (comparison := _comparison(speaker, story)) is not None:
            rows.insert(1, comparison)
        yield from hanging(rows, view)
        if not view.ascii_only and any(len(series.points) > cells_of(view) for series in found):
            yield Text("Bars between the first and the last are the largest of their stretch.", "dim")


def _all(speaker: Standing, story: Story) -> Iterator[Series]:
    """Step time first, then memory, then the user's own by name."""
    span = speaker.process.identity.span_id
    found = measured((record for record in story.context.records if record.identity.span_id == span), partial([speaker]))
    logged = 0
    for row, name in sorted(found, key=lambda key: key[0]):
        points, of_user = found[row, name][span], MEASUREMENTS[row].of_user
        if of_user and not logged:
            yield from _free_memory(speaker, story)
        logged += of_user
        if MEASUREMENTS[row].brief and logged <= METRICS and worth(row, points):
            yield Series(english(words_of(row, name)), points, unit_of(row, name))
    if not logged:
        yield from _free_memory(speaker, story)


def _free_memory(speaker: Standing, story: Story) -> Iterator[Series]:
    """What the culprit's node had left, where the agent measured it: who killed it is often this."""
    node, points = speaker.process.identity.node, list[tuple[int, float]]()
    for record in story.context.records:
        if record.identity.node == node and record.name.startswith(NODE) and "gpu" not in record.name:
            free = [value for name in record.attributes if HOST_FREE.search(name) and (value := number(record, name)) is not None]
            points += [(record.time_ns, value) for value in free[:1]]
    if points:
        yield Series(english(say("strip.host_free")), points, "bytes")


def _row(series: Series, view: View) -> Sequence[Text]:
    """The curve, and numbers of what is drawn: its first and its last bar, and the tallest."""
    values = [value for _, value in series.points]
    bars = drawn(values, cells_of(view))
    odd = any(not math.isfinite(value) for value in bars)
    first, last = _spelled(bars[0], series.unit), _spelled(bars[-1], series.unit)
    finite = [value for value in bars if math.isfinite(value)]
    text = first if first == last else f"{first} {view.glyphs.arrow} {last}"
    if finite and (first != last or series.unit == "ns"):
        text += f", max {_spelled(max(finite), series.unit)}"
    if series.unit == "ns":
        text += f", median {_spelled(median(values), series.unit)}"
    return Text(series.name), Text("" if view.ascii_only else sparkline(bars), "cyan"), Text(text, "bold red" if odd else "")


def cells_of(view: View) -> int:
    """How many bars a curve has."""
    return 20 if view.width < 120 else 48


def _spelled(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return length(int(value)) if unit == "ns" else size(value) if unit == "bytes" else f"{value:.4g}"


def drawn(values: Sequence[float], cells: int) -> list[float]:
    """What the bars stand for, in order: the first and the last value, and between them the largest of each stretch; what is no finite number wins."""
    if len(values) <= cells:
        return list(values)
    if cells < 3:
        return [*values[: cells - 1], values[-1]]
    middle, count = values[1:-1], cells - 2
    return [values[0], *(_largest(middle[index * len(middle) // count : (index + 1) * len(middle) // count]) for index in range(count)), values[-1]]


def _largest(values: Sequence[float]) -> float:
    return next((value for value in values if not math.isfinite(value)), max(values))


def sparkline(bars: Sequence[float]) -> str:
    """Each as a block of its height, the largest as the tallest one; `?` where it is no finite number."""
    finite = [value for value in bars if math.isfinite(value)]
    least, most = min(finite, default=0.0), max(finite, default=0.0)
    return "".join(_block(value, least, most) for value in bars)


def _block(value: float, least: float, most: float) -> str:
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
    beside = [standing for standing in story.standings if standing is not speaker and standing.steps]
    name = f"{english(label(beside, story))}'s steps" if len(beside) == 1 else "other ranks' steps"
    return Text(name), Text(""), Text(f"median {length(int(median(others)))}")
