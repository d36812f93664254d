"""What the agent knows of the processes of late: ring rows by span, and through them identities, decoders, processes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from ..frames import UNDECODABLE, Decoder
from ..identity import fallbacks
from ..journal import Chunk, RingRow, description_of, process_of
from ..record import Identity, Process, Record

KEPT_NS: Final = 3600 * 1_000_000_000
"""How long a process that ended stays known: long enough for the last words of the slowest of its siblings."""
EVER_NS: Final = 1 << 63

Fallback = Mapping[str, str]


class Rows:
    """The latest row of each ring that lives, or ended within the hour."""

    def __init__(self) -> None:
        self._rows: dict[str, RingRow] = {}
        self._fallbacks: dict[str, dict[str, str]] | None = None
        self._decoders: dict[str, tuple[list[bytes], Fallback, Decoder]] = {}

    def get(self, span_id: str) -> RingRow | None:
        return self._rows.get(span_id)

    def all(self) -> list[RingRow]:
        return list(self._rows.values())

    def note(self, row: RingRow) -> None:
        before = self._rows.get(row.span_id)
        self._rows[row.span_id] = row
        if before is None or before.identity != row.identity:
            self._fallbacks = None

    def load(self, rows: Iterable[RingRow]) -> None:
        for row in rows:
            self.note(row)
        self.forget()

    def forget(self) -> None:
        old_ns = time.time_ns() - KEPT_NS
        for span_id, row in list(self._rows.items()):
            if row.ending != "running" and max(row.last_ns, row.ended_ns or 0) < old_ns:
                del self._rows[span_id]
                self._decoders.pop(span_id, None)
                self._fallbacks = None

    def decoder(self, row: RingRow) -> Decoder:
        """Made anew where the ring has said more of itself, or its siblings have."""
        if self._fallbacks is None:
            self._fallbacks = fallbacks(known.identity for known in self._rows.values())
        fallback = self._fallbacks.get(row.span_id, {})
        found = self._decoders.get(row.span_id)
        if found is None or len(found[0]) != len(row.description) or found[1] != fallback:
            found = self._decoders[row.span_id] = (row.description, fallback, Decoder(description_of(row), fallback))
        return found[2]

    def identity(self, row: RingRow) -> Identity:
        """Who it is, with what was learned late, or from siblings, filled in."""
        return self.decoder(row).identity_at(EVER_NS)

    def of(self, trace_id: str, attempt: str) -> list[RingRow]:
        """The rows of one attempt of one trace."""
        found = [(row, self.identity(row)) for row in self._rows.values()]
        return [row for row, identity in found if (identity.trace_id, identity.attempt) == (trace_id, attempt)]

    def processes(self, trace_id: str, attempt: str, since_ns: int) -> list[Process]:
        """Those of one attempt that lived after a time."""
        return [process_of(row, self.identity(row)) for row in self.of(trace_id, attempt) if row.ended_ns is None or row.ended_ns >= since_ns]

    def records(self, chunk: Chunk) -> list[Record]:
        """A chunk's records; what cannot be decoded is left out (readers count it)."""
        row = self._rows.get(chunk.span_id)
        if row is None or (packed := chunk.unpacked()) is None:
            return []
        decoder = self.decoder(row)
        with suppress(*UNDECODABLE):
            return decoder.decode(packed, chunk.offset_ns)
        found: list[Record] = []
        for frame in chunk.frames():
            with suppress(*UNDECODABLE):
                found += decoder.records([frame], chunk.offset_ns)
        return found
