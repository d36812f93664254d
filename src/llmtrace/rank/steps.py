"""Steps and their phases: who is counting, what runs now, and one record a step."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from ..names import PHASES
from .values import clean_text

if TYPE_CHECKING:
    from .tracer import Tracer

STRENGTH: Final = {"": 0, "optimizer": 1, "lightning": 2, "steps": 2}
"""Whose count holds: the loop that the user or the framework names beats the optimizer's; of equals, the first."""

MOST_PHASES: Final = 200
"""Names of phases a ring may hold: the progress word names them by a small number."""


class Steps:
    """Counts steps and divides their time into phases.

    Phases are exclusive: entering one pauses the one around it. All of it belongs to the thread that began; calls of other
    threads are ignored. `current` is the number of the step that runs now, 0-based or the framework's own, None between steps.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._phases: dict[str, int] = {name: place for place, name in enumerate(PHASES, 1)}
        self.reset()

    def reset(self) -> None:
        """As at the start of a run: nobody counts, nothing runs."""
        self.current: int | None = None
        self.driver = ""
        self.last: int | None = None
        self._next = 0
        self._shown = -1
        self._thread = 0
        self._since_ns = 0
        self._boundary_ns = 0
        self._left_ns = 0
        self._stack: list[str] = []
        self._times: dict[str, int] = {}

    def stop(self, *, failed: bool) -> None:
        """The run is over: a step that an exception broke off does not end as one. Where it stood stays in the progress word."""
        if failed:
            self._left_ns = 0
        self._settle()
        self.current = None

    def left(self) -> None:
        """The loop was left within a step: by `break`, and then the step counts, or by an exception. What follows tells."""
        if self.current is not None and not self._foreign():
            self._left_ns = time.monotonic_ns()

    def _settle(self) -> None:
        if self._left_ns:
            left_ns, self._left_ns = self._left_ns, 0
            self._finish(left_ns, None, None)

    def claim(self, driver: str) -> bool:
        """Whether `driver` ("optimizer", "lightning", "steps") is the one who counts steps in this run; the stronger takes over."""
        if STRENGTH.get(driver, 0) > STRENGTH[self.driver]:
            self.driver = driver
        return self.driver == driver

    def _foreign(self) -> bool:
        ident = threading.get_ident()
        if not self._thread:
            self._thread = ident
        return self._thread != ident

    def enter(self, phase: str) -> None:
        """Begin a phase; the one that runs is paused."""
        if self._foreign():
            return
        self._settle()
        self._charge()
        self._stack.append(phase)
        self.show()

    def leave(self) -> None:
        """End the phase entered last; the one around it goes on."""
        if self._foreign() or not self._stack:
            return
        self._charge()
        self._stack.pop()
        self.show()

    def add(self, phase: str, ns: int) -> None:
        """Time of a phase that became known afterwards; it is taken from no other phase."""
        self._times[phase] = self._times.get(phase, 0) + ns

    @property
    def phase(self) -> str:
        """The innermost phase that runs now; empty between phases."""
        return self._stack[-1] if self._stack else ""

    def begin(self, number: int | None = None) -> None:
        """A step begins; without a number it is the next one. A step that runs already goes on."""
        if self._foreign() or (number is None and self.current is not None and not self._left_ns):
            return
        self._settle()
        if not self._boundary_ns:
            self._boundary_ns = time.monotonic_ns()
        self._shown = self.current = self._next if number is None else number
        self.show()

    def end(self, samples: int | None = None, tokens: int | None = None) -> None:
        """The step ends: one llmtrace.step record, its duration counted since the last end, else since its begin."""
        if self._foreign():
            return
        self._charge()
        self._finish(self._since_ns, samples, tokens)

    def _finish(self, now: int, samples: int | None, tokens: int | None) -> None:
        number = self._next if self.current is None else self.current
        duration_ns = now - (self._boundary_ns or now)
        times, self._times = self._times, {}
        self._tracer.emit_step(now, number, duration_ns, times, samples, tokens)
        self.last, self._boundary_ns, self._next, self._shown, self.current = number, now, number + 1, number, None
        self.show()
        self._tracer.step_done(number)

    def _charge(self) -> None:
        now = time.monotonic_ns()
        if self._stack:
            phase = self._stack[-1]
            self._times[phase] = self._times.get(phase, 0) + now - self._since_ns
        self._since_ns = now

    def show(self) -> None:
        """Write the progress word again: the process is alive, here."""
        self._tracer.show_progress(self._shown, self._phase_number(self._stack[-1]) if self._stack else 0)

    def _phase_number(self, phase: str) -> int:
        found = self._phases.get(phase)
        if found is None:
            if len(self._phases) >= MOST_PHASES:
                return 0
            found = self._phases[phase] = len(self._phases) + 1
            self._tracer.describe_phase(found, clean_text(phase))
        return found

    def phase_names(self) -> dict[int, str]:
        """The numbers in the progress word, and what they mean."""
        return {place: clean_text(name) for name, place in self._phases.items()}
