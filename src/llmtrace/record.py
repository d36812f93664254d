"""The types that flow: identity, record, process, run and incident. No behaviour beyond their own values."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["log", "span", "sample", "event"]
"""What a record is: a line, something with a duration, a measurement, or something that happened."""

Value = str | int | float | bool
"""What an attribute may hold; it maps without loss to OTLP, ECS and Loki's structured metadata."""

Role = Literal["rank", "worker", "launcher", "agent"]
Ending = Literal["running", "clean", "raised", "killed", "exited", "unknown"]
"""How a process ended: `clean` and `raised` are its own word in the ring header, `killed` (a signal) and `exited`
(an exit code without a word of its own) are seen from outside, `unknown` is an end without either."""

DEBUG, INFO, WARN, ERROR, FATAL = 5, 9, 13, 17, 21
"""OpenTelemetry's severity numbers (opentelemetry.io/docs/specs/otel/logs/data-model, field SeverityNumber)."""


class Identity(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Whose record it is.

    `trace_id` is 32 hex digits and names the job; empty while not known. `span_id` is 16 hex digits and names the
    process's ring. `attempt` is one value for all nodes, new at every start of the job; `restart` is the launcher's own
    count. `run` counts the outermost fits of the process from 1. `launch` is a key that ranks of one launch on one node
    share before they have a store; it fills in what a rank that died early never learned.
    """

    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str = ""
    linked_span_id: str = ""
    job: str = ""
    node: str = ""
    role: Role = "rank"
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    restart: int = 0
    attempt: str = ""
    run: int = 0
    pid: int = 0
    launch: str = ""
    env: str = ""
    team: str = ""
    model: str = ""
    workload: str = ""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One thing that was seen. Readers make them by the ten thousand: by position, and unknown to the garbage collector, since none can be in a cycle.

    `id` is unique for ever (ring span and position). `time_ns` is wall clock of emission in nanoseconds since 1970, so a
    span's END; `duration_ns` is set for spans. `severity` is an OpenTelemetry severity number. `span_id` is the process's
    unless the record names another.
    """

    id: str
    time_ns: int
    kind: Kind
    name: str
    identity: Identity
    severity: int = INFO
    body: str | None = None
    step: int | None = None
    duration_ns: int | None = None
    span_id: str = ""
    parent_span_id: str = ""
    attributes: dict[str, Value] = {}


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process that has, or had, a ring: who it is, how it ended and how far it came. Times are wall-clock nanoseconds.

    `exit_code` is negative for a signal, None where nobody could know it. `last_step`, `phase` and `progress_ns` are the
    ring's progress word: the step and phase last entered, and when. `lost` counts records overwritten before they were read.
    """

    identity: Identity
    started_ns: int
    last_ns: int
    ending: Ending = "running"
    ended_ns: int | None = None
    exit_code: int | None = None
    last_step: int | None = None
    phase: str = ""
    progress_ns: int | None = None
    records: int = 0
    lost: int = 0


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `llmtrace runs`: a trace, attempt and run over all its ranks."""

    trace_id: str
    attempt: str
    run: int
    job: str
    state: Literal["running", "finished", "failed", "lost"]
    started_ns: int
    ended_ns: int | None
    nodes: list[str]
    ranks: int
    last_step: int | None


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """Who caused it; what is not known is None."""

    rank: int | None = None
    node: str | None = None
    gpu: str | None = None


class Window(msgspec.Struct, frozen=True):
    """A stretch of wall-clock time in nanoseconds: start included, end not."""

    start_ns: int
    end_ns: int

    def overlaps(self, other: Window) -> bool:
        return self.start_ns < other.end_ns and other.start_ns < self.end_ns


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One cascade: what broke, whose fault, since when, and the records that say so (`evidence`, best first).

    `symptoms` are the ranks that failed because of it. `id` is hash(trace, node, first evidence) and never changes, while
    later evidence may refine everything else; `merged` are ids of incidents of other nodes that are the same cascade.
    """

    id: str
    trace_id: str
    attempt: str
    onset_ns: int
    detected_ns: int
    category: str
    role: str
    summary: str
    reason: str
    culprit: Culprit
    window: Window
    evidence: list[str] = []
    symptoms: list[int] = []
    links: dict[str, str | None] = {}
    merged: list[str] = []
