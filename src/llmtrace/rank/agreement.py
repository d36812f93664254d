"""Agreeing on the job's identity through its own store: the trace id, this start's attempt, and the span before this one.

Only operations that the store answers at once (compare_set, add, check, set, get of a key that is there): never a collective,
never a wait for another rank. Where the store cannot, the facts stay unknown and are filled on reading.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from .. import identity as identities
from ..clock import boot_id, process_start_ticks
from ..config import trace_id
from ..guard import shielded
from ..record import Identity
from .tracer import Tracer

PREFIX: Final = "llmtrace/1"
TRACE_KEY: Final = f"{PREFIX}/trace"
ATTEMPT_KEY: Final = f"{PREFIX}/attempt"
TRIES: Final = 5
CLOCKS_APART_NS: Final = 2_000_000_000
"""How far two nodes' clocks may be apart for a start to be told from the one before by its time alone."""


class Store(Protocol):
    """What we use of a c10d store."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes: ...
    def add(self, key: str, amount: int, /) -> int: ...
    def check(self, keys: list[str], /) -> bool: ...
    def get(self, key: str, /) -> bytes: ...
    def set(self, key: str, value: str, /) -> None: ...


def settle_lone(identity: Identity) -> Identity:
    """A process that shares its job with nobody: random ids, unless the settings or the launcher gave some."""
    trace = identity.trace_id or (identities.launch_trace(identity.launch) if identity.launch else identities.new_trace_id())
    return msgspec.structs.replace(
        identity,
        trace_id=trace,
        parent_span_id=identities.node_span_id(trace, identity.node),
        attempt=identity.attempt or identities.new_attempt(),
    )


def is_alone(environ: Mapping[str, str]) -> bool:
    """Whether neither the environment nor a process group speaks of another process of this job."""
    return identities.is_lone(identities.place(environ)) and (group_size() or 1) <= 1


def group_size() -> int | None:
    """The size of the default process group; None where there is none. Imports nothing."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not getattr(distributed, "is_available", bool)() or not distributed.is_initialized():
        return None
    return distributed.get_world_size()


@shielded
def agree(tracer: Tracer) -> None:
    """Learn from the default process group and its store what is not known yet; safe to call again and again.

    Rank and world size are the group's. An id that the environment gave, or that was agreed before, is not asked for again.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    size = group_size()
    if size is None or not is_rank(tracer.identity):
        return
    tracer.epoch(rank=distributed.get_rank(), world_size=size, **as_rank(tracer.identity))
    if size > 1 and not tracer.agreed:
        tracer.agreed = True
        try:
            _agree_through(default_store(), tracer)
        except (RuntimeError, ValueError, TypeError, AttributeError, OSError):  # torch's stores raise RuntimeError and its kin
            tracer.publish("agreement failed")
    if size == 1 and not tracer.identity.trace_id:
        found = settle_lone(tracer.identity)
        tracer.epoch(trace_id=found.trace_id, attempt=found.attempt, parent_span_id=found.parent_span_id)


def is_rank(identity: Identity) -> bool:
    """A child of a rank stays a worker whatever group it makes (torch's asynchronous checkpoints make one in a child)."""
    return identity.role == "rank" or identity.rank is None


def as_rank(identity: Identity) -> dict[str, Any]:
    """A forked or spawned child of a launcher that joins a group is a rank itself, and a span of the node."""
    if identity.role == "rank":
        return {}
    return {"role": "rank", "parent_span_id": identities.node_span_id(identity.trace_id, identity.node)}


def default_store() -> Any:
    """The store of the default group, as torch keeps it."""
    c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
    return c10d._world.pg_map[c10d.GroupMember.WORLD][1]


def base_store(store: Any) -> Any:
    """The store under all prefixes: what is said there outlives a restart where the launcher hosts it."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


def _agree_through(store: Any, tracer: Tracer) -> None:
    base = base_store(store)
    own = tracer.identity
    facts: dict[str, Any] = {}
    given = identities.trace_id_known(tracer.config, os.environ)
    trace = given or agree_trace(base, own.trace_id or (identities.launch_trace(own.launch) if own.launch else identities.new_trace_id()))
    if trace:
        facts |= {"trace_id": trace, "parent_span_id": identities.node_span_id(trace, own.node)}
    if not (attempt := identities.attempt_known(tracer.config, os.environ)):
        attempt = agree_attempt(base, Arrival.of(own, trace), own.attempt or identities.new_attempt())
    if attempt:
        facts["attempt"] = attempt
    if before := span_before(base, own, trace):
        facts["linked_span_id"] = before
    tracer.epoch(**facts)


def agree_trace(store: Store, proposal: str) -> str:
    """One trace id for all who ask this store: the first proposal. Empty where the store gives something that is none."""
    found = store.compare_set(TRACE_KEY, "", proposal).decode("ascii", "replace")
    try:
        return trace_id(found)
    except ValueError:
        return ""


class Start(msgspec.Struct, frozen=True, array_like=True):
    """One start of the job, as its first rank wrote it into the store. Times are since boot, and wall clock, in nanoseconds."""

    attempt: str
    boot: str
    since_boot_ns: int
    wall_ns: int


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that asks which start of the job it belongs to."""

    who: str
    key: str
    boot: str
    started_since_boot_ns: int
    started_wall_ns: int

    @classmethod
    def of(cls, identity: Identity, trace: str) -> Arrival:
        started = process_started_since_boot_ns()
        ago = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - started
        return cls(who=str(identity.rank), key=f"{ATTEMPT_KEY}/{trace}", boot=boot_id(), started_since_boot_ns=started, started_wall_ns=time.time_ns() - ago)

    def is_later_than(self, start: Start) -> bool:
        """Whether that start was announced before this process even existed: then it is an earlier one of the job's.

        On one boot the kernel's clock decides exactly; between machines the wall clocks may be a little apart.
        """
        if start.boot == self.boot:
            return start.since_boot_ns < self.started_since_boot_ns
        return start.wall_ns + CLOCKS_APART_NS < self.started_wall_ns


def process_started_since_boot_ns() -> int:
    ticks = process_start_ticks(os.getpid()) or 0
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


_encode = msgspec.json.Encoder().encode


def agree_attempt(store: Store, arrival: Arrival, proposal: str) -> str:
    """One value for all ranks of this start of the job, another at each start; empty where the store cannot.

    A store that outlives restarts (torchrun's own) holds the start before. It is not ours if it was announced before this
    process existed, or if our rank is in it already; then the first who finds that announces a new one.
    """
    announced = Start(proposal, arrival.boot, time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.time_ns())
    mine = _encode(announced).decode()
    found = store.compare_set(arrival.key, "", mine)
    for _ in range(TRIES):
        start = msgspec.json.decode(found, type=Start)
        is_ours = start.attempt == announced.attempt or not arrival.is_later_than(start)
        if is_ours and store.add(f"{arrival.key}/{start.attempt}/{arrival.who}", 1) == 1:
            return start.attempt
        found = store.compare_set(arrival.key, found.decode(), mine)
    return ""


def span_before(store: Store, identity: Identity, trace: str) -> str:
    """The span that this rank had before the restart, and a note of ours for the next; empty at the first start."""
    key = f"{PREFIX}/span/{trace}/{identity.rank}"
    before = store.get(key).decode("ascii", "replace") if store.check([key]) else ""
    store.set(key, identity.span_id)
    return before if before != identity.span_id else ""
