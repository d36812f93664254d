"""How a process ended, seen from beside it: when, with which exit code, and what its own word in the ring says to that.

The agent is not the parent of a rank, so wait() is not for it. A pidfd becomes readable at the death; the exit code is the
zombie's last field of /proc/PID/stat, or, once the parent has reaped it, the kernel's answer to PIDFD_GET_INFO.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
from pathlib import Path
from typing import Final, Literal

import msgspec

from ..clock import boot_id, process_start_ticks
from ..record import ERROR, FATAL, INFO, Ending

PIDFD_GET_INFO: Final = 0xC040FF0B
"""_IOWR(0xFF, 11, 64 bytes): include/uapi/linux/pidfd.h, PIDFD_GET_INFO with struct pidfd_info of PIDFD_INFO_SIZE_VER0."""
PIDFD_INFO_EXIT: Final = 1 << 3
"""Linux 6.15 and newer: the mask bit that asks for, and in the answer confirms, `exit_code` at offset 60."""
INFO_BYTES: Final = 64

SIGTERM, SIGINT = 15, 2

Life = Literal["alive", "gone", "foreign"]


class Watch:
    """One process under watch. `life` is `foreign` where the pid belongs to another pid namespace: there nothing is guessed.

    The pidfd is opened first and the start time compared after it: a pid that was used again in between is then seen as one.
    """

    def __init__(self, pid: int, start_ticks: int, pid_namespace: int, boot: str) -> None:
        self.pid, self.start_ticks = pid, start_ticks
        self.fd = -1
        self.life: Life = self._look(pid_namespace, boot)

    def _look(self, pid_namespace: int, boot: str) -> Life:
        if boot != boot_id():
            return "gone"
        return self._open() if pid_namespace == own_pid_namespace() else "foreign"

    def _open(self) -> Life:
        try:
            self.fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return "gone"
        except OSError:  # no descriptors left, or a kernel that refuses: ask /proc at every poll instead
            return "alive" if process_start_ticks(self.pid) == self.start_ticks else "gone"
        if process_start_ticks(self.pid) != self.start_ticks:
            self.close()
            return "gone"
        return "gone" if is_readable(self.fd) else "alive"

    def lives_without_pidfd(self) -> bool:
        """The slow question, for a process whose pidfd could not be had."""
        return process_start_ticks(self.pid) == self.start_ticks and process_state(self.pid) not in ("Z", "X")

    def exit_code(self) -> int | None:
        """Of a process that has died: negative for a signal; None where nobody can know it any more."""
        status = zombie_status(self.pid, self.start_ticks)
        if status is None and self.fd >= 0:
            status = reaped_status(self.fd)
        return None if status is None else os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def own_pid_namespace() -> int:
    """Inode number of the pid namespace that we live in; 0 where /proc does not tell."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def is_readable(pidfd: int) -> bool:
    """Whether the process of a pidfd is dead (a zombie still has one)."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def process_state(pid: int) -> str:
    """Field 3 of /proc/PID/stat; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def zombie_status(pid: int, start_ticks: int) -> int | None:
    """The wait status (field 52 of /proc/PID/stat) of a process that its parent has not reaped yet, else None."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 50 or int(fields[19]) != start_ticks or fields[0] not in (b"Z", b"X"):
        return None
    return int(fields[49])


def reaped_status(pidfd: int) -> int | None:
    """The wait status of a reaped process from its pidfd, or None on a kernel before 6.15 or where it is not known yet."""
    answer = bytearray(INFO_BYTES)
    struct.pack_into("=Q", answer, 0, PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, PIDFD_GET_INFO, answer)
    except OSError:
        return None
    mask: int = struct.unpack_from("=Q", answer, 0)[0]
    return struct.unpack_from("=i", answer, INFO_BYTES - 4)[0] if mask & PIDFD_INFO_EXIT else None


class Death(msgspec.Struct, frozen=True):
    """The end of a process: its monotonic time where somebody saw it, the exit code if known."""

    mono_ns: int | None
    exit_code: int | None


def ending_of(word: str, exit_code: int | None) -> Ending:
    """The process's own word and the exit code together. A word of a clean end counts for nothing beside a signal or a code."""
    if word == "raised":
        return "raised"
    if exit_code is None:
        return "clean" if word == "clean" else "unknown"
    if exit_code < 0:
        return "killed"
    return "clean" if word == "clean" and exit_code == 0 else "exited"


def failed(ending: Ending, exit_code: int | None) -> bool:
    return ending in ("raised", "killed", "unknown") or bool(exit_code)


def severity_of(ending: Ending, exit_code: int | None, is_rank: bool) -> int:
    """FATAL for a rank that failed. A worker's failure is its rank's to tell, and a worker that is told to end has ended well."""
    if not failed(ending, exit_code):
        return INFO
    if is_rank:
        return FATAL
    return INFO if exit_code in (-SIGTERM, -SIGINT) or ending == "unknown" else ERROR
