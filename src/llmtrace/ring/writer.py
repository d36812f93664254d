"""The writing end of a ring: one process, any number of threads, signal handlers, finalizers and tracers.

A record is committed by one 8-byte store of HEAD, after its bytes were copied. What must not be interrupted between the look
at the state and that store (is the state still the one the frame was made for? copy; next state; store HEAD) is one call of C
code, `run(map(call, ...))`. The interpreter switches threads, runs signal handlers, finalizers and tracers (those of single
opcodes and of sys.monitoring, too) between bytecodes, and there is none in that call. So whoever interrupts an append does it
wholly before its commit, and it begins again, or wholly after. There is no lock, hence nothing to wait for.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from mmap import mmap
from operator import call, setitem
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final, Literal

from . import layout
from .layout import CONTROL, HEAD, PAGE, PROGRESS

Append = Callable[[int, bytes], None]
State = tuple[int, int, int, int]
"""Position of the next frame, what to subtract from it for its place in the file, the position at which the next segment
or lap begins, records so far. A position never comes again, so a state that is still there has not been used."""

Store = tuple[mmap | memoryview | list[bytes], int | slice, int | bytes | tuple[()]]
"""Target, key, value: `target[key] = value`."""

CALL: Final[Any] = call
RUN: Final = deque[Any](maxlen=0).extend
"""Takes everything an iterator gives, in C, and keeps nothing."""

STEPS: Final[Any] = (list.index, setitem, setitem, setitem)
"""A commit, step by step: the state must still be there (else ValueError); copy; next state; HEAD."""

PAD_BYTES: Final = layout.PAD.to_bytes(4, "little")
PENDING: Final = 1 << 14
ATTEMPTS: Final = 1000


def make_append(file: mmap, words: memoryview, state: list[State], count_cut: Callable[[], None]) -> Append:
    """The hot call. `state` emptied ends it for good, also where somebody kept a reference."""
    longest = layout.frame_cap_for(words[layout.CAPACITY]) - 4
    targets = (state, file, state, words)
    run, steps, call = RUN, STEPS, CALL
    pending: list[bytes] = []
    drain = make_drain(file, words, state, pending)

    def append(kind: int, payload: bytes) -> None:
        if words[CONTROL]:
            return
        length = len(payload)
        if length > longest:
            count_cut()
            return
        frame = (kind << 24 | length).to_bytes(4, "little") + payload
        if state and not pending:
            try:
                old = state[0]
                position, base, limit, count = old
                end = position + length + 4
                if end <= limit:
                    run(map(call, steps, targets, (old, slice(position - base, end - base), 0, HEAD), (0, frame, (end, base, limit, count + 1), end)))
                    return
            except (ValueError, IndexError):  # another record was faster; or the ring was closed
                pass
        pending.append(frame)
        drain()

    return append


def make_drain(file: mmap, words: memoryview, state: list[State], pending: list[bytes]) -> Callable[[], None]:
    """The way of the frames that cross a segment or a lap, and of those that were interrupted.

    They wait in line until whoever comes first has committed them, each in the call that takes it out of the line. So an
    append ends even where something emits at every single opcode of it: what emits brings the waiting ones along.
    """
    header_bytes: int = words[layout.HEADER_BYTES]
    capacity: int = words[layout.CAPACITY]
    segment_bytes = capacity // layout.SEGMENTS

    def drain() -> None:
        while pending:
            try:
                old = state[0]
                compare_and_store(state, old, *following(old, pending[0]))
            except ValueError:
                continue
            except IndexError:
                if not state:
                    pending.clear()

    def following(old: State, frame: bytes) -> tuple[State, list[Store]]:
        """The state and the stores that follow: of the frame, or of the pad before it where the lap has no room left."""
        position, base, limit, count = old
        end, lap_begin = position + len(frame), base + header_bytes
        lap_end = lap_begin + capacity
        if end > lap_end:
            pad = PAD_BYTES if lap_end - position >= len(PAD_BYTES) else b""
            place = slice(position - base, position - base + len(pad))
            return (lap_end, base + capacity, lap_end, count), [(file, place, pad), (words, HEAD, lap_end)]
        stores: list[Store] = [(file, slice(position - base, end - base), frame)]
        if position >= limit:  # the first frame that begins in its segment
            segment = (position - lap_begin) // segment_bytes
            limit = lap_begin + (segment + 1) * segment_bytes
            mark = layout.MARKS + 2 * segment
            stores += [(words, mark, position), (words, mark + 1, count)]
        return (end, base, limit, count + 1), [*stores, (words, HEAD, end), (pending, slice(0, 1), ())]

    return drain


def compare_and_store(state: list[Any], old: object, new: object, stores: Sequence[Store]) -> None:
    """All of `stores` in order and the new state, in one call of C code; ValueError, and nothing done, where `old` is past."""
    targets, keys, values = zip((state, old, 0), (state, 0, new), *stores, strict=True)
    RUN(map(CALL, (STEPS[0], *(setitem,) * (len(stores) + 1)), targets, keys, values))


def exclusive(append: Append, count_cut: Callable[[], None]) -> Append:
    """For builds without a GIL, where C code of two threads runs at once: one thread at a time commits, and nobody waits.

    Who finds another at work leaves the record to it. The holder looks again after it let go, so that none stays behind.
    """
    pending: deque[tuple[int, bytes]] = deque()
    lock = threading.Lock()

    def drain() -> None:
        while pending:
            append(*pending.popleft())

    def append_exclusively(kind: int, payload: bytes) -> None:
        if len(pending) >= PENDING:
            count_cut()
            return
        pending.append((kind, payload))
        while pending and lock.acquire(blocking=False):
            try:
                drain()
            finally:
                lock.release()

    return append_exclusively


def drop(kind: int, payload: bytes) -> None:
    """What `append` is once the ring is closed."""


class RingWriter:
    """This process's ring, made by `create_ring`. Every method is safe in any thread, signal handler or finalizer.

    `append(schema_id, payload)` is the hot call; the schema's id is from 1 to 254. A payload longer than `frame_cap` bytes is
    left out and counted; nothing waits, and nothing raises for want of room. `path` is None for a ring in a memfd.
    """

    append: Append

    def __init__(self, file: mmap, path: Path | None, descriptor: int | None = None) -> None:
        header_bytes = int.from_bytes(file[8 * layout.HEADER_BYTES : 8 * layout.HEADER_BYTES + 8], "little")
        self._file, self._descriptor = file, descriptor
        self._words = words = memoryview(file)[:header_bytes].cast("Q")
        self._state: list[State] = [(0, -header_bytes, 0, 0)]
        self._described, self._cut = [0], [0]
        self.path = path
        self.capacity: int = words[layout.CAPACITY]
        self.span_id = f"{words[layout.SPAN]:016x}"
        self.frame_cap = layout.frame_cap_for(self.capacity) - 4
        self.append = make_append(file, words, self._state, self.count_cut)
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            self.append = exclusive(self.append, self.count_cut)
        _disown_after_fork(self)

    def describe(self, part: bytes) -> bool:
        """Append one blob of `frames.encode_description` to the self-description; False when the area is full."""
        blob = len(part).to_bytes(4, "little") + part
        while self._described:
            used = self._described[0]
            end = used + len(blob)
            if PAGE + end > self._words[layout.HEADER_BYTES]:
                return False
            stores: list[Store] = [(self._file, slice(PAGE + used, PAGE + end), blob), (self._words, layout.DESCRIBED, end)]
            try:
                compare_and_store(self._described, used, end, stores)
            except ValueError:
                continue
            return True
        return False

    def count_cut(self) -> None:
        """One more body was cut, or one more frame left out, because it was too long."""
        for _ in range(ATTEMPTS):
            count = self._cut[0] if self._cut else 0
            try:
                compare_and_store(self._cut, count, count + 1, [(self._words, layout.CUT, count + 1)])
            except ValueError:  # another one was faster, or the ring is closed
                continue
            return

    def progress(self, step: int, phase: int, now_ns: int = 0) -> None:
        """Where the process is, since `now_ns` (monotonic; else since now): a step (-1: none) and a phase's number, under 65,536."""
        self._words[PROGRESS] = now_ns or monotonic_ns()
        self._words[PROGRESS + 1] = layout.progress_word(step, phase)

    @property
    def progress_words(self) -> memoryview:
        """The two words that `progress` writes, for whoever writes them several times a step; of a closed ring, nobody's."""
        return self._words[PROGRESS : PROGRESS + 2]

    def group(self, slot: int, enqueued: int, completed: int) -> None:
        """The last collective of a group that was enqueued and that completed; a slot beyond the 64th is ignored."""
        if 0 <= slot < layout.GROUPS:
            words, at = self._words, layout.GROUP_SLOTS + 3 * slot
            words[at] = enqueued
            words[at + 1] = completed
            words[at + 2] = monotonic_ns()

    def end(self, how: Literal["clean", "raised"]) -> None:
        """Note that the process ends by itself. `raised` stays when `clean` follows: atexit runs after the excepthook, too."""
        if how == "raised" or self._words[layout.ENDED] != layout.RAISED:
            self._words[layout.ENDED] = layout.ENDINGS.index(how)

    @property
    def off(self) -> bool:
        """Whether somebody switched this process off from outside (`llmtrace off`); `append` looks by itself."""
        return bool(self._words[CONTROL])

    def close(self) -> None:
        """Write no more, whoever kept `append`. The file stays (a memfd as long as the process): the agent removes it when read."""
        for state in (self._state, self._described, self._cut):
            state.clear()
        self.append = drop
        self._words = memoryview(bytearray(self._words)).cast("Q")  # what is said from here on reaches nobody: the file may be a parent's

    def disown(self) -> None:
        """In a forked child: close its copy of the parent's ring, and of its memfd."""
        self.close()
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_writers: weakref.WeakSet[RingWriter] = weakref.WeakSet()
_hooks: list[Callable[[], None]] = []


def _disown_after_fork(writer: RingWriter) -> None:
    """A forked child must not write into its parent's ring: its own copy of the writer is closed before any code of it runs."""
    if not _hooks:
        _hooks.append(_disown)
        os.register_at_fork(after_in_child=_disown)
    _writers.add(writer)


def _disown() -> None:
    for writer in tuple(_writers):
        writer.disown()
    _writers.clear()
