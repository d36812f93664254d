"""What the agent must know of a frame before anybody decodes it: bulk or not, and how severe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from ..frames import Description, decode_values, merge_descriptions
from ..record import WARN, Identity

BULK_KINDS: Final = ("sample", "span")


class Shape(NamedTuple):
    """Where a schema keeps what we look for; `kind_at` and `severity_at` count values, the time being the first (0)."""

    bulk: bool
    kind_at: int | None
    severity_at: int | None


class Shapes:
    """The schemas of one ring, as it described them so far."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.description = Description()
        self.bulk_kinds: frozenset[int] = frozenset()
        self._shapes: dict[int, Shape] = {}

    def learn(self, parts: Sequence[bytes]) -> bool:
        """Take in what the ring says of itself now; True where that is news. A part that cannot be read is left out."""
        if len(parts) == len(self.parts):
            return False
        self.parts = list(parts)
        self.description = _merge(self.parts)
        self._shapes = {schema.id: _shape(schema.kind, schema.fields) for schema in self.description.schemas}
        self.bulk_kinds = frozenset(kind for kind, shape in self._shapes.items() if shape.bulk and shape.kind_at is None)
        return True

    def knows(self, kind: int) -> bool:
        return kind in self._shapes

    def look(self, kind: int, payload: bytes) -> tuple[bool, int]:
        """(bulk, severity) of a frame; severity 0 where it has none, WARN where it cannot be told (then a reader looks for itself)."""
        shape = self._shapes.get(kind)
        if shape is None:
            return False, WARN
        if shape.severity_at is None:
            return shape.bulk, 0
        try:
            if shape.severity_at == 1 and payload[1] == 0xCF and payload[0] & 0xF0 == 0x90 and payload[10] < 0x80:
                return shape.bulk, payload[10]  # a short array, the time a uint64: the next byte is the severity
            values = decode_values(payload)
            severity = values[shape.severity_at]
            bulk = values[shape.kind_at] in BULK_KINDS if shape.kind_at is not None else shape.bulk
        except (msgspec.MsgspecError, IndexError):
            return shape.bulk, WARN
        return bulk, severity if isinstance(severity, int) else 0

    def identity(self, otherwise: Identity) -> Identity:
        """The last epoch's, unfilled."""
        return self.description.epochs[-1].identity if self.description.epochs else otherwise


def _shape(kind: str, fields: tuple[str, ...]) -> Shape:
    places = {name: at for at, name in enumerate(fields, start=1)}
    return Shape(kind in BULK_KINDS, places.get("kind"), places.get("severity"))


def _merge(parts: Sequence[bytes]) -> Description:
    readable: list[bytes] = []
    for part in parts:
        try:
            merge_descriptions([part])
        except msgspec.MsgspecError:
            continue
        readable.append(part)
    return merge_descriptions(readable)
