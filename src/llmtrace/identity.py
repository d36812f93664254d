"""Who a process is: trace id, attempt, rank and place, from what the launcher says, never from a guess made too early.

Every function takes the environment as an argument and reads nothing else but the host's name and our own pid.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from .clock import boot_id, process_start_ticks
from .config import Config, trace_id
from .record import Identity


def digest(text: str, digits: int) -> str:
    """The first hex digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:digits]


def new_trace_id() -> str:
    return os.urandom(16).hex()


def new_span_id() -> str:
    return os.urandom(8).hex()


def new_attempt() -> str:
    """A value that no other start of any job has: 8 hex digits."""
    return os.urandom(4).hex()


def node_span_id(trace: str, node: str) -> str:
    """The span of a node within a trace, the parent of its ranks' spans; empty while the trace is not known."""
    return digest(f"{trace}/{node}", 16) if trace else ""


def number(environ: Mapping[str, str], *names: str) -> int | None:
    """The first of these variables that holds a whole number not below 0, of nine digits at most: ranks and counts are no longer."""
    for name in names:
        if (text := environ.get(name, "").strip()).isdecimal() and len(text) <= 9:
            return int(text)
    return None


def told(text: str) -> str:
    """A text from outside as an identity may hold it: what is not UTF-8 written out, and no longer than TOLD_BYTES.

    The identity must fit into the ring's description, a child's of 4 KiB too: without it nothing in the ring can be read.
    """
    plain = text.replace("\0", "").encode("utf-8", "backslashreplace")
    return plain[:TOLD_BYTES].decode("utf-8", "ignore")


TOLD_BYTES: Final = 200


class Place(msgspec.Struct, frozen=True):
    """Where in the job a process stands, as far as its launcher said; None where it did not."""

    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    launcher: str = ""


def place(environ: Mapping[str, str]) -> Place:
    """RANK, else SLURM's variables of a step of several tasks, else those of Lightning's launcher; else nothing.

    Lightning tells its ranks LOCAL_RANK and NODE_RANK alone: beyond the first node the rank follows from the process group only.
    """
    if (rank := number(environ, "RANK")) is not None:
        return Place(rank, number(environ, "LOCAL_RANK"), number(environ, "WORLD_SIZE"), "torchelastic" if "TORCHELASTIC_RUN_ID" in environ else "environment")
    tasks = number(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
    if tasks is not None and tasks > 1 and (rank := number(environ, "SLURM_PROCID")) is not None:
        return Place(rank, number(environ, "SLURM_LOCALID"), tasks, "slurm")
    if (local := number(environ, "LOCAL_RANK")) is not None:
        first_node = (number(environ, "NODE_RANK", "GROUP_RANK") or 0) == 0
        return Place(local if first_node else None, local, number(environ, "WORLD_SIZE"), "lightning")
    return Place(world_size=number(environ, "WORLD_SIZE"))


def is_lone(where: Place) -> bool:
    """Whether nothing in the environment speaks of a second process in the job."""
    return (where.world_size or 1) <= 1 and where.launcher != "lightning"


def resource(environ: Mapping[str, str], key: str) -> str:
    """One attribute of OTEL_RESOURCE_ATTRIBUTES (`key=value,...`, values percent-encoded); empty where it is not."""
    for item in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        name, _, value = item.partition("=")
        if name.strip() == key:
            return _percent_decoded(value.strip())
    return ""


def _percent_decoded(text: str) -> str:
    parts = text.encode("utf-8", "surrogateescape").split(b"%")
    found = parts[0]
    for part in parts[1:]:
        try:
            found += bytes.fromhex(part[:2].decode("ascii")) + part[2:]
        except ValueError:
            found += b"%" + part
    return found.decode("utf-8", "replace")


def traceparent(text: str) -> str:
    """The trace id in a W3C traceparent; empty where the text is none."""
    fields = text.strip().split("-")
    if len(fields) < 4 or len(fields[0]) != 2 or fields[0].lower() == "ff":
        return ""
    try:
        int(fields[0], 16)
        return trace_id(fields[1])
    except ValueError:
        return ""


def _uuid(text: str) -> str:
    plain = text.strip().replace("-", "").lower()
    shaped = len(text.strip()) == 36 and [len(part) for part in text.strip().split("-")] == [8, 4, 4, 4, 12]
    return plain if shaped and all(c in "0123456789abcdef" for c in plain) else ""


def _slurm(environ: Mapping[str, str]) -> str:
    job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
    if not job:
        return ""
    step = environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID") or "batch"
    return f"slurm/{environ.get('SLURM_CLUSTER_NAME', '')}/{job}/{step}"


def _shared_key(config: Config, environ: Mapping[str, str]) -> str:
    """What the launcher says to all processes of the job, as text to hash; empty where there is nothing unique."""
    if config.run_id:
        return f"run/{config.run_id}"
    if key := _slurm(environ):
        return key
    if uid := resource(environ, "k8s.job.uid"):
        return f"k8s/{uid}"
    if run := _uuid(environ.get("TORCHELASTIC_RUN_ID", "")):
        return f"torchelastic/{run}"
    return ""


def trace_id_known(config: Config, environ: Mapping[str, str]) -> str:
    """The job's trace id where the settings or the launcher give one, in DESIGN's order; empty when it must be agreed.

    LLMTRACE_TRACE_ID and TRACEPARENT count as given; the rest is hashed with SHA-256.
    """
    if given := config.trace_id or traceparent(environ.get("TRACEPARENT", "")):
        return given
    if key := _shared_key(config, environ):
        return digest(key, 32)
    return single_node_launch_trace(config, environ)


def single_node_launch_trace(config: Config, environ: Mapping[str, str]) -> str:
    """The id of a torchrun job that has one node only: its launch is the job, over all restarts."""
    where = place(environ)
    launch = launch_key(config, environ)
    alone = where.world_size is not None and where.world_size == number(environ, "LOCAL_WORLD_SIZE")
    return launch_trace(digest(launch, 16)) if launch.startswith("torchelastic/") and alone else ""


def launch_trace(launch: str) -> str:
    """The trace id that a launch (Identity.launch) stands for when nothing else names the job."""
    return digest(f"launch/{launch}", 32)


def node_name(config: Config) -> str:
    return told(config.node or os.uname().nodename)


def launch_key(config: Config, environ: Mapping[str, str]) -> str:
    """A text that the ranks of one launch on one node share and no other launch has; empty where the launcher shares nothing.

    torchrun makes a folder for each launch and names it in TORCHELASTIC_ERROR_FILE (`FOLDER/attempt_N/LOCAL_RANK/error.json`);
    Lightning's launcher is the process of local rank 0 and the parent of the others.
    """
    file = environ.get("TORCHELASTIC_ERROR_FILE", "")
    parts = file.split("/")
    if len(parts) > 4 and parts[-3].startswith("attempt_"):
        return f"torchelastic/{node_name(config)}/{'/'.join(parts[:-3])}"
    if place(environ).launcher == "lightning":
        pid = os.getpid() if number(environ, "LOCAL_RANK") == 0 else os.getppid()
        return f"lightning/{node_name(config)}/{boot_id()}/{pid}/{process_start_ticks(pid)}"
    return ""


def attempt_known(config: Config, environ: Mapping[str, str]) -> str:
    """The attempt of a single-node torchrun job: its launch and the launcher's count of restarts; else empty.

    With several nodes the counts differ (each agent counts its own), so that the attempt must be agreed.
    """
    if not single_node_launch_trace(config, environ):
        return ""
    return digest(f"{launch_key(config, environ)}/{restarts(environ)}", 8)


def restarts(environ: Mapping[str, str]) -> int:
    return number(environ, "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT") or 0


def job_name(config: Config, environ: Mapping[str, str], command: str = "") -> str:
    """The job's name for people: the setting, else the scheduler's, else the name of the program."""
    scheduler = environ.get("SLURM_JOB_NAME") or resource(environ, "k8s.job.name")
    program = os.path.basename(command).removesuffix(".py")
    return told(config.job or scheduler or ("" if program in ("-c", "-m", "-", "") else program))


def facts(config: Config, environ: Mapping[str, str], *, command: str = "") -> Identity:
    """Everything about this process that is known at its start; `rank`, `trace_id` and `attempt` are unset where they must be learned."""
    where, node = place(environ), node_name(config)
    trace = trace_id_known(config, environ)
    return Identity(
        trace_id=trace,
        span_id=new_span_id(),
        parent_span_id=node_span_id(trace, node),
        job=job_name(config, environ, command),
        node=node,
        rank=where.rank,
        local_rank=where.local_rank,
        world_size=where.world_size,
        restart=restarts(environ),
        attempt=attempt_known(config, environ),
        pid=os.getpid(),
        launch=digest(key, 16) if (key := launch_key(config, environ)) else "",
        env=told(config.env),
        team=told(config.team),
        model=told(config.model),
        workload=config.workload,
    )


def fallbacks(identities: Iterable[Identity]) -> dict[str, dict[str, str]]:
    """What to assume of processes that died before they learned it: span id -> {trace_id, attempt, job}.

    The parent of a forked child, else a sibling of the same launch (and restart, for the attempt) knows; else the launch
    itself, else the span, stands for the job. Pure, and the same for whoever asks: agent and readers come to one result.
    """
    spans = {identity.span_id: identity for identity in identities}
    launches: defaultdict[str, list[Identity]] = defaultdict(list)
    for span in sorted(spans):
        launches[spans[span].launch].append(spans[span])
    learned = {launch: _learned(siblings) for launch, siblings in launches.items() if launch}
    return {i.span_id: _assumed(spans.get(i.parent_span_id, i), i, learned) for i in spans.values()}


class _Launch(NamedTuple):
    """What the processes of one launch know together; the attempt by restart."""

    trace_id: str
    job: str
    attempts: dict[int, str]


def _learned(siblings: list[Identity]) -> _Launch:
    attempts = {i.restart: i.attempt for i in reversed(siblings) if i.attempt}
    return _Launch(next((i.trace_id for i in siblings if i.trace_id), ""), next((i.job for i in siblings if i.job), ""), attempts)


def _assumed(parent: Identity, own: Identity, learned: Mapping[str, _Launch]) -> dict[str, str]:
    launch = own.launch or parent.launch
    shared = learned.get(launch, _Launch("", "", {}))
    trace = own.trace_id or parent.trace_id or shared.trace_id or (launch_trace(launch) if launch else digest(parent.span_id, 32))
    of_parent = parent.attempt if parent.restart == own.restart else ""
    attempt = own.attempt or of_parent or shared.attempts.get(own.restart, "") or str(own.restart)
    return {"trace_id": trace, "attempt": attempt, "job": own.job or parent.job or shared.job}
