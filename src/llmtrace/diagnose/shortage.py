"""What an allocator's refusal says: how much was asked for, what there was, and whether that request alone was the trouble."""

from __future__ import annotations

import math
from typing import Final

from ..names import OOM_ALLOCATED, OOM_DEVICE, OOM_FREE, OOM_LIMIT, OOM_RESERVED, OOM_RSS, OOM_SIZE
from ..record import Record

MANY: Final = 8
"""A request so many times larger than all that the process holds is no step of a slow growth."""
HOST: Final = ("cpu", "cgroup")
"""Devices whose memory is the host's."""


def amount(record: Record, name: str) -> int | float | None:
    """An amount of memory in bytes; None where the record has none, or no finite number."""
    value = record.attributes.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None


def held(record: Record) -> int | float | None:
    """What the process held when it asked."""
    found = [value for name in (OOM_RSS, OOM_ALLOCATED, OOM_RESERVED) if (value := amount(record, name)) is not None]
    return max(found, default=None)


def too_large(record: Record) -> bool:
    """Whether no state of the memory could have met that one request: more than the limit, or more than is free and many times what is held."""
    asked, free, limit, has = amount(record, OOM_SIZE), amount(record, OOM_FREE), amount(record, OOM_LIMIT), held(record)
    if asked is None:
        return False
    if limit is not None and asked > limit:
        return True
    return free is not None and asked > free and has is not None and asked > MANY * max(has, free)


def grown(record: Record) -> bool:
    """Whether the request was small beside what was held already: what filled the memory came before it."""
    asked, has = amount(record, OOM_SIZE), held(record)
    return asked is not None and has is not None and MANY * asked <= has


def reason(record: Record) -> str:
    """What the refusal says, in numbers as far as they are told; no more than that."""
    device = str(record.attributes.get(OOM_DEVICE, "cpu"))
    where = "the host" if device in HOST else device
    asked, free, limit = (amount(record, name) for name in (OOM_SIZE, OOM_FREE, OOM_LIMIT))
    if asked is None:
        return f"the allocator of {where} refused a request"
    if free is not None and asked > free:
        return f"one request of {format_bytes(asked)} could not be met: {format_bytes(free)} was free"
    if limit is not None and asked > limit:
        return f"one request of {format_bytes(asked)} could not be met: the limit is {format_bytes(limit)}"
    if free is not None:
        return f"a request of {format_bytes(asked)} could not be met though {format_bytes(free)} was free: fragments, or a limit"
    return f"a request of {format_bytes(asked)} was refused by the allocator of {where}"


def sizes(record: Record) -> str:
    """`1.0 PiB asked for, 11.2 GiB free`, as far as it is told."""
    told = [f"{format_bytes(value)} {word}" for name, word in ((OOM_SIZE, "asked for"), (OOM_FREE, "free")) if (value := amount(record, name)) is not None]
    return ", ".join(told) if amount(record, OOM_SIZE) is not None else ""


def format_bytes(count: float) -> str:
    """In the largest binary unit that leaves at least one."""
    power = min(max(int(count).bit_length() - 1, 0) // 10, 6)
    return f"{count / (1 << 10 * power):.1f} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB')[power]}" if power else f"{count:.0f} B"
