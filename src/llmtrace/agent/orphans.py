"""Rows of the journal whose ring is gone with its process: a reboot, a cleared tmpfs. Their end is told late, as far as known."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from ..clock import boot_id, process_start_ticks
from ..journal import RingRow, Transaction
from .obituary import death_event
from .rows import Rows
from .store import Store


def settle_orphans(store: Store, rows: Rows, followed: Container[str]) -> None:
    """Say of each process that the journal believes running, and that has neither ring nor life, that it is gone."""
    orphans = [row for row in rows.all() if row.ended_ns is None and row.span_id not in followed and not lives(row)]
    if not orphans:
        return
    ended = [msgspec.structs.replace(row, ending="unknown" if row.ending == "running" else row.ending, ended_ns=row.last_ns) for row in orphans]
    if store.write(lambda transaction: _tell(transaction, ended)) is not None:
        for row in ended:
            rows.note(row)


def lives(row: RingRow) -> bool:
    return row.boot_id == boot_id() and process_start_ticks(row.pid) == row.start_ticks


def _tell(transaction: Transaction, ended: list[RingRow]) -> bool:
    for row in ended:
        transaction.put_ring(row)
        payload = death_event(1, row.ending, None, row.step, row.identity.role != "worker", seen=False)
        transaction.append_derived(row.span_id, payload, row.last_ns - 1)  # the clock of that boot is gone: wall time alone counts
    return True
