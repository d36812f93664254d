"""Making a ring: how large it may be, where it lies, and that it is whole before anybody can see it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from mmap import MAP_POPULATE, MAP_SHARED, mmap
from pathlib import Path
from typing import Final

from ..clock import boot_id, process_start_ticks
from ..guard import guard
from . import layout
from .writer import RingWriter

SHARE_OF_FREE: Final = 8
"""All rings of a node together take at most this part of what is free: NCCL and DataLoader need the rest."""

SMALL_BYTES: Final = 256 << 10
"""What a forked child asks for; rings up to this size come out of the half that is kept for children."""

CHILDREN: Final = 64
"""How many children's rings the half for children is meant for."""

GRAIN_BYTES: Final = 64 << 10
"""Sizes are multiples of this, and it is the smallest ring: frames of 3.5 KiB."""

PATIENCE_S: Final = 1.0


def create_ring(folder: Path, registry: Path, *, span_id: str, wanted_bytes: int, share: int = 1, parent_span: str = "") -> RingWriter | None:
    """A ring for this process, whose span is `span_id` (16 hex digits): up to `wanted_bytes` on the tmpfs `folder`; where that
    has no room, a memfd that `registry` (a folder on disk) links to; else None, after one warning.

    `share` is how many processes of this node will want one as large.
    """
    spans = (span_id, parent_span)
    reasons: list[str] = []
    try:
        return _on_tmpfs(folder, spans, wanted_bytes, share)
    except OSError as error:
        reasons.append(str(error))
    try:
        return _in_memory(registry, spans, wanted_bytes)
    except OSError as error:
        reasons.append(str(error))
    guard.warn(f"tracing is off in this process, there is no room for its ring: {'; '.join(reasons)}")
    return None


def _on_tmpfs(folder: Path, spans: tuple[str, str], wanted_bytes: int, share: int) -> RingWriter:
    """The file has no name before it is a whole ring, so a kill on the way leaves nothing."""
    with _one_at_a_time(folder):
        path = folder / (_name(spans[0]) + layout.SUFFIX)
        descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
        try:
            size = _allocate(descriptor, allotment(folder, wanted_bytes, share))
            file = lay_out(descriptor, size, *spans)
            os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor)  # with a src_dir_fd it is linkat(AT_SYMLINK_FOLLOW)
        finally:
            os.close(descriptor)
    return RingWriter(file, path)


def _in_memory(registry: Path, spans: tuple[str, str], wanted_bytes: int) -> RingWriter:
    """The descriptor stays open: /proc/PID/fd/N is how the agent comes in."""
    descriptor = os.memfd_create("llmtrace")
    try:
        size = _allocate(descriptor, max(GRAIN_BYTES, wanted_bytes // GRAIN_BYTES * GRAIN_BYTES))
        file = lay_out(descriptor, size, *spans)
        os.symlink(f"/proc/{os.getpid()}/fd/{descriptor}", registry / _name(spans[0]))
    except BaseException:
        os.close(descriptor)
        raise
    return RingWriter(file, None, descriptor)


def _name(span_id: str) -> str:
    pid = os.getpid()
    return f"{pid}-{process_start_ticks(pid) or 0}-{span_id}"


def _allocate(descriptor: int, size: int) -> int:
    """Take the memory now, half as much as long as there is not enough: a page that is missing later would be a SIGBUS."""
    while True:
        try:
            os.posix_fallocate(descriptor, 0, size)
            return size
        except OSError:
            if size < 2 * GRAIN_BYTES:
                raise
            size = size // 2 // GRAIN_BYTES * GRAIN_BYTES
            os.ftruncate(descriptor, 0)


def allotment(folder: Path, wanted_bytes: int, share: int) -> int:
    """How many bytes a ring in `folder` may take, headers included; OSError where that is less than the smallest ring.

    An eighth of what would be free without rings: half of it for `share` processes of a kind, half for their children.
    """
    used = sum(_ring_sizes(folder))
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize if status.f_blocks else 1 << 62  # no blocks: a tmpfs without a limit
    together = (free + used) // SHARE_OF_FREE
    part = together // 2 // (CHILDREN if wanted_bytes <= SMALL_BYTES else max(share, 1))
    size = min(max(min(wanted_bytes, part), GRAIN_BYTES), together - used) // GRAIN_BYTES * GRAIN_BYTES
    if size < GRAIN_BYTES:
        raise OSError(f"{folder} has {free >> 10} KiB free, and rings take {used >> 10} KiB already")
    return size


def _neighbourhood(folder: Path) -> Path:
    """The folder that holds all our rings of this user, by llmtrace's own layout; else the ring's own folder."""
    return folder.parent if folder.parent.name.startswith("llmtrace-") else folder


def _ring_sizes(folder: Path) -> Iterator[int]:
    around = _neighbourhood(folder)
    for path in around.glob("*" + layout.SUFFIX if around == folder else "*/*" + layout.SUFFIX):
        try:
            yield path.stat().st_size
        except FileNotFoundError:
            continue


@contextmanager
def _one_at_a_time(folder: Path) -> Generator[None]:
    """Several processes that look at the same free space would each take it. Waits a moment at most: OSError after that."""
    descriptor = os.open(_neighbourhood(folder), os.O_RDONLY | os.O_DIRECTORY)
    try:
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.001)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child forked meanwhile shares the lock and would keep it
    finally:
        os.close(descriptor)


def lay_out(descriptor: int, size: int, span_id: str, parent_span: str = "", header_bytes: int = 0) -> mmap:
    """Map `size` allocated bytes and write the header of an empty ring that belongs to this process."""
    file = mmap(descriptor, size, flags=MAP_SHARED | MAP_POPULATE)
    header_bytes = header_bytes or layout.header_bytes_for(size)
    boot = int(boot_id() or "0", 16)
    pid = os.getpid()
    with memoryview(file) as whole, whole[: layout.PAGE] as page, page.cast("Q") as words:
        words[layout.FORMAT_WORD] = layout.FORMAT
        words[layout.HEADER_BYTES] = header_bytes
        words[layout.CAPACITY] = (size - header_bytes) // layout.SEGMENTS * layout.SEGMENTS
        words[layout.PID] = pid
        words[layout.PID_NAMESPACE] = _pid_namespace()
        words[layout.START_TICKS] = process_start_ticks(pid) or 0
        words[layout.STARTED_NS] = time.monotonic_ns()
        words[layout.BOOT_HIGH], words[layout.BOOT_LOW] = boot >> 64, boot & (1 << 64) - 1
        words[layout.SPAN], words[layout.PARENT_SPAN] = int(span_id, 16), int(parent_span or "0", 16)
        words[layout.MAGIC_WORD] = layout.MAGIC
    return file


def _pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
