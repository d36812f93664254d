"""Tracing in this process: start, stop, runs, fork and exit. One object holds it all, `host`; nothing happens at import."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections import deque
from importlib import import_module
from typing import Any, Final

import msgspec

from .. import identity as identities
from ..config import Config, resolve, switch
from ..directory import Directory, choose
from ..guard import guard, shield, shielded
from ..record import Identity
from ..ring.create import create_ring
from ..ring.writer import RingWriter
from . import agent_start, agreement, children, loading
from .instrument import Undo
from .runs import Runs
from .tracer import Tracer

ENDED_IN_MEMORY: Final = 8
STARTING_NS: Final = 1_000_000_000
"""An agent that we started a moment ago may not hold its lock yet: it is not started twice."""


class Runtime:
    """Tracing while it is on: the tracer, its directory, and what undoes the instruments."""

    def __init__(self, config: Config, identity: Identity, runs: Runs) -> None:
        self.config = config
        self.tracer = Tracer(config, identity, runs)
        self.directory: Directory | None = choose(config)
        self.owner = os.getpid()
        self.starts = 1
        self._agent_started_ns = 0
        self._undo: Undo | None = None

    def begin(self) -> None:
        """Make the ring, start the agent, install the instruments: in this order, so that nothing is seen before it can be kept."""
        tracer = self.tracer
        if tracer.identity.role == "worker":
            tracer.cell.append = children.LazyRing(self).append
        else:
            tracer.cell.fill(self.make_ring(tracer.identity, self.config.ring_bytes, ring_share(os.environ)))
            tracer.describe_all()
            tracer.watch = self.look_after
            self.look_after()
            children.announce(tracer.identity)
            tracer.subscribe("identity", children.announce)
        tracer.subscribe("failure", self._mark)
        self._undo = loading.install_all(tracer)

    def _mark(self, _error: BaseException, seen_by: str) -> None:
        if seen_by == "excepthook" and not interactive():
            self.tracer.mark_failed()

    def make_ring(self, identity: Identity, wanted_bytes: int, share: int = 1, parent: str = "") -> RingWriter | None:
        if self.directory is None:
            return None
        return create_ring(self.directory.rings, self.directory.registry, span_id=identity.span_id, wanted_bytes=wanted_bytes, share=share, parent_span=parent)

    def look_after(self) -> None:
        """Once a second: is there an agent, to read what we write?"""
        cell = self.tracer.cell
        if cell.writer is not None:
            self.ensure_agent()

    @shielded
    def ensure_agent(self) -> None:
        """The agent of our directory lives, or is started; a worker leaves that to its rank."""
        if self.directory is None or self.tracer.cell.writer is None or self.tracer.identity.role != "rank":
            return
        if time.monotonic_ns() - self._agent_started_ns > STARTING_NS and agent_start.ensure(self.config, self.directory):
            self._agent_started_ns = time.monotonic_ns()

    def finish(self, *, failed: bool) -> None:
        """The process's own last word: the ring's mark. The mapping stays, other threads may still be writing."""
        if (writer := self.tracer.cell.writer) is not None:
            writer.end("raised" if failed else "clean")
        self.ensure_agent()

    def close(self) -> None:
        if self._undo is not None:
            self._undo()
        self.tracer.watch = None
        writer = self.tracer.cell.writer
        self.tracer.cell.fill(None)
        children.withdraw()
        if writer is not None and writer.path is None:
            keep_open(writer)


_ended_in_memory: Final[deque[RingWriter]] = deque()


def keep_open(writer: RingWriter) -> None:
    """A memory file goes with its descriptor, and an agent comes in through it: the last few stay, however often a program starts and stops."""
    _ended_in_memory.append(writer)
    while len(_ended_in_memory) > ENDED_IN_MEMORY:
        _ended_in_memory.popleft().disown()


class Host:
    """What outlives one start: the hooks into the interpreter, the count of runs, the span before."""

    def __init__(self) -> None:
        self.runtime: Runtime | None = None
        self.runs = Runs()
        self.last: Identity | None = None
        self.hooked = False
        self.lock = threading.RLock()
        """Re-entrant: a signal handler that calls stop, or starts, may have interrupted either."""
        self.exception_at_start: object = None
        self.exit_error: BaseException | None = None

    @property
    def tracer(self) -> Tracer | None:
        return None if self.runtime is None else self.runtime.tracer

    def start(self, arguments: dict[str, Any]) -> Runtime | None:
        """Turn tracing on, or join it; raises ValueError for a setting that can never be right, nothing else."""
        if switched_off():
            return None
        config = resolve(arguments)
        if config.enabled is False:
            return None
        guard.strict = guard.strict or config.strict
        with self.lock:
            if self.runtime is not None:
                self._join(self.runtime, config, arguments)
            else:
                self._begin(config)
        return self.runtime

    def _join(self, runtime: Runtime, config: Config, arguments: dict[str, Any]) -> None:
        runtime.starts += 1
        differing = [name for name in arguments if getattr(config, name) != getattr(runtime.config, name)]
        if differing:
            guard.warn(f"tracing is on already, with other values: {', '.join(sorted(differing))} of this start do not count")

    @shielded
    def _begin(self, config: Config) -> None:
        import_module(".trace", __package__)  # wholly there before a signal handler may want a name of it
        self._hook()
        self.runtime = runtime = Runtime(config, first_identity(config, self.last, self.runs.number + 1), self.runs)
        whole = False
        try:
            runtime.begin()
            whole = True
        finally:
            if not whole:  # half of it on would say that this process is traced, and record nothing
                self.runtime = None
                runtime.close()
        agreement.agree(runtime.tracer)

    def _hook(self) -> None:
        self.exception_at_start = getattr(sys, "last_value", None)
        if not self.hooked:
            self.hooked = True
            atexit.register(self.at_exit)
            os.register_at_fork(after_in_child=self.after_fork)

    def enter(self, settings: dict[str, Any]) -> Runtime | None:
        """A traced function is called: tracing on, and a run begun or joined."""
        runtime = self.runtime or self.start(settings)
        if runtime is not None:
            self.runs.begin(runtime.tracer)
        return runtime

    def leave(self, runtime: Runtime, error: BaseException | None, seen_by: str = "trace") -> None:
        """The traced function, or fit, has ended, by an exception or not."""
        failed = error is not None and not is_success(error)
        if error is not None:
            self.saw(runtime, error, seen_by)
        self.runs.end(runtime.tracer, failed=failed)
        self.exit_error = error if isinstance(error, SystemExit) and failed else None
        if runtime is self.runtime:
            runtime.ensure_agent()

    def saw(self, runtime: Runtime, error: BaseException, seen_by: str) -> None:
        """An exception leaves a traced function, or fit: its failure record, unless it is a success or was recorded already."""
        if not is_success(error) and "failures" not in runtime.config.disable:
            from .instruments import failures

            failures.report(runtime.tracer, error, seen_by)

    def stop(self) -> None:
        """Leave once, and the run that the start began; the last one turns tracing off."""
        with self.lock:
            if (runtime := self.runtime) is None:
                return
            runtime.starts -= 1
            if runtime.starts == 0:
                self.runtime = None
        if self.runtime is runtime:
            with shield("stop"):
                self.runs.end(runtime.tracer, failed=False)
            return
        with shield("stop"):
            while self.runs.depth:
                self.runs.end(runtime.tracer, failed=False)
            runtime.finish(failed=runtime.tracer.failed)
            self.last = runtime.tracer.identity
            runtime.close()

    @shielded
    def at_exit(self) -> None:
        """The interpreter ends. No waiting, no thread, no lock: whatever other threads do, this returns."""
        runtime = self.runtime
        if runtime is None:
            return
        failed = runtime.tracer.failed or self.exit_error is not None or self._exception_ends_us()
        runtime.tracer.publish("exit")
        if runtime.owner == os.getpid():
            while self.runs.depth:
                self.runs.end(runtime.tracer, failed=failed)
        runtime.finish(failed=failed)

    def _exception_ends_us(self) -> bool:
        error = getattr(sys, "last_value", None)
        return error is not None and error is not self.exception_at_start and not interactive()

    @shielded
    def after_fork(self) -> None:
        """In a forked child: nothing of the parent's is touched, and a ring of its own is made at the first record."""
        self.lock = threading.RLock()
        if self.runtime is not None:
            children.adopt(self.runtime)


host = Host()


def is_success(error: BaseException) -> bool:
    """Whether leaving by this exception is a success: exit(0), a closed generator."""
    return isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and error.code in (None, 0))


def switched_off() -> bool:
    """LLMTRACE=0 beats everything."""
    try:
        return "LLMTRACE" in os.environ and os.environ["LLMTRACE"].strip() != "" and not switch(os.environ["LLMTRACE"])
    except ValueError:
        return False


def interactive() -> bool:
    """Whether an uncaught exception is not the end here: a prompt, a notebook."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or "IPython" in sys.modules


def first_identity(config: Config, before: Identity | None, run: int) -> Identity:
    """Who this process is at its start; a lone process has its ids at once, and keeps them over several starts."""
    found = identities.facts(config, os.environ, command=sys.argv[0] if getattr(sys, "argv", None) else "")
    found = msgspec.structs.replace(found, run=run)
    if before is not None:
        found = msgspec.structs.replace(found, trace_id=found.trace_id or before.trace_id, attempt=before.attempt, linked_span_id=before.span_id)
    return children.as_child(found) or (agreement.settle_lone(found) if agreement.is_alone(os.environ) else found)


def ring_share(environ: os._Environ[str] | dict[str, str]) -> int:  # pyright: ignore[reportPrivateUsage]
    """How many processes of this node will want a ring."""
    return identities.number(environ, "LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE") or identities.place(environ).world_size or 1


def start(**settings: Any) -> Runtime | None:
    """Turn tracing on in this process and begin a run; the outermost start wins, a later one joins it.

    Settings are those of the configuration reference; an unknown name or an impossible value raises ValueError. Does nothing
    where LLMTRACE=0. Gives the runtime, or None where tracing is off.
    """
    runtime = host.start(settings)
    if runtime is not None:
        host.runs.begin(runtime.tracer)
    return runtime


@shielded
def start_by_environment() -> None:
    """LLMTRACE=1 and the process trains: tracing on, its steps one run unless the program names runs itself."""
    runtime = host.runtime or host.start({})
    if runtime is not None and host.runs.depth == 0:
        host.runs.begin(runtime.tracer, implicit=True)


def stop() -> None:
    """End the run begun by `start` and, after as many stops as starts, tracing; safe to call at any time."""
    host.stop()


def mark_failed() -> None:
    """An exception is ending this process: its ring says so from here on, whatever happens next."""
    if (tracer := host.tracer) is not None and not interactive():
        tracer.mark_failed()
