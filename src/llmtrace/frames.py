"""Frames: how a record becomes bytes in a ring, and bytes a record again.

A payload is a msgpack array whose first value is the time of emission in CLOCK_MONOTONIC nanoseconds; the frame's kind byte
is the id of the schema that names the others. Decoding needs only what the ring says of itself, so any version reads any.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from .names import SCHEMAS, Schema
from .record import Identity, Record
from .unpacker import unpacker

encode = msgspec.msgpack.Encoder().encode
"""Sequence of values, the time first -> payload bytes."""

_decode_list = msgspec.msgpack.Decoder(list[Any]).decode

decode_values = msgspec.msgpack.Decoder(tuple[Any, ...]).decode
"""Payload bytes -> values, the time first."""


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


class Decoder:
    """Turns the frames of one ring into records."""

    def __init__(self, description: Description, fallback: Mapping[str, str] | None = None) -> None:
        self._unpackers = {schema.id: unpacker(schema) for schema in description.schemas}
        epochs = filled_epochs(description.epochs, fallback or {}) or [Epoch(0, Identity())]
        self._since = [epoch.since_ns for epoch in epochs[1:]]
        self._identities = [epoch.identity for epoch in epochs]

    def identity_at(self, mono_ns: int) -> Identity:
        """Who the process was at that moment: the last epoch not after it, else the first."""
        return self._identities[bisect_right(self._since, mono_ns) if self._since else 0]

    def record(self, kind: int, payload: bytes | memoryview, position: int, mono_to_wall_ns: int) -> Record | None:
        """The record in a frame, or None where the ring never named its schema (the caller counts it)."""
        return next(iter(self.records(((kind, position, payload),), mono_to_wall_ns)), None)

    def records(self, frames: Iterable[tuple[int, int, bytes | memoryview]], mono_to_wall_ns: int) -> list[Record]:
        """The records in frames of (kind, position, payload), without those whose schema the ring never named.

        `mono_to_wall_ns` is added to a frame's time. One loop without a call of our own: this is what reading a window costs.
        """
        found: list[Record] = []
        add, unpacker_of, identity, since = found.append, self._unpackers.get, self._identities[0], self._since
        own_span_id, parent_id = identity.span_id, identity.parent_span_id
        for frame_kind, position, payload in frames:
            if (unpack := unpacker_of(frame_kind)) is None:
                continue
            values = _decode_list(payload)
            if since:
                identity = self.identity_at(values[0])
                parent_id = identity.parent_span_id
            add(unpack(values, mono_to_wall_ns, "%s-%x" % (own_span_id, position), identity, own_span_id, parent_id))  # noqa: UP031 - twice as fast as an f-string
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
