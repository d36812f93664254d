"""The one place where errors of ours end: counted, said once, and never thrown at the training that hosts us."""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

LONGEST_WARNING = 1000
"""Characters of one line on stderr: what it quotes (an environment variable, an error) may be of any length."""


class Guard:
    """Counts our own errors by place; `warn` and the first error of a place are written to stderr once."""

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()
        self.warnings: list[str] = []
        self.strict = False
        self._busy = threading.local()

    def report(self, place: str, error: BaseException) -> None:
        """Count an error; say the first of each place on stderr, unless saying so is what failed."""
        self.errors[place] += 1
        if self.errors[place] == 1 and not getattr(self._busy, "on", False):
            self._busy.on = True
            said = tried(str, error, otherwise="(its own text fails)")
            self.warn(f"{place} failed and is left out from here on where it fails: {type(error).__name__}: {said}")
            self._busy.on = False

    def warn(self, text: str) -> None:
        """One line on stderr, each text once. Never through logging: that line would come back to us."""
        text = text if len(text) <= LONGEST_WARNING else f"{text[:LONGEST_WARNING]}... [{len(text)} characters]"
        if text in self.warnings:
            return
        self.warnings.append(text)
        with Shield(self, "stderr"):
            if sys.stderr is not None:
                sys.stderr.write(f"llmtrace: {text}\n")


class Shield:
    """`with Shield(guard, place):` our code in it may fail; the host goes on. KeyboardInterrupt and SystemExit pass."""

    __slots__ = ("_guard", "_place")

    def __init__(self, guard: Guard, place: str) -> None:
        self._guard, self._place = guard, place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        self._guard.report(self._place, error)
        return not self._guard.strict


guard = Guard()


def shielded(function: Callable[P, R]) -> Callable[P, R | None]:
    """Our `function`, safe to call from the host: an Exception in it is counted and None comes back."""
    place = f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            guard.report(place, error)
            if guard.strict:
                raise
            return None

    return call


def shield(place: str) -> Shield:
    """The same for a stretch of code."""
    return Shield(guard, place)


def tried(function: Callable[..., R], *args: object, otherwise: R) -> R:
    """`function(*args)`, or `otherwise` where it raises: for code of the user's that we run (`str` of an object), whose error is not ours to count."""
    try:
        return function(*args)
    except Exception:
        return otherwise
