"""The journal's writer: chunks and how far their ring is read, in one transaction, within the bounds."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..frames import decode_values
from ..names import GENERAL, INCIDENT
from ..record import FATAL
from . import retention, rows
from .errors import JournalError, mapped, mapped_files
from .format import ALL_KINDS, DERIVED, INCIDENT_FLAG, KIND_BITS, STEP_NS, Chunk, Frame, RingRow, pack, pieces, storable
from .opening import BUSY_S, aside_path, bytes_of, file_id, free_bytes, journal_bytes, open_writer, pragma, remove, set_aside

MINIMUM_BYTES: Final = 32 << 20
"""No bound is below this: the journal must be able to take a whole ring in one transaction."""

INDEX_BYTES: Final = 1 << 20
"""Set aside for the shared index of the write-ahead log, which is far smaller."""

CORRUPT: Final = "journal_corrupt"

_CHUNK: Final = f"INSERT INTO chunk VALUES (NULL{', ?' * 12})"
_NEWEST: Final = "UPDATE ring SET newest_chunk = ?, newest_ns = ? WHERE id = ?"


class Transaction:
    """What happens together or not at all. Made by Journal.transaction()."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def put_ring(self, row: RingRow) -> None:
        """Note the latest of a ring. Its counters never fall, its description only grows."""
        before = self.connection.execute("SELECT id, parts FROM ring WHERE span_id = ?", (row.span_id,)).fetchone()
        values = rows.ring_values(row)
        if before is None:
            ring = self.connection.execute(rows.INSERT_RING, values).lastrowid
        else:
            ring = before[0]
            self.connection.execute(rows.UPDATE_RING, (*values, ring))
        if len(row.description) > (before[1] if before else 0):
            self.connection.execute("INSERT OR REPLACE INTO description VALUES (?, ?)", (ring, rows.encode_parts(row.description)))

    def append(
        self,
        span_id: str,
        frames: Sequence[Frame],
        offset_ns: int,
        *,
        bulk: bool,
        kinds: int = ALL_KINDS,
        severity: int = FATAL,
        earliest_start_ns: int | None = None,
        flags: int = 0,
    ) -> int:
        """Append frames of a ring that put_ring named; the id of the (last) chunk, 0 where there were none.

        `offset_ns` is wall minus monotonic clock. `kinds` (sum of KIND_BITS) and `severity` are what the frames may hold, as
        far as the caller knows. `earliest_start_ns` is the wall-clock start of the longest span. Raises LookupError for a span
        without a ring.
        """
        ring = self._ring(span_id)
        chunk = 0
        if frames:
            self._note_clock(ring, offset_ns)
        for piece in pieces(frames) if frames else ():
            first_ns, last_ns = storable(piece.first_ns + offset_ns), storable(piece.last_ns + offset_ns)
            start_ns = first_ns if earliest_start_ns is None else min(storable(earliest_start_ns), first_ns)
            facts = (ring, bulk, flags, first_ns, last_ns, start_ns, len(piece.frames), kinds, severity, offset_ns, piece.frames[0][1])
            chunk = self.connection.execute(_CHUNK, (*facts, pack(piece.frames))).lastrowid or 0
            self.connection.execute(_NEWEST, (chunk, last_ns, ring))
        return chunk

    def append_derived(self, span_id: str, payload: bytes, offset_ns: int) -> str:
        """Append one record about a process that its ring does not hold (a GENERAL payload); the record's id."""
        ring = self._ring(span_id)
        number = self.connection.execute("UPDATE ring SET derived = derived + 1 WHERE id = ? RETURNING derived - 1", (ring,)).fetchone()[0]
        position = DERIVED + number
        _, name, kind, severity, *_ = decode_values(payload)
        flags = INCIDENT_FLAG if name == INCIDENT else 0
        self.append(
            span_id, [(GENERAL.id, position, payload)], offset_ns, bulk=False, kinds=KIND_BITS.get(kind, ALL_KINDS), severity=severity or 0, flags=flags
        )
        return f"{span_id}-{position:x}"

    def move_cursor(self, consumer: str, chunk_id: int, index: int) -> None:
        """A consumer is done with everything before `chunk_id` and with the first `index` records of it."""
        self.connection.execute("INSERT OR REPLACE INTO cursor VALUES (?, ?, ?)", (consumer, chunk_id, index))

    def count_drop(self, reason: str, number: int) -> None:
        retention.count_drop(self.connection, reason, number)

    def _note_clock(self, ring: int, offset_ns: int) -> None:
        """A wall clock that was set is noted once, so that a reader can bring one boot's records into one order."""
        boot_id, before = self.connection.execute(rows.CLOCK_OF_RING, (ring,)).fetchone()
        if before is None or abs(before - offset_ns) > STEP_NS:
            self.connection.execute("INSERT INTO clock (boot_id, offset_ns) VALUES (?, ?)", (boot_id, offset_ns))

    def _ring(self, span_id: str) -> int:
        found = self.connection.execute("SELECT id FROM ring WHERE span_id = ?", (span_id,)).fetchone()
        if found is None:
            raise LookupError(f"no ring {span_id} in the journal")
        return found[0]


class Journal:
    """The writer of a directory's journal; one process at a time (the agent's lock sees to it), any of its threads.

    Everything raises JournalError where the file system or the file does not let it happen.
    """

    def __init__(self, path: Path, *, max_bytes: int, max_age_s: float) -> None:
        self.path = path
        self.max_age_ns = int(min(max_age_s, 1e10) * 1e9)
        self._log_path = Path(f"{path}-wal")
        self._lock = threading.RLock()
        self._inside = False
        with mapped_files(path):
            self.max_bytes = max(min(max_bytes, journal_bytes(path) + free_bytes(path.parent) // 2), MINIMUM_BYTES)
        self._log_bytes = min(self.max_bytes // 4, 64 << 20)
        self._retry_bytes = 0
        self._connection: sqlite3.Connection | None = None
        self._connected()

    @classmethod
    def open(cls, path: Path | str, *, max_bytes: int, max_age_s: float) -> Journal:
        """Open, or make, the journal at `path`. A damaged file is set aside, said and counted.

        The bound in force (`.max_bytes`) leaves half of the disk's free space alone, and is never below 32 MiB.
        """
        return cls(Path(path), max_bytes=max_bytes, max_age_s=max_age_s)

    def _connected(self) -> sqlite3.Connection:
        """The connection, made anew where the file proved damaged or was taken away."""
        if self._connection is not None and file_id(self.path) == self._file_id:
            return self._connection
        self._disconnect()
        connection, damaged = open_writer(self.path, self._log_bytes)
        self._most_pages = (self.max_bytes - self._log_bytes - INDEX_BYTES) // pragma(connection, "page_size")
        self._spare_pages = self._most_pages // 32
        if damaged:
            with mapped(self.path):
                retention.count_drop(connection, CORRUPT, 1)
        self._file_id = file_id(self.path)
        self._connection = connection
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        with self._lock, mapped(self.path):
            self._disconnect()

    @contextmanager
    def _using(self) -> Generator[sqlite3.Connection]:
        """The connection for one thread at a time. Where the file proves damaged, it is set aside and the caller may try again."""
        with self._lock:
            try:
                with mapped_files(self.path):
                    connection = self._connected()
                with mapped(self.path):
                    yield connection
            except JournalError as error:
                if error.trouble == "corrupt" and self._connection is not None:
                    self._disconnect()
                    set_aside(self.path, str(error))
                    with mapped(self.path):
                        retention.count_drop(self._connected(), CORRUPT, 1)
                raise

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """Everything in the block or nothing of it; never inside another one."""
        with self._using() as connection:
            if self._inside:
                raise RuntimeError("a transaction of the journal inside another one")
            self._keep_log_short(connection)
            self._inside = True
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield Transaction(connection)
                self._keep_size(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                self._inside = False

    def _keep_size(self, connection: sqlite3.Connection) -> None:
        """Within the transaction: the oldest go until what is used fits with room for the next, and the file never grows over."""
        if retention.used_pages(connection) > self._most_pages - self._spare_pages:
            retention.drop_oldest(connection, self._most_pages - 2 * self._spare_pages)
        retention.shrink(connection, self._most_pages)

    def _keep_log_short(self, connection: sqlite3.Connection) -> None:
        """Between transactions: a reader that holds an old state keeps the write-ahead log from being copied back and begun anew.

        Half of the log's share is left for the one transaction that is still let in.
        """
        if (size := bytes_of(self._log_path)) <= max(self._log_bytes // 4, self._retry_bytes):
            return
        connection.execute("PRAGMA busy_timeout = 50")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
        size = bytes_of(self._log_path)
        if size > self._log_bytes // 2:
            raise JournalError("full", f"{self.path}: a reader holds an old state, and the write-ahead log ({size} bytes) may not grow further")
        self._retry_bytes = min(size + self._log_bytes // 16, self._log_bytes // 2)

    def prune(self) -> dict[str, int]:
        """What is too old or too much goes, step by step, and free space back to the file system; records dropped now, by reason."""
        before = self.drops()
        now_ns = time.time_ns()
        oldest_ns = max(now_ns - self.max_age_ns, 0)
        while self._prune_step(oldest_ns):
            pass
        with self.transaction() as transaction:
            retention.forget_rings(transaction.connection, now_ns, oldest_ns)
        self._drop_aside(oldest_ns)
        return {reason: number - before.get(reason, 0) for reason, number in self.drops().items() if number > before.get(reason, 0)}

    def _prune_step(self, oldest_ns: int) -> bool:
        """One short transaction; whether there is more to do, and doing it helps."""
        with self.transaction() as transaction:
            connection = transaction.connection
            before = retention.used_pages(connection)
            more = retention.drop_slice_before(connection, oldest_ns)
            if before > self._most_pages:
                retention.drop_oldest(connection, self._most_pages)
            used = retention.used_pages(connection)
            more_free = retention.shrink(connection, min(used + max(used // 8, self._spare_pages), self._most_pages))
        return more or more_free or self._most_pages < used < before

    def _drop_aside(self, oldest_ns: int) -> None:
        """A damaged file counts to the bound, and is the oldest there is."""
        aside = aside_path(self.path)
        with mapped_files(aside):
            if not aside.exists():
                return
            if aside.stat().st_mtime_ns < oldest_ns or journal_bytes(aside) + journal_bytes(self.path) > self.max_bytes:
                remove(aside)

    def rings(self) -> list[RingRow]:
        with self._using() as connection:
            return rows.read_rings(connection)

    def ring(self, span_id: str) -> RingRow | None:
        with self._using() as connection:
            row = connection.execute(f"{rows.RINGS} WHERE r.span_id = ?", (span_id,)).fetchone()
        return None if row is None else rows.ring_of(row)

    def chunks_after(self, chunk_id: int, limit: int, bulk: bool | None = None) -> list[Chunk]:
        """The next chunks by id, all of them or only bulk (samples, spans) or the rest."""
        only = "" if bulk is None else f"AND c.bulk = {int(bulk)} "
        with self._using() as connection:
            return [
                rows.chunk_of(row)
                for row in connection.execute(f"{rows.chunks_by('NOT INDEXED')} WHERE c.id > ? {only}ORDER BY c.id LIMIT ?", (chunk_id, limit))
            ]

    def cursor(self, consumer: str) -> tuple[int, int]:
        """(chunk id, index): where a consumer goes on; (0, 0) for a new one."""
        with self._using() as connection:
            found = connection.execute("SELECT chunk, position FROM cursor WHERE consumer = ?", (consumer,)).fetchone()
        return (0, 0) if found is None else (found[0], found[1])

    def unread(self, consumer: str, limit: int, bulk: bool | None = None) -> list[tuple[Chunk, int]]:
        """The next chunks for a consumer, each with the index of the first record that it has not had."""
        at, index = self.cursor(consumer)
        found = self.chunks_after(at - 1, limit, bulk)
        return [(chunk, index if chunk.id == at else 0) for chunk in found if chunk.id != at or index < chunk.count]

    def drops(self) -> dict[str, int]:
        with self._using() as connection:
            return rows.read_drops(connection)
