"""What a ring's row means to whoever reads it, agent and sources alike: how its frames decode, and the process that it tells of."""

from __future__ import annotations

import msgspec

from ..frames import Description, Epoch, merge_descriptions
from ..guard import guard
from ..names import GENERAL
from ..record import Identity, Process
from .format import RingRow


def description_of(row: RingRow) -> Description:
    """What the ring said of itself; where that is missing, what the agent knows: its identity, and how derived records lie."""
    try:
        found = merge_descriptions(row.description)
    except msgspec.MsgspecError as error:
        guard.warn(f"ring {row.span_id} describes itself in a way that cannot be read: {error}")
        found = Description()
    return Description(schemas=[GENERAL, *found.schemas], epochs=found.epochs or [Epoch(0, row.identity)])


def process_of(row: RingRow, identity: Identity) -> Process:
    """The process as the row has it, under the identity that was filled in."""
    return Process(
        identity=identity,
        started_ns=row.started_ns,
        last_ns=row.last_ns,
        ending=row.ending,
        ended_ns=row.ended_ns,
        exit_code=row.exit_code,
        last_step=row.step,
        phase=row.phase,
        progress_ns=row.progress_ns,
        records=row.count,
        lost=row.lost,
    )
