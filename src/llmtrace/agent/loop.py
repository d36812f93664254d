"""The agent's loop: rings into the journal, then whoever reads the journal, and pages of what was found; until the last rank is gone and all is drained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..clock import monotonic_ns, wall_minus_monotonic_ns
from ..config import Config
from ..directory import AgentLock, Directory
from ..guard import shield
from ..journal import JournalReader, RingRow, Transaction
from ..links import links
from .consumers import Runner
from .incidents import Detection
from .log import say
from .orphans import settle_orphans
from .pages import Pages
from .rings import Rings
from .rows import Rows
from .store import Store
from .tail import Tail

LINGER_NS: Final = 1_000_000_000
"""How long it stays after the last rank, so that a restart at once finds it."""
DRAIN_NS: Final = 10_000_000_000
"""How long it tries at most to have everything written (DESIGN part 2)."""
PRUNE_NS: Final = 60_000_000_000


class Agent:
    """One life of an agent, from the lock to its release. `asked` says whether somebody wants it to leave."""

    def __init__(self, directory: Directory, config: Config, lock: AgentLock, *, service: bool, asked: Callable[[], bool]) -> None:
        self._service, self._asked, self._lock = service, asked, lock
        self._journal = directory.journal
        self._store = Store(directory.journal, config)
        self._rings = Rings(directory)
        self._rows = Rows()
        self._pages = Pages(directory, config)
        self._detection = Detection(self._rows, lambda incident: links(config, directory.pages, incident), self._pages.note)
        self._runners = [Runner(self._detection, self._store, self._rows)]
        self._begun = self._displaced = False
        self._openings = 0
        self._alone_since_ns: int | None = None
        self._prune_ns = monotonic_ns() + PRUNE_NS

    def run(self) -> None:
        while not self._over():
            with shield("agent"):
                self._turn()
        self._leave()

    def _turn(self) -> None:
        self._rings.wait()
        if not self._store.ready() or not self._begin():
            return  # what is not read stays in the rings
        if self._openings != self._store.openings:  # after trouble, and maybe on a new file: what is not surely in it is put again
            self._openings = self._store.openings
            self._rewind()
        self._rings.find(self._lookup)
        self._rings.read()
        self._flush(monotonic_ns())
        for runner in self._runners:
            runner.turn()
        if self._pages.pending():
            self._pages.turn(alone=not self._rings.living() and self._drained())
        self._prune(monotonic_ns())

    def _begin(self) -> bool:
        """Once, when the journal can be read for the first time: what it knows already."""
        if not self._begun:
            rows = self._store.read(lambda journal: journal.rings())
            if rows is None:
                return False
            self._rows.load(rows)
            self._rings.find(self._lookup)
            settle_orphans(self._store, self._rows, self._rings.tails)
            self._recall(rows)
            self._begun = True
        return True

    def _recall(self, rows: list[RingRow]) -> None:
        cursor = self._store.read(lambda journal: journal.cursor(self._detection.name))
        with shield("agent recalls"), JournalReader(self._journal) as reader:
            self._detection.recall(reader, cursor[0] if cursor else 0)
            self._pages.recall(reader, rows)

    def _lookup(self, span_id: str) -> tuple[RingRow | None] | None:
        row = self._rows.get(span_id)
        return (row,) if row is not None else self._store.read(lambda journal: (journal.ring(span_id),))

    def _flush(self, now_ns: int) -> None:
        """What is due into the journal; as soon as one thing is urgent, everything, so that what happened around it is there."""
        tails = list(self._rings.tails.values())
        due = tails if any(tail.urgent for tail in tails) else [tail for tail in tails if tail.due(now_ns)]
        if not due:
            return
        taken: bool | None = None
        with shield("agent writes"):
            taken = self._store.write(lambda transaction: put(transaction, due)) is not None
        if taken is None and len(due) > 1:  # one of them is damaged: alone it harms no other
            for tail in due:
                self._write_alone(tail)
        elif taken:
            self._note(due)
        else:  # whatever the reason: nothing is held that the ring does not hold as well
            self._rewind()
            self._set_aside(due if taken is None else [])
        self._rings.drop_finished()

    def _write_alone(self, tail: Tail) -> None:
        taken: bool | None = None
        with shield(f"agent writes {tail.path.name}"):
            taken = self._store.write(lambda transaction: put(transaction, [tail])) is not None
        if taken:
            self._note([tail])
            return
        tail.rewind()
        self._set_aside([tail] if taken is None else [])

    def _note(self, saved: list[Tail]) -> None:
        for tail in saved:
            self._rows.note(tail.saved())

    def _set_aside(self, damaged: list[Tail]) -> None:
        for tail in damaged:
            self._rings.set_aside(tail)

    def _rewind(self) -> None:
        for tail in self._rings.tails.values():
            tail.rewind()

    def _prune(self, now_ns: int) -> None:
        if now_ns >= self._prune_ns:
            self._prune_ns = now_ns + PRUNE_NS
            self._store.read(lambda journal: journal.prune() or True)
            self._rows.forget()
            self._detection.forget()
            self._pages.prune()

    def _over(self) -> bool:
        if not self._lock.holds():
            say("the lock's file is gone: leaving, whoever needs an agent starts another")
            self._displaced = True
            return True
        if self._service:
            return self._asked()
        if self._rings.living():
            self._alone_since_ns = None
            return False
        now_ns = monotonic_ns()
        self._alone_since_ns = self._alone_since_ns or now_ns
        alone_ns = now_ns - self._alone_since_ns
        if alone_ns > DRAIN_NS:
            return True
        return self._drained() and self._pages.idle() and not self._rings.orphans() and (alone_ns > LINGER_NS or self._asked())

    def _drained(self) -> bool:
        return self._begun and all(tail.idle() for tail in self._rings.tails.values()) and all(runner.idle() for runner in self._runners)

    def _leave(self) -> None:
        if not self._displaced:  # else another may be at work already
            with shield("agent leaves"):
                self._turn()
                self._store.read(lambda journal: journal.prune() or True)
        self._pages.leave()
        self._rings.close()
        self._store.close()


def put(transaction: Transaction, tails: list[Tail]) -> bool:
    offset_ns = wall_minus_monotonic_ns()
    for tail in tails:
        tail.put(transaction, offset_ns)
    return True
