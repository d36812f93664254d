"""Children of a traced process: forked ones get a ring of their own at their first record, spawned ones are told whose they are."""

from __future__ import annotations

import os
import sys
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from ..clock import boot_id, process_start_ticks
from ..guard import shield, shielded
from ..identity import digest, new_span_id, number
from ..record import Identity

if TYPE_CHECKING:
    from .runtime import Runtime

CHILD_RING_BYTES: Final = 256 << 10
MOST_PENDING: Final = 1000
"""Records that wait for a child's ring; at more the oldest goes, and is counted with what was cut."""
PARENT: Final = "LLMTRACE_PARENT"
"""`PID:TRACE:SPAN:RANK:ATTEMPT` of the traced process, for the processes that it starts; absent facts are empty."""


class Parent(msgspec.Struct, frozen=True):
    """What a traced process says of itself to those it starts."""

    pid: int
    trace_id: str
    span_id: str
    rank: int | None
    attempt: str


def announce(identity: Identity) -> None:
    """Leave word in the environment for processes that this one starts; a worker leaves its rank's word as it is."""
    if identity.role == "worker":
        return
    rank = "" if identity.rank is None else identity.rank
    os.environ[PARENT] = f"{identity.pid}:{identity.trace_id}:{identity.span_id}:{rank}:{identity.attempt}"


def withdraw() -> None:
    os.environ.pop(PARENT, None)


def parent() -> Parent | None:
    """Who started this process, if that one was traced; the word of a grandparent, or our own, does not count."""
    fields = os.environ.get(PARENT, "").split(":")
    if len(fields) != 5 or not fields[0].isdecimal():
        return None
    pid = int(fields[0])
    if pid == os.getpid() or (pid != os.getppid() and not is_multiprocessing_child()):
        return None
    return Parent(pid, fields[1], fields[2], int(fields[3]) if fields[3].isdecimal() else None, fields[4])


def is_multiprocessing_child() -> bool:
    """Whether multiprocessing started this process by spawn or forkserver; true already while a .pth line runs."""
    if "--multiprocessing-fork" in sys.orig_argv or any("multiprocessing.forkserver" in word for word in sys.orig_argv):
        return True
    process = sys.modules.get("multiprocessing.process")
    return process is not None and (process.parent_process() is not None or bool(getattr(process.current_process(), "_inheriting", False)))


def as_child(found: Identity) -> Identity | None:
    """The identity of a process that another one started, None where that decides nothing.

    A multiprocessing child of a traced process is its worker, never a second rank, though it inherits RANK; one that then
    joins a group of its own is a rank after all (agreement.py). Children of an untraced launcher share its launch, and wait
    for their group. A child that Lightning's launcher started shares its parent's job.
    """
    source = parent()
    if is_multiprocessing_child():
        return _worker(found, source) if source is not None else _launched(found)
    if source is not None and number(os.environ, "LOCAL_RANK") is not None and not found.trace_id and source.trace_id:
        return msgspec.structs.replace(found, trace_id=source.trace_id, attempt=found.attempt or source.attempt)
    return None


def _worker(found: Identity, source: Parent) -> Identity:
    return msgspec.structs.replace(
        found, role="worker", parent_span_id=source.span_id, trace_id=source.trace_id, attempt=source.attempt, rank=source.rank, local_rank=None
    )


def _launched(found: Identity) -> Identity:
    pid = os.getppid()
    launch = found.launch or digest(f"multiprocessing/{found.node}/{boot_id()}/{pid}/{process_start_ticks(pid)}", 16)
    return msgspec.structs.replace(found, launch=launch)


def adopt(runtime: Runtime) -> None:
    """Right after a fork, in the child: from here on its records go to a ring of its own, made at the first of them."""
    tracer = runtime.tracer
    before = tracer.identity
    tracer.identity = msgspec.structs.replace(before, span_id=new_span_id(), parent_span_id=before.span_id, linked_span_id="", role="worker", pid=os.getpid())
    tracer.stamp.read(tracer.identity)
    tracer.steps.reset()
    tracer.steps.forget_phases()
    tracer.failed = False
    tracer.cell.fill(None)
    tracer.cell.append = LazyRing(runtime).append


class LazyRing:
    """Stands in for a child's ring until the first record. Several threads may come at once, and nobody waits for another.

    Whoever takes the token makes the ring; the others leave their records to it, and look again when it is there.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._token = deque([None])
        self._pending: deque[tuple[int, bytes]] = deque(maxlen=MOST_PENDING)
        self._crowded = 0
        self._open = False

    def append(self, kind: int, payload: bytes) -> None:
        if len(self._pending) == MOST_PENDING:
            self._crowded += 1
        self._pending.append((kind, payload))
        try:
            self._token.pop()
        except IndexError:
            self._drain()
            return
        cell = self._runtime.tracer.cell
        try:
            with shield("ring of a child"):
                self._make()
        finally:
            if cell.append == self.append:  # no ring came of it: nothing may come back here for ever
                cell.fill(None)
            self._open = True
        self._drain()
        if (writer := cell.writer) is not None:
            for _ in range(self._crowded):
                writer.count_cut()

    def _make(self) -> None:
        tracer = self._runtime.tracer
        wanted = min(CHILD_RING_BYTES, self._runtime.config.ring_bytes)
        writer = self._runtime.make_ring(tracer.identity, wanted, parent=tracer.identity.parent_span_id)
        tracer.cell.fill(writer)
        tracer.describe_all()
        mark_at_multiprocessing_exit(self._runtime)

    def _drain(self) -> None:
        while self._open:
            try:
                kind, payload = self._pending.popleft()
            except IndexError:
                return
            self._runtime.tracer.cell.append(kind, payload)


def mark_at_multiprocessing_exit(runtime: Runtime) -> None:
    """A multiprocessing child leaves by os._exit, where no atexit runs; its own finalizers do."""
    util = sys.modules.get("multiprocessing.util")
    if util is None:
        return
    owner = os.getpid()

    @shielded
    def mark() -> None:
        if os.getpid() == owner and (writer := runtime.tracer.cell.writer) is not None:
            error = sys.exc_info()[1]
            failed = error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0))
            writer.end("raised" if failed else "clean")

    util.Finalize(None, mark, exitpriority=-100)
