"""A window as a report in Markdown, for a ticket or an assistant: what is known first, then what says so, then what was printed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

import msgspec
from rich.text import Text

from ..names import EXCEPTION_STACKTRACE
from ..sources.context import Context
from .advice import commands
from .clean import clean, cut, one_line
from .columns import hanging
from .commonmark import Block, Section, cell, inline
from .evidence import entry, found_evidence, rank_of, traceback, witnessed, witnesses
from .facts import facts
from .folds import label
from .hints import next_words
from .lanes import lanes
from .log import log
from .measurements import HOST_FREE, MEASUREMENTS, Points, measured, partial, unit_of, words_of, worth
from .page.confidence import confidence
from .page.head import not_here
from .page.model import Unit
from .page.sentence import sentence
from .phrases import english
from .redacted import redact_context
from .selection import last_words
from .story import Standing, Story, tell
from .times import clock, date, day_and_clock, length, offset, size
from .view import View

WORDS_MAX: Final = 6_000
TITLE, FACTS, EVIDENCE, LANES, NUMBERS, LINES, TRACEBACK, OTHERS, NEXT, CLOSING = 220, 800, 700, 900, 400, 800, 900, 800, 350, 80
"""Words that each part may take. The last lines of a hostile job could be anything; these sum up to less than the report may have."""

COLUMNS: Final = 100
LONGEST: Final = 400
"""Characters of a line; half as many words at most."""
LAST: Final = 16
LOGGED: Final = 12
"""So many of the user's own numbers."""


def report(context: Context, *, options: str = "", now_ns: int) -> str:
    """The window, redacted, as CommonMark with one GFM table, of at most 6,000 words; `options` go into the commands, `now_ns` is when it is written.

    Times of day are local; offsets are seconds from the onset, or before the window's end where there is no incident.
    """
    story = tell(redact_context(context))
    view = View(now_ns=now_ns, width=COLUMNS, wrap=False, options=options, here="")
    parts = [line for section in _sections(story, view) for line in section.fitted()]
    return "\n".join([f"# {inline(_short(english(sentence(story))))}", "", *_facts(story, view), "", *parts, _closing(story, view), ""])


def _short(text: str) -> str:
    return cut(one_line(text), LONGEST)


def _sections(story: Story, view: View) -> Iterator[Section]:
    """In the order in which they are read."""
    onset = story.incident is not None
    if onset:
        yield Section(title="Evidence", blocks=_evidence(story, view), most=EVIDENCE)
    yield _fenced("Every rank around the onset" if onset else "Every rank", _plain(lanes(story, msgspec.structs.replace(view, wrap=True))), LANES)
    speaker = story.spokesman or next(iter(story.standings), None)
    if speaker is not None:
        name = english(label([speaker], story))
        yield Section(title=f"Numbers of {name}", blocks=_numbers(speaker, story), most=NUMBERS)
        yield _fenced(f"Last lines of {name}", _last_lines(speaker, story, view), LINES, from_end=True)
        yield _fenced(f"Traceback of {name}", _traceback(speaker, view), TRACEBACK, from_end=True)
    yield _others(speaker, story, view)
    yield Section(title="Next", blocks=_next(story, view), most=NEXT)


def _fenced(title: str, lines: list[str], most: int, from_end: bool = False) -> Section:
    return Section(title=title, blocks=[Block(lines, info="text", centre=len(lines) if from_end else 0)] if lines else [], most=most)


def _plain(parts: Iterator[object]) -> list[str]:
    """What the terminal's sections show, line by line."""
    return [cut(line.rstrip(), LONGEST) for part in parts if isinstance(part, Text) for line in part.plain.split("\n")]


def _facts(story: Story, view: View) -> list[str]:
    found: list[str] = []
    for name, lines in facts(story, view, lambda start_ns: f"started {day_and_clock(start_ns)}"):
        found += [f"- **{name}**: {inline(_short(english(line.words)))}" for line in lines if name != "missing"]
    if (sure := confidence(story)) is not None:
        name, _, why = _short(english(sure)).partition(" ")
        found.append(f"- **{name}**: {inline(why)}")
    if story.incident is not None:
        found.append(f"- **incident**: {inline(_short(story.incident.id))}")
    found += [f"- **missing**: {inline(_short(english(words)))}" for words in not_here(story)]
    found += [f"- **{name}**: {inline(_short(link))}" for name, link in (story.incident.links if story.incident else {}).items() if link]
    return Block(found).fitted(FACTS)


def _evidence(story: Story, view: View) -> list[Block]:
    """The records that decide, in order of time; how many more there are."""
    shown = witnesses(story)
    lines = [
        f"{place}. {clock(record.time_ns)} ({offset(record.time_ns - story.zero_ns)} s), **{inline(english(rank_of(record)))}**: "
        f"{inline(_short(english(witnessed(record, is_effect, view))))}"
        for place, (record, is_effect) in enumerate(shown, 1)
    ]
    told = {record.id for record, _ in shown}
    rest = sum(record.id not in told for record in found_evidence(story))
    return [Block(lines), *([Block([f"{rest:,} more records followed from these."])] if rest > 0 else [])] if lines else []


def _numbers(speaker: Standing, story: Story) -> list[Block]:
    """A row a measurement of the speaker, its median beside the other ranks'."""
    span, node = speaker.process.identity.span_id, speaker.process.identity.node
    found = measured(story.context.records, partial(story.standings))
    rows: list[str] = []
    logged = 0
    for (row, name), sources in sorted(found.items(), key=lambda item: item[0][0]):
        of_node, of_user = MEASUREMENTS[row].of_node, MEASUREMENTS[row].of_user
        own = sources.get(node if of_node else span)
        if own is None or not worth(row, own) or not (MEASUREMENTS[row].brief or (of_node and HOST_FREE.search(name))):
            continue
        logged += of_user
        if logged <= LOGGED:
            others = [] if of_node else [value for source, points in sources.items() if source != span for _, value in points]
            rows.append(_row(english(words_of(row, name)), own, others, unit_of(row, name)))
    head = ["| measurement | first | last | largest | median | other ranks' median |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    more = [Block([f"{logged - LOGGED:,} more numbers were logged."])] if logged > LOGGED else []
    return [Block(rows, head=head), *more] if rows else more


def _row(name: str, points: Points, others: Sequence[float], unit: Unit) -> str:
    values = [value for _, value in points]
    finite, beside = ([value for value in some if math.isfinite(value)] for some in (values, others))
    middle, theirs = (_amount(median(some), unit) if some else "" for some in (finite, beside))
    cells = [cell(name), _amount(values[0], unit), _amount(values[-1], unit), _amount(max(finite), unit) if finite else "", middle, theirs]
    return f"| {' | '.join(cells)} |"


def _amount(value: float, unit: Unit) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinite" if value > 0 else "-infinite"
    return length(int(value)) if unit == "ns" else size(value) if unit == "bytes" else f"{value:.4g}"


def _last_lines(speaker: Standing, story: Story, view: View) -> list[str]:
    span = speaker.process.identity.span_id
    said = sum(record.kind == "log" and record.identity.span_id == span for record in story.context.records)
    more = [f"{said - LAST:,} earlier lines of this rank"] if said > LAST else [] if said else ["It logged nothing in this window."]
    return more + _plain(hanging([entry(record, story, view) for record in last_words(story, speaker, LAST)], view))


def _traceback(speaker: Standing, view: View) -> list[str]:
    """The exception that ended it, the frames of libraries folded."""
    found = [str(record.attributes.get(EXCEPTION_STACKTRACE, "")) for record in (speaker.failure, speaker.oom) if record is not None]
    text = next(filter(None, found), "")
    return _plain(traceback(clean(text), view)) if text else []


def _others(speaker: Standing | None, story: Story, view: View) -> Section:
    """What all but the speaker said around the onset, the same of several ranks once."""
    span = speaker.process.identity.span_id if speaker is not None else ""
    records = [record for record in story.context.records if record.identity.span_id != span]
    others = msgspec.structs.replace(story, context=msgspec.structs.replace(story.context, records=records))
    lines = _plain(log(others, msgspec.structs.replace(view, width=60))) if records else []
    onset = next((place for place, line in enumerate(lines) if line.startswith(view.glyphs.rule)), len(lines))
    title = "What the other ranks said" + (" (seconds from the onset)" if story.incident else "")
    return Section(title=title, blocks=[Block(lines, info="text", centre=onset)] if lines else [], most=OTHERS)


def _next(story: Story, view: View) -> list[Block]:
    advice = english(next_words(story))
    shell = [line for command, why in commands(story, view.options) for line in (f"# {english(why)}", clean(command).replace("\n", " "))]
    return [*([Block([inline(advice)])] if advice else []), Block(shell, info="sh")]


def _closing(story: Story, view: View) -> str:
    written = f"Written {day_and_clock(view.now_ns)} {date(view.now_ns).partition(' ')[2]}"
    age = f", {length(view.now_ns - story.zero_ns)} after the onset" if story.incident is not None and view.now_ns >= story.zero_ns else ""
    return f"*{written}{age}, by llmtrace. Times are local to where it was written. What looked like a secret is redacted.*"
