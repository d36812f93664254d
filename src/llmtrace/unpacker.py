"""How a schema's rows of values become Records: a function compiled for each schema, as namedtuple and dataclass do it.

Reading a window is this and little else, 63,000 times, so the function takes many rows at once and does nothing for each but what is
written out: 0.7 us a record in memory that is new, where a call for each cost 1.1 and a general loop 2.3 (CPython 3.11.7, no PGO).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from .names import Schema
from .record import INFO, Identity, Record

RECORD_FIELDS: Final = frozenset({"name", "kind", "severity", "body", "step", "duration_ns", "span_id", "parent_span_id", "attributes"})

Values = tuple[Any, ...]
"""What a payload holds, the time first."""

Unpack = Callable[[Sequence[str], Sequence[Values], int, Identity, str, str], list[Record]]
"""(record ids, a row of values for each, wall minus monotonic, identity, its span id, its parent's) -> the records."""


@lru_cache(maxsize=256)
def unpacker(schema: Schema) -> Unpack:
    """The function for this schema. Values that a newer or older writer of it has more, or fewer, are left out, or absent."""
    names = {"Record": Record, "fitted": _fitted}
    exec(_source(schema), names)  # noqa: S102 - only numbers and quoted names are put into the text
    return names["unpack"]  # type: ignore[return-value]


def _source(schema: Schema) -> str:
    variables = [f"v{place}" for place in range(1, len(schema.fields) + 1)]
    places = dict(zip(schema.fields, variables, strict=True))  # of a name that stands there twice the last counts
    named = {field: value for field, value in places.items() if field not in RECORD_FIELDS}
    more = places.get("attributes")
    count = len(variables) + 1
    own = {
        "id": "id",
        "time_ns": "time_ns + offset_ns",
        "kind": _or(places.get("kind"), repr(schema.kind)),
        "name": _or(places.get("name"), repr(schema.name)),
        "identity": "identity",
        "severity": f"{INFO} if {severity} is None else {severity}" if (severity := places.get("severity")) else str(INFO),
        **{field: places.get(field, "None") for field in ("body", "step", "duration_ns")},
        "span_id": _or(places.get("span_id"), "span_id"),
        "parent_span_id": _or(places.get("parent_span_id"), "parent_span_id"),
        "attributes": _attributes(named, more),
    }
    return "\n".join(
        [
            "def unpack(ids, rows, offset_ns, identity, span_id, parent_span_id):",
            "    try:",
            "        return [",
            f"            Record({', '.join(own[field] for field in Record.__struct_fields__)})",
            f"            for id, ({', '.join(['time_ns', *variables])},) in zip(ids, rows)",
            "        ]",
            "    except ValueError:",
            f"        if {{*map(len, rows)}} == {{{count}}}: raise",
            f"    return unpack(ids, fitted(rows, {count}), offset_ns, identity, span_id, parent_span_id)",
            f"def present({', '.join([*named.values(), 'more'])}):",
            "    found = {}",
            *(f"    if {value} is not None: found[{field!r}] = {value}" for field, value in named.items()),
            "    if more: found.update(more)",
            "    return found",
        ]
    )


def _attributes(named: dict[str, str], more: str | None) -> str:
    """All at once where all are there, as nearly always; else without what is absent."""
    conditions = [f"{value} is not None" for value in named.values()] + ([f"not {more}"] if more else [])
    whole = f"{{{', '.join(f'{field!r}: {value}' for field, value in named.items())}}}"
    return f"{whole} if {' and '.join(conditions)} else present({', '.join([*named.values(), str(more)])})" if conditions else whole


def _or(value: str | None, otherwise: str) -> str:
    return f"{value} or {otherwise}" if value else otherwise


def _fitted(rows: Sequence[Values], count: int) -> list[Values]:
    return [(*row, *[None] * count)[:count] for row in rows]
