"""One journal as a source: chunks become records, ring rows become processes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from pathlib import Path

import msgspec

from .. import clock
from ..directory import Directory, agent_alive
from ..frames import UNDECODABLE, Decoder
from ..guard import guard
from ..identity import fallbacks
from ..incidents import latest
from ..journal import Chunk, Frame, JournalReader, RingRow, description_of, process_of
from ..names import INCIDENT
from ..record import Identity, Incident, Kind, Process, Record, Window
from .set_clock import chunks_in_order

EVER_NS = 1 << 63
TOGETHER_NS = 5_000_000_000
"""Chunks of one second are written one after the other: the newest record need not be in the last of them."""


class Ring(msgspec.Struct, frozen=True):
    """A ring's row with what makes its frames records: who it was (filled in), how to decode, and each schema's kind.

    `kinds` holds None for a schema whose records name their kind themselves.
    """

    row: RingRow
    identity: Identity
    decoder: Decoder
    kinds: dict[int, Kind | None]


class JournalSource:
    """Reads the journal in one directory, also while an agent writes it; raises JournalError where none can be read."""

    def __init__(self, path: Path) -> None:
        self._directory = Directory(path=path, rings=path, registry=path / "rings")
        self._reader = JournalReader(self._directory.journal, salvaging=True)
        self._known: dict[str, tuple[tuple[int, Mapping[str, str]], Ring]] = {}
        self.damaged: set[tuple[str, int]] = set()
        self.damaged_chunks: dict[int, int] = {}

    def processes(self, trace_id: str | None = None) -> list[Process]:
        rings = self._rings()
        unseen = self._ended_unseen([ring.row for ring in rings])
        found = [_process(ring, ring.row.span_id in unseen) for ring in rings if trace_id in (None, ring.identity.trace_id)]
        return sorted(found, key=attrgetter("started_ns"))

    def incidents(self, trace_id: str | None = None) -> list[Incident]:
        rings = {ring.row.span_id: ring for ring in self._rings()}
        told = [record for record in self._decoded(self._reader.incident_chunks(), rings, None, ("event",)) if record.name == INCIDENT]
        return latest(record for record in told if trace_id in (None, record.identity.trace_id))

    def records(self, trace_id: str, window: Window, *, kinds: Collection[Kind] | None = None, rank: int | None = None) -> list[Record]:
        rings = {r.row.span_id: r for r in self._rings() if r.identity.trace_id == trace_id and rank in (None, r.identity.rank)}
        found = self._decoded(chunks_in_order(self._reader, window, rings, kinds), rings, window, kinds)
        return sorted(found, key=attrgetter("time_ns"))

    def last_time_ns(self, trace_id: str) -> int | None:
        """Of what was written last: a clock that was set back since does not hide it."""
        rows = [ring.row for ring in self._rings() if ring.identity.trace_id == trace_id]
        newest_ns = self._reader.last_time_ns([row.span_id for row in rows])
        if newest_ns is None:
            return None
        return max([newest_ns, *(row.last_ns for row in rows if row.last_ns <= newest_ns + TOGETHER_NS)])

    def drops(self) -> dict[str, int]:
        lost = sum(row.lost for row in self._reader.rings())
        ours = {"overwritten": lost, "undecodable": len(self.damaged), "in_damaged_chunks": sum(self.damaged_chunks.values())}
        return {**self._reader.drops(), **{reason: number for reason, number in ours.items() if number}}

    def close(self) -> None:
        self._reader.close()

    def _decoded(self, chunks: Iterable[Chunk], rings: Mapping[str, Ring], window: Window | None, kinds: Collection[Kind] | None) -> list[Record]:
        found: list[Record] = []
        for chunk in chunks:
            if ring := rings.get(chunk.span_id):
                records = self._of_chunk(chunk, ring, kinds)
                found += records if window is None or _lies_in(chunk, window) else _within(records, window)
        return found if kinds is None else [record for record in found if record.kind in kinds]

    def _of_chunk(self, chunk: Chunk, ring: Ring, kinds: Collection[Kind] | None) -> list[Record]:
        """A chunk's records, at least those of these kinds."""
        if kinds is None and (packed := chunk.unpacked()):
            try:
                return ring.decoder.decode(packed, chunk.offset_ns)
            except UNDECODABLE:
                pass  # something in it is no record: below each is tried alone
        frames = list(chunk.frames())
        if len(frames) < chunk.count:
            self.damaged_chunks[chunk.id] = chunk.count
        if kinds is not None:
            frames = [frame for frame in frames if ring.kinds.get(frame[0]) in (None, *kinds)]
        try:
            return ring.decoder.records(frames, chunk.offset_ns)
        except UNDECODABLE:
            return self._decoded_singly(ring, frames, chunk.offset_ns)

    def _decoded_singly(self, ring: Ring, frames: Iterable[Frame], offset_ns: int) -> list[Record]:
        """A chunk in which something is no record, without that."""
        found: list[Record] = []
        for frame in frames:
            try:
                found += ring.decoder.records([frame], offset_ns)
            except UNDECODABLE as error:
                self.damaged.add((ring.row.span_id, frame[1]))
                guard.warn(f"ring {ring.row.span_id}: a record cannot be read and is left out: {error}")
        return found

    def _rings(self) -> list[Ring]:
        rows = self._reader.rings()
        filled = fallbacks(row.identity for row in rows)
        return [self._ring(row, filled.get(row.span_id, {})) for row in rows]

    def _ring(self, row: RingRow, fallback: Mapping[str, str]) -> Ring:
        version = (len(row.description), fallback)
        known = self._known.get(row.span_id)
        if known is None or known[0] != version:
            description = description_of(row)
            decoder = Decoder(description, fallback)
            kinds: dict[int, Kind | None] = {schema.id: None if "kind" in schema.fields else schema.kind for schema in description.schemas}
            known = (version, Ring(row, decoder.identity_at(EVER_NS), decoder, kinds))
            self._known[row.span_id] = known
        return msgspec.structs.replace(known[1], row=row)

    def _ended_unseen(self, rows: Iterable[RingRow]) -> set[str]:
        """Rings whose process has gone while no agent was there to see it. Only this machine's, of this boot, can be asked."""
        running = [row for row in rows if row.ending == "running"]
        if not running or agent_alive(self._directory):
            return set()
        boot = clock.boot_id()
        return {row.span_id for row in running if row.boot_id == boot and clock.process_start_ticks(row.pid) != row.start_ticks}


def _process(ring: Ring, ended_unseen: bool) -> Process:
    found = process_of(ring.row, ring.identity)
    return msgspec.structs.replace(found, ending="unknown", ended_ns=ring.row.last_ns) if ended_unseen else found


def _lies_in(chunk: Chunk, window: Window) -> bool:
    return window.start_ns <= chunk.first_ns and chunk.last_ns < window.end_ns


def _within(records: Iterable[Record], window: Window) -> list[Record]:
    return [record for record in records if window.start_ns <= record.time_ns < window.end_ns]
