"""One ring as the agent follows it: read, held until the journal has it, and told about when its process ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from ..clock import monotonic_ns
from ..frames import Description, Epoch, encode_description, payload_time_ns
from ..guard import guard
from ..journal import KIND_BITS, RingRow, Transaction, storable
from ..names import GENERAL
from ..record import ERROR, Ending, Identity
from ..ring import Frame, RingError, RingReader
from .deaths import Death, Watch, ending_of
from .obituary import death_event, fatal_event, read_fatal
from .shapes import Shapes

FLUSH_NS: Final = 1_000_000_000
"""One chunk a ring and second, unless something urgent is in it."""
FLUSH_BYTES: Final = 1 << 20
JITTER_NS: Final = 1_000_000
SILENT_NS: Final = 60_000_000_000
STOPPED_NS: Final = 10_000_000_000
"""So long after a stop no thread of the process still writes what it had begun."""

LINES: Final = KIND_BITS["log"] | KIND_BITS["event"]
BULK: Final = KIND_BITS["span"] | KIND_BITS["sample"]

Held = tuple[int, int, bytes]
"""Kind, position, payload."""

WHO: Final = ("pid", "pid_namespace", "boot_id", "start_ticks", "span_id", "started_ns", "parent_span")
"""Of a header, what never changes: read once, before anything in its process could have written over it."""

LAST_TURNS: Final = 3
SHORTEST: Final = 4
"""No payload is shorter: an array with a time in it."""


class Place(msgspec.Struct, frozen=True):
    """How far a ring is read: the absolute position, records read, records overwritten before they were."""

    tail: int = 0
    count: int = 0
    lost: int = 0


class Tail:
    """Follows one ring. What is read but not yet journalled is held here; after a refused write it is read again.

    `row` is what the journal has of it, None before the first time. `buried`: the journal has everything there will ever be.
    """

    def __init__(self, path: Path, folder: Path, reader: RingReader, known: RingRow | None) -> None:
        self.path, self._reader = path, reader
        self.header = reader.header()
        self.watch = Watch(self.header.pid, self.header.start_ticks, self.header.pid_namespace, self.header.boot_id)
        self.shapes = Shapes()
        self.death: Death | None = None
        self.superseded = False
        self.buried = known is not None and known.ended_ns is not None
        self.urgent = False
        self.row = known
        self._folder = folder
        self._saved = self._read = Place(known.tail, known.count, known.lost) if known else Place()
        self._spoilt = self._severity = 0
        self._bulk: list[Held] = []
        self._lines: list[Held] = []
        self._since_ns = 0
        self._bytes = 0
        self._last_mono_ns = 0
        self._told_ns = 0

    @property
    def span_id(self) -> str:
        return self.header.span_id

    def identity(self) -> Identity:
        """The ring's last word on whose it is; what the header alone says where it has not said yet."""
        role = "worker" if self.header.parent_span else "rank"
        return self.shapes.identity(Identity(span_id=self.span_id, parent_span_id=self.header.parent_span, pid=self.header.pid, role=role))

    @property
    def alive(self) -> bool:
        return self.death is None and self.watch.life == "alive"

    def parent(self) -> str:
        """The span of the process that this worker works for; empty for a rank."""
        if self.header.parent_span:
            return self.header.parent_span
        identity = self.row.identity if self.row is not None else self.identity()
        return identity.parent_span_id if identity.role == "worker" else ""

    def die(self, mono_ns: int | None, exit_code: int | None) -> None:
        """The process is gone: since when (None where nobody saw it) and how, if anybody can know."""
        self.death = Death(mono_ns, exit_code)
        self.urgent = True

    def read(self) -> None:
        """Take what is new in the ring; of a dead process, all there is (a reader may leave the very last to its next turn)."""
        self._read_once()
        if self.death is not None:
            for _ in range(LAST_TURNS):
                if self._read.tail == self._reader.header().head:
                    break
                self._read_once()

    def _read_once(self) -> None:
        reading = self._reader.read(self._read.tail, self._read.count)
        if reading.tail == self._read.tail and not reading.lost:
            return
        if not self._bytes:
            self._since_ns = monotonic_ns()
        self._bytes += 1 + len(reading.data)
        self._read = Place(reading.tail, reading.count, self._read.lost + reading.lost)
        self._sort(reading.data, reading.frames)

    def _sort(self, data: bytes, frames: list[Frame]) -> None:
        bulk, bulk_kinds = self._bulk, self.shapes.bulk_kinds
        for kind, position, start, end in frames:
            payload = data[start:end]
            if kind in bulk_kinds and end - start >= SHORTEST:  # most of them by far
                bulk.append((kind, position, payload))
            else:
                self._look(kind, position, payload)
        if frames and len(data) > frames[-1].start + SHORTEST:
            self._last_mono_ns = max(self._last_mono_ns, payload_time_ns(data, frames[-1].start))

    def _look(self, kind: int, position: int, payload: bytes) -> None:
        if len(payload) < SHORTEST:  # no record of any format: nothing could read it later
            self._spoilt += 1
            return
        if not self.shapes.knows(kind):
            self._learn()
        bulk, severity = self.shapes.look(kind, payload)
        (self._bulk if bulk else self._lines).append((kind, position, payload))
        self._severity = max(self._severity, severity)
        self.urgent = self.urgent or severity >= ERROR

    def due(self, now_ns: int) -> bool:
        """Whether the journal should hear of it now."""
        if self.urgent or self._bytes >= FLUSH_BYTES or self.row is None:
            return True
        return now_ns - (self._since_ns if self._bytes else self._told_ns) >= FLUSH_NS

    def put(self, transaction: Transaction, offset_ns: int) -> None:
        """All that is held, the ring's row, and on its death the words about that; in a transaction that may still fail."""
        self._look_again()
        self._next = self._make_row(offset_ns)
        if self._next != self.row:
            transaction.put_ring(self._next)
        if self._lines:
            transaction.append(self.span_id, self._lines, offset_ns, bulk=False, kinds=LINES, severity=self._severity)
        if self._bulk:
            transaction.append(self.span_id, self._bulk, offset_ns, bulk=True, kinds=BULK)
        transaction.count_drop("undecodable", self._spoilt)
        if self.death is not None and not self.buried:
            for payload in self._obituary(self.death, self._next):
                transaction.append_derived(self.span_id, payload, offset_ns)

    def _look_again(self) -> None:
        """The header and the description as they are now."""
        self.header = msgspec.structs.replace(self._reader.header(), **{name: getattr(self.header, name) for name in WHO})
        self._learn()

    def _learn(self) -> None:
        """What the ring says of itself by now; where that got damaged, what it said before stays."""
        try:
            self.shapes.learn(self._reader.descriptions())
        except RingError as error:
            guard.warn(f"ring {self.span_id}: {error}")

    def saved(self) -> RingRow:
        """The transaction of `put` is committed: what the journal has now."""
        self.row, self._saved = self._next, self._read
        self._let_go()
        self.buried = self.death is not None
        return self._next

    def rewind(self) -> None:
        """The journal did not take it: what was held is read again later, or overwritten and counted as lost."""
        self._read = self._saved
        self.row = None  # the journal may be another one by then
        self._let_go()

    def _let_go(self) -> None:
        self._bulk, self._lines = [], []
        self._bytes = self._spoilt = self._severity = 0
        self._told_ns = monotonic_ns()
        self.urgent = False

    def _make_row(self, offset_ns: int) -> RingRow:
        header, death = self.header, self.death
        ending, ended_ns = self._end(offset_ns)
        row = RingRow(
            span_id=header.span_id,
            identity=self.identity(),
            description=self._description(),
            tail=self._read.tail,
            count=self._read.count,
            lost=self._read.lost + (max(0, header.count - self._read.count) if death else 0),  # of one that could not be read to its end
            started_ns=header.started_ns + offset_ns,
            last_ns=self._last_sign_ns() + offset_ns,
            ending=ending,
            ended_ns=ended_ns,
            exit_code=death.exit_code if death else None,
            step=header.step,
            phase=self.shapes.description.phases.get(header.phase, ""),
            progress_ns=header.progress_ns + offset_ns if header.progress_ns else None,
            boot_id=header.boot_id,
            pid=header.pid,
            start_ticks=header.start_ticks,
        )
        return steady(row, self.row)

    def _end(self, offset_ns: int) -> tuple[Ending, int | None]:
        """How it ended and when (wall clock). A word without a time: it has left llmtrace, or is about to die, but lives."""
        if self.death is not None:
            return ending_of(self.header.ended, self.death.exit_code), self._death_ns(self.death) + offset_ns
        if self.header.ended == "running":
            return "running", None
        return self.header.ended, None

    def _last_sign_ns(self) -> int:
        return storable(max(self.header.started_ns, self.header.progress_ns, self._last_mono_ns))

    def _death_ns(self, death: Death) -> int:
        return self._last_sign_ns() + 1 if death.mono_ns is None else death.mono_ns

    def _description(self) -> list[bytes]:
        """What the ring said of itself; of a dead one also what a reader needs for the words about it."""
        said = self.shapes.description
        missing = Description(
            schemas=[] if any(schema.id == GENERAL.id for schema in said.schemas) else [GENERAL],
            epochs=[] if said.epochs else [Epoch(0, self.identity())],
        )
        complete = self.death is None or not (missing.schemas or missing.epochs)
        return self.shapes.parts if complete else [*self.shapes.parts, encode_description(missing)]

    def _obituary(self, death: Death, row: RingRow) -> Iterator[bytes]:
        is_rank = row.identity.role == "rank" and not self.superseded
        if text := read_fatal(self.fatal_path):
            yield fatal_event(self._death_ns(death), text, row.step)
        gone_ns, seen = self._death_ns(death), death.mono_ns is not None
        teardown_ns = 0 if self.header.ended == "running" else gone_ns - self._last_sign_ns()  # its word is the last of its records
        yield death_event(gone_ns, row.ending, row.exit_code, row.step, is_rank, seen=seen, teardown_ns=teardown_ns)

    @property
    def fatal_path(self) -> Path:
        """Where the rank's faulthandler writes: beside the rings."""
        return self._folder / f"{self.header.pid}-{self.header.start_ticks}-{self.span_id}.fatal"

    def idle(self) -> bool:
        """Whether the journal has what there is so far."""
        return not self._bytes and (self.death is None or self.buried)

    def done(self, now_ns: int) -> bool:
        """Nothing will come any more and the journal has it all.

        Of another pid namespace nobody sees the death: its word and silence. A process that stopped and started again writes elsewhere.
        """
        if self._bytes:
            return False
        silent_ns = now_ns - self._last_sign_ns() if self.header.ended != "running" else 0
        silent = silent_ns > SILENT_NS and self.watch.life == "foreign"
        return (self.buried and self.death is not None) or silent or (self.superseded and silent_ns > STOPPED_NS)

    def remove(self) -> None:
        """Ring and faulthandler file go: everything in them is journalled."""
        for path in (self.path, self.fatal_path):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        self.watch.close()
        self._reader.close()


def steady(row: RingRow, before: RingRow | None) -> RingRow:
    """Times that only jitter (the clocks are read again each time) stay as they were noted: a steady row need not be written."""
    if before is None:
        return row
    same = {
        name: getattr(before, name)
        for name in ("started_ns", "last_ns", "progress_ns", "ended_ns")
        if None not in (getattr(before, name), getattr(row, name)) and abs(getattr(before, name) - getattr(row, name)) < JITTER_NS
    }
    return msgspec.structs.replace(row, **same)
