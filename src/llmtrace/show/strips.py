"""Strips of time: what a rank did in each cell of a stretch of time, from its step records and its progress word."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import median
from typing import Final

import msgspec

from ..names import PHASES, phase_attribute
from ..record import Record
from .story import ORDER, Standing

LETTERS: Final = {"data_wait": "d", "forward": "f", "backward": "b", "optimizer": "o", "gradient_sync_exposed": "g", "checkpoint": "c", "": "s"}
"""A phase's letter; any other phase is `x`. The same letter as a capital is one that never came to its end."""

_ATTRIBUTES: Final = tuple((phase, phase_attribute(phase)) for phase in ORDER)
_OTHER_PREFIX: Final = "llmtrace.step."
FOR_EVER_NS: Final = 1 << 62
NEGLIGIBLE: Final = 20
"""What is left of a step when its phases are taken off is shown from a twentieth of it on."""
TOGETHER_NS: Final = 20_000_000
_NICE_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)


class Scale(msgspec.Struct, frozen=True):
    """A stretch of time cut into `cells`."""

    start_ns: int
    end_ns: int
    cells: int

    def cell(self, time_ns: int) -> int:
        """The cell of a moment; outside 0..cells-1 for one outside."""
        return (time_ns - self.start_ns) * self.cells // max(1, self.end_ns - self.start_ns)

    @property
    def cell_ns(self) -> float:
        return (self.end_ns - self.start_ns) / self.cells


class Stretch(msgspec.Struct, frozen=True):
    phase: str
    start_ns: int
    end_ns: int
    open: bool = False


class Cell(msgspec.Struct, frozen=True):
    """`phase` is None where no step ran; `alive` is False before the process and after it; `mark` is failed, died or clean."""

    phase: str | None
    open: bool = False
    alive: bool = True
    mark: str = ""


def stretches(standing: Standing, scale: Scale) -> Iterator[Stretch]:
    """The phases of each step in the stretch of time, laid out in their usual order, then what was begun and never finished."""
    process = standing.process
    for step in standing.steps:
        if step.time_ns <= scale.start_ns or step.time_ns - (step.duration_ns or 0) >= scale.end_ns:
            continue
        parts = list(_step_stretches(step))
        if cut_short(standing, step):
            parts = _opened(parts)
        yield from parts
    if process.ending != "clean":
        yield from _unfinished(standing)


def _unfinished(standing: Standing) -> Iterator[Stretch]:
    """The step that began after the last record of one: its phase as far as it is known, to the end of the rank or for ever."""
    process = standing.process
    end_ns = standing.trouble_ns or process.ended_ns or (None if process.ending == "running" else process.last_ns)
    begun_ns, known_ns = _step_since_ns(standing), open_since_ns(standing)
    is_open, until_ns = end_ns is not None, end_ns if end_ns is not None else FOR_EVER_NS
    if known_ns is None or not process.phase:  # the word is cleared on the way out, so what the failure says counts for all of it
        if begun_ns is not None:
            yield Stretch(standing.phase, begun_ns, until_ns, open=is_open)
        return
    if begun_ns is not None and begun_ns < known_ns:
        yield Stretch("", begun_ns, known_ns, open=is_open)
    yield Stretch(process.phase, known_ns, until_ns, open=is_open)


def _step_since_ns(standing: Standing) -> int | None:
    """Since when the step in the progress word runs, where it has no record yet: since the end of the one before."""
    last, word = standing.steps[-1] if standing.steps else None, standing.process.last_step
    return last.time_ns if last is not None and word is not None and last.step is not None and word > last.step else None


def cut_short(standing: Standing, step: Record) -> bool:
    """Whether a step's record was written because the step failed: it is the one in the progress word and ends with the failure."""
    return standing.trouble_ns is not None and step.step == standing.process.last_step and step.time_ns > standing.trouble_ns - TOGETHER_NS


def _opened(parts: list[Stretch]) -> list[Stretch]:
    """The last phase as one that never finished."""
    last = parts[-1]
    return [*parts[:-1], Stretch(last.phase, last.start_ns, last.end_ns, open=True)]


def open_since_ns(standing: Standing) -> int | None:
    """Since when the rank is where its progress word says; never before its last step's end."""
    process = standing.process
    if process.progress_ns is None or not (process.phase or standing.steps):
        return None
    return max(process.progress_ns, standing.steps[-1].time_ns if standing.steps else 0)


def _step_stretches(step: Record) -> Iterator[Stretch]:
    at = step.time_ns - (step.duration_ns or 0)
    known = 0
    for phase, length in _phases(step):
        yield Stretch(phase, at + known, at + known + length)
        known += length
    if not known or (step.time_ns - at - known) * NEGLIGIBLE > step.time_ns - at:
        yield Stretch("", at + known, step.time_ns)


def _phases(step: Record) -> list[tuple[str, int]]:
    attributes = step.attributes
    return [(phase, int(length)) for phase, name in _phase_names(tuple(attributes)) if isinstance(length := attributes[name], int | float) and length > 0]


@lru_cache(maxsize=64)
def _phase_names(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """(phase, attribute) of a step that has these attributes, in the phases' usual order: most steps have the same."""
    usual = [(phase, name) for phase, name in _ATTRIBUTES if name in names]
    others = [
        (name.removeprefix(_OTHER_PREFIX).removesuffix("_ns"), name)
        for name in names
        if name.endswith("_ns") and name.startswith(_OTHER_PREFIX) and name[len(_OTHER_PREFIX) : -3] not in PHASES
    ]
    return [*usual, *others]


def strip(standings: Sequence[Standing], scale: Scale) -> list[Cell]:
    """One lane for ranks that did the same: in each cell the phase that most of the time went to."""
    weights: list[Counter[tuple[str, bool]]] = [Counter() for _ in range(scale.cells)]
    for standing in standings:
        for part in stretches(standing, scale):
            _weigh(part, scale, weights)
    cells = [_cell(weight) for weight in weights]
    first = min(scale.cell(standing.process.started_ns) for standing in standings)
    ends = [standing.process.ended_ns for standing in standings]
    last = scale.cells - 1 if None in ends else max(scale.cell(end) for end in ends if end is not None)
    cells = [cell if cell.phase is not None or first <= index <= last else Cell(None, alive=False) for index, cell in enumerate(cells)]
    for mark, time_ns in _marks(standings):
        if 0 <= (index := scale.cell(time_ns)) < scale.cells:
            cells[index] = Cell(None, mark=mark)
    _show_last_phase(standings, scale, cells)
    return cells


def _show_last_phase(standings: Sequence[Standing], scale: Scale, cells: list[Cell]) -> None:
    """The cell before the first end is what never finished, however short it was: a strip of any scale names the same phase."""
    found = [(part, end_ns) for standing in standings if (end_ns := _end_ns(standing)) is not None and (part := _open_stretch(standing, end_ns))]
    if not found:
        return
    part, end_ns = min(found, key=lambda item: item[1])
    before = scale.cell(end_ns) - 1
    if 0 <= before < scale.cells - 1 and not cells[before].mark and cells[before + 1].mark:
        cells[before] = Cell(part.phase, open=True)


def _end_ns(standing: Standing) -> int | None:
    return standing.trouble_ns or standing.process.ended_ns


def _open_stretch(standing: Standing, end_ns: int) -> Stretch | None:
    """What the rank was in when it ended."""
    last = Scale(end_ns - TOGETHER_NS, end_ns + TOGETHER_NS, 1)
    return next((part for part in reversed(list(stretches(standing, last))) if part.open), None)


def _weigh(part: Stretch, scale: Scale, weights: list[Counter[tuple[str, bool]]]) -> None:
    start, end = max(part.start_ns, scale.start_ns), min(part.end_ns, scale.end_ns)
    if start >= end:
        return
    key = (part.phase, part.open)
    first, last = scale.cell(start), min(scale.cell(end - 1), scale.cells - 1)
    if first == last:
        weights[first][key] += end - start
        return
    width = scale.cell_ns
    weights[first][key] += int(scale.start_ns + (first + 1) * width - start)
    weights[last][key] += int(end - scale.start_ns - last * width)
    for index in range(first + 1, last):
        weights[index][key] += int(width)


def _cell(weight: Counter[tuple[str, bool]]) -> Cell:
    if not weight:
        return Cell(None)
    (phase, is_open), _ = max(weight.items(), key=lambda item: (item[1], item[0]))
    return Cell(phase, is_open)


def _marks(standings: Sequence[Standing]) -> Iterator[tuple[str, int]]:
    """Failures first, ends after them: in one cell the end is what stays."""
    for standing in standings:
        if standing.trouble is not None and standing.trouble_ns is not None:
            yield "failed", standing.trouble_ns
    for standing in standings:
        if (ended_ns := standing.process.ended_ns) is not None:
            yield ("clean" if standing.process.ending == "clean" and not standing.bad else "died"), ended_ns


def letter(cell: Cell) -> str:
    found = LETTERS.get(cell.phase or "", "x")
    return found.upper() if cell.open else found


def step_time_ns(standings: Sequence[Standing]) -> int | None:
    """The median step of the ranks together."""
    found = [step.duration_ns for standing in standings for step in standing.steps if step.duration_ns]
    return int(median(found)) if found else None


@lru_cache(maxsize=16)
def nice_ns(least_ns: float) -> int:
    """The smallest round length of time that is not shorter."""
    return int(next((length for length in _NICE_S if length * 1e9 >= least_ns), math.ceil(least_ns / 3.6e12) * 3600) * 1e9)
