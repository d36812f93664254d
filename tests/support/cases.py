"""Processes and records of a job, as short as a test can say them. Times are seconds from an arbitrary start."""

from __future__ import annotations

from collections.abc import Sequence

from llmtrace import names
from llmtrace.record import ERROR, FATAL, INFO, WARN, Ending, Identity, Process, Record, Value

BASE_NS = 1_764_000_000_000_000_000
TRACE = "5a" * 16
GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:544] Connection closed by peer [127.0.0.1]:12345"
TORCH_STACK = (
    'Traceback (most recent call last):\n  File "/home/u/train.py", line 9, in train\n    loss.backward()\n'
    '  File "/env/lib/python3.11/site-packages/torch/autograd/graph.py", line 841, in _engine_run_backward\n'
    "    return Variable._execution_engine.run_backward(\n"
)


def ns(seconds: float) -> int:
    return BASE_NS + round(seconds * 1e9)


def seconds(time_ns: int) -> float:
    return (time_ns - BASE_NS) / 1e9


def who(rank: int, node: str = "a", *, world: int = 2, run: int = 1, span: str = "", role: str = "rank", attempt: str = "1", trace: str = TRACE) -> Identity:
    return Identity(
        trace_id=trace, span_id=span or f"{rank:016x}", rank=rank, node=node, world_size=world, run=run, role=role, attempt=attempt, job="demo", pid=1000 + rank
    )  # type: ignore[arg-type]


def process(
    rank: int,
    ending: Ending = "running",
    code: int | None = None,
    at: float | None = None,
    *,
    step: int | None = 40,
    phase: str = "forward",
    progress: float | None = 100.0,
    node: str = "a",
    world: int = 2,
    run: int = 1,
    span: str = "",
    role: str = "rank",
) -> Process:
    return Process(
        identity=who(rank, node, world=world, run=run, span=span, role=role),
        started_ns=ns(0),
        last_ns=ns(100 if at is None else at),
        ending=ending,
        ended_ns=None if at is None else ns(at),
        exit_code=code,
        last_step=step,
        phase=phase,
        progress_ns=None if progress is None else ns(progress),
    )


def event(identity: Identity, at: float, name: str, body: str, severity: int, step: int | None, attributes: dict[str, Value]) -> Record:
    return Record(
        id=f"{identity.span_id}-{name}-{at}",
        time_ns=ns(at),
        kind="event",
        name=name,
        identity=identity,
        severity=severity,
        body=body,
        step=step,
        attributes=attributes,
    )


def failure(
    identity: Identity, at: float, kind: str, message: str = "", *, step: int | None = 40, stack: str = "", severity: int = FATAL, seen_by: str = "trace"
) -> Record:
    attributes: dict[str, Value] = {
        names.EXCEPTION_TYPE: kind,
        names.EXCEPTION_MESSAGE: message,
        names.EXCEPTION_STACKTRACE: stack and f"{stack}{kind}: {message}\n",
        names.FAILURE_SEEN_BY: seen_by,
        names.FAILURE_PHASE: "forward",
    }
    return event(identity, at, names.FAILURE, f"{kind}: {message}", severity, step, attributes)


def shortage(identity: Identity, at: float, device: str = "cpu", *, asked: int = 1 << 50, step: int | None = 40, severity: int = FATAL) -> Record:
    body = f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {asked} bytes. Error code 12 (Cannot allocate memory)"
    return event(identity, at, names.OOM, body, severity, step, {names.OOM_DEVICE: device, names.OOM_SIZE: asked})


def death(identity: Identity, at: float, code: int | None) -> Record:
    attributes: dict[str, Value] = {names.PROCESS_ACTION: "died"} | ({} if code is None else {names.PROCESS_EXIT_CODE: code})
    return event(identity, at, names.PROCESS, "process died", FATAL, 40, attributes)


def ended(identity: Identity, at: float, ending: str = "clean") -> Record:
    return event(identity, at, names.PROCESS, "", INFO, None, {names.PROCESS_ACTION: "finished", names.PROCESS_ENDING: ending})


def line(identity: Identity, at: float, body: str, severity: int = ERROR, step: int | None = 40) -> Record:
    return Record(id=f"{identity.span_id}-line-{at}", time_ns=ns(at), kind="log", name=names.LOG, identity=identity, severity=severity, body=body, step=step)


def step(identity: Identity, at: float, number: int) -> Record:
    return Record(
        id=f"{identity.span_id}-step-{number}",
        time_ns=ns(at),
        kind="span",
        name=names.STEP,
        identity=identity,
        severity=INFO,
        step=number,
        duration_ns=20_000_000,
    )


def lost_peer(rank: int, at: float, **facts: object) -> Record:
    return failure(who(rank, **facts), at, "RuntimeError", GLOO, stack=TORCH_STACK)  # type: ignore[arg-type]


def names_of(records: Sequence[Record]) -> list[str]:
    return [record.id for record in records]


__all__ = ["ERROR", "FATAL", "INFO", "WARN"]
