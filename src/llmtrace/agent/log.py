"""The agent's own words: a file beside the journal, bounded. Never the job's output."""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path
from typing import Final

LOG_BYTES: Final = 256 << 10
"""One file holds this much; with the one before it (`agent.log.1`) that is all there ever is."""


class BoundedLog(io.TextIOBase):
    """A text stream that stands in for stderr: each line stamped in UTC, the file turned over when it is full.

    A disk that takes nothing is no reason to fail: what cannot be written is dropped.
    """

    def __init__(self, path: Path, limit_bytes: int = LOG_BYTES) -> None:
        self._path, self._limit_bytes = path, limit_bytes
        self._line_begins = True

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime())
        lines = text.splitlines(keepends=True)
        stamped = "".join((stamp if i or self._line_begins else "") + line for i, line in enumerate(lines))
        self._line_begins = text.endswith("\n")
        try:
            self._append(stamped.encode(errors="backslashreplace")[: self._limit_bytes])
        except OSError:
            pass
        return len(text)

    def _append(self, data: bytes) -> None:
        target = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            full = os.fstat(target).st_size + len(data) > self._limit_bytes
            if not full:
                os.write(target, data)
        finally:
            os.close(target)
        if full:
            os.replace(self._path, f"{self._path}.1")
            self._path.write_bytes(data)


def say(text: str) -> None:
    """One line in the agent's log (stderr until `BoundedLog` stands in for it, and under --service)."""
    sys.stderr.write(f"agent {os.getpid()}: {text}\n")
