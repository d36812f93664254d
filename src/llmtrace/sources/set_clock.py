"""Windows over a wall clock that was set: within a boot the monotonic clock orders, and the setting that held last names the time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from ..journal import STEP_NS, Chunk, JournalReader, RingRow
from ..record import Kind, Window


class HasRow(Protocol):
    @property
    def row(self) -> RingRow: ...


def chunks_in_order(reader: JournalReader, window: Window, rings: Mapping[str, HasRow], kinds: Collection[Kind] | None) -> list[Chunk]:
    """The chunks of a window, of these rings; those from before (or after) the clock was set are moved to where the window's own
    setting has them, so that nothing is missing, nothing doubled and nothing out of order."""
    found = reader.chunks_between(window.start_ns, window.end_ns, rings.keys(), None, kinds)
    boots = {ring.row.boot_id for ring in rings.values()}
    set_again = {boot: offsets for boot, offsets in reader.clock_settings().items() if boot in boots and len(offsets) > 1}
    for boot, offsets in set_again.items():
        of_boot = {span_id for span_id, ring in rings.items() if ring.row.boot_id == boot}
        inside = [chunk for chunk in found if chunk.span_id in of_boot]
        if not inside:
            continue
        now_ns = max(inside, key=lambda chunk: chunk.id).offset_ns
        moved = {chunk.id: chunk for offset_ns in offsets for chunk in _moved(reader, window, of_boot, kinds, offset_ns, now_ns)}
        found = [chunk for chunk in found if chunk.span_id not in of_boot] + list(moved.values())
    return found


def _moved(reader: JournalReader, window: Window, spans: Collection[str], kinds: Collection[Kind] | None, offset_ns: int, now_ns: int) -> list[Chunk]:
    """What was emitted in the window while the clock stood `offset_ns` ahead of the monotonic one, told by the setting `now_ns`."""
    by_ns = now_ns - offset_ns if abs(now_ns - offset_ns) > STEP_NS else 0
    found = reader.chunks_between(window.start_ns - by_ns, window.end_ns - by_ns, spans, None, kinds, offset_ns)
    return [
        msgspec.structs.replace(
            chunk,
            first_ns=chunk.first_ns + by_ns,
            last_ns=chunk.last_ns + by_ns,
            earliest_start_ns=chunk.earliest_start_ns + by_ns,
            offset_ns=chunk.offset_ns + by_ns,
        )
        for chunk in found
    ]
