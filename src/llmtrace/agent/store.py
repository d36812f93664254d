"""The journal as the agent holds it: opened when it can be, tried again every second when it cannot, and never a reason to die."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from ..clock import monotonic_ns
from ..config import Config
from ..journal import Journal, JournalError, Transaction
from .log import say

RETRY_NS: Final = 1_000_000_000
R = TypeVar("R")

Files = tuple[tuple[int, int] | None, tuple[int, int] | None]
"""Device and inode of a journal and of its write-ahead log, where they are there."""


class Store:
    """One journal. What a refused write held stays where it came from (the ring, a cursor), so nothing is kept here."""

    def __init__(self, path: Path, config: Config) -> None:
        self._path, self._config = path, config
        self._journal: Journal | None = None
        self._retry_ns = self._look_ns = 0
        self._files: Files = (None, None)
        self.errors: Counter[str] = Counter()
        self.openings = 0
        self.writes = 0

    def ready(self) -> bool:
        """Whether a write is worth trying now; opens the journal where it is closed."""
        now_ns = monotonic_ns()
        if self._journal is not None and now_ns >= self._look_ns:
            self._look_ns = now_ns + RETRY_NS
            if self._was_taken_away():
                say(f"{self._path} was taken away: a new one begins")
                self.close()
        if self._journal is not None:
            return True
        if now_ns < self._retry_ns:
            return False
        return self._attempt("open", self._open) is not None

    def _was_taken_away(self) -> bool:
        """Whether the file, or the log in which SQLite keeps what is newest, is not the one that we have open."""
        before, self._files = self._files, files_of(self._path)
        return any(was not in (None, now) for was, now in zip(before, self._files, strict=True))

    def write(self, what: Callable[[Transaction], R]) -> R | None:
        """What `what` returns (never None), once committed; None when the journal took nothing of it."""
        result = self._attempt("write", lambda journal: _transact(journal, what))
        self.writes += result is not None
        return result

    def read(self, what: Callable[[Journal], R]) -> R | None:
        return self._attempt("read", what)

    def close(self) -> None:
        if self._journal is not None:
            journal, self._journal = self._journal, None
            try:
                journal.close()
            except JournalError as error:
                self._count("close", error)

    def _open(self, _: object) -> bool:
        self._journal = Journal.open(self._path, max_bytes=self._config.journal_bytes, max_age_s=self._config.journal_age_s)
        self._files = files_of(self._path)
        self.openings += 1
        return True

    def _attempt(self, place: str, what: Callable[[Journal], R]) -> R | None:
        if self._journal is None and (place != "open" and not self.ready()):
            return None
        try:
            return what(self._journal)  # type: ignore[arg-type]
        except JournalError as error:
            self._count(place, error)
            self._retry_ns = monotonic_ns() + RETRY_NS
            self.close()  # a corrupt file is set aside when it is opened again
            return None

    def _count(self, place: str, error: JournalError) -> None:
        self.errors[place] += 1
        if self.errors[place].bit_count() == 1:  # the 1st, 2nd, 4th, 8th, ... time
            say(f"journal {place} failed ({self.errors[place]} times so far), tried again: {error}")


def files_of(journal: Path) -> Files:
    return file_of(journal), file_of(Path(f"{journal}-wal"))


def file_of(path: Path) -> tuple[int, int] | None:
    """Device and inode of what lies at a path now."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _transact(journal: Journal, what: Callable[[Transaction], R]) -> R:
    with journal.transaction() as transaction:
        return what(transaction)
