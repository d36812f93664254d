"""The one axis of time that everything on a page shares."""

from __future__ import annotations

import msgspec

US_NS = 1_000


class Axis(msgspec.Struct, frozen=True):
    """`zero_ns` is what times count from, and the window's `start_ns` and `end_ns` bound them; all three in wall-clock nanoseconds."""

    zero_ns: int
    start_ns: int
    end_ns: int

    def us(self, time_ns: int) -> int:
        """Microseconds from zero, rounded down."""
        return (time_ns - self.zero_ns) // US_NS

    @property
    def start_us(self) -> int:
        return self.us(self.start_ns)

    @property
    def end_us(self) -> int:
        return self.us(self.end_ns)


def steps(times_us: list[int]) -> list[int]:
    """A column of times as it is sent: each but the first counted from the one before."""
    return [time - before for before, time in zip([0, *times_us], times_us, strict=False)]
