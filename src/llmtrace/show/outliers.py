"""Ranks that did as the others did but took longer over it, or waited longer for data: they stand out, where a fold would hide them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

import msgspec

from ..names import PHASES, phase_attribute
from ..record import Record

MOST: Final = 6
"""So many stand out at most, the farthest first: where half of a job differs, that is no outlier."""
FEWEST: Final = 5
"""Of fewer steps, or ranks, nothing is usual."""
APART: Final = 0.2
"""By so much of a usual step a rank's own work, or its wait for data, has to differ."""

DATA_WAIT: Final = phase_attribute("data_wait")
_WORK: Final = tuple(phase_attribute(phase) for phase in PHASES if phase not in ("data_wait", "gradient_sync_exposed"))


class Outlier(msgspec.Struct, frozen=True):
    """What a rank takes a step for its own work, or (`waits`) in waiting for data, and what the middle rank takes; in nanoseconds."""

    waits: bool
    own_ns: int
    usual_ns: int


def outliers(steps: Mapping[str, Sequence[Record]]) -> dict[str, Outlier]:
    """By span, of the steps by span: who differs from the middle rank by a fifth of a step."""
    long = {span: found for span, found in steps.items() if len(found) >= FEWEST}
    durations = [step.duration_ns for found in long.values() for step in found[-FEWEST:] if step.duration_ns]
    if len(long) < FEWEST or not durations:
        return {}
    least_ns = APART * median(durations)
    work = _apart({span: median(map(_work_ns, found)) for span, found in long.items()}, waits=False)
    data = _apart({span: sum(map(_data_ns, found)) / len(found) for span, found in long.items()}, waits=True)
    far = sorted(((abs(o.own_ns - o.usual_ns), span, o) for span, o in [*work.items(), *data.items()]), key=lambda item: -item[0])
    return {span: outlier for distance, span, outlier in reversed(far[:MOST]) if distance > least_ns}


def _apart(measured: Mapping[str, float], *, waits: bool) -> dict[str, Outlier]:
    usual_ns = int(median(measured.values()))
    return {span: Outlier(waits, int(own_ns), usual_ns) for span, own_ns in measured.items()}


def _work_ns(step: Record) -> float:
    return sum(float(step.attributes.get(name, 0)) for name in _WORK)


def _data_ns(step: Record) -> float:
    return float(step.attributes.get(DATA_WAIT, 0))
