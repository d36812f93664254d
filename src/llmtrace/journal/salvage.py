"""A damaged journal read as far as it goes: what its pages still hold, in a temporary database with the same tables.

Every page is looked at, whether a tree still leads to it or not. The bytes of chunks stay where they are: the temporary database notes the place.
"""

from __future__ import annotations

import sqlite3
import string
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from ..frames import Description, Epoch, encode_description, known_schemas, merge_descriptions
from ..record import Identity
from . import rows
from .format import LONGEST_NS, TABLES, Chunk, RingRow, zstd
from .pages import BLOB, INDEX_LEAF, NO_CELL, TABLE_LEAF, Cell, Columns, Pages, Value, values

NO_ROW: Final = (*NO_CELL, TypeError, msgspec.MsgspecError)
"""What bytes that are no row of ours raise."""

PLACE_BYTES: Final = 8

_CHUNK: Final = f"INTO chunk VALUES (?{', ?' * 12})"
_DROP: Final = "INSERT INTO dropped VALUES (?, ?) ON CONFLICT (reason) DO UPDATE SET count = max(count, excluded.count)"
_NEWEST: Final = "SELECT id, last_ns FROM chunk WHERE ring = ? ORDER BY id DESC LIMIT 1"
_parts = msgspec.msgpack.Decoder(list[bytes]).decode


class Salvage:
    """What can still be read of the journal at `path`: `connection` answers as the journal's own would, but for the chunks' bytes (`whole`).

    `chunks` were found, and about `missing` more were written. Raises LookupError where no process can be told any more, OSError where the
    file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._pages = Pages(path)
        self._rings: dict[int, RingRow] = {}
        self._descriptions: dict[int, bytes] = {}
        self._first_chunk, self._last_chunk = 1 << 62, 0
        self.connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        try:
            self._make_tables()
            self._gather()
            self._put_rings()
            self.connection.execute("COMMIT")
            self.chunks, self.missing = self._counted()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.connection.close()
        self._pages.close()

    def whole(self, chunk: Chunk) -> Chunk:
        """The chunk with its bytes, as far as they can be read."""
        return msgspec.structs.replace(chunk, blob=self._pages.last_column(int.from_bytes(chunk.blob, "big")))

    def _make_tables(self) -> None:
        self.connection.executescript(f"PRAGMA journal_mode = OFF; {TABLES}")
        self._ring_columns = [name for (name,) in self.connection.execute("SELECT name FROM pragma_table_info('ring')")]
        self.connection.execute("BEGIN")

    def _gather(self) -> None:
        for kind, keep in ((TABLE_LEAF, self._keep), (INDEX_LEAF, self._keep_entry)):
            for number in self._pages.leaves(kind):
                for cell in self._pages.cells(number):
                    with suppress(*NO_ROW):
                        keep(cell, cell.columns())

    def _keep(self, cell: Cell, columns: Columns) -> None:
        """A row of a table; which one, its number of columns tells."""
        if len(columns) == 13:
            self._keep_chunk(cell, columns)
        elif len(columns) == len(self._ring_columns):
            self._keep_ring(cell.rowid, values(self._pages.payload(cell), columns))
        elif len(columns) == 3:
            self._keep_clock(cell.rowid, values(cell.local, columns))
        elif len(columns) == 2:
            self._keep_pair(cell.rowid, values(self._pages.payload(cell), columns))

    def _keep_chunk(self, cell: Cell, columns: Columns) -> None:
        """A page that was given up may hold a row that lives on elsewhere: the one whose bytes are whole counts."""
        numbers = [value for value in values(cell.local, columns[1:12]) if isinstance(value, int)]
        _, bulk, _, first_ns, last_ns, _, count, kinds, _, _, _ = numbers
        sound = bulk in (0, 1) and first_ns <= last_ns <= first_ns + LONGEST_NS and count > 0 and 0 <= kinds <= 15
        if not sound or columns[12][0] < BLOB or not 0 < cell.rowid < 1 << 62:
            return
        row = (cell.rowid, *numbers, cell.place.to_bytes(PLACE_BYTES, "big"))
        if self.connection.execute(f"INSERT OR IGNORE {_CHUNK}", row).rowcount == 0 and self._is_whole(cell.place):
            self.connection.execute(f"INSERT OR REPLACE {_CHUNK}", row)

    def _is_whole(self, place: int) -> bool:
        try:
            return bool(zstd.decompress(self._pages.last_column(place)))
        except zstd.ZstdError:
            return False

    def _keep_ring(self, number: int, found: Sequence[Value]) -> None:
        """Of several states of a ring the latest."""
        row = dict(zip(self._ring_columns, found, strict=True))
        identity = msgspec.msgpack.decode(_bytes(row["identity"]), type=Identity)
        told = {name: row[name] for name in rows.RING_FIELDS}
        ring = msgspec.convert({**told, "identity": identity, "description": []}, RingRow)
        known = self._rings.get(number, ring)
        if (known.count, known.last_ns) <= (ring.count, ring.last_ns):
            self._rings[number] = ring

    def _keep_clock(self, number: int, found: Sequence[Value]) -> None:
        _, boot_id, offset_ns = found
        if isinstance(boot_id, str) and isinstance(offset_ns, int):
            self.connection.execute("INSERT OR IGNORE INTO clock VALUES (?, ?, ?)", (number, boot_id, offset_ns))

    def _keep_pair(self, number: int, found: Sequence[Value]) -> None:
        """A description, or SQLite's own note of the last id."""
        first, second = found
        if first == "chunk" and isinstance(second, int):
            self._last_chunk = max(self._last_chunk, second)
        elif first is None:
            merge_descriptions(_parts(_bytes(second)))
            self._descriptions[number] = max(_bytes(second), self._descriptions.get(number, b""), key=len)

    def _keep_entry(self, cell: Cell, columns: Columns) -> None:
        """An entry of an index of chunks, which ends in the chunk's id, or a row of `dropped`, which is kept as an index."""
        if len(columns) in (4, 6):
            (chunk,) = values(cell.local, columns[-1:])
            if isinstance(chunk, int):
                self._first_chunk = min(self._first_chunk, chunk)
        elif len(columns) == 2:
            self._keep_drop(*values(cell.local, columns))

    def _keep_drop(self, reason: Value, count: Value) -> None:
        """The index of rings by span has entries of the same form: 16 hexadecimal digits and a number."""
        if isinstance(reason, str) and isinstance(count, int) and not (len(reason) == 16 and set(reason) <= set(string.hexdigits)):
            self.connection.execute(_DROP, (reason, count))

    def _put_rings(self) -> None:
        """Rings whose row is lost are made again from what they said of themselves, and the other way round."""
        for number in sorted({*self._rings, *self._descriptions}):
            parts = _parts(self._descriptions[number]) if number in self._descriptions else []
            ring = self._rings.get(number) or self._made_again(number, parts)
            if ring is not None:
                self._put(number, msgspec.structs.replace(ring, description=parts or presumed(ring.identity)))
        if not self.connection.execute("SELECT 1 FROM ring").fetchone():
            raise LookupError("no process's row can be read")

    def _made_again(self, number: int, parts: list[bytes]) -> RingRow | None:
        first_ns, last_ns = self.connection.execute("SELECT min(first_ns), max(last_ns) FROM chunk WHERE ring = ?", (number,)).fetchone()
        epochs = merge_descriptions(parts).epochs
        if first_ns is None or not epochs:
            return None
        identity = epochs[-1].identity
        return RingRow(
            span_id=identity.span_id,
            identity=identity,
            description=parts,
            started_ns=first_ns,
            last_ns=last_ns,
            ending="unknown",
            ended_ns=last_ns,
            pid=identity.pid,
        )

    def _put(self, number: int, ring: RingRow) -> None:
        newest = self.connection.execute(_NEWEST, (number,)).fetchone() or (0, 0)
        with suppress(sqlite3.IntegrityError):  # a second row of one span
            at = self.connection.execute(rows.INSERT_RING, rows.ring_values(ring)).lastrowid
            self.connection.execute("UPDATE ring SET id = ?, newest_chunk = ?, newest_ns = ? WHERE id = ?", (number, *newest, at))
            self.connection.execute("INSERT INTO description VALUES (?, ?)", (number, rows.encode_parts(ring.description)))

    def _counted(self) -> tuple[int, int]:
        """Chunks that can be read, and the others from the first to the last: ids leave no gap but where an old one outlived a clock set back."""
        found, first, last = self.connection.execute("SELECT count(*), min(c.id), max(c.id) FROM chunk c JOIN ring r ON r.id = c.ring").fetchone()
        first, last = min(first or 1 << 62, self._first_chunk), max(last or 0, self._last_chunk)
        return found, max(last - first + 1 - found, 0)


def presumed(identity: Identity) -> list[bytes]:
    """A description for a ring whose own is lost: of schemas with our ids, which are never given to others, and of who it was."""
    return [encode_description(known_schemas()), encode_description(Description(epochs=[Epoch(0, identity)]))]


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("no bytes")
    return value
