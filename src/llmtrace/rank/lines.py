"""What stdlib logging and structlog share: how a line becomes a record, and how one line never becomes two."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..names import EXCEPTION_MESSAGE, EXCEPTION_STACKTRACE, EXCEPTION_TYPE, LOG, SCHEMAS
from ..record import DEBUG, ERROR, FATAL, INFO, WARN, Value
from .values import clean_attributes, clean_text

if TYPE_CHECKING:
    from .tracer import Tracer

SCHEMA: Final = next(schema for schema in SCHEMAS if schema.name == LOG)
STAMPS: Final = ("trace_id", "span_id", "rank")
PLAIN: Final = frozenset((str, int, float, bool))

BODY_BYTES, ATTRIBUTE_BYTES, ATTRIBUTES = 8 << 10, 128, 16
"""Bounds of one line: a forked child's frame holds 16 KB; body, attributes, a message of 1 KB and a traceback of 4 KB fit in it."""
TRACEBACK_BYTES: Final = 4 << 10

DEEPEST: Final = 20
"""So far into causes and groups; what lies deeper is cut out of the middle anyway."""

_STANDARD: Final = os.path.dirname(os.__file__) + os.sep
_OWN: Final = str(Path(__file__).resolve().parents[1]) + os.sep
_LIBRARIES: Final = ("site-packages", "dist-packages")
_TRACE: Final = 1
SEVERITIES: Final = {10: DEBUG, 20: INFO, 30: WARN, 40: ERROR, 50: FATAL}


def severity_of(level: int) -> int:
    """OpenTelemetry's severity number of a stdlib level; levels between the named ones count as the lower."""
    known = SEVERITIES.get(level)
    if known is not None:
        return known
    return next((number for floor, number in ((50, FATAL), (40, ERROR), (30, WARN), (20, INFO), (10, DEBUG)) if level >= floor), _TRACE)


class Lines:
    """Writes lines to the ring. `local.event` is the event that structlog has captured and now hands to its output."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._emit = tracer.positional(SCHEMA)

    def write(self, severity: int, body: str, logger: str, path: str | None, line: int | None, thread: str | None, attributes: dict[str, Value] | None) -> None:
        """One line of at most BODY_BYTES; what is longer is cut and says so."""
        if len(body) > BODY_BYTES >> 2:
            body = fit(body, BODY_BYTES)
        elif not body.isascii() or "\x00" in body:
            body = clean_text(body)
        self._emit(severity, body, self._tracer.steps.current, logger, path, line, thread, attributes)


class Local(threading.local):
    """Per thread: the event of structlog's that is on its way to the output, so that its stdlib line is not a second one."""

    event: str | None = None


local: Final = Local()


def fit(text: str, limit_bytes: int) -> str:
    """`text` as every store takes it, in at most `limit_bytes` of UTF-8; a cut says how long it was."""
    short = clean_text(text[:limit_bytes])
    if len(text) <= limit_bytes and len(data := short.encode()) <= limit_bytes:
        return short
    data = short.encode()
    return f"{data[: limit_bytes - 40].decode('utf-8', 'ignore')}... [{len(text)} characters]"


def bounded_attributes(found: Mapping[str, Any]) -> dict[str, Value]:
    """The first ATTRIBUTES of these as a record may hold them, texts of at most ATTRIBUTE_BYTES."""
    clean = clean_attributes(dict(islice(found.items(), ATTRIBUTES)))
    return {fit(name, 256): fit(value, ATTRIBUTE_BYTES) if type(value) is str else value for name, value in clean.items()}


def on_device(value: Any) -> bool:
    return getattr(value, "is_cpu", True) is False and hasattr(value, "shape") and hasattr(value, "device")


def exception_attributes(error: BaseException, limit_bytes: int = TRACEBACK_BYTES) -> dict[str, Value]:
    """Type, message and traceback of an exception with its chain of causes, in at most `limit_bytes`: head and tail are kept.

    The frames in which we only passed the user's call on are left out.
    """
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    summary = traceback.TracebackException(kind, error, error.__traceback__, compact=True)
    _leave_out_own(summary)
    text = "".join(summary.format())
    return {EXCEPTION_TYPE: clean_text(name), EXCEPTION_MESSAGE: fit(safe_text(error), 1024), EXCEPTION_STACKTRACE: middle_out(text, limit_bytes)}


def _leave_out_own(summary: traceback.TracebackException, depth: int = 0) -> None:
    frames = [frame for frame in summary.stack if not frame.filename.startswith(_OWN)]
    if frames:
        summary.stack[:] = frames
    if depth < DEEPEST:
        for other in (summary.__cause__, summary.__context__, *(summary.exceptions or ())):
            if other is not None:
                _leave_out_own(other, depth + 1)


def safe_text(error: BaseException) -> str:
    """str(error), or a word where the exception's own __str__ fails."""
    return "".join(traceback.TracebackException(type(error), error, None).format_exception_only()).rstrip("\n").partition(": ")[2]


def middle_out(text: str, limit_bytes: int) -> str:
    """`text` with its middle cut out: a third of what is kept is the head, two thirds the tail, where the error itself stands."""
    data = clean_text(text).encode()
    if len(data) <= limit_bytes:
        return data.decode()
    room = limit_bytes - 60
    head, tail = data[: room // 3].decode("utf-8", "ignore"), data[-(room - room // 3) :].decode("utf-8", "ignore")
    return f"{head}\n... [{len(data) - room} bytes left out]\n{tail}"


def user_line(error: BaseException) -> str:
    """The innermost line of the user's own code, `file:line in function`: of the traceback, else of what called its outermost frame.

    A framework catches inside its own call, so the user's frames may all be outside of the traceback. Where nothing is the user's
    it is the innermost frame of all; empty without a traceback.
    """
    inner = [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in traceback.walk_tb(error.__traceback__)]
    if not inner or error.__traceback__ is None:
        return ""
    outer = [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in traceback.walk_stack(error.__traceback__.tb_frame.f_back)]
    own = [place for place in (*inner[::-1], *outer) if is_user_file(place[0])]
    file, line, function = own[0] if own else inner[-1]
    return f"{file}:{line} in {function}"


def is_user_file(path: str) -> bool:
    """Not the standard library, an installed package, generated code, or us."""
    if path.startswith(("<", _OWN)):
        return path.startswith("<ipython")
    return not any(f"{os.sep}{name}{os.sep}" in path for name in _LIBRARIES) and not path.startswith(_STANDARD)
