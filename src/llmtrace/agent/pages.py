"""The pages of incidents: a child process writes each, once its window is closed; the agent itself knows nothing of how.

At most one child at a time, with little priority, bounded in time, memory and the size of what it writes, and first to go where
memory is short. An agent that must leave does not end it: it is a process of its own, and writes the page to its end.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from ..clock import monotonic_ns
from ..config import Config
from ..directory import Directory, UnusableError, private_folder
from ..guard import shield
from ..incidents import AFTER_NS, incident_of
from ..journal import JournalReader, RingRow
from ..links import page_file
from ..names import INCIDENT
from ..record import Incident
from .log import say
from .page_child import Child, start
from .rows import Rows

LATE_NS: Final = 1_200_000_000
"""How long after its emission a record is in the journal (a ring's chunk a second, and a poll)."""
AGAIN_NS: Final = 10_000_000_000
"""How soon a page is written again when its incident was refined: hundreds of ranks die in one cascade."""
RETRY_NS: Final = 1_000_000_000
TRIES: Final = 2
LASTS_NS: Final = 180_000_000_000
"""A child's time; a page of 64 ranks takes some seconds, on a node whose ranks all train perhaps ten times that."""

KEPT: Final = 200
KEPT_BYTES: Final = 256 << 20
"""Pages that stay, the newest; the journal, from which they can be made again, is larger."""
MISSING: Final = 8
"""Of incidents that were there before this agent so many get a page that they lack, the newest."""
REMEMBERED: Final = 256

NAME: Final = re.compile(r"([0-9a-f]{12})\.html")
PART: Final = re.compile(r"\.llmtrace-\d+\.part")
"""What a child that was killed leaves behind."""


class Entry:
    """One incident and how far its page is. `closed_ns` is when its window is over, on the monotonic clock."""

    def __init__(self, incident: Incident) -> None:
        self.incident = incident
        self.written: Incident | None = None
        self.early = False
        self.failures = 0
        self.begun_ns = self.not_before_ns = 0
        left_ns = incident.window.end_ns - time.time_ns()
        self.closed_ns = monotonic_ns() + min(max(0, left_ns), AFTER_NS) + LATE_NS  # a wall clock that is set back delays nothing

    def wanted(self) -> bool:
        return self.written != self.incident and self.failures < TRIES

    def due(self, now_ns: int, alone: bool) -> bool:
        """Whether it is to be written now; `alone` where nothing more will come. Then one written early is whole after all."""
        if now_ns < self.not_before_ns or self.failures >= TRIES:
            return False
        if alone or now_ns < self.closed_ns:
            return alone and self.wanted()
        return self.early or (self.wanted() and (self.written is None or now_ns >= self.begun_ns + AGAIN_NS))


class Pages:
    """The pages of one directory."""

    def __init__(self, directory: Directory, config: Config, begin: Callable[[Directory, Config, str], Child] = start) -> None:
        self._directory, self._config, self._start = directory, config, begin
        self._entries: dict[str, Entry] = {}
        self._child: Child | None = None
        self._doing: tuple[Entry, Incident, bool] | None = None
        self.failures = 0

    def note(self, incident: Incident, told_ns: int) -> None:
        """The journal's word on an incident, told at a wall-clock time; a page on disk that is newer has it already."""
        entry = self._entries.get(incident.id)
        if entry is not None:
            if entry.incident != incident:
                entry.incident, entry.failures = incident, min(entry.failures, TRIES - 1)
        elif NAME.fullmatch(f"{incident.id}.html"):  # it becomes a file's name
            entry = self._entries[incident.id] = Entry(incident)
            entry.written = incident if written_ns(page_file(self._directory.pages, incident.id)) > told_ns else None
            self._forget()

    def recall(self, reader: JournalReader, rows: Iterable[RingRow]) -> None:
        """What the journal has: an agent may have died before a page was written, long ago. The newest missing ones are made up for."""
        if sum(size for _, size, _ in self._files()) > KEPT_BYTES // 2:
            return  # it would be the first to be removed again
        found = {incident.id: (incident, told_ns) for incident, told_ns in incidents_of(reader, rows)}
        for incident, told_ns in sorted(found.values(), key=lambda told: told[0].detected_ns)[-MISSING:]:
            if incident.detected_ns > self._too_old_ns():
                self.note(incident, told_ns)

    def turn(self, alone: bool) -> None:
        """Look after the child, and start the next one where something is due."""
        now_ns = monotonic_ns()
        if self._child is not None:
            self._look(self._child, now_ns)
        if alone:
            self._settle(now_ns)
        if self._child is None and (entry := self._next(now_ns, alone)) is not None:
            self._begin(entry, now_ns, alone)

    def pending(self) -> bool:
        """Whether there is anything to write, now or later, or being written."""
        return self._child is not None or any(entry.wanted() or entry.early for entry in self._entries.values())

    def idle(self) -> bool:
        """Whether all is written, or given up, that an agent without ranks would write."""
        return self._child is None and not any(entry.wanted() for entry in self._entries.values())

    def _settle(self, now_ns: int) -> None:
        """Nobody came before the window was over: what was written early is all there is."""
        for entry in self._entries.values():
            entry.early = entry.early and now_ns < entry.closed_ns

    def _next(self, now_ns: int, alone: bool) -> Entry | None:
        due = [entry for entry in self._entries.values() if entry.due(now_ns, alone)]
        return max(due, key=lambda entry: entry.incident.detected_ns, default=None)

    def _begin(self, entry: Entry, now_ns: int, alone: bool) -> None:
        """It counts as failed from here on, until it has succeeded: whatever happens, it is not begun at every turn."""
        entry.begun_ns, entry.not_before_ns = now_ns, now_ns + RETRY_NS
        entry.failures += 1
        early, entry.early = alone and now_ns < entry.closed_ns, False
        try:
            private_folder(self._directory.pages)
            self._child = self._start(self._directory, self._config, entry.incident.id)
        except (UnusableError, OSError) as error:
            self._failed(entry, str(error))
        else:
            self._doing = entry, entry.incident, early

    def _look(self, child: Child, now_ns: int) -> None:
        if not child.over():
            if now_ns - child.begun_ns > LASTS_NS:
                child.kill()
            return
        self._child, doing = None, self._doing
        if doing is None:
            return
        entry, incident, early = doing
        if child.code == 0:
            entry.written, entry.early, entry.failures = incident, early, 0
            self.prune()
        else:
            entry.not_before_ns = now_ns + RETRY_NS
            self._failed(entry, f"its process ended with {child.code}")

    def _failed(self, entry: Entry, why: str) -> None:
        self.failures += 1
        again = "it is tried again" if entry.failures < TRIES else "`llmtrace context` writes it"
        say(f"the page of incident {entry.incident.id} was not written ({self.failures} times so far), {again}: {why}")

    def _forget(self) -> None:
        """The oldest entries go where they are too many: not those that are yet to be written, unless all are."""
        if len(self._entries) > REMEMBERED:
            oldest = min(self._entries.values(), key=lambda entry: (entry.wanted(), entry.incident.detected_ns))
            del self._entries[oldest.incident.id]

    def prune(self) -> None:
        """Pages that are too old or too many go, oldest first, and what is left of children that were killed."""
        kept_bytes = 0
        for number, (path, size, changed_ns) in enumerate(sorted(self._files(), key=lambda file: -file[2])):
            kept_bytes += size
            if number and (number >= KEPT or kept_bytes > KEPT_BYTES or changed_ns < self._too_old_ns()):
                remove(path)

    def _files(self) -> list[tuple[Path, int, int]]:
        """Path, bytes and time of each page. Whatever else lies in the folder is not ours, but for what killed children left."""
        found: list[tuple[Path, int, int]] = []
        try:
            for path in self._directory.pages.iterdir():
                about = path.lstat()
                if NAME.fullmatch(path.name):
                    found.append((path, about.st_size, about.st_mtime_ns))
                elif PART.fullmatch(path.name) and about.st_mtime_ns < time.time_ns() - LASTS_NS:
                    remove(path)
        except OSError:  # there is no such folder, or a file of it is gone by now
            pass
        return found

    def _too_old_ns(self) -> int:
        return time.time_ns() - int(self._config.journal_age_s * 1e9)

    def leave(self) -> None:
        """The agent goes. A child that is not done goes on by itself; should this process stay after all, it is reaped."""
        if self._child is not None and not self._child.over():
            say(f"the page of incident {self._child.incident_id} is still being written, by process {self._child.pid}, which stays for it")
            threading.Thread(target=self._child.wait, name="llmtrace page", daemon=True).start()


def incidents_of(reader: JournalReader, rows: Iterable[RingRow]) -> Iterator[tuple[Incident, int]]:
    """Each word on an incident in the journal, oldest first, with the wall-clock time at which it was told."""
    known = Rows()
    for row in rows:
        known.note(row)
    for chunk in reader.incident_chunks():
        for record in known.records(chunk):
            if record.name == INCIDENT:
                with shield("agent recalls an incident"):
                    yield incident_of(record), record.time_ns


def written_ns(path: Path) -> int:
    """When a page was written; 0 where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return 0
    return found.st_mtime_ns if stat.S_ISREG(found.st_mode) else 0


def remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        say(f"{path} cannot be removed: {error.strerror}")
