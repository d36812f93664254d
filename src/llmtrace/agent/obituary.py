"""What the agent has to say about a process that died: records derived from outside, in the shape of any other."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

from ..frames import encode
from ..names import (
    EXCEPTION_MESSAGE,
    EXCEPTION_STACKTRACE,
    EXCEPTION_TYPE,
    FAILURE,
    FAILURE_SEEN_BY,
    PROCESS,
    PROCESS_ACTION,
    PROCESS_ENDING,
    PROCESS_EXIT_CODE,
    PROCESS_SIGNAL,
    PROCESS_TEARDOWN_NS,
    PROCESS_UNSEEN,
)
from ..record import FATAL, Ending, Value
from .deaths import severity_of

FATAL_BYTES: Final = 48 << 10
"""Of a faulthandler's text: what fits a frame with room to spare."""


def event(mono_ns: int, name: str, severity: int, body: str, step: int | None, attributes: dict[str, Value]) -> bytes:
    """A GENERAL payload, its values in the order of that schema."""
    return encode((mono_ns, name, "event", severity, body, step, None, None, None, attributes))


def death_event(mono_ns: int, ending: Ending, exit_code: int | None, step: int | None, is_rank: bool, *, seen: bool, teardown_ns: int = 0) -> bytes:
    """`llmtrace.process` died. `seen` is False where nobody saw it and its time is the last sign of life."""
    attributes: dict[str, Value] = {PROCESS_ACTION: "died", PROCESS_ENDING: ending}
    if exit_code is not None:
        attributes[PROCESS_EXIT_CODE] = exit_code
        if exit_code < 0:
            attributes[PROCESS_SIGNAL] = signal_name(-exit_code)
    if not seen:
        attributes[PROCESS_UNSEEN] = True
    elif teardown_ns > 0:
        attributes[PROCESS_TEARDOWN_NS] = teardown_ns
    body = _sentence(ending, exit_code) + ("" if seen else "; found dead later, the time is its last sign of life")
    return event(mono_ns, PROCESS, severity_of(ending, exit_code, is_rank), body, step, attributes)


def _sentence(ending: Ending, exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        how = f"killed by {signal_name(-exit_code)}"
    elif exit_code is not None:
        how = f"ended with exit code {exit_code}"
    else:
        how = "ended" if ending in ("clean", "raised") else "is gone, nobody knows how"
    word = {"clean": "after a clean end", "raised": "after an exception"}.get(ending, "" if exit_code == 0 else "without a word of its own")
    return f"process {how} {word}".rstrip()


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def fatal_event(mono_ns: int, text: str, step: int | None) -> bytes:
    """`llmtrace.failure` from what faulthandler wrote when a fatal signal came: its first line says which."""
    first = text.strip().partition("\n")[0]
    attributes: dict[str, Value] = {
        EXCEPTION_TYPE: "fatal signal",
        EXCEPTION_MESSAGE: first,
        EXCEPTION_STACKTRACE: text,
        FAILURE_SEEN_BY: "faulthandler",
    }
    return event(mono_ns, FAILURE, FATAL, first, step, attributes)


def read_fatal(path: Path) -> str:
    """The text of a faulthandler file, cut to a frame; empty where there is none or nothing in it."""
    try:
        with path.open("rb") as stream:
            return stream.read(FATAL_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
