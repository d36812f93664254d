"""Moments and lengths of time as people type them."""

from __future__ import annotations

import re
from datetime import datetime
from datetime import time as clock
from typing import Final

_LENGTH: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d)?")
_UNITS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?")


def length_ns(text: str) -> int:
    """Nanoseconds of `30s`, `500ms`, `2m`, or a bare number of seconds; raises ValueError on anything else."""
    match = _LENGTH.fullmatch(text.strip())
    if match is None:
        raise ValueError("allowed: a number with ms, s, m, h or d, as in 30s")
    return round(float(match[1]) * _UNITS[match[2] or "s"])


def moment_ns(text: str, now_ns: int) -> int:
    """Wall-clock nanoseconds of an ISO 8601 time, a time of day (the last one that has passed), `-5m`, or seconds, ms, us or ns since 1970.

    Without a zone it is local time. Raises ValueError on anything else.
    """
    text = text.strip()
    if text == "now":
        return now_ns
    if text.startswith("-"):
        return now_ns - length_ns(text[1:])
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return _epoch_ns(text)
    if _CLOCK.fullmatch(text):
        return _clock_ns(text, now_ns)
    try:
        return _nanoseconds(datetime.fromisoformat(text).astimezone())
    except (ValueError, OverflowError, OSError):
        raise ValueError("allowed: 2026-11-30T03:14:07, 03:14:07, -5m, or seconds, ms, us or ns since 1970") from None


def _epoch_ns(text: str) -> int:
    """The unit by magnitude: seconds since 1970 stay under 1e11 until the year 5138, and so on by thousands."""
    if "." in text:
        return round(float(text) * 10**9)
    value = int(text)
    for factor in (10**9, 10**6, 10**3):
        if value * factor < 10**20:
            return value * factor
    return value


def _clock_ns(text: str, now_ns: int) -> int:
    now = datetime.fromtimestamp(now_ns / 1e9).astimezone()
    padded = text if text.index(":") == 2 else f"0{text}"
    found = _nanoseconds(datetime.combine(now.date(), clock.fromisoformat(padded)).astimezone())
    return found if found <= now_ns else found - 86400 * 10**9


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * 10**9 + moment.microsecond * 1000
