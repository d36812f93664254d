"""Every name that leaves llmtrace, in one place: records, attributes, phases, and the shape of the hot ones in the ring."""

from __future__ import annotations

from typing import Final

import msgspec

from .record import Kind

STEP: Final = "llmtrace.step"
"""A training step, from the end of the one before: a span."""
LOG: Final = "llmtrace.log"
"""A line of stdlib logging or structlog."""
MEMORY: Final = "llmtrace.memory"
"""Memory of the process and of torch's allocator, at most once a second."""
METRIC: Final = "llmtrace.metric"
"""A number that the user logged."""
OOM: Final = "llmtrace.oom"
"""An allocator had no memory to give."""
FAILURE: Final = "llmtrace.failure"
"""An exception that ended a run, a thread or a process, or a fatal signal with its stack."""
PROCESS: Final = "llmtrace.process"
"""A run began or ended, or a process died."""
PHASE: Final = "llmtrace.phase"
"""A stretch of the program that `llmtrace.phase` named and no step counts: a span."""
INCIDENT: Final = "llmtrace.incident"
"""What the agent made of it: one a cascade, the newest word counts."""

PHASES: Final = ("data_wait", "forward", "backward", "optimizer", "gradient_sync_exposed", "checkpoint")
"""The phases of a step that have an attribute of their own; `llmtrace.phase(name)` may name others."""


def phase_attribute(phase: str) -> str:
    return f"llmtrace.step.{phase}_ns"


class Schema(msgspec.Struct, frozen=True):
    """How a positional record lies in the ring: after the time, one value a field.

    A field that is a field of Record goes there, any other is an attribute of that name; None means absent. `id` is the
    frame's kind byte, unique within one ring only: the ring carries the schemas that it uses.
    """

    id: int
    name: str
    kind: Kind
    fields: tuple[str, ...]


GENERAL: Final = Schema(1, "", "event", ("name", "kind", "severity", "body", "step", "duration_ns", "span_id", "parent_span_id", "attributes"))
"""Any record at all, for what is not hot: name and kind lie in the frame."""

SCHEMAS: Final = (
    GENERAL,
    Schema(2, LOG, "log", ("severity", "body", "step", "log.logger", "code.file.path", "code.line.number", "thread.name", "attributes")),
    Schema(3, STEP, "span", ("duration_ns", "step", *(phase_attribute(p) for p in PHASES), "llmtrace.step.samples", "llmtrace.step.tokens")),
    Schema(
        4,
        MEMORY,
        "sample",
        (
            "step",
            "llmtrace.memory.allocated_bytes",
            "llmtrace.memory.reserved_bytes",
            "llmtrace.memory.peak_bytes",
            "llmtrace.memory.retries",
            "llmtrace.memory.rss_bytes",
        ),
    ),
    Schema(5, METRIC, "sample", ("step", "llmtrace.metric.name", "llmtrace.metric.value")),
)
"""The hot records, by position. Adding a field at the end or a schema with a new id keeps old readers right."""

EXCEPTION_TYPE: Final = "exception.type"
"""The exception's class, with its module unless it is a builtin (OpenTelemetry's name, as the next two)."""
EXCEPTION_MESSAGE: Final = "exception.message"
"""What the exception says, at most 1 KB."""
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"
"""The traceback with its chain of causes; the middle is left out where it is long."""
FAILURE_PHASE: Final = "llmtrace.failure.phase"
"""The phase in which the process was; absent between phases."""
FAILURE_LINE: Final = "llmtrace.failure.line"
"""The innermost line of the user's own code, `file:line in function`."""
FAILURE_SEEN_BY: Final = "llmtrace.failure.seen_by"
"""excepthook, thread, trace, lightning, or faulthandler."""

PROCESS_ACTION: Final = "llmtrace.process.action"
"""started, finished (both by the process itself) or died (by the agent)."""
PROCESS_EXIT_CODE: Final = "llmtrace.process.exit_code"
"""As a parent would see it, negative for a signal; absent where nobody could know it."""
PROCESS_SIGNAL: Final = "llmtrace.process.signal"
"""The signal's name, of a process that one ended."""
PROCESS_ENDING: Final = "llmtrace.process.ending"
"""clean, raised, killed, exited or unknown (record.Ending)."""
PROCESS_UNSEEN: Final = "llmtrace.process.unseen"
"""True of a death that nobody saw: its time is the last sign of life, so it came later."""
PROCESS_TEARDOWN_NS: Final = "llmtrace.process.teardown_ns"
"""Of a process that said that it ends: how long after that it was gone (libraries take seconds to unload)."""
PROCESS_COMMAND: Final = "llmtrace.process.command"
"""The program's arguments, the first thousand characters."""

OOM_DEVICE: Final = "llmtrace.oom.device"
"""cpu, cuda:N, or cgroup."""
OOM_SIZE: Final = "llmtrace.oom.size_bytes"
"""What was asked for at once."""
OOM_FREE: Final = "llmtrace.oom.free_bytes"
"""What was free on the device, or available on the host."""
OOM_LIMIT: Final = "llmtrace.oom.limit_bytes"
"""The device's memory, or the cgroup's limit."""
OOM_ALLOCATED: Final = "llmtrace.oom.allocated_bytes"
"""What torch's allocator had given out."""
OOM_RESERVED: Final = "llmtrace.oom.reserved_bytes"
"""What torch's allocator held."""
OOM_RSS: Final = "llmtrace.oom.rss_bytes"
"""The process's resident memory."""
OOM_STATISTICS: Final = "llmtrace.oom.statistics"
"""The allocator's own summary, as text."""

PHASE_NAME: Final = "llmtrace.phase.name"
"""What `llmtrace.phase(name)` was called with."""

METRIC_NAME: Final = "llmtrace.metric.name"
"""The name under which the user logged a number."""
METRIC_VALUE: Final = "llmtrace.metric.value"
"""The number."""
