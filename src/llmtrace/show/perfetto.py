"""A window as a trace that ui.perfetto.dev and chrome://tracing open: the Trace Event Format, as JSON.

What holds is what Perfetto's importer does (google/perfetto, src/trace_processor/importers: json/json_trace_parser.cc and common/slice_tracker.cc):
slices of one thread nest or do not touch; of two that begin together the outer one comes first; an instant is a slice without length, and instants at one
time lie within one another; what is no number is an error. Times are whole microseconds: of fractions older versions cut off what tears nesting apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from ..names import INCIDENT, PHASES, STEP, phase_attribute
from ..record import ERROR, Identity, Incident, Record, Value
from ..sources.context import Context
from .clean import clean, cut, one_line
from .evidence import describe
from .folds import label
from .measurements import MEASUREMENTS, measured, partial, unit_of, words_of
from .page.axis import Axis
from .phrases import english
from .redacted import redact_context
from .rows import severity_text
from .slices import Slice, laid_out, span_slice, step_slices
from .story import Standing, Story, tell
from .times import SECOND_NS
from .view import View

TITLE: Final = 100
"""Characters of a line that stand in the picture; the whole line is among the arguments."""
EXACT: Final = 1 << 53
"""JavaScript's whole numbers end here; a larger one is written as text."""
PID_LIMIT: Final = 1 << 22
"""Linux gives no larger pid (PID_MAX_LIMIT in include/linux/threads.h)."""
UNITS: Final = {"ns": ("ms", 1e-6), "": ("value", 1.0)}
"""What a counter's number is called, and its factor, where it is not the unit itself."""
ALARM: Final = "terrible"
"""The colour that chrome://tracing has for errors."""
_PHASE_ATTRIBUTES: Final = frozenset(map(phase_attribute, PHASES))

Args = dict[str, Value]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of `traceEvents`. `ph`: X is a slice and `dur` its length, i an instant in its thread or (`s` g) everywhere, C a counter, M a name of something."""

    ph: str
    name: str
    pid: int
    tid: int
    ts: int | None = None
    dur: int | None = None
    s: str = ""
    cat: str = ""
    cname: str = ""
    args: Args = {}


class Metadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What both viewers show of the file. `base_time` is the wall clock at time 0; in nanoseconds as text, since JavaScript would round the number."""

    source: str
    base_time: str
    base_unix_ns: str
    trace_id: str
    incident: str = ""
    category: str = ""
    role: str = ""
    summary: str = ""


class Track(msgspec.Struct, frozen=True):
    """A process of the trace: a ring, or a node with what was measured of all of it. The first in `order` is on top."""

    pid: int
    name: str
    order: int
    culprit: bool = False


def trace_json(context: Context) -> bytes:
    """The window, redacted, as JSON in UTF-8: each ring a process, the culprit's first; steps with phases, other spans, lines, events, counters."""
    story = tell(redact_context(context))
    parts = (b",\n".join(map(msgspec.json.encode, events)) for events in Writer(story).parts())
    return b'{"traceEvents":[\n' + b",\n".join(filter(None, parts)) + b'\n],"displayTimeUnit":"ms","metadata":' + msgspec.json.encode(_metadata(story)) + b"}\n"


def _metadata(story: Story) -> Metadata:
    incident, start_ns = story.incident, story.window.start_ns
    base = datetime.fromtimestamp(start_ns // SECOND_NS, UTC).replace(microsecond=start_ns % SECOND_NS // 1000)
    found = Metadata(source="llmtrace", base_time=base.isoformat(), base_unix_ns=str(start_ns), trace_id=one_line(story.context.trace_id))
    if incident is None:
        return found
    words = {name: one_line(getattr(incident, name)) for name in ("category", "role", "summary")}
    return msgspec.structs.replace(found, incident=one_line(incident.id), **words)


class Writer:
    """Makes the events of one story, process by process: all of a thousand ranks' at once would be gigabytes of objects."""

    def __init__(self, story: Story) -> None:
        window = story.window
        self._story, self._axis = story, Axis(window.start_ns, window.start_ns, window.end_ns)
        self._view = View(now_ns=window.end_ns, wrap=False)
        self._measured = measured(story.context.records, partial(story.standings))
        self._evidence = {name: place for place, name in enumerate(story.incident.evidence if story.incident else (), 1)}
        self._standings = {standing.process.identity.span_id: standing for standing in story.standings}
        self._records: dict[str, list[Record]] = {}
        for record in story.context.records:
            self._records.setdefault(record.identity.span_id, []).append(record)
        self._last_id = 0

    def parts(self) -> Iterator[Iterable[Event]]:
        """The events of each process, then those of all."""
        tracks = self._tracks()
        for span, track in tracks.items():
            yield self._process(span, track)
        for place, node in enumerate(self._nodes(), len(tracks)):
            track = Track(self._new_id(), f"node {one_line(node)}", place)
            yield [*_named(track), *self._counters(node, track, of_node=True)]
        if self._story.incident is not None and tracks:
            yield self._moments(self._story.incident, next(iter(tracks.values())))

    def _tracks(self) -> dict[str, Track]:
        """Every ring that is here, by its span, under its own pid unless another has that: pids repeat over nodes and restarts."""
        identities, taken = self._identities(), set[int]()
        self._last_id = max((identity.pid for identity in identities.values() if 0 < identity.pid < PID_LIMIT), default=0)
        tracks: dict[str, Track] = {}
        for order, (span, identity) in enumerate(identities.items()):
            pid = identity.pid if 0 < identity.pid < PID_LIMIT and identity.pid not in taken else self._new_id()
            taken.add(pid)
            standing = self._standings.get(span)
            tracks[span] = Track(pid, self._title(identity, standing), order, standing is not None and standing.culprit)
        return tracks

    def _identities(self) -> dict[str, Identity]:
        """The culprit's, the other ranks', their workers', and those of whoever else left a record."""
        story = self._story
        processes = [standing.process for standing in sorted(story.standings, key=lambda standing: not standing.culprit)] + list(story.workers)
        found = {process.identity.span_id: process.identity for process in processes}
        return found | {span: records[0].identity for span, records in self._records.items() if span not in found}

    def _nodes(self) -> list[str]:
        return sorted({node for (row, _), sources in self._measured.items() if MEASUREMENTS[row].of_node for node in sources})

    def _new_id(self) -> int:
        """A number that no process and no thread has: some versions know a thread by its number alone."""
        self._last_id += 1
        return self._last_id

    def _title(self, identity: Identity, standing: Standing | None) -> str:
        if standing is not None:
            name = english(label([standing], self._story))
        else:
            name = one_line(identity.role) + ("" if identity.rank is None else f" of rank {identity.rank}")
        return f"{name} ({one_line(identity.node)})" if identity.node else name

    def _process(self, span: str, track: Track) -> Iterator[Event]:
        yield from _named(track)
        if (standing := self._standings.get(span)) is not None:
            yield from self._slices(step_slices(standing, self._axis), track, track.pid, "steps")
        records = self._records.get(span, ())
        spans = [span_slice(record, self._axis) for record in records if record.kind == "span" and record.name != STEP]
        for place, lane in enumerate(laid_out(spans), 1):
            yield from self._slices(lane, track, self._new_id(), "spans" if place == 1 else f"spans {place}")
        yield from self._instants("events", [self._told(record) for record in records if record.kind == "event" and record.name != INCIDENT], track)
        yield from self._instants("log", [self._told(record) for record in records if record.kind == "log"], track)
        yield from self._counters(span, track)

    def _slices(self, slices: Iterable[Slice], track: Track, tid: int, name: str) -> Iterator[Event]:
        yield _thread(track, tid, name)
        for found in slices:
            args: Args = {} if found.finished else {"finished": False}
            if found.record is not None:
                facts = {name: value for name, value in found.record.attributes.items() if name not in _PHASE_ATTRIBUTES}
                args = _args(found.record, facts) | args
            start, end = max(0, found.start), max(1, found.end)
            kind = "phase" if found.record is None else found.record.name
            yield Event(ph="X", name=found.name, cat=one_line(kind), pid=track.pid, tid=tid, ts=start, dur=end - start, args=args)

    def _told(self, record: Record) -> Event:
        """A line or an event as an instant; its number among the evidence, where it is any."""
        text = clean(record.body or "") if record.kind == "log" else english(describe(record, self._view))
        facts: Args = {"level": severity_text(record.severity), "text": text}
        if record.id in self._evidence:
            facts["evidence"] = self._evidence[record.id]
        color = ALARM if record.severity >= ERROR else ""
        name = cut(text.partition("\n")[0], TITLE) or record.kind
        return Event(
            ph="i", s="t", name=name, cat=record.kind, pid=0, tid=0, ts=self._us(record.time_ns), cname=color, args=_args(record, record.attributes, facts)
        )

    def _instants(self, name: str, events: Sequence[Event], track: Track) -> Iterator[Event]:
        """A thread of instants, a microsecond apart at least."""
        if not events:
            return
        tid, at = self._new_id(), -1
        yield _thread(track, tid, name)
        for event in events:
            at = max(event.ts or 0, at + 1)
            yield msgspec.structs.replace(event, pid=track.pid, tid=tid, ts=at)

    def _counters(self, source: str, track: Track, of_node: bool = False) -> Iterator[Event]:
        """Each measurement; what is no finite number is no point of a counter, but an instant: a loss that is NaN is what one looks for."""
        odd: list[Event] = []
        for (row, name), sources in self._measured.items():
            title, unit = english(words_of(row, name)), unit_of(row, name)
            key, factor = UNITS.get(unit, (unit, 1.0))
            for time_ns, value in sources.get(source, ()) if MEASUREMENTS[row].of_node == of_node else ():
                event = Event(ph="C", name=title, cat="metric", pid=track.pid, tid=track.pid, ts=self._us(time_ns))
                if math.isfinite(value):
                    yield msgspec.structs.replace(event, args={key: value * factor})
                else:
                    odd.append(msgspec.structs.replace(event, ph="i", s="t", name=f"{title} is {_plain(value)}", cname=ALARM))
        yield from self._instants("not finite", sorted(odd, key=lambda event: event.ts or 0), track)

    def _moments(self, incident: Incident, track: Track) -> Iterator[Event]:
        """Onset and detection, across all processes; the evidence by the ids that lines and events have among their arguments."""
        facts: Args = {name: getattr(incident, name) for name in ("id", "category", "role", "summary", "reason")}
        args = {name: _plain(value) for name, value in (facts | {"evidence": " ".join(incident.evidence)}).items()}
        for name, time_ns in (("onset", incident.onset_ns), ("detected", incident.detected_ns)):
            if self._story.window.start_ns <= time_ns < self._story.window.end_ns:
                title = cut(f"{name}: {one_line(incident.summary)}", TITLE)
                yield Event(ph="i", s="g", name=title, cat="incident", pid=track.pid, tid=track.pid, ts=self._us(time_ns), cname=ALARM, args=args)

    def _us(self, time_ns: int) -> int:
        return max(0, self._axis.us(time_ns))


def _named(track: Track) -> Iterator[Event]:
    facts: list[tuple[str, Args]] = [("process_name", {"name": track.name}), ("process_sort_index", {"sort_index": track.order})]
    if track.culprit:
        facts.append(("process_labels", {"labels": "culprit"}))
    for name, args in facts:
        yield Event(ph="M", name=name, pid=track.pid, tid=track.pid, args=args)


def _thread(track: Track, tid: int, name: str) -> Event:
    return Event(ph="M", name="thread_name", pid=track.pid, tid=tid, args={"name": name})


def _args(record: Record, *facts: Mapping[str, Value]) -> Args:
    """The record's id and step over the facts."""
    found: Args = {one_line(name): _plain(value) for some in facts for name, value in some.items()}
    return found | {"id": one_line(record.id)} | ({} if record.step is None else {"step": record.step})


def _plain(value: Value) -> Value:
    """What JSON and JavaScript hold without loss."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(value) if isinstance(value, int) and abs(value) > EXACT else value
