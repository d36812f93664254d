"""Failures: an exception that ends the program, a thread, or a traced function, and fatal signals.

sys.excepthook and threading.excepthook are chained: the hook found runs after us, always. One exception object is one record,
whoever sees it first. Where nobody has enabled faulthandler it is enabled into a file beside the ring, which the agent reads
when the process has died of a signal.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from ...clock import process_start_ticks
from ...guard import shield, shielded
from ...names import FAILURE, FAILURE_LINE, FAILURE_PHASE, FAILURE_SEEN_BY
from ...record import ERROR, FATAL, WARN, Value
from ..instrument import Undo
from ..lines import exception_attributes, user_line

if TYPE_CHECKING:
    from ..tracer import Tracer

TOPIC: Final = "failure"
"""Published with (error, seen_by) before the failure's own record, so that what others know about it stands before it."""

STACKTRACE_BYTES: Final = 10 << 10
_MARK: Final = "__llmtrace_reported__"
_STOPPED_BY_USER: Final = ("KeyboardInterrupt", "CancelledError", "SIGTERMException")


@shielded
def report(tracer: Tracer, error: BaseException, seen_by: str) -> None:
    """One llmtrace.failure event for this exception object, once. SystemExit counts unless it says success, or ends what was reported.

    `seen_by` is excepthook, thread, trace or lightning. What the user stopped (Ctrl-C) is a warning, not a failure's ERROR or FATAL.
    """
    if _MARK in error.__dict__ or isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and _is_no_failure(error)):
        return
    with shield("failures.publish"):
        tracer.publish(TOPIC, error, seen_by)
    attributes = exception_attributes(error, STACKTRACE_BYTES)
    attributes[FAILURE_SEEN_BY] = seen_by
    attributes |= _where(tracer, error)
    tracer.emit(FAILURE, severity=_severity(error, seen_by), body=_headline(attributes), attributes=attributes)
    error.__dict__[_MARK] = True  # only now: where this failed (at the stack's end), whoever sees it further out tries again


def _headline(attributes: dict[str, Value]) -> str:
    kind, message = attributes["exception.type"], attributes["exception.message"]
    return f"{kind}: {message}" if message else str(kind)


def _severity(error: BaseException, seen_by: str) -> int:
    if stopped_by_user(error):
        return WARN
    return ERROR if seen_by == "thread" else FATAL


def stopped_by_user(error: BaseException) -> bool:
    """Whether this is somebody stopping the program: Ctrl-C, a cancelled task, Lightning's SIGTERM; also as the SystemExit it became."""
    if isinstance(error, SystemExit) and error.__context__ is not None:
        return stopped_by_user(error.__context__)
    return any(kind.__name__ in _STOPPED_BY_USER for kind in type(error).__mro__)


def _is_no_failure(error: SystemExit) -> bool:
    return error.code in (None, 0) or (error.__context__ is not None and _MARK in error.__context__.__dict__)


def _where(tracer: Tracer, error: BaseException) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if phase := tracer.steps.phase:
        found[FAILURE_PHASE] = phase
    if line := user_line(error):
        found[FAILURE_LINE] = line
    return found


class Hooks:
    """Our links in the chains of sys.excepthook and threading.excepthook."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer, self._active = tracer, True
        self._program, self._thread = sys.excepthook, threading.excepthook
        self._program_link, self._thread_link = self._make_program_link(), self._make_thread_link()
        sys.excepthook, threading.excepthook = self._program_link, self._thread_link

    def _make_program_link(self) -> Callable[[type[BaseException], BaseException, TracebackType | None], Any]:
        def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
            if self._active:
                report(self._tracer, error, "excepthook")
            return self._program(kind, error, trace)

        return excepthook

    def _make_thread_link(self) -> Callable[[threading.ExceptHookArgs], Any]:
        def excepthook(args: threading.ExceptHookArgs) -> Any:
            if self._active and args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
                report(self._tracer, args.exc_value, "thread")
            return self._thread(args)

        return excepthook

    def undo(self) -> None:
        """Out of the chains; where somebody has chained to us since, the link stays and only passes on."""
        self._active = False
        if sys.excepthook is self._program_link:
            sys.excepthook = self._program
        if threading.excepthook is self._thread_link:
            threading.excepthook = self._thread


class FatalFile:
    """A descriptor for faulthandler, which holds the only reference: when somebody else enables faulthandler, this one closes itself."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def fileno(self) -> int:
        return self._descriptor

    def flush(self) -> None:
        return None

    def __del__(self) -> None:
        os.close(self._descriptor)


class FatalSignals:
    """Lets faulthandler write the stacks at a fatal signal into a file of this process, where nobody has enabled it."""

    def __init__(self, path: Path) -> None:
        import faulthandler

        self._path, self._faulthandler = path, faulthandler
        if faulthandler.is_enabled():
            self._file: Callable[[], FatalFile | None] = _none
            return
        file = FatalFile(path)
        faulthandler.enable(file=file, all_threads=True)  # pyright: ignore[reportArgumentType]
        self._file = weakref.ref(file)
        os.register_at_fork(after_in_child=_releaser(weakref.ref(self)))  # Python has no way to take it back; it holds nothing

    def release(self) -> None:
        """Disable it, unless somebody else has enabled it since. In a forked child too: the file is about its parent."""
        if self._file() is not None:
            self._faulthandler.disable()
        self._file = _none

    def undo(self) -> None:
        """Release it and remove the file, which is empty unless there was a fatal signal."""
        self.release()
        with shield("failures.fatal_file"):
            if self._path.exists() and self._path.stat().st_size == 0:
                self._path.unlink()


def _none() -> None:
    return None


def _releaser(signals: weakref.ref[FatalSignals]) -> Callable[[], None]:
    def release() -> None:
        if (found := signals()) is not None:
            found.release()

    return shielded(release)


def fatal_path(ring: Path, span_id: str) -> Path:
    """Where the stacks of this process go: beside its ring, by pid, start and span."""
    pid = os.getpid()
    return ring.parent / f"{pid}-{process_start_ticks(pid)}-{span_id}.fatal"


class Failures:
    """Installs the hooks and, where the ring is a file, faulthandler."""

    name: Final = "failures"
    requires: Final = None

    def install(self, tracer: Tracer) -> Undo:
        undos: list[Undo] = [Hooks(tracer).undo]
        with shield("failures.faulthandler"):
            writer = tracer.writer
            if writer is not None and writer.path is not None:
                undos.append(FatalSignals(fatal_path(writer.path, writer.span_id)).undo)

        def undo() -> None:
            while undos:
                undos.pop()()

        return undo


instrument: Final = Failures()
