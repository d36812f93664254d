"""What can go wrong with a journal, mapped once at this edge: callers meet JournalError and nothing of SQLite's."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

Trouble = Literal["full", "corrupt", "locked", "empty", "unusable"]
"""`full`: no space, or the bound is reached and cannot be kept; `corrupt`: the file is damaged or not a journal of this
format; `locked`: another process holds it; `empty`: nothing has been written yet; `unusable`: missing, no permission, an input or output error."""

_TROUBLES: dict[int, Trouble] = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
}

_MISSING = ("no such table", "no such column", "has no column")


class JournalError(Exception):
    """The journal could not do it, and nothing of it was half done. `trouble` says what kind it was."""

    def __init__(self, trouble: Trouble, text: str) -> None:
        super().__init__(text)
        self.trouble: Trouble = trouble


@contextmanager
def mapped(place: object) -> Generator[None]:
    """Errors of SQLite at `place` as JournalError."""
    try:
        yield
    except sqlite3.Error as error:
        raise JournalError(trouble_of(error), f"{place}: {error}") from error


@contextmanager
def mapped_files(place: object) -> Generator[None]:
    """Errors of the file system at `place` as JournalError, and SQLite's."""
    try:
        with mapped(place):
            yield
    except OSError as error:
        trouble: Trouble = "full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "unusable"
        raise JournalError(trouble, f"{place}: {error.strerror or error}") from error


def trouble_of(error: sqlite3.Error) -> Trouble:
    """The kind of an SQLite error; extended codes hold the primary one in their low byte."""
    if any(text in str(error) for text in _MISSING):
        return "corrupt"
    if getattr(error, "sqlite_errorcode", 0) in (sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_WRITE):
        return "full"  # a tmpfs without space answers the write of the shared index so
    return _TROUBLES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "unusable")
