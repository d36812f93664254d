"""All rings of a directory: found as they appear, followed, their processes' deaths noticed the moment they happen."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from ..clock import monotonic_ns, process_start_ticks
from ..directory import Directory
from ..guard import shield
from ..journal import RingRow
from ..ring import RingError, RingReader, find_rings
from .log import say
from .tail import Tail

POLL_MS: Final = 50
"""How long a record may lie unread. A death wakes the poll at once; facts: 20 ms costs half as much again, 100 ms saves nothing."""

LOOK_NS: Final = 2_000_000_000
"""How often the folders are listed although their times say that nothing was added."""

FRESH_NS: Final = 100_000_000
"""A folder's time is coarse: one that changed just now may change again under the same time."""


BLIND_NS: Final = 1_000_000_000
"""After so long without a look (a journal that was locked, a machine that slept) nobody saw when a process died."""

Lookup = Callable[[str], tuple[RingRow | None] | None]
"""Span id -> (what the journal has of that ring, None for nothing), or None where it cannot be asked now."""


class Rings:
    """The rings of one directory by span id."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self.tails: dict[str, Tail] = {}
        self._refused: dict[Path, int] = {}
        self._seen: object = None
        self._looked_ns = 0
        self._polled_ns = monotonic_ns()
        self._poll = select.poll()
        self._by_fd: dict[int, Tail] = {}

    def wait(self, timeout_ms: int = POLL_MS) -> None:
        """Sleep until a process dies, at most `timeout_ms`; deaths are noted on their tails."""
        events = self._poll.poll(timeout_ms)
        now_ns = monotonic_ns()
        seen_ns = now_ns if now_ns - self._polled_ns < BLIND_NS else None
        self._polled_ns = now_ns
        for fd, _ in events:
            self._bury(self._by_fd[fd], seen_ns)
        for tail in self.tails.values():
            if tail.death is None and tail.watch.life == "alive" and tail.watch.fd < 0 and not tail.watch.lives_without_pidfd():
                self._bury(tail, seen_ns)

    def _bury(self, tail: Tail, seen_ns: int | None) -> None:
        """The newest ring of a process gets its end; one that the process left behind before (stop, exec) ended with its own word."""
        self._forget_fd(tail)
        self._compare(tail)
        tail.die(seen_ns, None if tail.superseded else tail.watch.exit_code())

    def _compare(self, one: Tail) -> None:
        """Which of a process's rings is the one that it writes to, or wrote to last."""
        rings = sorted((tail for tail in self.tails.values() if same_process(tail, one)), key=lambda tail: tail.header.started_ns)
        for tail in rings:
            tail.superseded = tail is not rings[-1]

    def find(self, lookup: Lookup) -> None:
        """Look for new rings; `lookup` is what the journal has of them."""
        now_ns = monotonic_ns()
        seen = [modified_ns(folder) for folder in (self._directory.rings, self._directory.registry)]
        fresh = abs(time.time_ns() - max(seen)) < FRESH_NS
        if seen == self._seen and not fresh and now_ns - self._looked_ns < LOOK_NS:
            return
        self._seen, self._looked_ns = seen, now_ns
        followed = {tail.path for tail in self.tails.values()}
        for path in find_rings(self._directory.rings, self._directory.registry):
            if path not in followed and now_ns >= self._refused.get(path, 0):
                with shield(f"agent opens {path.name}"):
                    self._add(path, lookup)

    def _add(self, path: Path, lookup: Lookup) -> None:
        try:
            tail = self._follow(path, lookup)
        except (RingError, OSError, OverflowError) as error:  # an overflow: a pid or a time that is none
            self._refuse(path, error)
            return
        if tail is None:
            return
        self.tails[tail.span_id] = tail
        self._compare(tail)
        if tail.watch.life == "alive" and tail.watch.fd >= 0:
            self._by_fd[tail.watch.fd] = tail
            self._poll.register(tail.watch.fd, select.POLLIN)
        elif tail.watch.life == "gone":
            tail.die(None, tail.watch.exit_code())

    def _follow(self, path: Path, lookup: Lookup) -> Tail | None:
        """A tail for the ring at `path`; None where it is followed already, or cannot be looked up now. Raises what a damaged one does."""
        reader = RingReader(path)
        with ExitStack() as undo:
            undo.callback(reader.close)
            header = reader.header()
            answer = lookup(header.span_id)
            if header.span_id in self.tails or answer is None:
                return None
            (known,) = answer
            if known is not None and (known.pid, known.start_ticks) != (header.pid, header.start_ticks):
                raise RingError(f"says now that it is of process {header.pid}, and was of {known.pid}")
            tail = Tail(path, self._directory.rings, reader, known)
            undo.pop_all()
            return tail

    def set_aside(self, tail: Tail) -> None:
        """Let go of a ring that the journal can make nothing of; it stays where it is and is tried again now and then."""
        self._forget_fd(tail)
        del self.tails[tail.span_id]
        tail.close()
        self._refuse(tail.path, RingError("what it says of itself cannot be written down"))

    def _forget_fd(self, tail: Tail) -> None:
        if (fd := tail.watch.fd) in self._by_fd:
            self._poll.unregister(fd)
            del self._by_fd[fd]

    def _refuse(self, path: Path, error: Exception) -> None:
        """What is no ring (yet, or of a version to come) is looked at again now and then, and left where it is; dead links go."""
        if path not in self._refused:
            say(f"{path} is passed over: {error}")
        self._refused[path] = monotonic_ns() + LOOK_NS
        if path.is_symlink() and leads_nowhere(path):
            path.unlink(missing_ok=True)

    def read(self) -> None:
        """Everything new of every ring. One that cannot be read stops no other."""
        for tail in self.tails.values():
            with shield(f"agent reads {tail.path.name}"):
                tail.read()

    def living(self) -> int:
        """How many processes we know to be alive and have to stay for; not those of another pid namespace (nobody here can know)."""
        return sum(1 for tail in self.tails.values() if tail.alive and not self._is_orphan(tail))

    def orphans(self) -> int:
        """How many workers live whose parent is gone: they will notice sometime, or never."""
        return sum(1 for tail in self.tails.values() if tail.alive and self._is_orphan(tail))

    def _is_orphan(self, tail: Tail) -> bool:
        if not (parent := tail.parent()):
            return False
        found = self.tails.get(parent)
        return found is None or not found.alive

    def drop_finished(self) -> None:
        """Let go of, and remove, each ring whose process is dead, or stopped and writes to another, and whose last word is in the journal."""
        now_ns = monotonic_ns()
        for span_id, tail in list(self.tails.items()):
            if tail.done(now_ns):
                del self.tails[span_id]
                tail.remove()
                tail.close()

    def close(self) -> None:
        for tail in self.tails.values():
            tail.close()
        self.tails.clear()


def same_process(one: Tail, other: Tail) -> bool:
    return (one.header.pid, one.header.start_ticks) == (other.header.pid, other.header.start_ticks)


def leads_nowhere(link: Path) -> bool:
    """Whether a link to the memory of a process outlived it. Where we may not look the name tells: the pid may be somebody else's by now."""
    try:
        os.stat(link)
        return False
    except FileNotFoundError:
        return True
    except OSError:
        pid, _, rest = link.name.partition("-")
        ticks = rest.partition("-")[0]
        return pid.isdecimal() and ticks.isdecimal() and process_start_ticks(int(pid)) != int(ticks)


def modified_ns(folder: Path) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0
