"""Reading a journal from any process, while it is written or after: windows by time of emission."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from ..guard import guard
from ..record import Kind
from . import rows
from .errors import JournalError, mapped
from .format import STEP_NS, Chunk, RingRow, kinds_mask, storable
from .opening import open_reader
from .retention import window_start
from .salvage import Salvage

T = TypeVar("T")

CHUNKS_LOST: Final = "chunks_lost_to_damage"

TOGETHER_NS: Final = 5_000_000_000
"""Rings written to in the same seconds: how far apart their newest records may lie."""


class JournalReader:
    """A journal, read-only. Each call sees the newest committed state, and holds nothing between calls. Raises JournalError.

    With `salvaging` a damaged one is read as far as it goes, page by page, in the state of that moment: slower, and said in a warning.
    """

    def __init__(self, path: Path | str, *, salvaging: bool = False) -> None:
        self.path = Path(path)
        self._salvaging = salvaging
        self._salvage: Salvage | None = None
        try:
            self._connection = open_reader(self.path)
        except JournalError as error:
            self._connection = self._salvaged(error)

    def close(self) -> None:
        with mapped(self.path):
            self._connection.close()
            if self._salvage is not None:
                self._salvage.close()

    def __enter__(self) -> JournalReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with mapped(self.path):
                return query(self._connection)
        except JournalError as error:
            salvaged = self._salvaged(error)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            salvaged = self._salvaged(JournalError("corrupt", f"{self.path}: a row cannot be read: {error}"))
        self._connection.close()
        self._connection = salvaged
        with mapped(self.path):
            return query(salvaged)

    def _salvaged(self, error: JournalError) -> sqlite3.Connection:
        """What can be read of a damaged journal; raises `error` where that is nothing, or is not wanted."""
        if not self._salvaging or self._salvage is not None or error.trouble not in ("corrupt", "unusable"):
            raise error
        try:
            with mapped(self.path):
                self._salvage = found = Salvage(self.path)
        except (OSError, LookupError, JournalError):
            raise error from None
        lost = f"about {found.missing:,} are lost" if found.missing else "none is lost"
        guard.warn(f"{error}: read as far as it goes, {found.chunks:,} chunks of records; {lost}")
        return found.connection

    def _chunks(self, query: str, values: Sequence[int | str] = ()) -> list[Chunk]:
        found = self._read(lambda connection: [rows.sound_chunk(row) for row in connection.execute(query, values)])
        return found if self._salvage is None else list(map(self._salvage.whole, found))

    def rings(self) -> list[RingRow]:
        """All rings, in the order in which they were first seen."""
        return self._read(rows.sound_rings)

    def clock_settings(self) -> dict[str, list[int]]:
        """Boot id -> wall minus monotonic clock at its start and after each time that the clock was set, in that order."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for boot_id, offset_ns in self._read(lambda connection: connection.execute("SELECT boot_id, offset_ns FROM clock ORDER BY id").fetchall()):
            found[boot_id].append(offset_ns)
        return dict(found)

    def chunks_between(
        self,
        start_ns: int,
        end_ns: int,
        spans: Collection[str] | None = None,
        bulk: bool | None = None,
        kinds: Collection[Kind] | None = None,
        offset_ns: int | None = None,
    ) -> list[Chunk]:
        """Chunks that hold records emitted in [start_ns, end_ns), by their first one; of some rings, kinds, and one setting of
        the clock, where given.

        A chunk may hold others as well: the caller looks at each record.
        """
        conditions = "c.first_ns >= ? AND c.first_ns < ? AND c.last_ns >= ?"
        values: list[int | str] = [storable(window_start(start_ns)), storable(end_ns - 1) + 1, storable(start_ns)]
        if spans is not None:
            conditions += " AND c.ring IN (SELECT id FROM ring WHERE span_id IN (SELECT value FROM json_each(?)))"
            values.append(msgspec.json.encode(list(spans)).decode())
        if bulk is not None:
            conditions += f" AND c.bulk = {int(bulk)}"
        if kinds is not None:
            conditions += f" AND c.kinds & {kinds_mask(kinds)}"
        if offset_ns is not None:
            conditions += " AND c.offset_ns BETWEEN ? AND ?"
            values += [offset_ns - STEP_NS, offset_ns + STEP_NS]
        return self._chunks(f"{rows.chunks_by('chunk_time')} WHERE {conditions} ORDER BY c.first_ns, c.id", values)

    def incident_chunks(self) -> list[Chunk]:
        """Those that hold a record of an incident, oldest first, however large the journal is."""
        return self._chunks(f"{rows.chunks_by('chunk_flags')} WHERE c.flags != 0 ORDER BY c.id")

    def chunk_at(self, span_id: str, position: int) -> Chunk | None:
        """The chunk that holds the record of that id; None where it is dropped, or never was."""
        where = "c.ring = (SELECT id FROM ring WHERE span_id = ?) AND c.bulk = ? AND c.position <= ?"
        nearest = f"{rows.chunks_by('chunk_ring')} WHERE {where} ORDER BY c.position DESC LIMIT 1"
        found = [chunk for bulk in (0, 1) for chunk in self._chunks(nearest, (span_id, bulk, position))]
        return next((chunk for chunk in found if any(at == position for _, at, _ in chunk.frames())), None)

    def last_time_ns(self, spans: Collection[str] | None = None) -> int | None:
        """When the newest record of these rings was emitted: of those written last, so that a clock set back does not hide them."""
        newest = "SELECT span_id, newest_ns FROM ring WHERE newest_chunk > 0 ORDER BY newest_chunk DESC"
        found = self._read(lambda connection: connection.execute(newest).fetchall())
        times = [newest_ns for span_id, newest_ns in found if spans is None or span_id in spans]
        return max((t for t in times if t <= times[0] + TOGETHER_NS), default=None)

    def drops(self) -> dict[str, int]:
        """Records (and damaged files, and chunks of a damaged one) that were dropped, by reason."""
        dropped = self._read(rows.read_drops)
        return {**dropped, CHUNKS_LOST: self._salvage.missing} if self._salvage and self._salvage.missing else dropped
