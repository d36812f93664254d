"""Processes and records of a job, as short as a test can say them. Times are seconds from an arbitrary start."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llmtrace import names
from llmtrace.diagnose import diagnose
from llmtrace.incidents import incident_id, incident_window
from llmtrace.record import ERROR, FATAL, INFO, WARN, Ending, Identity, Incident, Process, Record, Value, Window
from llmtrace.sources.context import Context

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


def window_of(records: Sequence[Record], processes: Sequence[Process], drops: dict[str, int] | None = None) -> Context:
    """The context of an incident as diagnosis sees it; of the last 35 s where it sees none."""
    verdict = diagnose(records, processes, ns(200))
    ordered = sorted(records, key=lambda record: record.time_ns)
    if verdict is None:
        return Context(trace_id=TRACE, incident=None, window=Window(ns(70), ns(105)), processes=list(processes), records=ordered, drops=drops or {})
    facts = {name: getattr(verdict, name) for name in ("category", "role", "summary", "reason", "culprit", "onset_ns", "evidence", "symptoms")}
    detected_ns = max([verdict.onset_ns, *(process.ended_ns or 0 for process in processes)]) + 50_000_000
    incident = Incident(
        id=incident_id(TRACE, verdict.culprit.node or "a", verdict.evidence[0] if verdict.evidence else ""),
        trace_id=TRACE,
        attempt="1",
        detected_ns=detected_ns,
        window=incident_window(verdict.onset_ns, detected_ns),
        **facts,
    )
    return Context(trace_id=TRACE, incident=incident, window=incident.window, processes=list(processes), records=ordered, drops=drops or {})


def _killed_worker() -> Context:
    lost = failure(who(1), 100.2, "RuntimeError", "DataLoader worker (pid(s) 4711) exited unexpectedly", stack=TORCH_STACK)
    worker = process(1, "killed", -9, 100, span="f" * 16, role="worker", step=None)
    died = death(worker.identity, 100, -9)
    return window_of([died, lost], [process(0), process(1, "raised", 1, 101), worker])


def _timeout() -> Context:
    timeout = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE) ran for 20029 milliseconds before timing out."
    ranks = [process(r, "killed", -6, 120.5, world=4) for r in (0, 2, 3)]
    return window_of([line(who(r, world=4), 120, timeout) for r in (0, 2, 3)], [*ranks, process(1, "killed", -15, 121, step=39, world=4)])


def _crash() -> Context:
    crash = failure(who(1), 100, "fatal signal", "Fatal Python error: Segmentation fault", seen_by="faulthandler")
    return window_of([crash, lost_peer(0, 100.1)], [process(0), process(1, "killed", -11, 100)])


def _two_nodes() -> Context:
    """Two nodes, and clocks that nothing was compared by."""
    ranks = [process(r, "killed", -15, 101, world=4, node="ab"[r // 2]) for r in (0, 1, 3)]
    records = [failure(who(2, "b", world=4), 100, "KeyError", "'x'"), lost_peer(0, 100.02, world=4, node="a")]
    return window_of(records, [*ranks, process(2, "raised", 1, 101.2, world=4, node="b")])


FAULTS: dict[str, Callable[[], Context]] = {
    "exception": lambda: window_of(
        [failure(who(1), 100, "ValueError", "bad batch 7f3a"), lost_peer(0, 100.1)], [process(0, "killed", -15, 101.3), process(1, "raised", 1, 101.2)]
    ),
    "killed": lambda: window_of([death(who(1), 100, -9), lost_peer(0, 100.1)], [process(0, "killed", -15, 101.3), process(1, "killed", -9, 100)]),
    "killed for memory": lambda: window_of(
        [line(who(0), 101, "Out of memory: Killed process 1001 (python) total-vm:51234kB, anon-rss:4812kB"), death(who(1), 100, -9), lost_peer(0, 100.1)],
        [process(0, "killed", -15, 101.3), process(1, "killed", -9, 100)],
    ),
    "host memory": lambda: window_of(
        [shortage(who(1), 100), failure(who(1), 100.01, "RuntimeError", "DefaultCPUAllocator: can't allocate memory"), lost_peer(0, 100.2)],
        [process(0), process(1, "raised", 1, 101)],
    ),
    "gpu memory": lambda: window_of(
        [shortage(who(1), 100, "cuda:1", asked=20 << 20), failure(who(1), 100.01, "torch.OutOfMemoryError", "CUDA out of memory")], [process(0), process(1)]
    ),
    "memory error": lambda: window_of([failure(who(1), 100, "MemoryError")], [process(0), process(1)]),
    "left": lambda: window_of([death(who(1), 100, 7), lost_peer(0, 100.1)], [process(0, "killed", -15, 101.3), process(1, "exited", 7, 100)]),
    "felt first": lambda: window_of([lost_peer(0, 100), death(who(1), 100.003, 7)], [process(0, "killed", -15, 100.2), process(1, "exited", 7, 100.003)]),
    "crash": _crash,
    "segmentation fault": lambda: window_of([death(who(1), 100, -11)], [process(0), process(1, "killed", -11, 100)]),
    "unseen": lambda: window_of([lost_peer(0, 100.1)], [process(0, "killed", -15, 101), process(1, "unknown", None, 100)]),
    "raised, not recorded": lambda: window_of([], [process(0), process(1, "raised", 1, 100)]),
    "all gone": lambda: window_of([], [process(0, "unknown", None, 100), process(1, "unknown", None, 99)]),
    "all killed": lambda: window_of([], [process(0, "killed", -9, 100.05), process(1, "killed", -9, 100)]),
    "hardware": lambda: window_of(
        [failure(who(0), 100, "ValueError", "x"), failure(who(1), 100.001, "RuntimeError", "CUDA error: uncorrectable ECC error encountered")],
        [process(0), process(1)],
    ),
    "hardware, a line": lambda: window_of(
        [line(who(1), 99.9, "NVRM: Xid (PCI:0000:07:00): 79, pid=1001, GPU has fallen off the bus."), lost_peer(0, 100.1)],
        [process(0, "raised", 1, 101), process(1)],
    ),
    "worker killed": _killed_worker,
    "timeout": _timeout,
    "silent": lambda: window_of([lost_peer(r, 100, world=4) for r in (0, 1, 3)], [process(r, world=4) for r in range(4)]),
    "ended well": lambda: window_of(
        [lost_peer(r, 100, world=3) for r in (0, 2)], [process(0, world=3), process(1, "clean", 0, 100.1, step=39, progress=99.2, world=3), process(2, world=3)]
    ),
    "behind": lambda: window_of(
        [failure(who(0), 100, "RuntimeError", "[x/unbound_buffer.cc:78] Timed out waiting 30000ms for recv operation to complete", stack=TORCH_STACK)],
        [process(0, progress=69), process(1, step=39, phase="data_wait", progress=68.5)],
    ),
    "stopped earlier": lambda: window_of(
        [lost_peer(r, 100, world=3) for r in range(3)], [process(0, progress=99, world=3), process(1, progress=90, world=3), process(2, progress=99.5, world=3)]
    ),
    "not here": lambda: window_of([lost_peer(0, 100)], [process(0)]),
    "nobody": lambda: window_of([lost_peer(0, 100), lost_peer(1, 100.001)], [process(0), process(1)]),
    "two nodes": _two_nodes,
    "many": lambda: window_of(
        [failure(who(77, world=256), 100, "ValueError", "x"), *(lost_peer(r, 100.1, world=256) for r in range(256) if r != 77)],
        [process(r, world=256) for r in range(256)],
    ),
}
"""One cascade of each kind, and what the diagnosis makes of it."""


__all__ = ["ERROR", "FATAL", "INFO", "WARN"]
