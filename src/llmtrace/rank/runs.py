"""Runs: how many trainings this process has done, and which one it is in."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..names import PROCESS, PROCESS_ACTION, PROCESS_COMMAND, PROCESS_ENDING
from ..record import ERROR, INFO

if TYPE_CHECKING:
    from .tracer import Tracer


class Runs:
    """The outermost fit, `@trace` or start is a run; what begins within one joins it."""

    def __init__(self) -> None:
        self.number = 0
        self.depth = 0
        self.implicit = False

    def begin(self, tracer: Tracer, *, implicit: bool = False) -> None:
        """Enter; at the outermost level a new run begins. An implicit run (LLMTRACE=1 alone) gives way to a named one."""
        if self.depth and not (self.implicit and not implicit and self.depth == 1):
            self.depth += 1
            return
        taken_over = self.implicit and tracer.steps.last is None
        self.depth, self.implicit = 1, implicit
        if taken_over:
            return
        self.number += 1
        tracer.steps.reset()
        tracer.epoch(run=self.number)
        tracer.emit(PROCESS, attributes={PROCESS_ACTION: "started", PROCESS_COMMAND: command_line()})

    def end(self, tracer: Tracer, *, failed: bool) -> None:
        """Leave; at the outermost level the run ends."""
        if self.depth == 0:
            return
        self.depth -= 1
        if self.depth == 0:
            self.implicit = False
            tracer.steps.stop(failed=failed)
            ending = "raised" if failed else "clean"
            severity = ERROR if failed else INFO
            tracer.emit(PROCESS, severity=severity, attributes={PROCESS_ACTION: "finished", PROCESS_ENDING: ending})


def command_line() -> str:
    """This program's arguments, the first thousand characters."""
    return " ".join(getattr(sys, "argv", []) or [])[:1000]
