"""How one schema's values become a Record: a function compiled for each schema, as namedtuple and dataclass do it.

Reading a window is this and little else, 63,000 times. Picking values by position and dropping the absent ones in a general loop
cost 2.3 us a record; written out it is 1.1 (CPython 3.11.7, no PGO).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from .names import Schema
from .record import INFO, Identity, Record

RECORD_FIELDS: Final = frozenset({"name", "kind", "severity", "body", "step", "duration_ns", "span_id", "parent_span_id", "attributes"})

Unpack = Callable[[list[Any], int, str, Identity, str, str], Record]
"""(values, wall minus monotonic, record id, identity, its span id, its parent's) -> the record."""


@lru_cache(maxsize=256)
def unpacker(schema: Schema) -> Unpack:
    """The function for this schema. Values that a newer or older writer of it has more, or fewer, are left out, or absent."""
    names = {"Record": Record}
    exec(_source(schema), names)  # noqa: S102 - only numbers and quoted names are put into the text
    return names["unpack"]  # type: ignore[return-value]


def _source(schema: Schema) -> str:
    variables = [f"v{place}" for place in range(1, len(schema.fields) + 1)]
    places = dict(zip(schema.fields, variables, strict=True))  # of a name that stands there twice the last counts
    count = len(variables) + 1
    lines = [
        "def unpack(values, offset_ns, id, identity, span_id, parent_span_id):",
        f"    if len(values) != {count}:",
        f"        values = (values + [None] * {count})[:{count}]",
        f"    {', '.join(['time_ns', *variables])}, = values",
        "    attributes = {}",
        *(f"    if {value} is not None: attributes[{field!r}] = {value}" for field, value in places.items() if field not in RECORD_FIELDS),
    ]
    if more := places.get("attributes"):
        lines.append(f"    if {more}: attributes.update({more})")
    own = {
        "kind": _or(places.get("kind"), repr(schema.kind)),
        "name": _or(places.get("name"), repr(schema.name)),
        "severity": f"{INFO} if {severity} is None else {severity}" if (severity := places.get("severity")) else str(INFO),
        "span_id": _or(places.get("span_id"), "span_id"),
        "parent_span_id": _or(places.get("parent_span_id"), "parent_span_id"),
        **{field: places.get(field, "None") for field in ("body", "step", "duration_ns")},
    }
    facts = ", ".join(f"{field}={value}" for field, value in own.items())
    return "\n".join([*lines, f"    return Record(id=id, time_ns=time_ns + offset_ns, identity=identity, attributes=attributes, {facts})"])


def _or(value: str | None, otherwise: str) -> str:
    return f"{value} or {otherwise}" if value else otherwise
