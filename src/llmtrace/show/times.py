"""Times and amounts as people read them: local wall clock, offsets from the onset, bytes."""

from __future__ import annotations

from datetime import datetime

SECOND_NS = 10**9
MS_NS = 10**6


def moment(time_ns: int) -> datetime:
    """Local time; the nanoseconds beyond microseconds are cut."""
    return datetime.fromtimestamp(time_ns // SECOND_NS).astimezone().replace(microsecond=time_ns % SECOND_NS // 1000)


def clock(time_ns: int) -> str:
    """`03:14:07.412`."""
    return moment(time_ns).strftime("%H:%M:%S.%f")[:-3]


def date(time_ns: int) -> str:
    """`2026-11-30 UTC`: the day and the zone that `clock` means."""
    return moment(time_ns).strftime("%Y-%m-%d %Z").strip()


def day_and_clock(time_ns: int) -> str:
    """`2026-11-30 03:14:07`."""
    return moment(time_ns).strftime("%Y-%m-%d %H:%M:%S")


def length(ns: int) -> str:
    """`37 us`, `62 ms`, `1.2 s`, `3 min 5 s`, `2 h 3 min`, `4 d 2 h`, by magnitude."""
    seconds = abs(ns) / SECOND_NS
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = round(seconds) // 60
    if minutes < 60:
        return f"{minutes} min {round(seconds) % 60} s"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def offset(ns: int) -> str:
    """Seconds from the onset, signed: `-12.034`, `+0.310`."""
    return f"{ns / SECOND_NS:+.3f}"


def after(ns: int) -> str:
    """When something came, from the onset: `+6 ms`, `-147 ms` below a second, `+2.85 s` from there on."""
    ms = round(ns / MS_NS)
    return "+0 ms" if not ms else f"{ms:+d} ms" if abs(ms) < 1000 else f"{ns / SECOND_NS:+.2f} s"


def ago(time_ns: int, now_ns: int) -> str:
    return "just now" if now_ns - time_ns < SECOND_NS else f"{length(now_ns - time_ns)} ago"


def size(count: float) -> str:
    """`12.3 GiB`, `256.0 TiB`: powers of 1024, one decimal, as in an incident's summary."""
    units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    while abs(count) >= 1024 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return f"{count:.0f} {units[0]}" if units[0] == "bytes" else f"{count:.1f} {units[0]}"
