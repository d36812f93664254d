"""Consumers: whoever reads the journal behind the rings, each at its own pace, each with a cursor that moves with what it wrote."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from ..clock import wall_minus_monotonic_ns
from ..guard import shield
from ..journal import Chunk, Transaction
from .rows import Rows
from .store import Store

BATCH: Final = 64
"""Chunks offered at a time."""
TRIES: Final = 3
"""How often a batch is offered to a consumer of ours that fails on it (a defect, not a refusal); then it is passed over and counted."""


class Derived(msgspec.Struct, frozen=True):
    """A record that a consumer made about a process: a GENERAL payload for that ring."""

    span_id: str
    payload: bytes


class Consumer(Protocol):
    """`bulk` False: logs and events only; True: samples and spans only; None: both."""

    name: str
    bulk: bool | None

    def take(self, chunks: Sequence[Chunk]) -> list[Derived] | None:
        """What follows from these chunks. None is no verdict: the same ones come again at the next turn."""
        ...

    def turn(self) -> list[Derived]:
        """What time alone brings; asked when there is nothing to take."""
        ...

    def idle(self) -> bool:
        """Whether nothing more will come of what was taken."""
        ...


class Outcome(msgspec.Struct, frozen=True):
    derived: list[Derived]
    last: Chunk | None


class Runner:
    """Feeds one consumer and saves what it says: derived records and the cursor in one transaction."""

    def __init__(self, consumer: Consumer, store: Store, rows: Rows) -> None:
        self._consumer, self._store, self._rows = consumer, store, rows
        self._batch: list[Chunk] = []
        self._unsaved: Outcome | None = None
        self._writes = self._openings = -1
        self._failures = 0

    def turn(self) -> None:
        if self._openings != self._store.openings:
            self._begin_anew()
        if self._unsaved is None:
            self._unsaved = self._ask()
        if self._unsaved is not None and self._store.write(self._save) is not None:
            self._unsaved = None

    def _begin_anew(self) -> None:
        """The journal was opened (again), and may be a new one: its chunks are counted from its own cursor."""
        self._openings, self._writes, self._batch = self._store.openings, -1, []
        if self._unsaved is not None:
            self._unsaved = Outcome(self._unsaved.derived, None) if self._unsaved.derived else None

    def _ask(self) -> Outcome | None:
        if not self._batch:
            self._batch = self._fetch()
        if not self._batch:
            with shield(f"consumer {self._consumer.name}"):
                derived = self._consumer.turn()
                return Outcome(derived, None) if derived else None
            return None
        derived = self._offer(self._batch)
        if derived is None:
            return None
        last, self._batch = self._batch[-1], []
        return Outcome(derived, last)

    def _fetch(self) -> list[Chunk]:
        writes = self._store.writes
        if writes == self._writes:
            return []
        found = self._store.read(lambda journal: journal.unread(self._consumer.name, BATCH, self._consumer.bulk))
        if not found:
            self._writes = self._writes if found is None else writes
            return []
        return [chunk for chunk, _ in found]

    def _offer(self, batch: list[Chunk]) -> list[Derived] | None:
        self._failures += 1
        with shield(f"consumer {self._consumer.name}"):
            verdict = self._consumer.take(batch)
            self._failures = 0
            return verdict
        if self._failures < TRIES:
            return None
        self._failures = 0
        return []

    def _save(self, transaction: Transaction) -> bool:
        outcome = self._unsaved
        if outcome is None:
            return True
        offset_ns = wall_minus_monotonic_ns()
        for derived in outcome.derived:
            if (row := self._rows.get(derived.span_id)) is not None:
                transaction.put_ring(row)  # it may be another journal than the one that had it
                transaction.append_derived(derived.span_id, derived.payload, offset_ns)
        if outcome.last is not None:
            transaction.move_cursor(self._consumer.name, outcome.last.id, outcome.last.count)
        return True

    def idle(self) -> bool:
        return self._unsaved is None and not self._batch and self._writes == self._store.writes and self._consumer.idle()


class Threaded:
    """A slow consumer on a thread of its own, so that it delays nobody: it has no verdict until its thread has come to one."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.name, self.bulk = consumer.name, consumer.bulk
        self._thread: threading.Thread | None = None
        self._verdict: list[Derived] | None = None
        self._worked = False

    def take(self, chunks: Sequence[Chunk]) -> list[Derived] | None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, args=(list(chunks),), name=f"llmtrace {self.name}", daemon=True)
            self._thread.start()
            return None
        if self._thread.is_alive():
            return None
        self._thread = None
        if not self._worked:
            raise RuntimeError(f"{self.name} failed on its thread")
        return self._verdict

    def _work(self, chunks: list[Chunk]) -> None:
        self._worked = False
        with shield(f"consumer {self.name}, on its thread,"):
            self._verdict = self._consumer.take(chunks)
            self._worked = True

    def turn(self) -> list[Derived]:
        return self._consumer.turn()

    def idle(self) -> bool:
        return self._thread is None and self._consumer.idle()
