"""Format 1 of the journal: its tables, the bytes of a chunk, and the rows as types. A new format is a new file."""

from __future__ import annotations

import struct
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from ..frames import Frames, payload_time_ns
from ..guard import guard
from ..record import Ending, Identity, Kind

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FORMAT: Final = 1
APPLICATION: Final = 0x6C6C6D74
"""SQLite's application_id of our files: "llmt"."""

DERIVED: Final = 1 << 62
"""Positions from here up are those of records that were derived about a ring, not read from it."""

LONGEST_NS: Final = 10_000_000_000
"""No chunk covers more than this, so that a window need look no further back than this before its start."""

LARGEST_BYTES: Final = 1 << 18
"""No chunk holds more payload than this (but one frame always fits)."""

STEP_NS: Final = 100_000_000
"""A wall clock that moved by more than this against the monotonic one was set: `clock` notes each such setting of a boot."""

KIND_BITS: Final[dict[Kind, int]] = {"log": 1, "span": 2, "sample": 4, "event": 8}
ALL_KINDS: Final = 15
INCIDENT_FLAG: Final = 1

TABLES: Final = f"""
CREATE TABLE ring (
    id INTEGER PRIMARY KEY, span_id TEXT NOT NULL UNIQUE, identity BLOB NOT NULL, parts INTEGER NOT NULL, tail INTEGER NOT NULL,
    count INTEGER NOT NULL, lost INTEGER NOT NULL, derived INTEGER NOT NULL, started_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL,
    ending TEXT NOT NULL, ended_ns INTEGER, exit_code INTEGER, step INTEGER, phase TEXT NOT NULL, progress_ns INTEGER,
    boot_id TEXT NOT NULL, pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, newest_chunk INTEGER NOT NULL, newest_ns INTEGER NOT NULL);
CREATE TABLE description (ring INTEGER PRIMARY KEY, parts BLOB NOT NULL);
CREATE TABLE chunk (
    id INTEGER PRIMARY KEY AUTOINCREMENT, ring INTEGER NOT NULL, bulk INTEGER NOT NULL, flags INTEGER NOT NULL, first_ns INTEGER NOT NULL,
    last_ns INTEGER NOT NULL, earliest_start_ns INTEGER NOT NULL, count INTEGER NOT NULL, kinds INTEGER NOT NULL, severity INTEGER NOT NULL,
    offset_ns INTEGER NOT NULL, position INTEGER NOT NULL, blob BLOB NOT NULL);
CREATE INDEX chunk_time ON chunk (first_ns, last_ns, ring, bulk, kinds);
CREATE INDEX chunk_ring ON chunk (ring, bulk, position);
CREATE INDEX chunk_flags ON chunk (flags) WHERE flags != 0;
CREATE TABLE cursor (consumer TEXT PRIMARY KEY, chunk INTEGER NOT NULL, position INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE clock (id INTEGER PRIMARY KEY, boot_id TEXT NOT NULL, offset_ns INTEGER NOT NULL);
CREATE TABLE dropped (reason TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {FORMAT};
"""
"""Times are wall-clock nanoseconds. AUTOINCREMENT: a chunk's id is never used twice, so a cursor never points into the past."""

SHORT_ARRAYS: Final = frozenset(bytes((0x90 | length,)) for length in range(16))
"""First bytes of a msgpack array of up to 15 values."""

Frame = tuple[int, int, bytes]
"""(kind, position, payload) as they lie in the ring."""


class RingRow(msgspec.Struct, frozen=True, kw_only=True):
    """The latest known of one ring and its process. Times are wall-clock nanoseconds.

    `description` is what the ring said of itself, part by part. `tail` and `count` say how far it is read (position,
    records), `lost` how many were overwritten before that. `derived` counts the records derived about it.
    """

    span_id: str
    identity: Identity
    description: list[bytes]
    tail: int = 0
    count: int = 0
    lost: int = 0
    derived: int = 0
    started_ns: int
    last_ns: int
    ending: Ending = "running"
    ended_ns: int | None = None
    exit_code: int | None = None
    step: int | None = None
    phase: str = ""
    progress_ns: int | None = None
    boot_id: str = ""
    pid: int = 0
    start_ticks: int = 0


class Chunk(msgspec.Struct, frozen=True):
    """Frames of one ring, compressed. Times are wall-clock nanoseconds of emission; add `offset_ns` to those in the frames.

    `kinds` is a sum of KIND_BITS and `severity` a bound from above: what a chunk may hold. `position` is its first frame's.
    """

    id: int
    span_id: str
    bulk: bool
    flags: int
    first_ns: int
    last_ns: int
    earliest_start_ns: int
    count: int
    kinds: int
    severity: int
    offset_ns: int
    position: int
    blob: bytes

    def unpacked(self) -> Frames | None:
        """The frames, undecoded; None, with a warning, where the bytes are damaged."""
        if (found := self._table()) is None:
            return None
        raw, words, gaps = found
        strides = [gap + 4 + (word & 0xFFFFFF) for gap, word in zip(gaps[1:], words, strict=False)]  # from each frame to the next
        positions = tuple(accumulate(strides, initial=self.position + gaps[0]))
        return Frames(raw[3 : 4 * self.count : 4], positions, memoryview(raw)[8 * self.count :])

    def frames(self) -> Iterator[Frame]:
        """(kind, position, payload) of each record, in the ring's order; none, with a warning, where the bytes are damaged."""
        if (found := self._table()) is None:
            return
        raw, words, gaps = found
        at, position = 8 * self.count, self.position
        for word, gap in zip(words, gaps, strict=True):
            position += gap
            length = word & 0xFFFFFF
            yield word >> 24, position, raw[at : at + length]
            at += length
            position += 4 + length

    def _table(self) -> tuple[bytes, Sequence[int], Sequence[int]] | None:
        """All bytes, the frames' kinds and lengths, and the gaps before them."""
        try:
            raw = zstd.decompress(self.blob)
            table = struct.unpack_from(f"<{2 * max(self.count, 1)}I", raw)
        except (zstd.ZstdError, struct.error) as error:
            guard.warn(f"chunk {self.id} of the journal is damaged, its {self.count} records are left out: {error}")
            return None
        return raw, table[: self.count], table[self.count :]


class Piece(msgspec.Struct, frozen=True):
    """What becomes one chunk: frames close in time and in the ring, with their first and last monotonic time."""

    frames: Sequence[Frame]
    first_ns: int
    last_ns: int


def storable(time_ns: int) -> int:
    """A time that SQLite can hold; what lies 146 years from 1970 is damage, or "for ever"."""
    return min(max(time_ns, -(1 << 62)), 1 << 62)


def kinds_mask(kinds: Collection[Kind]) -> int:
    return sum(KIND_BITS[kind] for kind in set(kinds))


_compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.compression_level: 1, zstd.CompressionParameter.checksum_flag: 1})


def pack(frames: Sequence[Frame]) -> bytes:
    """The blob of a chunk: kinds and lengths, gaps between positions, payloads; little-endian, zstd level 1 with its checksum.

    One compressor used again takes half the time for a small chunk; each call is a whole frame, under its own lock.
    """
    words: list[int] = []
    gaps: list[int] = []
    expected = frames[0][1]
    for kind, position, payload in frames:
        length = len(payload)
        words.append(kind << 24 | length)
        gaps.append(position - expected)
        expected = position + 4 + length
    raw = struct.pack(f"<{2 * len(words)}I", *words, *gaps) + b"".join([frame[2] for frame in frames])
    return _compressor.compress(raw, zstd.ZstdCompressor.FLUSH_FRAME)


def pieces(frames: Sequence[Frame]) -> Iterator[Piece]:
    """The frames as pieces within LONGEST_NS, LARGEST_BYTES and gaps that fit a chunk's table: nearly always one."""
    size = sum([len(frame[2]) for frame in frames])
    first_ns, last_ns = span_of_times([frame[2] for frame in frames])
    if last_ns - first_ns <= LONGEST_NS and size <= LARGEST_BYTES and frames[-1][1] - frames[0][1] < 1 << 32 and _ascending(frames):
        yield Piece(frames, first_ns, last_ns)
    else:
        yield from _cut(frames)


def _ascending(frames: Sequence[Frame]) -> bool:
    end = 0
    for _, position, payload in frames:
        if position < end:
            return False
        end = position + 4 + len(payload)
    return True


def _cut(frames: Iterable[Frame]) -> Iterator[Piece]:
    held: list[Frame] = []
    size = end = first_ns = last_ns = 0
    for frame in frames:
        time_ns = time_of(frame[2])
        low, high = min(first_ns, time_ns), max(last_ns, time_ns)
        fits = high - low <= LONGEST_NS and size + len(frame[2]) <= LARGEST_BYTES and 0 <= frame[1] - end < 1 << 32
        if held and not fits:
            yield Piece(held, first_ns, last_ns)
            held = []
        if not held:
            size, low, high = 0, time_ns, time_ns
        held.append(frame)
        first_ns, last_ns = low, high
        size += len(frame[2])
        end = frame[1] + 4 + len(frame[2])
    yield Piece(held, first_ns, last_ns)


def span_of_times(payloads: Sequence[bytes]) -> tuple[int, int]:
    """Earliest and latest monotonic time of payloads.

    Nearly every payload is a short array that begins with a 64-bit number: such heads compare as bytes, in a third of the
    time. Where least and greatest head are of that form, so are all between them.
    """
    if all(payload[:1] in SHORT_ARRAYS for payload in payloads):
        heads = [payload[1:10] for payload in payloads]
        low, high = min(heads), max(heads)
        if low[:1] == high[:1] == b"\xcf" and len(low) == len(high) == 9:
            return int.from_bytes(low[1:], "big"), int.from_bytes(high[1:], "big")
    times = [time_of(payload) for payload in payloads]
    return min(times), max(times)


def time_of(payload: bytes) -> int:
    """The monotonic time of a payload; 0 for one that is damaged, which must not stop all that follow it."""
    try:
        return payload_time_ns(payload)
    except IndexError:
        return 0
