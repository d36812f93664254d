"""Agents and processes with rings for tests: started, told what to do, and looked at through what readers see."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from llmtrace.config import resolve
from llmtrace.directory import agent_alive, choose
from llmtrace.journal import JournalError
from llmtrace.record import Identity, Incident, Process, Record, Window
from llmtrace.sources.journal import JournalSource

TRACE = "0af7651916cd43dd8448eb211c80319c"
EVER = Window(0, 1 << 62)
SCRIPT = Path(__file__).with_name("ring_process.py")
T = TypeVar("T")


def until(question: Callable[[], T], within_s: float = 10.0) -> T:
    """The first answer that is true; fails when there is none in time."""
    end = time.monotonic() + within_s
    while not (answer := question()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {within_s} s; the last answer was {answer!r}")
        time.sleep(0.01)
    return answer


class Rank:
    """A process of tests/support/ring_process.py; it is killed and waited for when the block ends."""

    def __init__(self, rank: int | None = 0, *, world: int = 2, trace: str = TRACE, attempt: str = "a1", node: str = "node-a", **more: object) -> None:
        described = more.pop("described", True)
        identity = Identity(rank=rank, world_size=world, trace_id=trace, attempt=attempt, node=node, **more)  # type: ignore[arg-type]
        command = [sys.executable, str(SCRIPT), msgspec.json.encode(identity).decode(), *([] if described else ["undescribed"])]
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.span_id = self._answer()

    def _answer(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def send(self, *words: object) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(" ".join(map(str, words)) + "\n")

    def tell(self, *words: object) -> str:
        """Have it done; the answer, empty when the process died over it."""
        self.send(*words)
        return self._answer()

    def __enter__(self) -> Rank:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.popen.stdin, self.popen.stdout):
            try:
                stream.close()  # type: ignore[union-attr]
            except BrokenPipeError:
                pass
        self.popen.kill()
        self.popen.wait()


@contextmanager
def agent(*arguments: str, **popen: object) -> Iterator[subprocess.Popen[bytes]]:
    """An agent of the environment's LLMTRACE_DIR that holds its lock; killed at the end if it has not left by then."""
    process = start_agent(*arguments, **popen)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def start_agent(*arguments: str, **popen: object) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-m", "llmtrace.agent", *arguments], **popen)  # type: ignore[call-overload]
    until(lambda: alive() or process.poll() is not None)
    return process


def alive() -> bool:
    directory = choose(resolve())
    assert directory is not None
    return agent_alive(directory)


class Seen:
    """What a reader of LLMTRACE_DIR sees now; empty while there is no journal."""

    def _ask(self, question: Callable[[JournalSource], list[T]]) -> list[T]:
        path = Path(os.environ["LLMTRACE_DIR"])
        try:
            source = JournalSource(path)
        except JournalError:  # none there yet, or not yet whole
            return []
        try:
            return question(source)
        finally:
            source.close()

    def incidents(self) -> list[Incident]:
        return self._ask(lambda source: source.incidents())

    def processes(self, trace: str = TRACE) -> list[Process]:
        return self._ask(lambda source: source.processes(trace))

    def all_processes(self) -> list[Process]:
        return self._ask(lambda source: source.processes())

    def process(self, span_id: str) -> Process:
        return next(process for process in self.all_processes() if process.identity.span_id == span_id)

    def records(self, trace: str = TRACE) -> list[Record]:
        return self._ask(lambda source: source.records(trace, EVER))

    def lines(self, span_id: str, trace: str = TRACE) -> list[str]:
        """Bodies of a process's log lines in the order of the ring."""
        mine = [record for record in self.records(trace) if record.kind == "log" and record.identity.span_id == span_id]
        return [str(record.body) for record in sorted(mine, key=position)]

    def deaths(self, trace: str = TRACE) -> list[Record]:
        return [record for record in self.records(trace) if record.attributes.get("llmtrace.process.action") == "died"]

    def drops(self) -> dict[str, int]:
        return dict(self._ask(lambda source: list(source.drops().items())))


def position(record: Record) -> int:
    return int(record.id.rpartition("-")[2], 16)
