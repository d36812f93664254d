"""The journal's bounds: what is too old or too much goes, oldest first, and is counted by reason."""

from __future__ import annotations

import sqlite3
from typing import Final

from .format import LONGEST_NS
from .opening import pragma

SLICE: Final = 16
"""Chunks deleted at a time: few, so that little more goes than must; a slice costs well under a millisecond."""

SLICES: Final = 64
"""Slices that one transaction deletes at most, and SHRINK_PAGES it gives back: a bound that was lowered is reached step by step,
with a short write-ahead log."""

SHRINK_PAGES: Final = 512

SETTLED_NS: Final = 3600 * 1_000_000_000
"""A ring without a chunk that was silent for this long needs its description no more: nothing of it will be decoded."""

EMPTY_RINGS: Final = 4096
"""Rings without a chunk that are kept, the newest, for what their rows say of runs."""

BY_SIZE: Final = "journal_size"
BY_AGE: Final = "journal_age"

_OLDEST: Final = "DELETE FROM chunk WHERE id IN (SELECT id FROM chunk ORDER BY id LIMIT ?) RETURNING count"
_BEFORE: Final = "DELETE FROM chunk WHERE id IN (SELECT id FROM chunk WHERE first_ns < ? AND last_ns < ? LIMIT ?) RETURNING count"
_EMPTY: Final = "NOT EXISTS (SELECT 1 FROM chunk WHERE chunk.ring = ring.id)"
_OLD_RINGS: Final = f"DELETE FROM ring WHERE last_ns < ? AND coalesce(ended_ns, 0) < ? AND {_EMPTY}"
_MANY_RINGS: Final = (
    f"DELETE FROM ring WHERE ending != 'running' AND last_ns < ? AND id <= (SELECT id FROM ring ORDER BY id DESC LIMIT 1 OFFSET ?) AND {_EMPTY}"
)
_DESCRIPTIONS: Final = f"DELETE FROM description WHERE ring NOT IN (SELECT id FROM ring WHERE ending = 'running' OR last_ns >= ? OR NOT {_EMPTY})"
_UNDESCRIBED: Final = "UPDATE ring SET parts = 0 WHERE parts != 0 AND id NOT IN (SELECT ring FROM description)"


def count_drop(connection: sqlite3.Connection, reason: str, number: int) -> None:
    if number:
        connection.execute("INSERT INTO dropped VALUES (?, ?) ON CONFLICT (reason) DO UPDATE SET count = count + excluded.count", (reason, number))


def used_pages(connection: sqlite3.Connection) -> int:
    return pragma(connection, "page_count") - pragma(connection, "freelist_count")


def drop_oldest(connection: sqlite3.Connection, pages: int) -> int:
    """Delete the oldest chunks until at most `pages` are used, SLICES at most; the number of records that went."""
    records = 0
    for _ in range(SLICES):
        if used_pages(connection) <= pages or not (gone := connection.execute(_OLDEST, (SLICE,)).fetchall()):
            break
        records += sum(count for (count,) in gone)
    count_drop(connection, BY_SIZE, records)
    return records


def drop_slice_before(connection: sqlite3.Connection, time_ns: int) -> bool:
    """Delete some chunks that ended before a time; whether more may be there."""
    gone = connection.execute(_BEFORE, (time_ns, time_ns, SLICE)).fetchall()
    count_drop(connection, BY_AGE, sum(count for (count,) in gone))
    return len(gone) == SLICE


def forget_rings(connection: sqlite3.Connection, now_ns: int, before_ns: int) -> None:
    """Rows of rings of which nothing is left: those that are too old, those too many, and descriptions that nothing needs."""
    connection.execute(_OLD_RINGS, (before_ns, before_ns))
    connection.execute(_MANY_RINGS, (now_ns - SETTLED_NS, EMPTY_RINGS))
    connection.execute(_DESCRIPTIONS, (now_ns - SETTLED_NS,))
    connection.execute(_UNDESCRIBED)


def shrink(connection: sqlite3.Connection, pages: int) -> bool:
    """Give free pages back to the file system until `pages` are there, used or not, SHRINK_PAGES at most; whether more would go."""
    before = pragma(connection, "page_count")
    surplus = min(before - pages, pragma(connection, "freelist_count"))
    for _ in range(min(surplus, SHRINK_PAGES)):
        connection.execute("PRAGMA incremental_vacuum(1)")  # Python takes one step of it, so one page, whatever number it is given
    return surplus > SHRINK_PAGES and pragma(connection, "page_count") < before


def window_start(start_ns: int) -> int:
    """How far back the first record of a chunk may lie that reaches into a window."""
    return start_ns - LONGEST_NS
