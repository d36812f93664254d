"""Steps and their phases: who is counting, what runs now, and one record a step."""

from __future__ import annotations

import threading
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from ..names import PHASES
from ..ring.layout import progress_word
from .values import clean_text

if TYPE_CHECKING:
    from .tracer import Tracer

STRENGTH: Final = {"": 0, "optimizer": 1, "lightning": 2, "steps": 2}
"""Whose count holds: the loop that the user or the framework names beats the optimizer's; of equals, the first."""

MOST_PHASES: Final = 200
"""Names of phases a ring may hold: the progress word names them by a small number."""

OTHER: Final = "other"
"""What the time of phases under any further name counts as: a program may make up names without end."""


class Steps:
    """Counts steps and divides their time into phases.

    Phases are exclusive: entering one pauses the one around it. All of it belongs to one thread, and calls of others are
    ignored: the first that begins a step, whoever had phases before; after its end the next that comes. `current` is the number
    of the step that runs now, 0-based or the framework's own, None between steps.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._cell = tracer.cell
        self.forget_phases()
        self.reset()

    def forget_phases(self) -> None:
        """As in a new ring: the known names only."""
        self._phases: dict[str, int] = {name: place for place, name in enumerate(PHASES, 1)}

    def reset(self) -> None:
        """As at the start of a run: nobody counts, nothing runs."""
        self.current: int | None = None
        self.driver = ""
        self.last: int | None = None
        self._next = 0
        self._shown = 0
        """The step that the progress word names, as it stands in that word."""
        self._thread = 0
        self.since_ns = 0
        """When a phase was entered or left, or a step ended, last."""
        self._boundary_ns = 0
        self._left_ns = 0
        self._stack: list[str] = []
        self._times: dict[str, int] = {}
        self.accounted_ns = 0
        """All the time that phases have been charged with, over all steps of the run."""

    def stop(self, *, failed: bool) -> None:
        """The run is over: a step that an exception broke off does not end as one, and where it stood stays in the progress word.

        Without an exception that word names the last step that was done, not the one that would have been next.
        """
        if failed:
            self._left_ns = 0
        self._settle()
        self.current = None
        if not failed and self.last is not None:
            self._show_step(self.last)

    def left(self) -> None:
        """The loop was left within a step: by `break`, and then the step counts, or by an exception. What follows tells."""
        if self.current is not None and not self._foreign():
            self._left_ns = monotonic_ns()

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
        """Whether another thread, which is still there, has the steps; where none has, they are ours from here on."""
        ident = get_ident()
        if self._thread == ident:
            return False
        if self._thread and self._thread in threading._active:  # type: ignore[attr-defined]  # enumerate() would take a lock
            return True
        self._take_over(ident)
        return False

    def _take_over(self, ident: int) -> None:
        self._settle()
        self._thread, self._stack, self._times = ident, [], {}
        self.current, self._boundary_ns = None, 0

    # enter, leave and roll run several times a step: what they do stands in them, not in calls

    def enter(self, phase: str) -> None:
        """Begin a phase; the one that runs is paused."""
        if get_ident() != self._thread and self._foreign():
            return
        if self._left_ns:
            self._settle()
        number = self._phases.get(phase) or self._number_of(phase)
        if not number:
            phase = OTHER
        now, stack, times = monotonic_ns(), self._stack, self._times
        if stack:
            spent = now - self.since_ns
            times[stack[-1]] += spent
            self.accounted_ns += spent
        if phase not in times:
            times[phase] = 0
        stack.append(phase)
        self.since_ns = now
        words = self._cell.progress
        words[0] = now
        words[1] = self._shown | number

    def leave(self) -> None:
        """End the phase entered last; the one around it goes on."""
        stack = self._stack
        if not stack or (get_ident() != self._thread and self._foreign()):
            return
        now = monotonic_ns()
        spent = now - self.since_ns
        self._times[stack.pop()] += spent
        self.accounted_ns += spent
        self.since_ns = now
        words = self._cell.progress
        words[0] = now
        words[1] = self._shown | self._phases.get(stack[-1], 0) if stack else self._shown

    def add(self, phase: str, ns: int) -> None:
        """Time of a phase that became known afterwards; it is taken from no other phase."""
        self._times[phase] = self._times.get(phase, 0) + ns
        self.accounted_ns += ns

    def spent_ns(self, phase: str) -> int:
        """How long a phase has taken so far in this step, without what runs now."""
        return self._times.get(phase, 0)

    @property
    def phase(self) -> str:
        """The innermost phase that runs now; empty between phases."""
        return self._stack[-1] if self._stack else ""

    def begin(self, number: int | None = None) -> None:
        """A step begins; without a number it is the next one. A step that runs already goes on."""
        if self._foreign():
            if self.current is not None or self.last is not None:
                return
            self._take_over(get_ident())
        if number is None and self.current is not None and not self._left_ns:
            return
        self._settle()
        if not self._boundary_ns:
            self._boundary_ns = monotonic_ns()
        self.current = self._next if number is None else number
        self._show_step(self.current)

    def end(self, samples: int | None = None, tokens: int | None = None) -> None:
        """The step ends: one llmtrace.step record, its duration counted since the last end, else since its begin."""
        if not self._foreign():
            self._finish(self._charge(), samples, tokens)

    def roll(self) -> None:
        """The step ends and the next begins at the same moment."""
        if not self._foreign():
            self._finish(self._charge(), None, None, self._next + 1 if self.current is None else self.current + 1)

    def _finish(self, now: int, samples: int | None, tokens: int | None, following: int | None = None) -> None:
        number = self._next if self.current is None else self.current
        times, self._times = self._times, dict.fromkeys(self._stack, 0)
        self._tracer.emit_step(now, number, now - (self._boundary_ns or now), times, samples, tokens)
        self.last, self._boundary_ns, self._next, self.current = number, now, number + 1, following
        self._show_step(number if following is None else following)
        self._tracer.step_done(number, now)

    def _charge(self) -> int:
        """What runs now is charged with its time so far; gives the time."""
        now = monotonic_ns()
        if self._stack:
            self._times[self._stack[-1]] += now - self.since_ns
            self.accounted_ns += now - self.since_ns
        self.since_ns = now
        return now

    def show(self) -> None:
        """Write the progress word again: the process is alive, here."""
        words = self._cell.progress
        words[0] = monotonic_ns()
        words[1] = self._shown | self._phases.get(self._stack[-1], 0) if self._stack else self._shown

    def _show_step(self, number: int) -> None:
        self._shown = progress_word(number, 0)
        self.show()

    def _number_of(self, phase: str) -> int:
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
