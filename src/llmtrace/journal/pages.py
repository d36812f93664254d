"""The pages of an SQLite file, each read by itself: what a leaf still holds when the tree above it, or the file's header, is damaged.

The file's form is SQLite's own (sqlite.org/fileformat2.html: 1.3 the header, 1.6 pages and cells, 1.8 what a page is used for, 2.1 records, 4 the
write-ahead log). Its tool for recovery reads likewise, but is in none of the builds that Python is linked with.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from .opening import PAGE_BYTES

MAGIC: Final = b"SQLite format 3\0"
LOG_MAGICS: Final = (0x377F0682, 0x377F0683)
LOG_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
TABLE_LEAF: Final = 0x0D
INDEX_LEAF: Final = 0x0A
LARGEST_ROW_BYTES: Final = 1 << 26
"""Far more than a chunk or a description takes: a damaged length must not lead round in circles."""

FREE: Final = 2
LAST_USE: Final = 5
BLOB: Final = 12
"""Column types from here up are bytes (even) or text (odd), of a length that is in the type."""

Value = int | float | str | bytes | None

Columns = list[tuple[int, int]]
"""Type and offset of each column of a row."""

NO_CELL: Final = (IndexError, ValueError, struct.error)
"""What reading a cell raises where its bytes are none."""

_BYTES: Final = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)


class Cell(msgspec.Struct, frozen=True):
    """A row in a leaf. Of its `size` bytes `local` lie here and the rest in pages from `overflow` on; `place` finds it again."""

    place: int
    rowid: int
    size: int
    local: bytes
    overflow: int

    def columns(self) -> Columns:
        end, at = varint(self.local, 0)
        offset = end
        found: Columns = []
        while at < end:
            kind, at = varint(self.local, at)
            found.append((kind, offset))
            offset += _size(kind)
        return found


class Pages:
    """The pages of a file, each as its write-ahead log has it where it is there. Raises OSError where the file cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._log: int | None = None
        with suppress(OSError):
            self._log = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        self.page_bytes = self._page_bytes()
        self._logged = dict(self._logged_pages())
        own = os.fstat(self._file).st_size // self.page_bytes
        self.count = min(max([own, *self._logged]), own + len(self._logged))
        self._free = set(self._free_pages())

    def close(self) -> None:
        os.close(self._file)
        if self._log is not None:
            os.close(self._log)

    def leaves(self, kind: int) -> Iterator[int]:
        """The numbers of the pages in use that begin as such a leaf does; the first holds the schema alone."""
        return (number for number in range(2, self.count + 1) if self._read(number, 1) == bytes((kind,)) and number not in self._free)

    def cells(self, number: int) -> Iterator[Cell]:
        """The rows of a leaf, as far as they can be told."""
        page = self._read(number, self.page_bytes)
        for slot in range(int.from_bytes(page[3:5], "big")):
            with suppress(*NO_CELL):
                yield self._cell(page, number, *struct.unpack_from(">H", page, 8 + 2 * slot))

    def last_column(self, place: int) -> bytes:
        """The bytes of the last column of the row at `place`, empty where they are gone."""
        number, at = place >> 16, place & 0xFFFF
        try:
            cell = self._cell(self._read(number, self.page_bytes), number, at)
            return self.payload(cell)[cell.columns()[-1][1] :]
        except NO_CELL:
            return b""

    def payload(self, cell: Cell) -> bytes:
        """All bytes of a row; raises ValueError where its further pages end too early."""
        parts, left, following = [cell.local], cell.size - len(cell.local), cell.overflow
        while left > 0:
            page = self._read(following, self.page_bytes)
            part = page[4 : 4 + left]
            if not part:
                raise ValueError("the row goes on in a page that is not there")
            parts.append(part)
            left, following = left - len(part), int.from_bytes(page[:4], "big")
        return b"".join(parts)

    def _cell(self, page: bytes, number: int, at: int) -> Cell:
        is_table = page[0] == TABLE_LEAF
        place, (size, at) = number << 16 | at, varint(page, at)
        rowid, at = varint(page, at) if is_table else (0, at)
        local = self._local_bytes(size, is_table)
        if size > LARGEST_ROW_BYTES or at + local + (0 if local == size else 4) > len(page):
            raise ValueError("the cell reaches beyond its page, or any row of ours")
        overflow = 0 if local == size else int.from_bytes(page[at + local : at + local + 4], "big")
        return Cell(place, rowid, size, page[at : at + local], overflow)

    def _local_bytes(self, size: int, is_table: bool) -> int:
        """How many bytes of a row lie in its leaf: section 1.6, with its names U, X, M and K."""
        usable = self.page_bytes
        most = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
        least = (usable - 12) * 32 // 255 - 23
        rest = least + (size - least) % (usable - 4)
        return size if size <= most else rest if rest <= most else least

    def _page_bytes(self) -> int:
        """As the header says, else the log's, else as we make them."""
        header, log = self._bytes(self._file, 0, 18), self._bytes(self._log, 0, 12)
        told = [int.from_bytes(header[16:18], "big")] if header[:16] == MAGIC else []
        told += [int.from_bytes(log[8:12], "big")] if int.from_bytes(log[:4], "big") in LOG_MAGICS else []
        return next((65536 if size == 1 else size for size in told if size == 1 or (512 <= size <= 65536 and size & (size - 1) == 0)), PAGE_BYTES)

    def _logged_pages(self) -> Iterator[tuple[int, int]]:
        """Page numbers with where they lie in the log, up to its last transaction, the latest of a page last."""
        salts = self._bytes(self._log, 16, 8)
        at, waiting = LOG_HEADER_BYTES, list[tuple[int, int]]()
        while (frame := self._bytes(self._log, at, FRAME_HEADER_BYTES)) and frame[8:16] == salts:
            number, commit = struct.unpack_from(">II", frame)
            waiting.append((number, at + FRAME_HEADER_BYTES))
            if commit:
                yield from waiting
                waiting.clear()
            at += FRAME_HEADER_BYTES + self.page_bytes

    def _free_pages(self) -> Iterator[int]:
        """Pages that were given up and hold what was deleted: section 1.8, five bytes a page, on every (page_bytes / 5 + 1)th page."""
        mapped = self.page_bytes // 5
        for number in range(2, self.count + 1, mapped + 1):
            uses = self._read(number, self.page_bytes)[: 5 * mapped : 5]
            if uses and max(uses) <= LAST_USE:  # else it is damaged, or there are no such pages in this file
                yield from (number + 1 + place for place, use in enumerate(uses) if use == FREE)

    def _read(self, number: int, size: int) -> bytes:
        if number in self._logged:
            return self._bytes(self._log, self._logged[number], size)
        return self._bytes(self._file, (number - 1) * self.page_bytes, size)

    def _bytes(self, descriptor: int | None, at: int, size: int) -> bytes:
        """Nothing where the disk cannot read it."""
        with suppress(OSError):
            return b"" if descriptor is None or at < 0 else os.pread(descriptor, size, at)
        return b""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """SQLite's number of one to nine bytes at `at`, and where it ends."""
    value = 0
    for place in range(at, at + 8):
        byte = data[place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    return value << 8 | data[at + 8], at + 9


def values(payload: bytes, columns: Columns) -> list[Value]:
    """The values of these columns; raises one of NO_CELL where they are none."""
    return [_value(kind, payload[at : at + _size(kind)]) for kind, at in columns]


def _value(kind: int, data: bytes) -> Value:
    if len(data) != _size(kind):
        raise ValueError("a value is cut short")
    if kind >= BLOB:
        return data.decode() if kind % 2 else data
    if kind == 7:
        return float(struct.unpack(">d", data)[0])
    return None if kind == 0 else kind - 8 if kind >= 8 else int.from_bytes(data, "big", signed=True)


def _size(kind: int) -> int:
    return (kind - BLOB) // 2 if kind >= BLOB else _BYTES[kind]
