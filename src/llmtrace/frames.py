"""Frames: how a record becomes bytes in a ring, and bytes a record again.

A payload is a msgpack array whose first value is the time of emission in CLOCK_MONOTONIC nanoseconds; the frame's kind byte
is the id of the schema that names the others. Decoding needs only what the ring says of itself, so any version reads any.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import compress, pairwise
from operator import itemgetter
from typing import Any, Final

import msgspec

from .names import SCHEMAS, Schema
from .record import Identity, Record
from .unpacker import Values, unpacker

encode = msgspec.msgpack.Encoder().encode
"""Sequence of values, the time first -> payload bytes."""

_decode_rows = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode

decode_values = msgspec.msgpack.Decoder(tuple[Any, ...]).decode
"""Payload bytes -> values, the time first."""

UNDECODABLE: Final = (msgspec.MsgspecError, IndexError, TypeError, ValueError, RecursionError)
"""What bytes that are no record can do to a Decoder."""


def payload_time_ns(payload: bytes | memoryview, start: int = 0) -> int:
    """The monotonic time of a payload that begins at `start`, without decoding the rest."""
    first = payload[start]
    at = start + (3 if first == 0xDC else 1)
    size = {0xCF: 8, 0xCE: 4, 0xCD: 2, 0xCC: 1, 0xD3: 8}.get(payload[at])
    return payload[at] if size is None else int.from_bytes(payload[at + 1 : at + 1 + size], "big")


class Epoch(msgspec.Struct, frozen=True):
    """From `since_ns` (monotonic) on, this is who the process is. Facts learned late are filled backwards on reading."""

    since_ns: int
    identity: Identity


class Description(msgspec.Struct, omit_defaults=True):
    """What a ring says of itself, item by item as it was appended: schemas, identity epochs, names of phases and groups.

    `runs` are (since_ns, run): an epoch that differs from the one before in its run alone, in 16 bytes instead of 250, for a process
    with thousands of runs.
    """

    schemas: list[Schema] = []
    epochs: list[Epoch] = []
    runs: list[tuple[int, int]] = []
    phases: dict[int, str] = {}
    groups: dict[int, str] = {}


_encode_description = msgspec.msgpack.Encoder().encode
_decode_description = msgspec.msgpack.Decoder(Description).decode


def encode_description(part: Description) -> bytes:
    return _encode_description(part)


def merge_descriptions(parts: Iterable[bytes]) -> Description:
    """All that a ring has said of itself so far; raises msgspec.MsgspecError on bytes that are none."""
    whole = Description()
    for part in map(_decode_description, parts):
        whole.schemas.extend(part.schemas)
        whole.epochs.extend(part.epochs)
        if whole.epochs:
            before = whole.epochs[-1].identity
            whole.epochs.extend(Epoch(since_ns, msgspec.structs.replace(before, run=run)) for since_ns, run in part.runs)
        whole.phases.update(part.phases)
        whole.groups.update(part.groups)
    return whole


def known_schemas() -> Description:
    return Description(schemas=list(SCHEMAS))


class Frames(msgspec.Struct, frozen=True):
    """Frames of one ring, column by column: kind byte and absolute position of each, and their payloads one after another."""

    kinds: bytes
    positions: tuple[int, ...]
    payloads: bytes | memoryview


class Decoder:
    """Turns the frames of one ring into records."""

    def __init__(self, description: Description, fallback: Mapping[str, str] | None = None) -> None:
        self._unpackers = {schema.id: unpacker(schema) for schema in description.schemas if 0 <= schema.id <= 255}
        epochs = filled_epochs(description.epochs, fallback or {}) or [Epoch(0, Identity())]
        changes = [epoch for before, epoch in pairwise(epochs) if epoch.identity != before.identity]
        self._since = [epoch.since_ns for epoch in changes]
        self._identities = [epochs[0].identity, *(epoch.identity for epoch in changes)]
        self._span_id = epochs[0].identity.span_id
        self._id_form = self._span_id.replace("%", "%%").replace("\n", " ") + "-%x"

    def identity_at(self, mono_ns: int) -> Identity:
        """Who the process was at that moment: the last epoch not after it, else the first."""
        return self._identities[bisect_right(self._since, mono_ns)]

    def record(self, kind: int, payload: bytes | memoryview, position: int, mono_to_wall_ns: int) -> Record | None:
        """The record in a frame, or None where the ring never named its schema (the caller counts it)."""
        return next(iter(self.decode(Frames(bytes((kind,)), (position,), payload), mono_to_wall_ns)), None)

    def records(self, frames: Collection[tuple[int, int, bytes | memoryview]], mono_to_wall_ns: int) -> list[Record]:
        """The records in frames of (kind, position, payload), as `decode` finds them."""
        kinds, positions = bytes([frame[0] for frame in frames]), tuple([frame[1] for frame in frames])
        return self.decode(Frames(kinds, positions, b"".join([frame[2] for frame in frames])), mono_to_wall_ns)

    def decode(self, frames: Frames, mono_to_wall_ns: int) -> list[Record]:
        """The records in frames, without those whose schema the ring never named; raises one of UNDECODABLE where any is no record.

        `mono_to_wall_ns` is added to a frame's time. Of a chunk everything is done in one go, without a call or a loop of ours for each
        record but the compiled ones: this is what reading a window costs.
        """
        kinds = frames.kinds
        rows = _decode_rows(b"".join((b"\xdd", len(kinds).to_bytes(4, "big"), frames.payloads)))
        ids = ("\n".join([self._id_form] * len(kinds)) % frames.positions).split("\n")  # in half the time that one after the other takes
        if not self._since or not rows:
            return self._unpacked(kinds, ids, rows, mono_to_wall_ns, self._identities[0])
        times = [row[0] for row in rows]
        if (identity := self.identity_at(min(times))) is self.identity_at(max(times)):
            return self._unpacked(kinds, ids, rows, mono_to_wall_ns, identity)
        each = zip(kinds, ids, rows, map(self.identity_at, times), strict=True)
        return [record for kind, name, row, own in each for record in self._unpacked(bytes((kind,)), [name], [row], mono_to_wall_ns, own)]

    def _unpacked(self, kinds: bytes, ids: Sequence[str], rows: Sequence[Values], mono_to_wall_ns: int, identity: Identity) -> list[Record]:
        """Rows of one identity: each kind's by its own function, in the order in which they came."""
        facts = mono_to_wall_ns, identity, self._span_id, identity.parent_span_id
        there = sorted([kind for kind in self._unpackers if kind in kinds], key=kinds.count, reverse=True)
        if sum(map(kinds.count, there)) < len(kinds):
            chosen = [kind in self._unpackers for kind in kinds]
            kinds, ids, rows = bytes(compress(kinds, chosen)), list(compress(ids, chosen)), list(compress(rows, chosen))
        if len(there) == 1:
            return self._unpackers[there[0]](ids, rows, *facts)
        found: list[Record] = []
        few: list[tuple[int, Record]] = []
        for kind in there:
            chosen = kinds.translate(bytes(kind) + b"\1" + bytes(255 - kind))  # 1 where this kind stands, 0 for any other
            records = self._unpackers[kind](list(compress(ids, chosen)), list(compress(rows, chosen)), *facts)
            if not found:
                found = records
            else:
                few += zip(compress(range(len(kinds)), chosen), records, strict=True)
        for place, record in sorted(few, key=itemgetter(0)):  # nearly all are of the first kind; the others are put between them
            found.insert(place, record)
        return found


def filled_epochs(epochs: list[Epoch], fallback: Mapping[str, str]) -> list[Epoch]:
    """Epochs with what was learned later filled backwards (never changed), then with `fallback` (trace_id, attempt, job)."""
    filled: list[Epoch] = []
    later: dict[str, Any] = {name: value for name, value in fallback.items() if value}
    for epoch in reversed(epochs):
        facts = msgspec.structs.asdict(epoch.identity)
        missing = {name: later[name] for name in FILLABLE if facts[name] in ("", None) and name in later}
        identity = msgspec.structs.replace(epoch.identity, **missing) if missing else epoch.identity
        later.update({name: getattr(identity, name) for name in FILLABLE if getattr(identity, name) not in ("", None)})
        filled.append(Epoch(epoch.since_ns, identity))
    filled.reverse()
    return filled


FILLABLE: Final = ("trace_id", "attempt", "parent_span_id", "job", "rank", "local_rank", "world_size", "linked_span_id")
