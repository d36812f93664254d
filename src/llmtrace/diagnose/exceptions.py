"""What an exception says: its own text, what it was raised from, and whose code raised it.

A message alone misleads: a user's own "connection to the feature store closed by peer" is a fault of the program, and gloo's
"Connection closed by peer" behind a user's TrainingFailed is a symptom. The traceback tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from ..names import EXCEPTION_MESSAGE, EXCEPTION_STACKTRACE, EXCEPTION_TYPE
from ..record import Record, Value
from .catalogue import UNKNOWN, Classification, classify

PROGRAM: Final = Classification("program_error", "root_cause", "an exception of the program's own code that nobody caught")
MACHINERY: Final = frozenset(
    {"torch", "torch_xla", "lightning", "lightning_fabric", "pytorch_lightning", "deepspeed", "accelerate", "megatron", "horovod", "ray"}
)
"""Packages whose exceptions about peers are about the job's own ranks."""
NETWORK: Final = frozenset({"peer_loss", "collective_stall", "rendezvous", "interconnect", "launcher_summary", "scheduler", "teardown_noise", "advice_text"})
"""What only the machinery can tell; in a user's own words it is a program's fault."""
STOPS: Final = frozenset({"KeyboardInterrupt", "SIGTERMException", "CancelledError", "SignalException"})

_CHAIN = re.compile(
    r"^(?:The above exception was the direct cause of the following exception:|During handling of the above exception, another exception occurred:)$",
    re.MULTILINE,
)
_FRAME = re.compile(r'^ *File "([^"]*)", line \d+, in .*\n((?: +.*\n?)?)', re.MULTILINE)
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?:: ?(.*))?$", re.MULTILINE)


class Raised(msgspec.Struct, frozen=True):
    """One exception of a chain: its qualified type, its message, the file and the statement that raised it (where known)."""

    type: str
    message: str
    file: str = ""
    statement: str = ""

    @property
    def text(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def is_machinery(self) -> bool:
        """Raised in torch or a trainer, or by compiled code that a line of the user's called."""
        parts = self.file.replace("\\", "/").split("/")
        if MACHINERY & set(parts) or ("multiprocessing" in parts and "connection.py" in parts):
            return True
        return not self.statement.startswith("raise") and self.type.startswith(("RuntimeError", "torch.")) and "site-packages" not in parts


def is_stop(kind: str) -> bool:
    return kind.rpartition(".")[2] in STOPS


def chain_of(record: Record) -> list[Raised]:
    """The exceptions behind a failure, the first raised first; the last is what the record itself names."""
    attributes = record.attributes
    own = Raised(_text(attributes, EXCEPTION_TYPE), _text(attributes, EXCEPTION_MESSAGE) or (record.body or ""))
    blocks = _CHAIN.split(_text(attributes, EXCEPTION_STACKTRACE))
    *before, last = blocks
    file, statement = _place(last)
    return [*(raised for block in before if (raised := _raised(block)) is not None), Raised(own.type, own.message, file, statement)]


def judge(chain: list[Raised]) -> Classification:
    """What broke, from the exception itself or, where that says nothing, from what it was raised from."""
    verdicts = [_judge_one(raised) for raised in chain]
    last = verdicts[-1]
    if last is not PROGRAM:
        return last
    return next((verdict for verdict in verdicts[:-1] if verdict is not PROGRAM), PROGRAM)


def _judge_one(raised: Raised) -> Classification:
    found = classify(raised.text)
    if found is UNKNOWN or found.category == "program_error" or found.role == "benign":
        return PROGRAM
    if found.category in NETWORK and not _is_of_the_job(raised):
        return PROGRAM
    return found


def _is_of_the_job(raised: Raised) -> bool:
    package = raised.type.partition(".")[0] if "." in raised.type else ""
    if package and package not in MACHINERY:
        return False
    return not raised.file or raised.is_machinery


def _raised(block: str) -> Raised | None:
    """The exception that a traceback block ends with."""
    *_, (start, end) = [(0, 0), *((m.start(), m.end()) for m in _FRAME.finditer(block))]
    found = _RAISED.search(block, end) if end else _RAISED.search(block, start)
    if found is None:
        return None
    return Raised(found[1], found[2] or "", *_place(block))


def _place(block: str) -> tuple[str, str]:
    """(file, statement) of the innermost frame; empty where the traceback has none."""
    frames = _FRAME.findall(block)
    return (frames[-1][0], frames[-1][1].strip()) if frames else ("", "")


def _text(attributes: Mapping[str, Value], name: str) -> str:
    return str(attributes.get(name, ""))
