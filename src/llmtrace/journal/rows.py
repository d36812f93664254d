"""Rows of the journal and the types that they become, for its writer and its readers alike."""

from __future__ import annotations

import sqlite3
from types import NoneType
from typing import Any, Final

import msgspec

from ..record import Identity
from .format import Chunk, RingRow, storable

_encode = msgspec.msgpack.Encoder().encode
_identity = msgspec.msgpack.Decoder(Identity).decode
_parts = msgspec.msgpack.Decoder(list[bytes]).decode

RING_FIELDS: Final = tuple(name for name in RingRow.__struct_fields__ if name not in ("identity", "description"))
_RING_COLUMNS: Final = ", ".join(f"r.{name}" for name in RING_FIELDS)
RINGS: Final = f"SELECT {_RING_COLUMNS}, r.identity, d.parts FROM ring r LEFT JOIN description d ON d.ring = r.id"

CHUNK_FIELDS: Final = Chunk.__struct_fields__
_CHUNK_COLUMNS: Final = ", ".join("r.span_id" if name == "span_id" else f"c.{name}" for name in CHUNK_FIELDS)

COUNTERS: Final = ("parts", "tail", "count", "lost", "derived")
"""They never fall: who puts an older row over a newer one must not have anything read, or numbered, twice."""

_SET: Final = ", ".join(f"{name} = max({name}, ?)" if name in COUNTERS else f"{name} = ?" for name in ("identity", "parts", *RING_FIELDS))
UPDATE_RING: Final = f"UPDATE ring SET {_SET} WHERE id = ?"
INSERT_RING: Final = (
    f"INSERT INTO ring (identity, parts, {', '.join(RING_FIELDS)}, newest_chunk, newest_ns) VALUES ({', '.join('?' * (len(RING_FIELDS) + 2))}, 0, 0)"
)


CLOCK_OF_RING: Final = "SELECT r.boot_id, (SELECT offset_ns FROM clock k WHERE k.boot_id = r.boot_id ORDER BY k.id DESC LIMIT 1) FROM ring r WHERE r.id = ?"
"""The boot of a ring, and the clock's offset noted last in it."""


def ring_values(row: RingRow) -> list[Any]:
    """Identity, number of parts and the plain columns, in the order of the two statements."""
    values = [getattr(row, name) for name in RING_FIELDS]
    return [_encode(row.identity), len(row.description), *[storable(value) if isinstance(value, int) else value for value in values]]


def encode_parts(parts: list[bytes]) -> bytes:
    return _encode(parts)


def ring_of(row: tuple[Any, ...]) -> RingRow:
    identity, parts = row[-2:]
    return RingRow(identity=_identity(identity), description=[] if parts is None else _parts(parts), **dict(zip(RING_FIELDS, row, strict=False)))


def chunk_of(row: tuple[Any, ...]) -> Chunk:
    return Chunk(row[0], row[1], bool(row[2]), *row[3:])


def sound_chunk(row: tuple[Any, ...]) -> Chunk:
    """The same of a file that may be damaged, where a column may hold anything; raises msgspec.ValidationError."""
    if {*map(type, row[2:12])} != {int} or type(row[12]) is not bytes:
        raise msgspec.ValidationError(f"chunk {row[0]} is no chunk")
    return chunk_of(row)


def sound_rings(connection: sqlite3.Connection) -> list[RingRow]:
    """The same of rings."""
    found = connection.execute(f"{RINGS} ORDER BY r.id").fetchall()
    if any(type(identity) is not bytes or type(parts) not in (bytes, NoneType) for *_, identity, parts in found):
        raise msgspec.ValidationError("a ring is no ring")
    return [msgspec.convert(msgspec.structs.asdict(ring_of(row)), RingRow) for row in found]


def chunks_by(index: str) -> str:
    """Select chunks through an index, whatever SQLite guesses without statistics; `NOT INDEXED` is by id."""
    by = index if index == "NOT INDEXED" else f"INDEXED BY {index}"
    return f"SELECT {_CHUNK_COLUMNS} FROM chunk c {by} CROSS JOIN ring r ON r.id = c.ring"


def read_rings(connection: sqlite3.Connection) -> list[RingRow]:
    return [ring_of(row) for row in connection.execute(f"{RINGS} ORDER BY r.id")]


def read_drops(connection: sqlite3.Connection) -> dict[str, int]:
    return dict(connection.execute("SELECT reason, count FROM dropped ORDER BY reason"))
