"""A lane a rank around the onset: phases as letters, gaps, ends. Ranks that did the same share a lane when there are many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import RenderableType
from rich.text import Text

from .clean import one_line
from .folds import FOLD_ABOVE, alike, ended, label, pace, reached, resident, unusual
from .phrases import english, say
from .story import Standing, Story, rank_list
from .strips import LETTERS, Cell, Scale, letter, nice_ns, step_time_ns, strip
from .times import SECOND_NS
from .view import View
from .words import phase_words

LANES_MAX: Final = 16
WIDE: Final = 120
CLOSE_UP_STEPS: Final = 6
STYLES: Final = {
    "data_wait": "black on yellow",
    "forward": "black on green",
    "backward": "black on cyan",
    "gradient_sync_exposed": "black on magenta",
    "optimizer": "white on blue",
    "checkpoint": "black on white",
    "": "white on bright_black",
}
OTHER_STYLE: Final = "black on bright_yellow"
MARK_STYLES: Final = {"failed": "bold red", "died": "bold red", "clean": "bold green"}
MARK_WORDS: Final = {"failed": "mark.failed", "died": "mark.died", "clean": "mark.clean"}


class Lane(msgspec.Struct, frozen=True):
    standings: Sequence[Standing]
    label: str


def lanes(story: Story, view: View) -> Iterator[RenderableType]:
    """The whole stretch, and a close-up of the last steps where these are too fast to be seen in it."""
    found = _lanes(story)
    hidden, found = found[LANES_MAX:], found[:LANES_MAX]
    if not found:
        return
    label_width = max(len(lane.label) for lane in found) + 2
    notes = [_note(lane, story, view) for lane in found]
    note_width = min(max(map(cell_len, notes)), view.width * 2 // 5 if view.width < WIDE else view.width * 9 // 20)
    notes = [set_cell_size(note, note_width) for note in notes]
    cells = max(20, view.width - label_width - note_width - 1)
    scale = Scale(*_stretch(story), cells)
    shown: set[str] = set()
    yield from _panel(found, notes, story, view, scale, label_width, shown)
    if (near := _close_up(story, scale)) is not None:
        yield Text("The last steps, closer:", "dim")
        yield from _panel(found, notes, story, view, near, label_width, shown, brief=True)
    if hidden:
        yield Text(f"{len(hidden)} more groups of ranks are not shown: {rank_list(s.rank for lane in hidden for s in lane.standings)}", "dim")
    yield from _legend(shown, view)


def _panel(
    found: Sequence[Lane], notes: Sequence[str], story: Story, view: View, scale: Scale, label_width: int, shown: set[str], brief: bool = False
) -> Iterator[Text]:
    yield from _axis(story, view, scale, label_width)
    for lane, note in zip(found, notes, strict=True):
        guilty = any(standing.culprit for standing in lane.standings)
        line = Text(f"{view.glyphs.culprit if guilty else ' '}{lane.label}".ljust(label_width), "bold red" if guilty else "", no_wrap=True, overflow="crop")
        for cell in strip(lane.standings, scale):
            sign, style = _sign(cell, view)
            shown.add(cell.mark or ("" if not cell.alive else "idle" if cell.phase is None else f"{'open' if cell.open else 'phase'} {cell.phase}"))
            line.append(sign, style)
        if not brief:
            line.append(f" {note}", "red" if guilty else "")
        yield line


def _sign(cell: Cell, view: View) -> tuple[str, str]:
    if cell.mark:
        return getattr(view.glyphs, cell.mark), MARK_STYLES[cell.mark]
    if not cell.alive:
        return " ", ""
    if cell.phase is None:
        return view.glyphs.alive, "dim"
    style = STYLES.get(cell.phase, OTHER_STYLE)
    return letter(cell), f"bold {style}" if cell.open else style


def _axis(story: Story, view: View, scale: Scale, indent: int) -> Iterator[Text]:
    """Two lines: seconds from the onset, and the ticks below them; as many as stand apart, and two where there is room at all."""
    every_ns = (scale.end_ns - scale.start_ns) * 10 / max(scale.cells, 30)
    rulers = [_ruler(story, view, scale, nice_ns(every_ns * finer)) for finer in (1, 0.7, 0.5, 0.3, 0.2)]
    labels, ticks = next((ruler for ruler in rulers if ruler[1].count(view.glyphs.tick) > 1), max(rulers, key=lambda ruler: ruler[1].count(view.glyphs.tick)))
    yield Text(" " * indent + "".join(labels), "dim", no_wrap=True, overflow="crop")
    line = Text(" " * indent, no_wrap=True, overflow="crop")
    for sign in ticks:
        line.append(sign, "bold red" if sign == view.glyphs.onset else "dim")
    yield line


def _ruler(story: Story, view: View, scale: Scale, every: int) -> tuple[list[str], list[str]]:
    """The cells of both lines, the onset first, then what is nearest to it and still finds room."""
    labels, ticks = [" "] * scale.cells, [" "] * scale.cells
    zero = min(scale.cell(story.zero_ns), scale.cells - 1) if story.incident is None else scale.cell(story.zero_ns)
    running = any(standing.process.ending == "running" for standing in story.standings)
    places = [(zero, "onset" if story.incident else "now" if running else "end")]
    first, last = (scale.start_ns - story.zero_ns) // every, (scale.end_ns - story.zero_ns) // every
    numbers = [number for number in sorted(range(first, last + 1), key=abs) if number]
    places += [(scale.cell(story.zero_ns + number * every), _tick(number * every)) for number in numbers]
    for cell, text in places:
        start = min(max(0, cell - len(text) // 2), scale.cells - len(text))
        if 0 <= cell < scale.cells and start >= 0 and all(sign == " " for sign in labels[max(0, start - 2) : start + len(text) + 2]):
            labels[start : start + len(text)] = text
            ticks[cell] = view.glyphs.onset if cell == zero else view.glyphs.tick
    return labels, ticks


def _tick(ns: int) -> str:
    seconds = ns / SECOND_NS
    return f"{seconds:+.0f} s" if abs(seconds) >= 1 and seconds == int(seconds) else f"{seconds:+g} s"


def _stretch(story: Story) -> tuple[int, int]:
    """The window, less the time after the last word, before the first process, and most of the time before the first step."""
    window = story.window
    ends = [standing.process.ended_ns for standing in story.standings]
    last = window.end_ns if None in ends else max(end for end in ends if end is not None)
    if story.incident is not None:
        last = max(last, story.incident.detected_ns)
    last = min(last, window.end_ns)
    start = max(window.start_ns, min(standing.process.started_ns for standing in story.standings))
    stepped = [step.time_ns - (step.duration_ns or 0) for standing in story.standings for step in standing.steps[:1]]
    if stepped:
        start = max(start, min(stepped) - (last - min(stepped)) // 4)
    return start, min(window.end_ns, last + max(SECOND_NS // 10, (last - start) // 40))


def _close_up(story: Story, scale: Scale) -> Scale | None:
    """The last few steps before the onset and what followed, where a step is narrower than four cells."""
    step_ns = step_time_ns(story.standings)
    if step_ns is None or step_ns > 4 * scale.cell_ns:
        return None
    before = CLOSE_UP_STEPS * step_ns
    if story.incident is None:
        last_ns = max(standing.steps[-1].time_ns for standing in story.standings if standing.steps)
        return Scale(last_ns - 2 * before, last_ns, scale.cells)
    return Scale(story.zero_ns - before, story.zero_ns + before, scale.cells) if 4 * before < scale.end_ns - scale.start_ns else None


def _lanes(story: Story) -> list[Lane]:
    """The culprit first where ranks are folded; else in order of rank."""
    if len(story.standings) <= FOLD_ABOVE:
        groups = [[standing] for standing in story.standings]
    else:
        groups = sorted(alike(story.standings).values(), key=lambda group: (not group[0].culprit, not group[0].bad, len(group)))
    return [Lane(group, english(label(group, story))) for group in groups]


def _note(lane: Lane, story: Story, view: View) -> str:
    """Right of a lane: how far, how fast, how it ended."""
    end, step = english(ended(lane.standings, story)), reached(lane.standings[0], with_phase=view.width >= WIDE)
    if view.width < WIDE:
        both = f"{end}, {english(step)}" if step else end
        return both if cell_len(both) <= view.width * 2 // 5 else end
    nodes = {standing.process.identity.node for standing in lane.standings}
    node = one_line(min(nodes)) if len(nodes) == 1 and story.nodes > 1 else ""
    different = unusual(lane.standings[0]) if len(lane.standings) == 1 else ""
    parts = [end, english(different), english(step), node, english(pace(lane.standings)), english(resident(lane.standings, story))]
    return f" {view.glyphs.dot} ".join(part for part in parts if part)


def _legend(shown: set[str], view: View) -> list[Text]:
    """Only what is in the picture."""
    glyphs = view.glyphs
    entries = [_letter_entry(phase, sign, shown) for phase, sign in LETTERS.items() if {f"phase {phase}", f"open {phase}"} & shown]
    others = {name.partition(" ")[0] for name in shown if name.startswith(("phase ", "open ")) and name.partition(" ")[2] not in LETTERS}
    if others:
        entries.append(("x" if "phase" in others else "X", OTHER_STYLE, "another phase"))
    if any(name.startswith("open ") for name in shown):
        entries.append(("CAPITAL:", "bold", "begun, never finished"))
    entries += [(getattr(glyphs, mark), MARK_STYLES[mark], english(say(key))) for mark, key in MARK_WORDS.items() if mark in shown]
    if "idle" in shown:
        entries.append((glyphs.alive, "dim", "no step runs"))
    lines = [Text()]
    for sign, style, words in entries:
        if cell_len(lines[-1].plain) + len(sign) + len(words) + 3 > view.width:
            lines.append(Text())
        lines[-1].append(sign, style).append(f" {words}  ", "default")
    return lines


def _letter_entry(phase: str, sign: str, shown: set[str]) -> tuple[str, str, str]:
    """A letter as it occurs: as a capital where no such phase was ever finished."""
    return sign if f"phase {phase}" in shown else sign.upper(), STYLES[phase], english(phase_words(phase))
