"""Format 1 of a ring: what lies where in the file. All words are 8 bytes, little-endian, aligned.

    0        the fixed page: 512 words, see below
    4096     the self-description: blobs, each after its 4-byte length, up to `DESCRIBED` bytes
    header   the ring of frames, `capacity` bytes, in 16 segments

A frame is a 4-byte word `kind << 24 | payload length` and the payload; kinds are from 1 to 254. Positions are absolute: they
count bytes since the ring began and never wrap. A frame never does either: what does not fit before the end goes to the
start, after a `PAD` word (none where fewer than 4 bytes are left). `HEAD` alone says what is committed. Each segment's mark is
the position of the first frame that begins in it, and how many records came before.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

MAGIC: Final = int.from_bytes(b"LLMTRING", "little")
FORMAT: Final = 1
PAGE: Final = 4096
SEGMENTS: Final = 16
GROUPS: Final = 64
PAD: Final = 0xFFFFFFFF

LARGEST_FRAME: Final = 64 << 10
LARGE_HEADER: Final = PAGE + (28 << 10)
SMALL_HEADER: Final = PAGE + (4 << 10)

# Words of the fixed page, by number.
(
    MAGIC_WORD,
    FORMAT_WORD,
    HEADER_BYTES,
    CAPACITY,
    PID,
    PID_NAMESPACE,
    START_TICKS,
    STARTED_NS,
    BOOT_HIGH,
    BOOT_LOW,
    SPAN,
    PARENT_SPAN,
    ENDED,
    CONTROL,
    DESCRIBED,
    CUT,
) = range(16)
HEAD: Final = 16
PROGRESS: Final = 24
"""Two words: when (monotonic ns), and `step + 1 << 16 | phase`; a step word of 0 means no step."""
MARKS: Final = 32
"""16 pairs of words: a segment's first position, and the records before it."""
GROUP_SLOTS: Final = 64
"""64 times three words: last enqueued, last completed, since when (monotonic ns; 0 where the slot is free)."""

SUFFIX: Final = ".ring"
"""Of a ring's file: `PID-TICKS-SPAN.ring`. A memfd's link is named the same without it."""

RUNNING, CLEAN, RAISED = 0, 1, 2
ENDINGS: Final[tuple[Literal["running", "clean", "raised"], ...]] = ("running", "clean", "raised")


class RingError(Exception):
    """What lies there is no ring of a known format, or its bytes contradict each other."""


class Header(msgspec.Struct, frozen=True):
    """What a ring says at once. Times are CLOCK_MONOTONIC nanoseconds; `start_ticks` is field 22 of /proc/PID/stat.

    `head` is the absolute position up to which frames are committed, `count` how many those were, `cut` how many bodies
    were cut or frames left out because they were too long. `ended` is the process's own word; `off` is `llmtrace off`.
    """

    format: int
    header_bytes: int
    capacity: int
    pid: int
    pid_namespace: int
    boot_id: str
    start_ticks: int
    span_id: str
    started_ns: int
    ended: Literal["running", "clean", "raised"]
    off: bool
    step: int | None
    phase: int
    progress_ns: int
    head: int
    count: int
    cut: int
    parent_span: str


class GroupState(msgspec.Struct, frozen=True):
    """A process group's last collective enqueued and completed (its own numbers), unchanged since `since_ns` (monotonic)."""

    slot: int
    enqueued: int
    completed: int
    since_ns: int


class Frame(NamedTuple):
    """One record in a `Reading`: its payload is `data[start:end]`, its kind a schema's id, its position absolute."""

    kind: int
    position: int
    start: int
    end: int


class Reading(msgspec.Struct):
    """What was new: go on from (`tail`, `count`). `lost` records before the first frame were overwritten unread, exactly."""

    data: bytes
    frames: list[Frame]
    tail: int
    count: int
    lost: int


def header_bytes_for(file_bytes: int) -> int:
    """A rank's ring has 28 KiB to describe itself in, a small one 4 KiB."""
    return LARGE_HEADER if file_bytes >= 512 << 10 else SMALL_HEADER


def frame_cap_for(capacity: int) -> int:
    """The longest frame in bytes, its word included: a segment, and never over 64 KiB. It is the reader's margin too."""
    return min(LARGEST_FRAME, capacity // SEGMENTS)


def progress_word(step: int, phase: int) -> int:
    """Step (-1: none) and a phase's number, under 65,536, as the second word of progress."""
    return (step + 1 << 16 | phase) & (1 << 64) - 1
