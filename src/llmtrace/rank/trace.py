"""What a training program calls: `trace`, `steps`, `phase`, `event`, `current`. Each does nothing while tracing is off."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast, overload

from ..config import resolve
from ..guard import shield, shielded, tried
from ..names import PHASE, PHASE_NAME, PHASES
from ..record import Identity
from .runtime import Runtime, host

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

LONGEST_PHASE: Final = 60
"""Characters of a phase's name: 200 of them fit into the ring's description beside what has to be there."""


@overload
def trace(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def trace(**settings: Any) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def trace(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Trace a function or coroutine function that trains: each outermost call is a run, and an exception that leaves it is recorded.

    With or without settings (those of `start`). Raises TypeError for a generator or a class, ValueError for a setting that
    can never be right.
    """
    resolve(settings, {}, "")
    if function is None:
        return functools.partial(_decorate, settings)
    return _decorate(settings, function)


def _decorate(settings: dict[str, Any], function: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(function, (staticmethod, classmethod)):
        return _decorate_method(settings, cast("Any", function))
    plain = inspect.unwrap(function) if callable(function) else function
    while isinstance(plain, functools.partial):
        plain = cast("functools.partial[Any]", plain).func
    if inspect.isclass(plain) or inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain) or not callable(function):
        raise TypeError(f"llmtrace.trace takes a function or a coroutine function that trains, not {_kind(plain)}")
    if inspect.iscoroutinefunction(function):
        return _traced_coroutine(settings, function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with Scope(settings):
            return function(*args, **kwargs)

    return call


def _decorate_method(settings: dict[str, Any], method: Any) -> Any:
    """`@trace` above `@staticmethod` or `@classmethod`: what lies under it is traced, and it stays the kind of method that it was."""
    return type(method)(_decorate(settings, method.__func__))


def _traced_coroutine(settings: dict[str, Any], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        with Scope(settings):
            return await function(*args, **kwargs)

    return call


def _kind(thing: object) -> str:
    if inspect.isclass(thing):
        return f"the class {thing.__qualname__}"
    if callable(thing):
        return f"the generator {getattr(thing, '__qualname__', thing)}"
    return f"{thing!r}"


_inside: Final[ContextVar[Runtime | None]] = ContextVar("llmtrace.trace", default=None)


class Scope:
    """One call of a traced function. It sees the exception that leaves it, and never changes it.

    Only the outermost one of a thread or task enters and leaves the run: one within may be where the stack ends (RecursionError),
    and then neither of the two can be done.
    """

    __slots__ = ("_joined", "_runtime", "_settings")

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._runtime: Runtime | None = None
        self._joined = False

    def __enter__(self) -> None:
        with shield("trace"):
            around = _inside.get()
            if around is not None and around is host.runtime:
                self._runtime, self._joined = around, True
                return
            self._runtime = host.enter(self._settings)
            _inside.set(self._runtime)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._runtime is None:
            return
        with shield("trace"):
            if not self._joined:
                _inside.set(None)
                host.leave(self._runtime, error)
            elif error is not None:
                host.saw(self._runtime, error, "trace")


class steps(Generic[T]):  # noqa: N801 - used like a function: `for batch in llmtrace.steps(loader)`
    """Iterate over `loader`, each turn of the loop being one step: `for batch in llmtrace.steps(loader)`.

    Waiting for the next item is the step's phase data_wait. Has the loader's length, where it has one.
    """

    def __init__(self, loader: Iterable[T]) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[T]:
        iterator = iter(self._loader)
        while True:
            _before_item()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                _after_item()
            _begin_step()
            try:
                yield item
            except GeneratorExit:  # by `break`, or by an exception in the loop: nothing here can tell yet
                _leave_loop()
                raise
            _end_step()


def _counting() -> Any:
    """The steps of the running tracer if the loop counts them, else None."""
    tracer = host.tracer
    return tracer.steps if tracer is not None and tracer.steps.claim("steps") else None


@shielded
def _before_item() -> None:
    if (counted := _counting()) is not None:
        counted.enter("data_wait")


@shielded
def _after_item() -> None:
    if (counted := _counting()) is not None:
        counted.leave()


@shielded
def _begin_step() -> None:
    if (counted := _counting()) is not None:
        counted.begin()


@shielded
def _end_step() -> None:
    if (counted := _counting()) is not None:
        counted.end()


@shielded
def _leave_loop() -> None:
    if (counted := _counting()) is not None:
        counted.left()


class phase:  # noqa: N801 - used like a function: `with llmtrace.phase("eval")`
    """A stretch of the program under a name: `with llmtrace.phase("eval"): ...`.

    Its time is not counted to the phase around it. The known names (data_wait, forward, backward, ...) are parts of a step;
    any other becomes a span of its own besides.
    """

    __slots__ = ("_entered", "_name")

    def __init__(self, name: str) -> None:
        self._name = tried(str, name, otherwise="?")[:LONGEST_PHASE]
        self._entered: list[tuple[Any, int]] = []
        """Whose steps, and since when: one entry for each time that it is entered, for an object may be used within itself."""

    def __enter__(self) -> None:
        with shield("phase"):
            if (tracer := host.tracer) is not None:
                self._entered.append((tracer.steps, time.monotonic_ns()))
                tracer.steps.enter(self._name)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._entered:
            return
        with shield("phase"):
            entered, since_ns = self._entered.pop()
            if (tracer := host.tracer) is not None and tracer.steps is entered:
                entered.leave()
                if self._name not in PHASES:
                    duration_ns = time.monotonic_ns() - since_ns
                    tracer.emit(PHASE, kind="span", body=self._name, duration_ns=duration_ns, attributes={PHASE_NAME: self._name})


@shielded
def event(name: str, /, **attributes: object) -> None:
    """Something that happened, under a name of yours: `llmtrace.event("curriculum", stage=2)`.

    Attributes are str, int, float or bool; a one-element CPU tensor becomes its number, other objects their description.
    """
    if (tracer := host.tracer) is not None:
        tracer.emit(tried(str, name, otherwise="?"), attributes=attributes)


def current() -> Identity | None:
    """Who this process is in the trace: trace id, span, rank and so on; None while tracing is off."""
    tracer = host.tracer
    return None if tracer is None else tracer.identity
