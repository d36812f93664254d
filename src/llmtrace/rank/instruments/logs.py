"""Stdlib logging: every record that a logger lets through is stamped with trace_id, span_id and rank, and captured once.

Patches `logging.Logger.callHandlers`, which every logger of the stdlib, propagating or not, passes once for a record. A
handler on the root logger would turn the user's own `basicConfig` into nothing and miss loggers that do not propagate; a
record factory would make `extra={"rank": ...}` an error in the user's program (Logger.makeRecord refuses names that the
factory has set). What the user's own `extra` or factory says under one of the three names stays.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from ...guard import shielded, tried
from ...record import Value
from ..lines import PLAIN, SEVERITIES, STAMPS, Lines, bounded_attributes, exception_attributes, local, on_device, severity_of

if TYPE_CHECKING:
    from ..tracer import Tracer

STANDARD: Final = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName", *STAMPS}
FIELDS: Final = len(vars(logging.LogRecord("", 0, "", 0, "", (), None)))
_FLAT: Final = PLAIN | {type(None)}
MISFITS: Final = (TypeError, ValueError, KeyError, OverflowError)
"""What `%` raises where plain arguments do not fit."""


class Capture:
    """What happens to a record before its handlers see it. Written flat: each call less is a tenth of a microsecond less a line."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer, self._lines, self._tick = tracer, Lines(tracer), tracer.tick
        self._known = self._own = ""

    def __call__(self, logger: logging.Logger, record: logging.LogRecord) -> bool:
        """Stamp and capture. True: its text is known only after the handlers ran, call `late` then."""
        facts = record.__dict__
        if "span_id" in facts and self._seen(facts):
            return False
        if not logger.propagate and not is_line(logger):
            return False
        has_extras = len(facts) > FIELDS
        stamp = self._tracer.stamp
        if stamp.span_id is not self._known:
            self._learn(stamp.span_id)
        facts.setdefault("trace_id", stamp.trace_id)
        facts.setdefault("span_id", self._own)
        facts.setdefault("rank", stamp.rank)
        message, args = record.msg, record.args
        if type(message) is str and type(args) is tuple and _FLAT.issuperset(map(type, args)):  # nearly every line: nothing in it is code of the user's
            try:
                body = message % args if args else message
            except MISFITS:
                body = _message(record)
        elif args and would_wait(args):
            return True
        else:
            body = _message(record)
        self._write(record, body, has_extras)
        return False

    def late(self, record: logging.LogRecord) -> None:
        """A record whose arguments lie on a device: the text as a handler formatted it, never formatted (and waited for) by us."""
        text = record.__dict__.get("message")
        self._write(record, text if type(text) is str else f"{record.msg} (arguments on a device, not formatted by any handler)", True)

    def _learn(self, span_id: str) -> None:
        self._known = span_id
        self._own = "".join(tuple(span_id))  # an object that only our records hold: it marks them without a name of ours in them

    def _seen(self, facts: dict[str, Any]) -> bool:
        """Whether this record was captured already: handed on to another logger here, or sent by a process that is traced itself."""
        return facts["span_id"] is self._own or (facts.get("process") != os.getpid() and all(name in facts for name in STAMPS))

    def _write(self, record: logging.LogRecord, body: str, has_extras: bool) -> None:
        event = local.event
        if event is not None and event in body:
            local.event = None  # structlog captured this very event; its output happens to be stdlib
            return
        attributes = _attributes(record) if has_extras or record.exc_info or type(record.msg) is dict else None
        severity = SEVERITIES.get(record.levelno) or severity_of(record.levelno)
        self._lines.write(severity, body, record.name, record.pathname, record.lineno, record.threadName, attributes)
        self._tick()  # a program that logs and never steps still finds its agent gone


def is_line(logger: logging.Logger) -> bool:
    """Whether anybody could see a line of this logger, which does not propagate: torch's own telemetry loggers have a NullHandler alone."""
    return not logger.handlers or any(type(handler) is not logging.NullHandler for handler in logger.handlers)


def would_wait(args: Any) -> bool:
    """Whether formatting these arguments would wait for a device."""
    for value in cast("Iterable[Any]", args.values() if type(args) is dict else args if type(args) is tuple else ()):
        if type(value) not in _FLAT and tried(on_device, value, otherwise=False):
            return True
    return False


def _message(record: logging.LogRecord) -> str:
    """The line's text. Arguments that do not fit or fail are the user's error, which the handler reports: here they are shown raw, if they can be."""
    message = record.msg
    if type(message) is str and not record.args:
        return message
    text = tried(_formatted, record, otherwise=None)
    if text is None:
        text = tried(_raw, record, otherwise=None)
    return text if text is not None else f"{message if type(message) is str else type(message).__name__} (cannot be shown: its text fails)"


def _raw(record: logging.LogRecord) -> str | None:
    return f"{record.msg} {record.args!r}"


def _formatted(record: logging.LogRecord) -> str | None:
    message = record.msg
    if type(message) is str:
        return message % record.args
    if type(message) is dict and "event" in message:  # structlog's ProcessorFormatter hands its event over as a dict
        return str(message["event"])  # pyright: ignore[reportUnknownArgumentType]
    return record.getMessage()


def _attributes(record: logging.LogRecord) -> dict[str, Value] | None:
    found = {name: value for name, value in record.__dict__.items() if name not in STANDARD and not name.startswith("_")}
    if type(record.msg) is dict:
        message = cast("dict[str, Any]", record.msg)
        found.update({name: value for name, value in message.items() if name != "event" and name not in STAMPS and not str(name).startswith("_")})
    attributes = bounded_attributes(found)
    error = record.exc_info[1] if type(record.exc_info) is tuple else None
    if error is not None:
        attributes.update(exception_attributes(error))
    return attributes or None


class Logs:
    """Installs one wrapper on Logger.callHandlers; several installs share nothing."""

    name: Final = "logs"
    requires: Final = None

    def install(self, tracer: Tracer) -> Callable[[], None]:
        capture = Capture(tracer)
        before, late = shielded(capture.__call__), shielded(capture.late)
        original = logging.Logger.callHandlers
        active = True

        def call_handlers(self: logging.Logger, record: logging.LogRecord) -> None:
            if active and before(self, record):
                try:
                    return original(self, record)
                finally:
                    late(record)
            return original(self, record)

        def undo() -> None:
            nonlocal active
            active = False
            if logging.Logger.callHandlers is call_handlers:
                logging.Logger.callHandlers = original

        logging.Logger.callHandlers = call_handlers
        return undo


instrument: Final = Logs()
