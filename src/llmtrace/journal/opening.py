"""How a journal is opened: made where there is none, set aside where it is damaged, read where nothing may be written."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..guard import guard
from .errors import JournalError, mapped_files, trouble_of
from .format import APPLICATION, FORMAT, TABLES

BUSY_S: Final = 5.0
"""How long a writer waits for another connection; readers never hold it up, so this is for a second writer."""

PAGE_BYTES: Final = 8192

COMPANIONS: Final = ("-wal", "-shm")


def aside_path(path: Path) -> Path:
    """Where a damaged journal goes; one is kept, the latest."""
    return path.with_name(path.name + ".damaged")


def bytes_of(path: Path) -> int:
    """Size of a file, 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def journal_bytes(path: Path) -> int:
    """What a journal takes on disk with its write-ahead log."""
    return bytes_of(path) + bytes_of(Path(f"{path}-wal"))


def free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def file_id(path: Path) -> tuple[int, int] | None:
    """What tells a file from another that took its place; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def remove(path: Path) -> None:
    """Delete a journal that nobody has open, with its companions."""
    for suffix in ("", *COMPANIONS):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def open_writer(path: Path, wal_bytes: int) -> tuple[sqlite3.Connection, bool]:
    """A connection that may write, and whether a damaged file was set aside for it; raises JournalError."""
    with mapped_files(path):
        _make_private(path)
    try:
        return _open(path, wal_bytes), False
    except JournalError as error:
        if error.trouble != "corrupt":
            raise
        set_aside(path, str(error))
    _make_private(path)
    return _open(path, wal_bytes), True


def _make_private(path: Path) -> None:
    """An empty file of mode 0600 where there is none; SQLite gives its companions the same mode.

    One that is there stays closed: closing it would take the locks that SQLite holds on it elsewhere in this process.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def set_aside(path: Path, why: str) -> None:
    """Rename a damaged journal and say so; what its write-ahead log held stays beside it."""
    aside = aside_path(path)
    with mapped_files(path):
        remove(aside)
        for suffix in COMPANIONS:
            if os.path.exists(f"{path}{suffix}"):
                os.rename(f"{path}{suffix}", f"{aside}{suffix}")
        os.rename(path, aside)
    guard.warn(f"the journal is damaged and was set aside as {aside}; a new one begins ({why})")


def _open(path: Path, wal_bytes: int) -> sqlite3.Connection:
    with mapped_files(path):
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False, cached_statements=64)
        try:
            if _is_new(connection):
                _create(connection)
            _configure(connection, wal_bytes)
            check(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def _is_new(connection: sqlite3.Connection) -> bool:
    """Whether nothing of ours stands there yet: an empty file, or one whose making was cut short."""
    return pragma(connection, "user_version") == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0


def _create(connection: sqlite3.Connection) -> None:
    """Settings that must come before the first table; VACUUM makes them hold where a first try was cut short."""
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("VACUUM")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    for statement in TABLES.split(";") if _is_new(connection) else ():  # another process may have been quicker
        if statement.strip():
            connection.execute(statement)
    connection.execute("COMMIT")


def _configure(connection: sqlite3.Connection, wal_bytes: int) -> None:
    """Per connection: NORMAL loses no committed row to kill -9; the log is copied back early enough to stay small."""
    page_bytes = pragma(connection, "page_size")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {min(wal_bytes // 8, 4 << 20) // page_bytes}")
    connection.execute(f"PRAGMA journal_size_limit = {wal_bytes // 4}")
    connection.execute("PRAGMA secure_delete = OFF")  # some builds have it on: every page that is freed would be written once more
    connection.execute("PRAGMA cache_size = -4096")


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise JournalError unless this is a journal of our format whose newest rows can be read; the rest shows when it is read."""
    try:
        _look(connection, path)
    except UnicodeDecodeError as error:
        raise JournalError("corrupt", f"{path}: its schema cannot be read: {error}") from error


def _look(connection: sqlite3.Connection, path: Path) -> None:
    if _is_new(connection):
        raise JournalError("empty", f"{path}: nothing has been written yet")
    if pragma(connection, "application_id") != APPLICATION or pragma(connection, "user_version") != FORMAT:
        raise JournalError("corrupt", f"{path}: not a journal of format {FORMAT}")
    connection.execute("SELECT * FROM chunk ORDER BY id DESC LIMIT 1").fetchall()
    connection.execute("SELECT first_ns FROM chunk ORDER BY first_ns DESC LIMIT 1").fetchall()
    for table in ("ring", "description", "cursor", "dropped"):
        connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchall()


def pragma(connection: sqlite3.Connection, name: str) -> int:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads, of a journal that may be written at the same time, lie in a read-only directory or be a copy.

    In this order: as it is (shares the writer's index, or rebuilds it where the directory lets us); unchanging, where no
    write-ahead log stands beside it; from a copy of our own, where one does and may not be opened. Raises JournalError.
    """
    with mapped_files(path):
        if not path.is_file():
            raise JournalError("unusable", f"there is no journal at {path}")
        try:
            return _read_only(path, "mode=ro")
        except sqlite3.Error as error:
            if trouble_of(error) != "unusable":
                raise
        if bytes_of(Path(f"{path}-wal")) == 0:
            return _read_only(path, "mode=ro&immutable=1")
        return _read_copy(path)


def _read_only(path: Path, options: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{options}", uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        check(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _read_copy(path: Path) -> sqlite3.Connection:
    with tempfile.TemporaryDirectory(prefix="llmtrace-") as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        shutil.copyfile(f"{path}-wal", f"{copy}-wal")
        return _read_only(copy, "mode=ro")  # open files stay readable when the folder goes
