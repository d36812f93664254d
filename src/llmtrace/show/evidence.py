"""What says so: the records that the verdict rests on, the culprit's last lines, its traceback."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from ..diagnose.shortage import amount
from ..names import (
    EXCEPTION_STACKTRACE,
    FAILURE,
    FAILURE_LINE,
    FAILURE_PHASE,
    OOM,
    OOM_ALLOCATED,
    OOM_DEVICE,
    OOM_FREE,
    OOM_LIMIT,
    OOM_RESERVED,
    OOM_RSS,
    OOM_SIZE,
    PROCESS,
    PROCESS_ACTION,
    PROCESS_ENDING,
    PROCESS_EXIT_CODE,
    PROCESS_SIGNAL,
)
from ..record import ERROR, WARN, Record, Value
from .clean import clean, cut, one_line
from .columns import hanging, hung_text
from .order import effect
from .page.model import Words
from .paths import place
from .phrases import english, joined, say
from .selection import last_words
from .story import Story, briefly, said, signal_name
from .times import clock, length, offset, size
from .view import View
from .words import phase_words

EVIDENCE: Final = 4
WITNESSES: Final = 2
"""So many of the others' records where nothing of the culprit itself is evidence."""
LINES: Final = 8
BODY: Final = 500
TRACEBACK_LINES: Final = 28
_SIZES: Final = (
    (OOM_FREE, "event.free"),
    (OOM_LIMIT, "event.limit"),
    (OOM_ALLOCATED, "event.allocated"),
    (OOM_RESERVED, "event.reserved"),
    (OOM_RSS, "event.resident"),
)
_FRAME: Final = re.compile(r'^\s*File "(?P<path>[^"]*)", line \d+')
_LIBRARY: Final = re.compile(r"/(?:site|dist)-packages/|/lib/python3[^/]*/|/llmtrace/(?:rank|bootstrap)/|^<")
_INSTALLED: Final = re.compile(r".*/(?:site|dist)-packages/|.*/lib/python3[^/]*/|.*/(?=llmtrace/(?:rank|bootstrap)/)")


def evidence(story: Story, view: View) -> Iterator[RenderableType]:
    """A line a record that decides: when, who, what. What only followed stands in the log."""
    incident = story.incident
    if incident is None:
        return
    found, shown = found_evidence(story), witnesses(story)
    rows = [(clock(record.time_ns), english(rank_of(record)), cut(english(witnessed(record, is_effect, view)), 600)) for record, is_effect in shown]
    yield from hanging([(Text(time, "dim"), Text(who, "bold"), Text(text)) for time, who, text in rows], view)
    told = {record.id for record, _ in shown}
    rest, outside = sum(record.id not in told for record in found), len(incident.evidence) - len(found)
    parts = [f"{rest} more followed, in the log below" if rest else "", f"{outside} more outside this window" if outside else ""]
    if text := "; ".join(part for part in parts if part):
        yield Text(text, "dim")


def found_evidence(story: Story) -> list[Record]:
    """The records that the verdict names, as far as they are here."""
    return [story.records[name] for name in story.incident.evidence if name in story.records] if story.incident is not None else []


def deciding(story: Story) -> Sequence[Record]:
    """The culprit's own records and those of nobody who merely suffered; else the first ones."""
    found = found_evidence(story)
    if story.incident is None or story.culprit is None:
        return found[:EVIDENCE]
    guilty, symptoms = story.culprit.process.identity.span_id, story.incident.symptoms
    own = [record for record in found if record.identity.span_id == guilty or record.identity.role != "rank" or record.identity.rank not in symptoms]
    return own[:EVIDENCE] or found[:WITNESSES]


def witnesses(story: Story) -> list[tuple[Record, bool]]:
    """What decides, and the first record of what it did to another rank (True), in order of time: an end may be on record only after it was felt."""
    found = [(record, False) for record in deciding(story)]
    after = effect(story) if found else None
    if after is not None and after.id not in {record.id for record, _ in found}:
        found.append((after, True))
    return sorted(found, key=lambda item: item[0].time_ns)


def witnessed(record: Record, is_effect: bool, view: View) -> Words:
    """A row of the evidence; an effect is called one."""
    words = describe(record, view)
    return say("event.effect", what=words) if is_effect else words


def rank_of(record: Record) -> Words:
    rank, role = record.identity.rank, one_line(record.identity.role)
    if rank is not None and role == "rank":
        return say("who.rank", ranks=rank)
    return role if rank is None else say("who.role_of", role=role, rank=rank)


def describe(record: Record, view: View) -> Words:
    """Any record as one line for people; a long message by its first sentence unless the reader asked for all."""
    if record.name == OOM:
        return _out_of_memory(record, view)
    if record.name == FAILURE:
        return joined([say("event.raised", what=said(record) if view.whole else briefly(said(record), 200)), *_place(record, view)])
    if record.name == PROCESS:
        return _process(record)
    if record.body:
        return one_line(record.body)
    return f"{one_line(record.name)} {_attributes(record)}".strip()


def _place(record: Record, view: View) -> Iterator[Words]:
    line, phase = record.attributes.get(FAILURE_LINE), record.attributes.get(FAILURE_PHASE)
    if line:
        yield say("head.at", line=place(line, view))
    if phase:
        yield say("event.in", phase=phase_words(str(phase)))
    if record.step is not None:
        yield say("where.step", step=record.step)


def _out_of_memory(record: Record, view: View) -> Words:
    device, asked = one_line(str(record.attributes.get(OOM_DEVICE, "cpu"))), amount(record, OOM_SIZE)
    what = say("event.oom", device=device) if asked is None else say("event.oom_asked", device=device, size=asked)
    sizes = [say(key, size=found) for name, key in _SIZES if (found := amount(record, name)) is not None]
    return joined([what, *sizes, *_place(record, view)])


def _process(record: Record) -> Words:
    """`killed by SIGKILL`, `left with exit code 7`; after a word of its own the process is but `gone`: one end, not two."""
    facts = record.attributes
    action, own_word = one_line(str(facts.get(PROCESS_ACTION, ""))), facts.get(PROCESS_ENDING) in ("clean", "raised")
    if action == "finished":
        return say("event.leaves" if facts.get(PROCESS_ENDING) == "raised" else "event.ends")
    if action == "died":
        return _death(facts.get(PROCESS_SIGNAL), facts.get(PROCESS_EXIT_CODE), own_word)
    if action == "started":
        return say("event.started")
    return say("event.process", action=action) if action else one_line(record.body or record.name)


def _death(number: Value | None, code: Value | None, own_word: bool) -> Words:
    if isinstance(number, str) and number:
        return say("event.killed", signal=one_line(number))
    if isinstance(number, int) and number:
        return say("event.killed", signal=signal_name(abs(number)))
    if not isinstance(code, int):
        return say("event.gone" if own_word else "event.gone_unseen")
    if code < 0:
        return say("event.killed", signal=signal_name(-code))
    return say("event.gone_code" if own_word else "event.left", code=code)


def _attributes(record: Record) -> str:
    shown = ((name.removeprefix(record.name + "."), value) for name, value in record.attributes.items())
    return " ".join(f"{one_line(name)}={_value(name, value)}" for name, value in shown)


def _value(name: str, value: object) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (
            length(int(value))
            if name.endswith("_ns")
            else size(value)
            if name.endswith("_bytes")
            else f"{value:.6g}"
            if isinstance(value, float)
            else str(value)
        )
    return one_line(str(value))


def last_lines(story: Story, view: View) -> Iterator[RenderableType]:
    """What the culprit logged last, how it ended, and the exception that ended it."""
    culprit = story.spokesman
    if culprit is None:
        return
    span = culprit.process.identity.span_id
    lines = sum(record.kind == "log" and record.identity.span_id == span for record in story.context.records)
    if lines > LINES:
        yield Text(f"{lines - LINES:,} earlier lines of this rank", "dim")
    yield from hanging([entry(record, story, view) for record in last_words(story, culprit, LINES)], view)
    if not lines:
        yield Text("It logged nothing in this window.", "dim")
    trace = next((r for r in (culprit.failure, culprit.oom) if r is not None and r.attributes.get(EXCEPTION_STACKTRACE)), None)
    if trace is not None:
        yield Text("")
        yield from traceback(str(trace.attributes[EXCEPTION_STACKTRACE]), view)


def entry(record: Record, story: Story, view: View, who: str = "", followed: bool = False) -> Sequence[Text]:
    """One entry of a log as cells: seconds from the onset, who, text; what only followed stands out less."""
    body = clean(record.body) if record.body is not None and record.kind == "log" else english(describe(record, view))
    body = body if view.whole else cut(body, BODY)
    style = "red" if record.severity >= ERROR else "yellow" if record.severity >= WARN else ""
    time = Text(f"{offset(record.time_ns - story.zero_ns):>9}", "dim")
    text = Text(body, f"bold {style}" if record.kind == "event" and style and not followed else "" if followed and record.kind == "event" else style)
    return (time, Text(who, "bold"), text) if who else (time, text)


def traceback(text: str, view: View) -> Iterator[Text]:
    """The traceback with the frames of libraries folded, so that the user's own stand out; whole where the reader asked for all."""
    lines = clean(text).split("\n")
    shown = lines if view.whole else _folded(lines, view)
    if not view.whole and len(shown) > TRACEBACK_LINES:
        shown = [*shown[:4], f"  {view.glyphs.dots} {len(shown) - TRACEBACK_LINES} lines", *shown[4 - TRACEBACK_LINES :]]
    for number, text_line in enumerate(shown):
        own = _is_own(text_line) or (number > 0 and _is_own(shown[number - 1]))
        indent = len(text_line) - len(text_line.lstrip()) + 4
        style = "bold red" if number == len(shown) - 1 else "bold" if own else "dim"
        yield hung_text(Text(text_line, style), view.width if view.wrap else None, min(indent, view.width // 3))


def _is_own(text_line: str) -> bool:
    frame = _FRAME.match(text_line)
    return frame is not None and not _LIBRARY.search(frame["path"])


def _folded(lines: Sequence[str], view: View) -> list[str]:
    """Runs of library frames become one line that says how many there were."""
    shown: list[str] = []
    hidden: list[str] = []
    for block in [*_blocks(lines), []]:
        frame = _FRAME.match(block[0]) if block else None
        if frame and _LIBRARY.search(frame["path"]):
            hidden.append(_package(frame["path"]))
            continue
        if hidden:
            shown.append(f"  {view.glyphs.dots} {len(hidden)} frame{'s' * (len(hidden) != 1)} in {', '.join(dict.fromkeys(hidden))}")
            hidden = []
        shown.extend(block)
    return shown


def _blocks(lines: Sequence[str]) -> list[list[str]]:
    """A frame with its source lines is a block, every other line is one of its own."""
    blocks: list[list[str]] = []
    for text_line in lines:
        inside = bool(blocks) and _FRAME.match(blocks[-1][0]) is not None and text_line.startswith("    ")
        if inside and _FRAME.match(text_line) is None:
            blocks[-1].append(text_line)
        else:
            blocks.append([text_line])
    return blocks


def _package(path: str) -> str:
    """`torch` of /usr/lib/python3.11/site-packages/torch/nn/modules/module.py."""
    rest = _INSTALLED.split(path)[-1]
    return rest.split("/")[0].removesuffix(".py")
