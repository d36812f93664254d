"""The reading end: maps the header alone, copies data with pread, finds out afterwards whether it was overwritten meanwhile.

The writer never looks at readers. What it overwrote before we came is lost, and counted exactly: each segment's mark says how
many records came before it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from mmap import ACCESS_READ, ACCESS_WRITE, mmap
from pathlib import Path
from struct import Struct
from typing import Any, Final, cast

from . import layout
from .layout import Frame, GroupState, Header, Reading, RingError

ORDERED: Final = os.uname().machine in ("x86_64", "i686")
"""Whether this processor shows stores in the order they were made. Where not, HEAD may be seen before the bytes that it
commits, so what is read ends where HEAD was at the poll before (unverified: no such machine was at hand)."""

ATTEMPTS: Final = 20
unpack_word: Final = Struct("<I").unpack_from
MARK_WORDS: Final = slice(layout.MARKS, layout.MARKS + 2 * layout.SEGMENTS)
new_tuple: Final = cast(Any, tuple.__new__)
"""Makes a Frame at half of what its own constructor takes; a thousand come in a second."""

Mark = tuple[int, int]
"""A position at which a frame begins, and the records before it."""


class RingReader:
    """Reads one ring, of a process that runs or of one that is gone. Raises RingError on what is no ring of a known format."""

    def __init__(self, path: Path, *, ordered: bool = ORDERED) -> None:
        self.path = path
        self._ordered = ordered
        self._noted = 0
        self._descriptor, self._writable = _open(path)
        try:
            self._header_bytes, self.capacity = check(self._descriptor)
            self._file = mmap(self._descriptor, self._header_bytes, access=ACCESS_WRITE if self._writable else ACCESS_READ)
        except (OSError, ValueError, RingError) as error:
            os.close(self._descriptor)
            raise RingError(f"{path}: {error}") from error
        self._words = memoryview(self._file).cast("Q")
        self._safe = self.capacity - layout.frame_cap_for(self.capacity)
        self._counted: Mark = (0, 0)

    def header(self) -> Header:
        words = self._words
        progress_ns, step, phase = self._progress()
        head = words[layout.HEAD]
        return Header(
            format=words[layout.FORMAT_WORD],
            header_bytes=self._header_bytes,
            capacity=self.capacity,
            pid=words[layout.PID],
            pid_namespace=words[layout.PID_NAMESPACE],
            boot_id=f"{words[layout.BOOT_HIGH]:016x}{words[layout.BOOT_LOW]:016x}",
            start_ticks=words[layout.START_TICKS],
            span_id=f"{words[layout.SPAN]:016x}",
            started_ns=words[layout.STARTED_NS],
            ended=layout.ENDINGS[min(words[layout.ENDED], layout.RAISED)],
            off=bool(words[layout.CONTROL]),
            step=step,
            phase=phase,
            progress_ns=progress_ns,
            head=head,
            count=self._count_at(head),
            cut=words[layout.CUT],
            parent_span=f"{parent:016x}" if (parent := words[layout.PARENT_SPAN]) else "",
        )

    def _progress(self) -> tuple[int, int | None, int]:
        """When, step, phase; read again while it changes under our eyes."""
        at = layout.PROGRESS
        since, packed = self._words[at], self._words[at + 1]
        for _ in range(ATTEMPTS):
            before, (since, packed) = (since, packed), (self._words[at], self._words[at + 1])
            if before == (since, packed):
                break
        return since, (packed >> 16) - 1 if packed >> 16 else None, packed & 0xFFFF

    def groups(self) -> list[GroupState]:
        """The slots in use, by slot."""
        return [state for slot in range(layout.GROUPS) if (state := self._group(slot)).since_ns]

    def _group(self, slot: int) -> GroupState:
        at = layout.GROUP_SLOTS + 3 * slot
        since_ns, completed = self._words[at + 2], self._words[at + 1]  # before `enqueued`, which the writer stores first: never behind `completed`
        return GroupState(slot, self._words[at], completed, since_ns)

    def descriptions(self) -> list[bytes]:
        """The blobs of the self-description so far, for `frames.merge_descriptions`."""
        end = self._words[layout.DESCRIBED]
        if end > self._header_bytes - layout.PAGE:
            raise RingError(f"{self.path}: its description claims {end} bytes")
        area = self._file[layout.PAGE : layout.PAGE + end]
        parts: list[bytes] = []
        at = 0
        while at < end:
            length = int.from_bytes(area[at : at + 4], "little")
            if at + 4 + length > end:
                raise RingError(f"{self.path}: its description ends in the middle of a part")
            parts.append(area[at + 4 : at + 4 + length])
            at += 4 + length
        return parts

    def set_off(self, off: bool) -> None:
        """Switch the process's tracing off or on again (`llmtrace off`); RingError where we may not write."""
        if not self._writable:
            raise RingError(f"{self.path}: may only be read")
        self._words[layout.CONTROL] = int(off)

    def close(self) -> None:
        if not self._file.closed:
            self._words.release()
            self._file.close()
            os.close(self._descriptor)

    def read(self, tail: int, count: int) -> Reading:
        """What was committed since (`tail`, `count`): a position, and how many records came before it; begin with (0, 0).

        Where that is overwritten already it goes on at the oldest segment that is whole, and says how many records are lost.
        To drain a ring, read until `tail` is the header's `head` (once is enough where stores are seen in order).
        """
        if tail > self._words[layout.HEAD]:
            raise RingError(f"{self.path}: {tail} lies beyond its end")
        for _ in range(ATTEMPTS):
            head = self._committed()
            if tail >= head:
                return Reading(b"", [], tail, count, 0)
            marks = self._words[MARK_WORDS].tolist()
            start = (tail, count) if head - tail <= self._safe else self._first(self._marks(marks, head), head - self._safe)
            data = self._copy(start[0], head)
            floor = self._words[layout.HEAD] - self._safe
            if start[0] >= floor:
                return self._reading(data, start, count)
            kept = [mark for mark in self._marks(marks, head) if mark[0] >= floor]
            if kept:  # the writer came past us while we copied: keep what it did not reach
                return self._reading(data[kept[0][0] - start[0] :], kept[0], count)
        position, before = self._first(self._newest_marks()[::-1], 0)
        return Reading(b"", [], position, before, before - count)

    def _reading(self, data: bytes, start: Mark, count: int) -> Reading:
        frames = walk(data, start[0], self.capacity)
        self._counted = (start[0] + len(data), start[1] + len(frames))
        return Reading(data, frames, *self._counted, start[1] - count)

    def _committed(self) -> int:
        head: int = self._words[layout.HEAD]
        if self._ordered:
            return head
        noted, self._noted = self._noted, head
        return noted

    def _newest_marks(self) -> list[Mark]:
        head = self._words[layout.HEAD]
        return self._marks(self._words[MARK_WORDS].tolist(), head)

    def _marks(self, words: list[int], head: int) -> list[Mark]:
        """Where segments begin and how many records came before, oldest first; those that are not committed left out.

        One that is overwritten while we look is at a position that `HEAD - safe` has passed by then.
        """
        segment_bytes = self.capacity // layout.SEGMENTS
        pairs = enumerate(zip(words[::2], words[1::2], strict=True))
        return sorted(mark for slot, mark in pairs if mark[0] < head and mark[0] % self.capacity // segment_bytes == slot)

    def _first(self, marks: list[Mark], floor: int) -> Mark:
        for mark in marks:
            if mark[0] >= floor:
                return mark
        raise RingError(f"{self.path}: no segment begins after {floor}")

    def _copy(self, start: int, head: int) -> bytes:
        """The bytes between two positions, as they are now."""
        at, end = start % self.capacity, start % self.capacity + head - start
        if head - start > self.capacity:
            raise RingError(f"{self.path}: {head - start} bytes cannot lie in {self.capacity}")
        data = os.pread(self._descriptor, min(end, self.capacity) - at, self._header_bytes + at)
        if end > self.capacity:
            data += os.pread(self._descriptor, end - self.capacity, self._header_bytes)
        if len(data) != head - start:
            raise RingError(f"{self.path}: the file was cut short")
        return data

    def _count_at(self, head: int) -> int:
        """How many records lie before `head`, counted on from what was read last or from the newest mark."""
        if self._counted[0] == head:
            return self._counted[1]
        start = max([self._counted, *self._marks(self._words[MARK_WORDS].tolist(), head)])
        try:
            more = len(walk(self._copy(start[0], head), start[0], self.capacity))
        except RingError:
            return start[1]
        if start[0] < self._words[layout.HEAD] - self._safe:
            return start[1]
        self._counted = (head, start[1] + more)
        return start[1] + more


def walk(data: bytes, position: int, capacity: int) -> list[Frame]:
    """The frames in `data`, whose first byte is at `position`; raises RingError where the bytes are no frames."""
    frames: list[Frame] = []
    at, end, lap_end = 0, len(data), capacity - position % capacity
    while end - at >= 4:
        if lap_end - at < 4 or (word := unpack_word(data, at)[0]) == layout.PAD:
            at, lap_end = lap_end, lap_end + capacity
            continue
        kind, stop = word >> 24, at + 4 + (word & 0xFFFFFF)
        if not 0 < kind < 255 or stop > end or stop > lap_end:
            raise RingError(f"no frame at position {position + at}")
        frames.append(new_tuple(Frame, (kind, position + at, at + 4, stop)))
        at = stop
    if at != end and lap_end != end:  # before the end of a lap there may be less than a word
        raise RingError(f"no frame at position {position + at}")
    return frames


def check(descriptor: int) -> tuple[int, int]:
    """Header bytes and capacity of the ring in an open file; raises RingError where it is none, or of another format."""
    page = memoryview(os.pread(descriptor, layout.PAGE, 0))
    if len(page) < layout.PAGE or page.cast("Q")[layout.MAGIC_WORD] != layout.MAGIC:
        raise RingError("is no ring")
    words = page.cast("Q")
    if words[layout.FORMAT_WORD] != layout.FORMAT:
        raise RingError(f"is a ring of format {words[layout.FORMAT_WORD]}; this version reads {layout.FORMAT}")
    header_bytes, capacity = words[layout.HEADER_BYTES], words[layout.CAPACITY]
    fits = header_bytes % layout.PAGE == 0 and header_bytes > layout.PAGE and capacity > 0 and capacity % layout.SEGMENTS == 0
    if not fits or header_bytes + capacity > os.fstat(descriptor).st_size:
        raise RingError(f"is cut short or corrupt: {header_bytes} + {capacity} bytes")
    return header_bytes, capacity


def _open(path: Path) -> tuple[int, bool]:
    """A descriptor, and whether it may write. Never waits, whatever lies there."""
    for flags, writable in ((os.O_RDWR, True), (os.O_RDONLY, False)):
        try:
            descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
        except PermissionError:
            continue
        except OSError as error:
            raise RingError(f"{path}: {error.strerror}") from error
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor, writable
        os.close(descriptor)
        raise RingError(f"{path}: is no file")
    raise RingError(f"{path}: may not be read")


def find_rings(folder: Path, registry: Path) -> list[Path]:
    """All rings of a directory: files on the tmpfs, then links to rings in memory of processes that live (or lived)."""
    return [*sorted(folder.glob("*" + layout.SUFFIX)), *sorted(path for path in _entries(registry) if path.is_symlink())]


def _entries(folder: Path) -> Iterable[Path]:
    return folder.iterdir() if folder.is_dir() else ()
