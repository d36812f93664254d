"""What is measured, as one table: each row is a curve of the terminal's numbers and a strip of the page. A new measurement is a new row."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from typing import Final, Literal

import msgspec

from ..names import MEMORY, METRIC, METRIC_NAME, METRIC_VALUE, STEP, phase_attribute
from ..record import Record
from .clean import one_line
from .page.model import Unit, Words
from .phrases import say, shortened
from .story import RESIDENT, Standing
from .strips import cut_short

Together = Literal["each", "sum", "most"]
DURATION: Final = ""
"""Instead of an attribute: how long the span itself took."""
EVERY: Final = "*"
"""Instead of an attribute: each one of the record that is a number, by its name."""
SECOND_NS: Final = 10**9
NAME: Final = 40
"""Characters of a name that the user, or a probe, gave."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """`record` is the record's name, or the beginning of names where it ends in a dot; `words` the key of its name in the texts.

    `together` is what several values of one step (of one second, where a record names no step) become. `of_node`: it is of a node, not of a rank;
    `of_user`: it is the user's own, and shown though it stays 0; `brief`: it is among the terminal's few.
    """

    record: str
    attribute: str
    words: str = ""
    unit: Unit = ""
    together: Together = "each"
    of_node: bool = False
    of_user: bool = False
    brief: bool = False


NODE: Final = "llmtrace.node."
MEASUREMENTS: Final = (
    Measurement(record=STEP, attribute=DURATION, words="strip.step_time", unit="ns", brief=True),
    Measurement(record=STEP, attribute=phase_attribute("data_wait"), words="strip.data_wait", unit="ns"),
    Measurement(record="llmtrace.gradient_sync", attribute="llmtrace.gradient_sync.exposed_ns", words="strip.sync_exposed", unit="ns", together="sum"),
    Measurement(record="llmtrace.gradient_sync", attribute="llmtrace.gradient_sync.total_ns", words="strip.sync_total", unit="ns", together="sum"),
    Measurement(record="llmtrace.collective", attribute="llmtrace.collective.duration_sum_ns", words="strip.collectives", unit="ns", together="sum"),
    Measurement(record=MEMORY, attribute=RESIDENT, words="strip.rss", unit="bytes", brief=True),
    Measurement(record=MEMORY, attribute="llmtrace.memory.allocated_bytes", words="strip.allocated", unit="bytes", brief=True),
    Measurement(record=MEMORY, attribute="llmtrace.memory.reserved_bytes", words="strip.reserved", unit="bytes", brief=True),
    Measurement(record="llmtrace.checkpoint", attribute="llmtrace.checkpoint.bytes_per_second", words="strip.checkpoint_rate", unit="bytes_per_second"),
    Measurement(record=NODE, attribute=EVERY, together="most", of_node=True),
    Measurement(record=METRIC, attribute=METRIC_VALUE, of_user=True, brief=True),
)
"""In the order in which they are shown."""

UNITS: Final[tuple[tuple[str, Unit], ...]] = (
    ("_bytes_per_second", "bytes_per_second"),
    ("_bytes", "bytes"),
    ("_ns", "ns"),
    ("_ratio", "ratio"),
    ("_celsius", "celsius"),
    ("_watts", "watts"),
    ("_hertz", "hertz"),
)
"""What the end of a name says of the unit."""

HOST_FREE: Final = re.compile(r"memory[._](?:free|available)_bytes$")
"""What a node has left, where the probe of the host measured it: who killed a process is often this."""


class Value(msgspec.Struct, frozen=True):
    """One number of a record: `row` of the table, and its name where the row does not give one."""

    row: int
    name: str
    number: float


Points = list[tuple[int, float]]
"""Times in nanoseconds and values, in order."""
Name = tuple[int, str]
"""Which measurement: a row of the table, and the name that it has there."""


def measured(records: Iterable[Record], leave_out: Collection[str] = ()) -> dict[Name, dict[str, Points]]:
    """Every measurement's points, by the span, or the node, that they are of; without the records of these ids."""
    found: dict[Name, dict[str, Points]] = {}
    buckets: dict[tuple[Name, str], int] = {}
    for record in records:
        if rows_of(record.name) and record.id not in leave_out:
            for value in values(record):
                row = MEASUREMENTS[value.row]
                source = record.identity.node if row.of_node else record.identity.span_id
                points = found.setdefault((value.row, value.name), {}).setdefault(source, [])
                if row.together == "each":
                    points.append((record.time_ns, value.number))
                else:
                    bucket = record.time_ns // SECOND_NS if record.step is None else record.step
                    key = (value.row, value.name), source
                    before = points.pop()[1] if buckets.get(key) == bucket else 0.0
                    points.append((record.time_ns, before + value.number if row.together == "sum" else max(before, value.number)))
                    buckets[key] = bucket
    return found


def values(record: Record) -> Iterator[Value]:
    """The numbers of a record that the table asks for."""
    for row in rows_of(record.name):
        attribute = MEASUREMENTS[row].attribute
        if attribute == EVERY:
            numbers = ((name, number(record, name)) for name in record.attributes)
            yield from (Value(row, name, found) for name, found in numbers if found is not None)
        elif attribute == DURATION:
            if record.duration_ns:
                yield Value(row, "", float(record.duration_ns))
        elif (found := number(record, attribute)) is not None:
            yield Value(row, str(record.attributes.get(METRIC_NAME, "")) if record.name == METRIC else "", found)


@cache
def rows_of(name: str) -> tuple[int, ...]:
    """The rows of the table that a record of this name fills."""
    return tuple(row for row, m in enumerate(MEASUREMENTS) if name == m.record or (m.record.endswith(".") and name.startswith(m.record)))


def number(record: Record, attribute: str) -> float | None:
    value = record.attributes.get(attribute)
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def words_of(row: int, name: str) -> Words:
    """What a curve is called: by the table, else by the name that it has there."""
    measurement = MEASUREMENTS[row]
    if measurement.words:
        return say(measurement.words)
    return shortened(one_line(name).removeprefix(NODE), NAME)


def unit_of(row: int, name: str) -> Unit:
    measurement = MEASUREMENTS[row]
    if measurement.attribute != EVERY:
        return measurement.unit
    for ending, unit in UNITS:
        if name.endswith(ending):
            return unit
    return ""


def worth(row: int, points: Points) -> bool:
    """Whether a curve says something: a step time of one step does not, nor does what stays 0."""
    measurement = MEASUREMENTS[row]
    if measurement.record == STEP and len(points) < 2:
        return False
    return measurement.of_user or any(value for _, value in points)


def partial(standings: Iterable[Standing]) -> set[str]:
    """The ids of steps that were recorded because they failed: their length is no step's."""
    return {step.id for standing in standings for step in standing.steps[-2:] if cut_short(standing, step)}
