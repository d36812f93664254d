"""What a page holds, as data: the one contract between the Python that sorts a window and the script that draws it.

Every time is in microseconds from the page's zero (the onset, else the window's end), negative before it; `zero_ms` says when that was. Times of
a column are steps: each but the first is counted from the one before. Words are either a plain text, which is the job's own and never translated,
or a Phrase, which names a text of the table in `texts` and what goes into it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

VERSION = 1

State = Literal["broke", "running", "clean", "ended", "empty"]
MarkKind = Literal["failed", "died", "clean", "started"]
Unit = Literal["ns", "bytes", "bytes_per_second", "ratio", "celsius", "watts", "hertz", ""]
"""How a strip's values are spelled; "" is a bare number."""


class Phrase(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text of the table, by its key, and its arguments by name; the text says how each is spelled (`{late:length}`, `{onset:clock}`, `{asked:size}`)."""

    key: str
    args: dict[str, str | int | float | Phrase] = {}


Words = str | Phrase


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the head: what it is about, and one or several lines that say it."""

    label: Phrase
    lines: list[Words]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A shell command to copy, and what it is for."""

    why: Phrase
    command: str


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The top: one sentence, how sure it is, the facts by name, what to do next. `confidence` is None of a job that still runs, or that ended
    without an incident but not cleanly."""

    state: State
    sentence: Words
    confidence: Phrase | None
    facts: list[Fact]
    advice: list[Words]
    commands: list[Command]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One record that decides, or (`effect`) the first that shows what it did to the others.

    `lane` and `row` are the places in `lanes` and in the log that it leads to, None where there is none."""

    at_us: int
    who: Words
    text: Words
    lane: int | None
    row: int | None
    effect: bool = False


class PhaseName(msgspec.Struct, frozen=True, kw_only=True):
    """A phase that occurs: `name` as in the records ("" for a step whose phase is not known), and its words."""

    name: str
    words: Words


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    at_us: int
    kind: MarkKind
    words: Words


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One rank, or several that did the same.

    `segments` are triples of integers, one triple a phase of a step: microseconds since the end of the segment before (since `start_us` for the first),
    length in microseconds, and the phase: its place in `phases`, or -1 - place where it was begun and never finished. `end_us` is None while it runs.
    `members` are the lanes of its ranks where these are few enough to be sent (page.py says how many), else empty.
    """

    label: Words
    node: str
    ranks: list[int | None]
    culprit: bool
    bad: bool
    start_us: int
    end_us: int | None
    notes: list[Words]
    marks: list[Mark]
    segments: list[int]
    members: list[Lane] = []


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A curve: `values` has None where the number is not finite."""

    times_us: list[int]
    values: list[float | None]


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """The other ranks together: least, median and largest at each time."""

    times_us: list[int]
    low: list[float | None]
    middle: list[float | None]
    high: list[float | None]


class Strip(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement on the page's axis: the culprit's (the first rank's where there is none), and the others'.

    Where one other has it, that is its own curve (`other`, of `other_who`); where several have it, their band (`others`).
    """

    label: Words
    unit: Unit
    who: Words
    own: Series
    others: Band | None
    other: Series | None = None
    other_who: Words = ""


class Speaker(msgspec.Struct, frozen=True, kw_only=True):
    """Whose line it is: a rank, a worker of one, a launcher. `lane` is its place in `lanes`, None where it has none."""

    words: Words
    rank: int | None
    node: str
    culprit: bool
    lane: int | None


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """Every line and event in order of time, by column: `speaker` is a place in `speakers`, `severity` an OpenTelemetry severity number, `events` the
    rows that are events and not lines, `effects` those of them that only followed from the culprit's end, `last` the rows of what the culprit said last
    and how it ended. A text may hold newlines (a traceback) and ANSI colours; it is the job's own and hostile until escaped."""

    times_us: list[int]
    speaker: list[int]
    severity: list[int]
    texts: list[Words]
    events: list[int]
    effects: list[int]
    last: list[int]
    speakers: list[Speaker]
    left_out: int = 0
    """Lines of the window beyond what a page may hold: the oldest ones before the onset, and then the newest."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """All that the script needs; `language` is the one asked for, "" for the browser's. `follow` is whether the job still runs."""

    version: int = VERSION
    title: str
    language: str
    trace_id: str
    incident_id: str | None
    zero_ms: float
    zero_is_onset: bool
    start_us: int
    end_us: int
    detected_us: int | None
    follow: bool
    head: Head
    evidence: list[Evidence]
    phases: list[PhaseName]
    lanes: list[Lane]
    strips: list[Strip]
    log: Log
    missing: list[Words]
