"""The tracer: the one way from an instrument to the ring. It stamps, encodes once and appends; it never raises at its caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from ..config import Config
from ..frames import Description, Epoch, encode, encode_description, known_schemas
from ..guard import shield, shielded
from ..names import GENERAL, PHASES, SCHEMAS, STEP, Schema, phase_attribute
from ..record import INFO, Identity, Kind, Value
from .instrument import Undo
from .runs import Runs
from .steps import Steps
from .values import clean_attributes, clean_text, clean_value

if TYPE_CHECKING:
    from ..ring.writer import RingWriter

CURRENT: Final = -1
"""As a step number: the one that runs now."""

UNENCODABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)
"""What the encoder raises on a value that no record may hold; lone surrogates are a ValueError too."""

TICK_NS: Final = 1_000_000_000
STEP_SCHEMA: Final = next(schema for schema in SCHEMAS if schema.name == STEP)

Append = Callable[[int, bytes], None]
Callback = Callable[..., None]


def ignore(_kind: int, _payload: bytes) -> None:
    """Where records go while there is no ring, or emission is switched off."""


class Cell:
    """The one mutable cell between emitters and the ring: fork, stop and `llmtrace off` exchange what is in it.

    `progress` are the ring's two words of progress (layout.py), written by Steps alone; two of nobody's while there is no ring.
    """

    __slots__ = ("append", "frame_cap", "progress", "writer")

    def __init__(self) -> None:
        self.append: Append = ignore
        self.progress = memoryview(bytearray(16)).cast("Q")
        self.frame_cap = 1 << 16
        self.writer: RingWriter | None = None

    def fill(self, writer: RingWriter | None) -> None:
        self.writer = writer
        self.append = ignore if writer is None else writer.append
        self.progress = memoryview(bytearray(16)).cast("Q") if writer is None else writer.progress_words
        self.frame_cap = 1 << 16 if writer is None else writer.frame_cap


class Stamp:
    """What every log record gets, as text; "-" while it is not known."""

    __slots__ = ("rank", "span_id", "trace_id")

    def __init__(self, identity: Identity) -> None:
        self.read(identity)

    def read(self, identity: Identity) -> None:
        self.trace_id = identity.trace_id or "-"
        self.span_id = identity.span_id or "-"
        self.rank = "-" if identity.rank is None else str(identity.rank)


class Tracer:
    """Takes what instruments measure. Every method is safe at any time, in any thread, in a signal handler and after the end."""

    def __init__(self, config: Config, identity: Identity, runs: Runs | None = None) -> None:
        self.config = config
        self.identity = identity
        self.runs = runs or Runs()
        self.stamp = Stamp(identity)
        self.cell = Cell()
        self.since_ns = time.monotonic_ns()
        self.failed = False
        self.agreed = False
        """Whether the job's store was asked already."""
        self.watch: Callback | None = None
        """Called about once a second from steps and log lines: the runtime looks after its agent there."""
        self._next_tick_ns = 0
        self._on_step: tuple[Callback, ...] = ()
        self._each_second: tuple[Callback, ...] = ()
        self._next_second_ns = 0
        self._listeners: dict[str, list[Callback]] = {}
        self.steps = Steps(self)

    @property
    def writer(self) -> RingWriter | None:
        """The ring that records go to now; None without one. Never keep it: after fork it is another."""
        return self.cell.writer

    # Records

    @shielded
    def emit(
        self,
        name: str,
        *,
        kind: Kind = "event",
        severity: int = INFO,
        body: str | None = None,
        step: int | None = CURRENT,
        duration_ns: int | None = None,
        span_id: str | None = None,
        parent_span_id: str | None = None,
        attributes: Mapping[str, object] | None = None,
        time_ns: int | None = None,
    ) -> None:
        """Append one record of any kind; `step` is the current one unless given. `time_ns` is monotonic, now unless given.

        Attribute values become str, int, float or bool (values.py). What is longer than a frame is cut, and counted.
        """
        number = self.steps.current if step == CURRENT else step
        values = (
            clean_text(name),
            kind,
            severity,
            None if body is None else clean_text(body),
            number,
            duration_ns,
            span_id,
            parent_span_id,
            clean_attributes(attributes) if attributes else None,
        )
        self._append(GENERAL, time.monotonic_ns() if time_ns is None else time_ns, values)

    def positional(self, schema: Schema) -> Callable[..., None]:
        """The emitter of a hot record: called with the schema's values in order, it stamps the time and appends.

        It encodes the values as they are: text, numbers, bools and None at once; anything else is cleaned first, at a cost.
        """
        cell, now, kind = self.cell, time.monotonic_ns, schema.id
        slow = self._append_slowly

        def emitter(*values: object) -> None:
            time_ns = now()
            try:
                payload = encode((time_ns, *values))
            except UNENCODABLE:
                slow(schema, time_ns, values)
                return
            if len(payload) > cell.frame_cap:
                slow(schema, time_ns, values)
            else:
                cell.append(kind, payload)

        return emitter

    @shielded
    def _append_slowly(self, schema: Schema, time_ns: int, values: tuple[object, ...]) -> None:
        self._append(schema, time_ns, tuple(map(_clean_field, values)))

    def _append(self, schema: Schema, time_ns: int, values: tuple[Any, ...]) -> None:
        payload = encode((time_ns, *values))
        if len(payload) > self.cell.frame_cap:
            payload = encode((time_ns, *_cut(values, len(payload) - self.cell.frame_cap)))
            self._count_cut()
        self.cell.append(schema.id, payload)

    def _count_cut(self) -> None:
        if (writer := self.cell.writer) is not None:
            writer.count_cut()

    # Steps and progress

    @shielded
    def emit_step(self, time_ns: int, number: int, duration_ns: int, times: Mapping[str, int], samples: int | None, tokens: int | None) -> None:
        """The llmtrace.step record of a step that ended at `time_ns`; phases besides the known ones make it a general one."""
        if times.keys() <= _KNOWN_PHASES:
            values = (duration_ns, number, *map(times.get, PHASES), samples, tokens)
            try:
                self.cell.append(STEP_SCHEMA.id, encode((time_ns, *values)))
            except UNENCODABLE:
                self._append_slowly(STEP_SCHEMA, time_ns, values)
            return
        attributes: dict[str, object] = {phase_attribute(phase): ns for phase, ns in times.items()}
        attributes |= {"llmtrace.step.samples": samples, "llmtrace.step.tokens": tokens}
        self.emit(STEP, kind="span", step=number, duration_ns=duration_ns, attributes=attributes, time_ns=time_ns)

    def step_done(self, number: int, now_ns: int) -> None:
        """Tell those who asked that a step has ended."""
        for callback in self._on_step:
            callback(number)
        if now_ns >= self._next_second_ns:
            self._next_second_ns = now_ns + TICK_NS
            for callback in self._each_second:
                callback(number)
            self.tick()

    def progress(self) -> None:
        """A sign of life that is no step: a micro-batch, a collective whose end was seen."""
        self.steps.show()

    def tick(self) -> None:
        """About once a second the runtime's duties (agent alive? switched off?), else nothing; for step ends and log lines."""
        now = time.monotonic_ns()
        if now >= self._next_tick_ns and self.watch is not None:
            self._next_tick_ns = now + TICK_NS
            with shield("tick"):
                self.watch()

    ensure_agent = tick
    """What the logging hook calls."""

    def begin_run(self) -> None:
        """The outermost fit, traced function or start begins a run; one within joins it."""
        self.runs.begin(self)

    def end_run(self, failed: bool = False) -> None:
        """Leave what `begin_run` entered."""
        self.runs.end(self, failed=failed)

    # Between instruments

    def on_step(self, callback: Callable[[int], None]) -> Undo:
        """Have `callback(number)` called after each step record, in the thread that trains."""
        called = shielded(callback)
        self._on_step = (*self._on_step, called)

        def undo() -> None:
            self._on_step = tuple(other for other in self._on_step if other is not called)

        return undo

    def each_second(self, callback: Callable[[int], None]) -> Undo:
        """The same at the first step that ends in a second: for what need not be known of every step, and costs it nothing."""
        called = shielded(callback)
        self._each_second = (*self._each_second, called)
        self._next_second_ns = 0  # the newcomer hears of the very next step

        def undo() -> None:
            self._each_second = tuple(other for other in self._each_second if other is not called)

        return undo

    def publish(self, topic: str, *values: object) -> None:
        """What one instrument learns, others hear: `exception` (error, seen by), `group` (process group), ..."""
        for callback in self._listeners.get(topic, ()):
            with shield(f"subscriber of {topic}"):
                callback(*values)

    def subscribe(self, topic: str, callback: Callback) -> Undo:
        """Have `callback(*values)` called for each publication of a topic."""
        self._listeners[topic] = [*self._listeners.get(topic, ()), callback]

        def undo() -> None:
            self._listeners[topic] = [other for other in self._listeners[topic] if other is not callback]

        return undo

    # Identity

    @shielded
    def epoch(self, **facts: Any) -> None:
        """Identity learned late: appended to the ring's description, never changed there; the stamp follows."""
        changed = {name: value for name, value in facts.items() if getattr(self.identity, name) != value}
        if not changed:
            return
        self.identity = msgspec.structs.replace(self.identity, **changed)
        self.stamp.read(self.identity)
        now_ns = time.monotonic_ns()
        only_run = changed.keys() == {"run"}
        self.describe(Description(runs=[(now_ns, self.identity.run)]) if only_run else Description(epochs=[Epoch(now_ns, self.identity)]))
        self.publish("identity", self.identity)

    def describe(self, part: Description) -> None:
        """Say it in the ring; what is said before there is a ring is said again by `describe_all`."""
        if (writer := self.cell.writer) is not None and not writer.describe(encode_description(part)):
            from ..guard import guard

            guard.warn("the ring's description is full: later names and runs are not told apart in this process")

    def describe_phase(self, number: int, name: str) -> None:
        self.describe(Description(phases={number: name}))

    def describe_all(self) -> None:
        """Everything a reader must know, for a new ring."""
        self.describe(Description(schemas=known_schemas().schemas, epochs=[Epoch(self.since_ns, self.identity)]))
        self.describe(Description(phases=self.steps.phase_names()))  # apart: without it the records can still be read

    def mark_failed(self) -> None:
        """An exception is ending this process: its ring says `raised` from here on."""
        self.failed = True
        if (writer := self.cell.writer) is not None:
            writer.end("raised")


_KNOWN_PHASES: Final = frozenset(PHASES)
CUT: Final = " ... [cut by llmtrace: longer than a frame]"


def _clean_field(value: object) -> object:
    if isinstance(value, Mapping):
        return clean_attributes(value)  # type: ignore[arg-type]
    return clean_value(value)


def _cut(values: tuple[Any, ...], surplus: int) -> tuple[Any, ...]:
    """The values with the longest texts cut until `surplus` bytes are gone; the rest is kept."""
    surplus += 8
    found = list(values)
    for place in sorted(range(len(found)), key=lambda i: -_length(found[i])):
        if surplus <= 0:
            break
        before = _length(found[place])
        found[place] = _shorter(found[place], surplus)
        surplus -= before - _length(found[place])
    return tuple(found)


def _length(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if not isinstance(value, Mapping):
        return 0
    return sum(_length(name) + _length(item) for name, item in cast("Mapping[str, Value]", value).items())


def _shorter(value: Any, surplus: int) -> Any:
    if isinstance(value, str):
        encoded = value.encode()
        kept = len(encoded) - surplus - len(CUT)
        return encoded[:kept].decode("utf-8", "ignore") + CUT if kept > 0 else CUT.strip()
    if isinstance(value, Mapping):
        return _shorter_attributes(dict(cast("Mapping[str, Value]", value)), surplus)
    return value


def _shorter_attributes(attributes: dict[str, Value], surplus: int) -> dict[str, Value]:
    for name in sorted(attributes, key=lambda n: -_length(attributes[n])):
        if surplus <= 0:
            break
        before = _length(attributes[name])
        attributes[name] = _shorter(attributes[name], surplus)
        surplus -= before - _length(attributes[name])
    while surplus > 0 and attributes:
        name, value = attributes.popitem()
        surplus -= _length(name) + _length(value)
    return attributes
