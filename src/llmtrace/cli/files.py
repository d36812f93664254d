"""Files that commands write: whole or not at all."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Final

STDOUT: Final = "-"


def write_out(name: str, data: bytes) -> None:
    """Write `data` to the file of that name, or to stdout for `-`; raises OSError and leaves what was there.

    A file is written beside its place and renamed, and keeps its mode where it was there before. A pipe or a device is written to as it is.
    """
    if name == STDOUT:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    path = Path(os.path.realpath(name))
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        _replace(path, data, None)
        return
    if stat.S_ISREG(mode):
        _replace(path, data, stat.S_IMODE(mode))
    else:
        path.write_bytes(data)


def _replace(path: Path, data: bytes, mode: int | None) -> None:
    part = path.with_name(f".llmtrace-{os.getpid()}.part")
    part.unlink(missing_ok=True)  # of a process that had our pid
    try:
        with part.open("xb") as stream:
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())  # some file systems say only now that they are full
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
