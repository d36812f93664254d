"""structlog: every event is stamped with trace_id, span_id and rank before its processors run, and captured once.

Patches `BoundLoggerBase._process_event` and `_proxy_to_logger`, which every bound logger of structlog's passes: a processor of ours in
the user's configuration would be replaced by the next `structlog.configure`. An event whose processors drop it is not captured. One
that goes to a stdlib logger is captured there, as stdlib decides whether it is a line at all; one that goes elsewhere is captured here,
with its fields as attributes.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from ...guard import shield, shielded
from ...record import DEBUG, ERROR, FATAL, INFO, WARN, Value
from ..instrument import Requirement, Undo
from ..lines import STAMPS, Lines, bounded_attributes, exception_attributes, local

if TYPE_CHECKING:
    from ..tracer import Tracer

SEVERITIES: Final = {
    "debug": DEBUG,
    "info": INFO,
    "msg": INFO,
    "warning": WARN,
    "warn": WARN,
    "error": ERROR,
    "err": ERROR,
    "exception": ERROR,
    "failure": ERROR,
    "critical": FATAL,
    "fatal": FATAL,
}
_NOT_FIELDS: Final = frozenset({"event", "exc_info", "stack_info", "positional_args", *STAMPS})


class Events:
    """Stamps and captures the events of one tracer."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer, self._lines = tracer, Lines(tracer)

    def stamp(self, context: Any, fields: dict[str, Any]) -> None:
        """Add the three names to the event's own fields, where neither it nor its logger's context has one."""
        stamp = self._tracer.stamp
        for name in STAMPS:
            if name not in context:
                fields.setdefault(name, getattr(stamp, name))

    def capture(self, logger: Any, method: str, event: Any, fields: dict[str, Any]) -> None:
        """One event as a line; its text is remembered while it is on its way to the output, which may be stdlib after all."""
        if is_stdlib(logger):
            return
        body = text_of(event, fields.get("positional_args") or ())
        local.event = body
        path, line = caller()
        severity = SEVERITIES.get(method, INFO)
        self._lines.write(severity, body, str(getattr(logger, "name", "")) or "structlog", path, line, threading.current_thread().name, attributes_of(fields))
        self._tracer.tick()


def is_stdlib(logger: Any) -> bool:
    return isinstance(logger, (logging.Logger, logging.LoggerAdapter))


def text_of(event: Any, args: Any) -> str:
    """The event, with stdlib-style positional arguments filled in as structlog's PositionalArgumentsFormatter does."""
    if not args:
        return str(event)
    try:
        return str(event) % args
    except (TypeError, ValueError, KeyError):
        return f"{event} {args!r}"


def attributes_of(fields: dict[str, Any]) -> dict[str, Value] | None:
    attributes = bounded_attributes({name: value for name, value in fields.items() if name not in _NOT_FIELDS and not name.startswith("_")})
    if (error := error_of(fields.get("exc_info"))) is not None:
        attributes.update(exception_attributes(error))
    return attributes or None


def error_of(given: Any) -> BaseException | None:
    """The exception that `exc_info=` means: itself, a tuple's, or the one being handled where it is just true."""
    if isinstance(given, BaseException):
        return given
    if not given:
        return None
    return cast("tuple[Any, BaseException, Any]", given)[1] if type(given) is tuple else sys.exc_info()[1]


def ambient() -> dict[str, Any]:
    """What the program has bound for all its loggers in structlog.contextvars; a processor merges it, usually."""
    contextvars: Any = sys.modules.get("structlog.contextvars")
    return contextvars.get_contextvars() if contextvars is not None else {}


def caller() -> tuple[str | None, int | None]:
    """File and line of the innermost frame that is neither structlog's nor ours."""
    frame = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(("structlog.", "llmtrace.")):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None, None


class Structlog:
    """Installed when structlog is imported."""

    name: Final = "structlog"
    requires: Final = Requirement("structlog", "21.1")

    def install(self, tracer: Tracer) -> Undo:
        base: Any = sys.modules["structlog._base"].BoundLoggerBase
        events = Events(tracer)
        links = Links(base, shielded(events.stamp), shielded(events.capture))
        return links.undo


class Links:
    """Our two methods on structlog's base class, each calling the one found exactly once."""

    def __init__(self, base: Any, stamp: Callable[..., Any], capture: Callable[..., Any]) -> None:
        self._base, self._stamp, self._capture, self._active = base, stamp, capture, True
        self._found: dict[str, Any] = {name: vars(base)[name] for name in ("_process_event", "_proxy_to_logger")}
        self._links = {"_process_event": self._make_process_event(), "_proxy_to_logger": self._make_proxy()}
        for name, link in self._links.items():
            setattr(base, name, link)

    def _make_process_event(self) -> Callable[..., Any]:
        found: Callable[..., Any] = self._found["_process_event"]

        def _process_event(bound: Any, method_name: str, event: Any, event_kw: dict[str, Any]) -> Any:
            if not self._active:
                return found(bound, method_name, event, event_kw)
            self._stamp(bound._context, event_kw)
            fields: dict[str, Any] = {}
            with shield("structlog.fields"):
                fields = {**ambient(), **bound._context, **event_kw}  # before the processors, which take it apart
            result = found(bound, method_name, event, event_kw)
            self._capture(bound._logger, method_name, event, fields)
            return result

        return _process_event

    def _make_proxy(self) -> Callable[..., Any]:
        found: Callable[..., Any] = self._found["_proxy_to_logger"]

        def _proxy_to_logger(bound: Any, method_name: str, event: Any = None, *args: Any, **event_kw: Any) -> Any:
            try:
                return found(bound, method_name, event, *args, **event_kw)
            finally:
                local.event = None

        return _proxy_to_logger

    def undo(self) -> None:
        """Out of structlog; where another tool has wrapped us since, the link stays and only passes on."""
        self._active = False
        for name, link in self._links.items():
            if vars(self._base)[name] is link:
                setattr(self._base, name, self._found[name])


instrument: Final = Structlog()
