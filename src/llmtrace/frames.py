"""Frames: how a record becomes bytes in a ring, and bytes a record again.

A payload is a msgpack array whose first value is the time of emission in CLOCK_MONOTONIC nanoseconds; the frame's kind byte
is the id of the schema that names the others. Decoding needs only what the ring says of itself, so any version reads any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from .names import SCHEMAS, Schema
from .record import INFO, Identity, Record

RECORD_FIELDS: Final = frozenset({"name", "kind", "severity", "body", "step", "duration_ns", "span_id", "parent_span_id", "attributes"})

encode = msgspec.msgpack.Encoder().encode
"""Sequence of values, the time first -> payload bytes."""

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
    """What a ring says of itself, item by item as it was appended: schemas, identity epochs, names of phases and groups."""

    schemas: list[Schema] = []
    epochs: list[Epoch] = []
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
        whole.phases.update(part.phases)
        whole.groups.update(part.groups)
    return whole


def known_schemas() -> Description:
    return Description(schemas=list(SCHEMAS))


class Decoder:
    """Turns the frames of one ring into records. `mono_to_wall_ns` is added to a frame's time."""

    def __init__(self, description: Description, fallback: Mapping[str, str] | None = None) -> None:
        self._schemas = {schema.id: schema for schema in description.schemas}
        self._epochs = filled_epochs(description.epochs, fallback or {})

    def identity_at(self, mono_ns: int) -> Identity:
        """Who the process was at that moment: the last epoch not after it, else the first."""
        found = self._epochs[0].identity if self._epochs else Identity()
        for epoch in self._epochs:
            if epoch.since_ns > mono_ns:
                break
            found = epoch.identity
        return found

    def record(self, kind: int, payload: bytes | memoryview, position: int, mono_to_wall_ns: int) -> Record | None:
        """The record in a frame, or None where the ring never named its schema (the caller counts it)."""
        schema = self._schemas.get(kind)
        if schema is None:
            return None
        values = decode_values(payload)
        identity = self.identity_at(values[0])
        own: dict[str, Any] = {"name": schema.name, "kind": schema.kind, "severity": INFO}
        attributes: dict[str, Any] = {}
        for field, value in zip(schema.fields, values[1:], strict=False):
            if value is None:
                continue
            if field == "attributes":
                attributes.update(value)
            elif field in RECORD_FIELDS:
                own[field] = value
            else:
                attributes[field] = value
        own.setdefault("span_id", identity.span_id)
        own.setdefault("parent_span_id", identity.parent_span_id)
        return Record(id=f"{identity.span_id}-{position:x}", time_ns=values[0] + mono_to_wall_ns, identity=identity, attributes=attributes, **own)


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
