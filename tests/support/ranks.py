"""Programs that trace themselves, and what their rings hold afterwards. The test holds the agent's lock, so that nobody reads first."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from llmtrace.config import resolve
from llmtrace.directory import AgentLock, Directory, choose
from llmtrace.frames import Decoder, Description, merge_descriptions
from llmtrace.record import Identity, Record
from llmtrace.ring.layout import Header
from llmtrace.ring.reader import RingReader, find_rings


class Ring(NamedTuple):
    """All that one ring says."""

    header: Header
    description: Description
    records: list[Record]

    @property
    def identity(self) -> Identity:
        """Who the process was in the end."""
        return self.description.epochs[-1].identity

    def bodies(self) -> list[str | None]:
        return [record.body for record in self.records if record.kind == "log"]

    def named(self, name: str) -> list[Record]:
        return [record for record in self.records if record.name == name]


def directory() -> Directory:
    """The one that the environment names."""
    found = choose(resolve(environ=os.environ, file="/nonexistent"))
    assert found is not None
    return found


@contextmanager
def no_agent() -> Iterator[Directory]:
    """Ranks find the agent's lock held, and start none."""
    found = directory()
    lock = AgentLock(found)
    assert lock.acquire()
    try:
        yield found
    finally:
        lock.release()


def rings(where: Directory) -> list[Ring]:
    """Every ring of the directory, oldest first."""
    found = [read(path) for path in find_rings(where.rings, where.registry)]
    return sorted(found, key=lambda ring: ring.header.started_ns)


def read(path: Path) -> Ring:
    reader = RingReader(path)
    try:
        description = merge_descriptions(reader.descriptions())
        decoder = Decoder(description)
        reading = reader.read(0, 0)
        records = [decoder.record(f.kind, reading.data[f.start : f.end], f.position, 0) for f in reading.frames]
        return Ring(reader.header(), description, [record for record in records if record is not None])
    finally:
        reader.close()


def program(text: str, folder: Path, name: str = "job.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def run(script: Path, *arguments: str, before: tuple[str, ...] = (), timeout: float = 150, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program with this Python, `before` it a launcher's words."""
    command = [sys.executable, *before, str(script), *arguments]
    return subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, timeout=timeout, check=False, cwd=script.parent)


def torchrun(script: Path, *arguments: str, ranks: int = 2, timeout: float = 150, **environ: str) -> subprocess.CompletedProcess[str]:
    """The same under torchrun, on `ranks` processes of this machine."""
    words = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    return run(script, *arguments, before=words, timeout=timeout, **environ)
