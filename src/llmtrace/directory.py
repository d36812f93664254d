"""LLMTRACE_DIR's layout, its choice, and the agent's lock. A rank imports this: nothing here opens the journal."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from .config import Config
from .guard import guard

DEFAULT_ROOT: Final = "/var/tmp"
"""Survives a reboot, unlike /tmp on many machines; each user has a folder of 0700 in it."""

JOURNAL_NAME: Final = "journal.1.sqlite"

BACK_ENDS: Final = ("bundle_dir", "loki_url", "elasticsearch_url", "otlp_endpoint", "alertmanager_url")
"""Settings that decide where data go, as far as this version has them: jobs that differ in one need an agent each."""

NETWORK_FILE_SYSTEMS: Final = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "9p", "afs", "coda", "vboxsf", "vmhgfs", "fuse"),
        *("lustre", "gpfs", "beegfs", "ceph", "glusterfs", "ocfs2", "gfs2", "orangefs", "pvfs2", "panfs", "wekafs", "acfs"),
    )
)
"""Where the journal cannot be: SQLite's shared index and locks do not hold across machines. Every `fuse.X` counts as one, too, but for:"""

LOCAL_FUSE: Final = frozenset(("fuse.fuse-overlayfs", "fuse.lxcfs"))

_FLOCK: Final = "hhqqi4x"
"""struct flock of Linux on 64-bit machines: type, whence, start, length, pid (0 for a lock of the open file)."""


class Directory(msgspec.Struct, frozen=True):
    """One agent's world: `path` holds journal, lock, log and pages, `rings` (on tmpfs) the rings, `registry` links to rings in memory files."""

    path: Path
    rings: Path
    registry: Path

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL_NAME

    @property
    def lock(self) -> Path:
        return self.path / "agent.lock"

    @property
    def log(self) -> Path:
        return self.path / "agent.log"

    @property
    def pages(self) -> Path:
        return self.path / "pages"


class UnusableError(Exception):
    """Why a folder cannot be used, as the end of a sentence that begins with its name."""


def choose(config: Config) -> Directory | None:
    """The directory for these settings, made where it is missing; None, and one warning, where nothing is usable.

    LLMTRACE_DIR where it can be written and is no network file system; else, after one warning, the default one.
    """
    if config.dir:
        try:
            return _prepare(Path(config.dir).absolute(), config)
        except UnusableError as error:
            guard.warn(f"LLMTRACE_DIR={config.dir} {error}; {default_path(config)} is used instead")
    try:
        private_folder(default_path(config).parent)
        private_folder(default_path(config))
        return _prepare(default_path(config), config)
    except UnusableError as error:
        guard.warn(f"tracing is off: {default_path(config)} {error}, and there is no other place for the journal")
        return None


def default_path(config: Config) -> Path:
    """/var/tmp/llmtrace-UID/HASH, the hash that of the settings that decide where data go."""
    facts = "\n".join(f"{name}={getattr(config, name, '')}" for name in BACK_ENDS)
    return Path(DEFAULT_ROOT) / f"llmtrace-{os.getuid()}" / sha256(facts.encode(errors="surrogateescape")).hexdigest()[:12]


def _prepare(path: Path, config: Config) -> Directory:
    check_path(path, make=True)
    registry = path / "rings"
    private_folder(registry)
    found = os.stat(path)
    return Directory(path, _ring_folder(config.ring_dir, f"{found.st_dev:x}-{found.st_ino:x}", path), registry)


def check_path(path: Path, make: bool = False) -> None:
    """Raise UnusableError unless the journal can lie in `path`; `make` makes it, 0700, where it is missing."""
    if is_network(kind := filesystem(path)):
        raise UnusableError(f"lies on a network file system ({kind})")
    try:
        if make:
            path.mkdir(0o700, parents=True, exist_ok=True)
        if not path.is_dir():
            raise UnusableError("is not a folder" if path.exists() else "does not exist")
        if not os.access(path, os.W_OK | os.X_OK):
            raise UnusableError("is not writable")
        for name in (JOURNAL_NAME, "agent.lock"):
            if (owner := _owner(path / name)) not in (None, os.geteuid()):
                raise UnusableError(f"holds a {name} of another user ({owner})")
    except OSError as error:
        raise UnusableError(f"is not usable: {error.strerror}") from None


def _owner(path: Path) -> int | None:
    try:
        return os.lstat(path).st_uid
    except FileNotFoundError:
        return None


def private_folder(path: Path) -> None:
    """Make a folder that is ours alone, or raise UnusableError: not a link, not another's, not writable by others.

    In a folder that everybody may write to, anybody may have put one of that name before us.
    """
    try:
        if not os.path.lexists(path):
            path.mkdir(0o700, exist_ok=True)
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode):
            raise UnusableError(f"cannot be used: {path} is not a folder (a link?)")
        if found.st_uid != os.geteuid():
            raise UnusableError(f"cannot be used: {path} belongs to another user ({found.st_uid})")
        if found.st_mode & 0o022:
            raise UnusableError(f"cannot be used: others may write to {path}")
    except OSError as error:
        raise UnusableError(f"cannot be used: {path}: {error.strerror}") from None


def _ring_folder(ring_dir: str, name: str, path: Path) -> Path:
    """The folder of the rings; where the tmpfs cannot be used, one that does not exist, so that rings become memory files."""
    folder = Path(ring_dir).absolute() / f"llmtrace-{os.getuid()}"
    try:
        if not os.path.isdir(ring_dir):
            raise UnusableError("is not a folder")
        if not is_tmpfs(kind := filesystem(Path(ring_dir))):
            raise UnusableError(f"lies on {kind or 'an unknown file system'}, not on a tmpfs")
        private_folder(folder)
        private_folder(folder / name)
    except UnusableError as error:
        guard.warn(f"{ring_dir} {error}; rings are memory files instead")
        return path / "no-rings"
    return folder / name


def existing(paths: Sequence[str], config: Config) -> list[Path]:
    """Where a reader looks: the directories given, else LLMTRACE_DIR, else all of this user's default ones; those that hold a journal.

    An LLMTRACE_DIR that writers cannot use is passed over as they do, for the default one.
    """
    if paths:
        found = [Path(path) for path in paths]
    elif config.dir:
        found = [Path(config.dir)] if _usable(Path(config.dir)) or os.path.isfile(Path(config.dir, JOURNAL_NAME)) else [default_path(config)]
    else:
        found = _default_paths(default_path(config).parent)
    return [path for path in dict.fromkeys(found) if _holds_journal(path)]


def _holds_journal(path: Path) -> bool:
    """Also where we may not look: who opens it is told why it cannot be read."""
    try:
        return (path / JOURNAL_NAME).is_file()
    except OSError:
        return True


def _usable(path: Path) -> bool:
    try:
        check_path(path)
    except UnusableError:
        return not path.exists()
    return True


def _default_paths(root: Path) -> list[Path]:
    try:
        if os.lstat(root).st_uid != os.geteuid():
            return []
        return sorted(entry for entry in root.iterdir() if not entry.is_symlink() and entry.is_dir())
    except OSError:
        return []


def filesystem(path: Path) -> str:
    """The type of the file system that `path` lies, or would lie, on, as /proc/self/mountinfo names it; empty where it does not tell."""
    try:
        target = os.path.realpath(path)
        with open("/proc/self/mountinfo", "rb") as stream:
            return _covering(stream, os.fsencode(target))
    except (OSError, ValueError):
        return ""


def _covering(mounts: Iterable[bytes], target: bytes) -> str:
    found, length = b"", -1
    for line in mounts:
        head, _, tail = line.partition(b" - ")
        point = _unescaped(head.split(b" ")[4])
        inside = point == b"/" or target == point or target.startswith(point + b"/")
        if inside and len(point) >= length:  # the last of several on one point covers the others
            found, length = tail.split(b" ", 1)[0], len(point)
    return found.decode("ascii", "replace")


def _unescaped(point: bytes) -> bytes:
    """The kernel writes blank, tab, newline and backslash of a mount point as octal numbers."""
    for code, character in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        point = point.replace(code, character)
    return point


def is_network(kind: str) -> bool:
    return kind in NETWORK_FILE_SYSTEMS or (kind.startswith("fuse.") and kind not in LOCAL_FUSE)


def is_tmpfs(kind: str) -> bool:
    return kind in ("tmpfs", "ramfs")


class AgentLock:
    """The lock of a directory's agent: one of the open file (OFD), so that it goes with the agent and with nothing else."""

    def __init__(self, directory: Directory) -> None:
        self.path = directory.lock
        self._descriptor = -1

    def acquire(self) -> bool:
        """Take it; False where another agent holds it. Raises OSError where the file cannot be made."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        self._descriptor = descriptor
        return True

    def holds(self) -> bool:
        """Whether it is held, and its file is still the one at its path (somebody may have cleared the folder)."""
        if self._descriptor < 0:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self.path))
        except OSError:
            return False

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def agent_alive(directory: Directory) -> bool:
    """Whether an agent holds the directory's lock; it asks and never takes, so a rank may do it at any time.

    True as well where it cannot be known (no descriptor left): an agent is started only where one is known to be gone.
    """
    try:
        descriptor = os.open(directory.lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK
    except OSError:
        return True
    finally:
        os.close(descriptor)
