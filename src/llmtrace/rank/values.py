"""Values on their way into a record: text that every store takes, numbers as numbers, and a safe word on everything else.

Nothing here synchronises with a device, copies a large object, or runs code of the user's beyond `str` of plain types.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from ..guard import tried
from ..record import Value

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_INT64: Final = 1 << 63
_TELLING: Final = frozenset({"builtins", "datetime", "decimal", "enum", "fractions", "ipaddress", "pathlib", "uuid"})
"""Modules whose objects say in `str` what they are, at once."""
LONGEST_DESCRIPTION: Final = 200
LONGEST_INT_BITS: Final = 10_000
"""Python refuses to write integers of more than 4,300 digits (14,284 bits)."""


def clean_text(text: str) -> str:
    """The text with lone surrogates and NUL written out (`\\\\udc80`, `\\\\x00`): no encoder and no store refuses it."""
    if not _UNSTORABLE.search(text):
        return text if type(text) is str else str.__str__(text)
    return _UNSTORABLE.sub(lambda found: "\\x00" if found[0] == "\x00" else f"\\u{ord(found[0]):04x}", text)


def clean_value(value: object) -> Value | None:
    """What an attribute may hold: str, int, float or bool; None (an absent fact) stays None.

    What fails when it is looked at (a proxy without its object, a class that lies about itself) is given by its type's name.
    """
    if value is None or value is True or value is False:
        return value
    return tried(_clean, value, otherwise=f"<{type(value).__name__}>")


def _clean(value: object) -> Value:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int):
        if -_INT64 <= value < 2 * _INT64:
            return int(value)
        return str(int(value)) if value.bit_length() <= LONGEST_INT_BITS else f"<int of {value.bit_length()} bits>"
    if isinstance(value, float):
        return float(value)
    return _clean_object(value)


def clean_attributes(attributes: Mapping[str, object]) -> dict[str, Value]:
    """Attributes as they may be stored, absent ones left out."""
    found: dict[str, Value] = {}
    for name, value in attributes.items():
        if (clean := clean_value(value)) is not None:
            found[clean_text(tried(str, name, otherwise="?"))] = clean
    return found


def _clean_object(value: object) -> Value:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, getattr(torch, "Tensor", ())):
        return _tensor(value)
    if type(value).__module__ == "numpy" and hasattr(value, "dtype"):
        return _array(value)
    return describe(value)


def _tensor(tensor: object) -> Value:
    """The number in a one-element CPU tensor; else its description. Never `.item()` on a device: it would wait for it."""
    device = str(getattr(tensor, "device", "?"))
    if device == "cpu" and type(tensor).__module__ in ("torch", "torch.nn.parameter") and tensor.numel() == 1:  # type: ignore[attr-defined]
        return _number(tensor.detach().item())  # type: ignore[attr-defined]
    shape = list(getattr(tensor, "shape", ()))
    return f"{type(tensor).__name__}(shape={shape}, dtype={getattr(tensor, 'dtype', '?')}, device={device})"


def _array(array: object) -> Value:
    if getattr(array, "size", 0) == 1:
        return _number(array.item())  # type: ignore[attr-defined]
    return f"{type(array).__name__}(shape={getattr(array, 'shape', ())}, dtype={getattr(array, 'dtype', '?')})"


def _number(value: object) -> Value:
    found = clean_value(value) if isinstance(value, (str, int, float)) else None
    return describe(value) if found is None else found


def describe(value: Any, depth: int = 0) -> str:
    """A short text about any object, made without its own code unless it is of a plain type, and never longer than 200 characters."""
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        return _short(_describe_many(cast("Collection[Any]", value), depth))
    if isinstance(value, (bytes, bytearray)):
        return _short(bytes(value[:LONGEST_DESCRIPTION]).decode("utf-8", "backslashreplace"))
    if str(type(value).__module__).partition(".")[0] in _TELLING:
        return _short(str(value))
    return f"<{type(value).__module__}.{type(value).__qualname__}>"


def _describe_many(value: Collection[Any], depth: int) -> str:
    """Type and length of a container, and its first members where it is a short one."""
    inner = ", ".join(_members(value, depth)[:8]) if len(value) <= 64 else "..."
    return f"{type(cast('object', value)).__name__}({len(value)}): {inner}"


def _members(value: Collection[Any], depth: int) -> list[str]:
    if isinstance(value, dict):
        return [f"{_part(name, depth)}: {_part(item, depth)}" for name, item in cast("dict[Any, Any]", value).items()]
    return [_part(item, depth) for item in value]


def _part(value: object, depth: int) -> str:
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        return describe(value, depth + 1) if depth < 2 else "..."
    return str(clean_value(value))


def _short(text: str) -> str:
    text = clean_text(text)
    return text if len(text) <= LONGEST_DESCRIPTION else text[: LONGEST_DESCRIPTION - 3] + "..."
