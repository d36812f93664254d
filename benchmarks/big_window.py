"""The window that the page's budget is stated for, made without a job: 64 ranks, 30 s, 10 steps/s, 20,000 lines, and one rank that breaks.

Everything follows from one seed, so that two runs measure the same bytes. Who is to blame is the real diagnosis of the records that are made here.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, count
from typing import Final

from llmtrace import names
from llmtrace.diagnose import diagnose
from llmtrace.identity import digest, node_span_id
from llmtrace.incidents import AFTER_NS, incident_id, incident_window
from llmtrace.record import DEBUG, ERROR, FATAL, INFO, WARN, Ending, Identity, Incident, Process, Record, Value, Window
from llmtrace.sources.context import Context

S, MS = 1_000_000_000, 1_000_000
ONSET_NS: Final = 1_796_008_447_412_000_000
"""Some November night."""
DETECTED_NS: Final = ONSET_NS + 84 * MS
TRACE: Final = digest("big window", 32)
ATTEMPT: Final = digest("big window, first start", 8)
RANKS_A_NODE: Final = 8
FIRST_STEP: Final = 5_812
GPU_BYTES: Final = 84_942_979_072
"""80 GB of an H100, as torch reports its total_capacity (79.11 GiB)."""

SHARES: Final = {"data_wait": 0.04, "forward": 0.26, "backward": 0.50, "optimizer": 0.07}
"""Of a step at the pace of the slow rank; what the others have left over they wait for it: gradient_sync_exposed."""
STEP_FIELDS: Final = {phase: names.phase_attribute(phase) for phase in names.PHASES}
CALM, SLOW = 0.86, 1.12
"""How long an ordinary rank and the slow one compute, in units of SHARES."""
STALLS: Final = 0.02
"""Share of steps in which one rank waits for its data, and the others for it."""

TRAIN, FRAMES = "/home/ada/gpt/train.py", "/opt/venv/lib/python3.11/site-packages/torch"
TRACEBACK: Final = f"""Traceback (most recent call last):
  File "{TRAIN}", line 412, in <module>
    main(parse(sys.argv[1:]))
  File "{TRAIN}", line 377, in train
    loss = model(batch["input_ids"], labels=batch["labels"]).loss
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "{FRAMES}/nn/modules/module.py", line 1775, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "{FRAMES}/nn/modules/module.py", line 1786, in _call_impl
    return forward_call(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/gpt/layers.py", line 143, in forward
    scores = (query @ key.transpose(-2, -1)) * self.scale
              ~~~~~~^~~~~~~~~~~~~~~~~~~~~~~
"""
FAILED_IN: Final = {"forward": "/home/ada/gpt/layers.py:143 in forward", "backward": f"{TRAIN}:381 in train"}
FETCH: Final = """Traceback (most recent call last):
  File "/home/ada/gpt/shards.py", line 88, in fetch
    return self.client.get(key, timeout=5)
  File "/opt/venv/lib/python3.11/site-packages/urllib3/connectionpool.py", line 536, in _make_request
    response = conn.getresponse()
TimeoutError: The read operation timed out
"""
OOM: Final = (
    "CUDA out of memory. Tried to allocate 6.25 GiB. GPU {gpu} has a total capacity of 79.11 GiB of which 1.44 GiB is free. Process {pid} has 77.66 GiB "
    "memory in use. Of the allocated memory 74.02 GiB is allocated by PyTorch, and 2.51 GiB is reserved by PyTorch but unallocated."
)
LOST: Final = (
    "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:94, remote process exited or there was a network error, NCCL version 2.27.5\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
    "Last error:\nsocketProgress: Connection closed by remote peer {peer}<{port}>"
)
TEXTS: Final[tuple[tuple[float, int, str, str], ...]] = (
    (0.58, INFO, "train", "step {step} | loss {loss:.4f} | lr {lr:.3e} | grad norm {norm:.3f} | {tokens:,} tokens/s/gpu | mfu {mfu:.1f}% | {ms:.1f} ms"),
    (
        0.14,
        DEBUG,
        "data.shards",
        "prefetched shard s3://corpus/dedup-v7/part-{shard:05d}.parquet: 64 of 64 row groups, {size:.1f} MiB in {ms:.0f} ms, queue 7/8",
    ),
    (
        0.08,
        INFO,
        "parallel.schedule",
        "microbatch {micro}/8: activations {size:.1f} MiB, recompute on layers 0-{layer}, stream 0x{address:012x} idle {ms:.2f} ms",
    ),
    (0.06, INFO, "nccl", "NCCL INFO Channel {micro:02d}/0 : {peer}[{gpu}] -> {layer}[{gpu}] [send] via NET/IB/{micro}/GDRDMA/Shared, comm 0x{address:012x}"),
    (0.05, WARN, "train", "\x1b[33mWARNING\x1b[0m \x1b[1mgrad norm {norm:.3f}\x1b[0m above the running mean by {ms:.1f} sigma: clipped to 1.0 in step {step}"),
    (0.03, INFO, "eval", "\x1b[32m✓\x1b[0m 验证集困惑度 {loss:.3f} 训练损失 {loss:.4f} 已用显存 {size:.1f} GiB 第 {step} 步"),
    (0.03, INFO, "checkpoint", "检查点分片已写入 /lustre/ckpt/gpt-70b/step-{step}/shard-{shard:05d}.safetensors 共 {size:.1f} MiB 用时 {ms:.0f} 毫秒"),
    (0.02, INFO, "progress", "\x1b[36mEpoch 3:\x1b[0m  41%|████▏     | {step}/14,200 [{micro}:12:33<{layer}:47:01,  {norm:.2f}it/s, loss={loss:.4f}, v_num=7]"),
    (0.004, ERROR, "data.shards", "shard {shard} could not be read, attempt {micro} of 5; trying another replica"),
    (
        0.004,
        WARN,
        "data.tokenise",
        "document {address:012x} holds markup: </script><script>alert({shard})</script> &amp; <b onmouseover=alert(1)>; kept as text",
    ),
    (0.002, ERROR, "data.shards", "retry {micro} failed\n" + FETCH),
)
"""Share, severity, logger and text of what ranks print."""


def big_window(ranks: int = 64, seconds: float = 30, steps_per_second: float = 10, lines: int = 20_000) -> Context:
    """A window of `seconds` before the onset to 5 s after the detection, with exactly `lines` log lines where that is more than the last words.

    A rank runs out of GPU memory in the middle of a step; its neighbours on the node are told to end, the others lose their peer. One more rank is
    slower than the rest for the whole time. Each rank has memory and three metrics every second.
    """
    job = _Job(ranks, seconds, steps_per_second)
    last = [*job.failures(), *job.deaths()]
    words = [*job.last_lines(), *last]
    said = sum(record.kind == "log" for record in words)
    records = [*job.steps(), *job.samples(), *job.lines(max(0, lines - said)), *words]
    records.sort(key=lambda record: record.time_ns)
    window = Window(ONSET_NS - int(seconds * S), DETECTED_NS + AFTER_NS)
    return Context(trace_id=TRACE, incident=_incident(last, job.processes()), window=window, processes=job.processes(), records=records, drops={})


def _incident(records: Sequence[Record], processes: Sequence[Process]) -> Incident:
    verdict = diagnose(records, processes, DETECTED_NS)
    if verdict is None:
        raise ValueError("diagnosis finds nothing wrong in the big window")
    return Incident(
        id=incident_id(TRACE, verdict.culprit.node or "", verdict.evidence[0]),
        trace_id=TRACE,
        attempt=ATTEMPT,
        onset_ns=verdict.onset_ns,
        detected_ns=DETECTED_NS,
        category=verdict.category,
        role=verdict.role,
        summary=verdict.summary,
        reason=verdict.reason,
        culprit=verdict.culprit,
        window=incident_window(verdict.onset_ns, DETECTED_NS),
        evidence=verdict.evidence,
        symptoms=verdict.symptoms,
    )


def _identity(rank: int, ranks: int) -> Identity:
    node = f"node-{rank // RANKS_A_NODE:03d}"
    return Identity(
        trace_id=TRACE,
        span_id=digest(f"rank {rank}", 16),
        parent_span_id=node_span_id(TRACE, node),
        job="gpt-70b",
        node=node,
        rank=rank,
        local_rank=rank % RANKS_A_NODE,
        world_size=ranks,
        attempt=ATTEMPT,
        run=1,
        pid=41_200 + rank % RANKS_A_NODE,
        team="pretraining",
        model="gpt-70b",
        workload="train",
    )


class _Job:
    """Ranks that step together, each step as long as its slowest rank; `ends_ns` are the common ends of the steps, the last one's the broken step's begin."""

    def __init__(self, ranks: int, seconds: float, steps_per_second: float) -> None:
        self.noise = random.Random(4)
        self.identities = [_identity(rank, ranks) for rank in range(ranks)]
        self.culprit, self.slow = ranks * 37 // 64, ranks * 13 // 64
        self.begin_ns = ONSET_NS - int(seconds * S)
        self.steps_done = max(1, round(seconds * steps_per_second))
        self.stalled = [self.noise.randrange(ranks) if self.noise.random() < STALLS else None for _ in range(self.steps_done)]
        self.saved = self.steps_done // 2
        self.ends_ns = self._ends(int(0.6 * S / steps_per_second))
        self._positions = count(1)

    def _ends(self, broken_ns: int) -> list[int]:
        """As many as there are steps, and before them the begin of the first: lengths vary by a tenth, a stall or a checkpoint more."""
        weights = [self.noise.uniform(0.94, 1.06) * (1.7 if stalled is not None else 1) for stalled in self.stalled]
        weights[self.saved] *= 3
        room_ns = ONSET_NS - broken_ns - self.begin_ns
        scale = room_ns / sum(weights)
        return [self.begin_ns + int(done * scale) for done in accumulate(weights, initial=0)]

    def _record(self, identity: Identity, **facts: object) -> Record:
        return Record(id=f"{identity.span_id}-{next(self._positions) << 7:x}", identity=identity, span_id=identity.span_id, **facts)  # type: ignore[arg-type]

    def steps(self) -> Iterator[Record]:
        """One span a step and rank; ranks leave a step within 2 ms of one another."""
        uniform = self.noise.uniform
        for identity in self.identities:
            pace = SLOW if identity.rank == self.slow else CALM * uniform(0.97, 1.03)
            before_ns = self.begin_ns - int(uniform(0, 2 * MS))
            for number in range(self.steps_done):
                end_ns = self.ends_ns[number + 1] - int(uniform(0, 2 * MS))
                phases = self._phases(identity.rank, number, end_ns - before_ns, pace * uniform(0.98, 1.02))
                yield self._record(
                    identity,
                    time_ns=end_ns,
                    kind="span",
                    name=names.STEP,
                    step=FIRST_STEP + number,
                    duration_ns=end_ns - before_ns,
                    attributes={**phases, "llmtrace.step.samples": 16, "llmtrace.step.tokens": 65_536},
                )
                before_ns = end_ns

    def _phases(self, rank: int | None, number: int, length_ns: int, pace: float) -> dict[str, Value]:
        """Nanoseconds a phase, which add up to the step: what is left is the wait for the others, or, of a rank that stalls, for its data."""
        saved_ns = int(length_ns * 0.62) if number == self.saved else 0
        stalled = self.stalled[number]
        busy_ns = (length_ns - saved_ns) / (1 if stalled is None else 1.7)
        spent = {phase: int(share * pace * busy_ns) for phase, share in SHARES.items()}
        rest_ns = length_ns - saved_ns - sum(spent.values())
        spent["gradient_sync_exposed"] = 0 if stalled == rank else rest_ns
        spent["data_wait"] += rest_ns if stalled == rank else 0
        spent["checkpoint"] = saved_ns
        return {STEP_FIELDS[phase]: ns for phase, ns in spent.items() if ns}

    def samples(self) -> Iterator[Record]:
        """Memory and three logged numbers a rank and second; the culprit's memory climbs to the device's."""
        for at_ns in range(self.begin_ns + S // 2, ONSET_NS, S):
            step = self._step_at(at_ns)
            come = (at_ns - self.begin_ns) / (ONSET_NS - self.begin_ns)
            for identity in self.identities:
                time_ns = at_ns + int(self.noise.uniform(0, 40 * MS))
                full = 0.58 + 0.35 * come if identity.rank == self.culprit else 0.58
                yield self._memory(identity, time_ns, step, full + self.noise.uniform(-0.01, 0.01))
                for name, value in (("loss", self._loss(step)), ("grad_norm", self.noise.uniform(0.2, 0.9)), ("lr", 3e-4 * (1 - step / 14_200))):
                    facts = {names.METRIC_NAME: name, names.METRIC_VALUE: value}
                    yield self._record(identity, time_ns=time_ns, kind="sample", name=names.METRIC, step=step, attributes=facts)

    def _memory(self, identity: Identity, time_ns: int, step: int, full: float) -> Record:
        facts: dict[str, Value] = {
            "llmtrace.memory.allocated_bytes": int(full * GPU_BYTES),
            "llmtrace.memory.reserved_bytes": int((full + 0.03) * GPU_BYTES),
            "llmtrace.memory.peak_bytes": int((full + 0.02) * GPU_BYTES),
            "llmtrace.memory.retries": 0,
            "llmtrace.memory.rss_bytes": 38_000_000_000 + int(self.noise.uniform(0, 1e9)),
        }
        return self._record(identity, time_ns=time_ns, kind="sample", name=names.MEMORY, step=step, attributes=facts)

    def _step_at(self, time_ns: int) -> int:
        return FIRST_STEP + max(0, bisect_right(self.ends_ns, time_ns) - 1)

    def _loss(self, step: int) -> float:
        return 2.1 + 900 / step + self.noise.uniform(-0.05, 0.05)

    def lines(self, number: int) -> Iterator[Record]:
        """What the ranks print while all is well, evenly over the time and the ranks."""
        weights = [text[0] for text in TEXTS]
        for _, severity, logger, text in self.noise.choices(TEXTS, weights, k=number):
            time_ns = self.begin_ns + int(self.noise.random() * (ONSET_NS - self.begin_ns))
            yield self._line(self.noise.choice(self.identities), time_ns, severity, logger, text)

    def _line(self, identity: Identity, time_ns: int, severity: int, logger: str, text: str, **attributes: Value) -> Record:
        draw, step = self.noise.random, self._step_at(time_ns)
        body = text.format(
            step=step, loss=self._loss(step), lr=3e-4 * (1 - step / 14_200), norm=0.2 + 0.7 * draw(), tokens=int(9_000 + 900 * draw()), mfu=41 + 3 * draw(),
            ms=90 + 20 * draw(), shard=int(draw() * 40_000), size=20 + 60 * draw(), micro=int(draw() * 8), layer=int(draw() * 80), gpu=int(draw() * 8),
            address=int(draw() * 2**48), peer=int(draw() * 64), pid=identity.pid, port=int(30_000 + draw() * 20_000),
        )  # fmt: skip
        place: dict[str, Value] = {"log.logger": logger, "code.file.path": TRAIN, "code.line.number": 290 + len(logger)}
        facts = place | attributes
        return self._record(identity, time_ns=time_ns, kind="log", name=names.LOG, severity=severity, body=body, step=step, attributes=facts)

    def last_lines(self) -> Iterator[Record]:
        """The culprit's own word on it with its traceback, and that of those who lost their peer."""
        for identity in self.identities:
            if identity.rank == self.culprit:
                cause = self._raised("torch.OutOfMemoryError", OOM.format(gpu=identity.local_rank, pid=identity.pid))
                yield self._line(identity, ONSET_NS + 1 * MS, ERROR, "train", "step {step} failed, giving up", **cause)
            elif identity.node != self.identities[self.culprit].node:
                yield self._line(
                    identity, ONSET_NS + self._late_ns(identity) - MS, WARN, "nccl", "NCCL WARN socketProgress: Connection closed by remote peer {peer}<{port}>"
                )

    def _late_ns(self, identity: Identity) -> int:
        """How long after the onset a rank loses its peer."""
        return 310 * MS + (identity.rank or 0) * 400_000

    def _raised(self, kind: str, message: str) -> dict[str, Value]:
        return {names.EXCEPTION_TYPE: kind, names.EXCEPTION_MESSAGE: message, names.EXCEPTION_STACKTRACE: f"{TRACEBACK}{kind}: {message}\n"}

    def failures(self) -> Iterator[Record]:
        """The allocator's word and the culprit's exception, then the exceptions of the other nodes' ranks."""
        here = self.identities[self.culprit]
        message = OOM.format(gpu=here.local_rank, pid=here.pid)
        device: dict[str, Value] = {
            names.OOM_DEVICE: f"cuda:{here.local_rank}",
            names.OOM_SIZE: 6_710_886_400,
            names.OOM_FREE: 1_546_188_226,
            names.OOM_LIMIT: GPU_BYTES,
        }
        yield self._event(here, ONSET_NS, names.OOM, FATAL, message, device)
        yield self._failure(here, ONSET_NS + 2 * MS, "torch.OutOfMemoryError", message, "forward")
        for identity in self.identities:
            if identity.node != here.node:
                lost = LOST.format(peer=f"10.4.{here.rank or 0}.7", port=30_000 + (identity.rank or 0))
                yield self._failure(identity, ONSET_NS + self._late_ns(identity), "torch.distributed.DistBackendError", lost, "backward")

    def _failure(self, identity: Identity, time_ns: int, kind: str, message: str, phase: str) -> Record:
        place: dict[str, Value] = {names.FAILURE_PHASE: phase, names.FAILURE_LINE: FAILED_IN[phase], names.FAILURE_SEEN_BY: "trace"}
        return self._event(identity, time_ns, names.FAILURE, FATAL, f"{kind}: {message}", self._raised(kind, message) | place)

    def _event(self, identity: Identity, time_ns: int, name: str, severity: int, body: str, facts: dict[str, Value]) -> Record:
        return self._record(
            identity, time_ns=time_ns, kind="event", name=name, severity=severity, body=body, step=FIRST_STEP + self.steps_done, attributes=facts
        )

    def deaths(self) -> Iterator[Record]:
        """The agent's word on each process that is gone."""
        for process in self.processes():
            code = process.exit_code or 0
            facts: dict[str, Value] = {names.PROCESS_ACTION: "died", names.PROCESS_EXIT_CODE: code, names.PROCESS_ENDING: process.ending}
            how = "killed by SIGTERM without a word of its own" if code < 0 else f"ended with exit code {code} after an exception"
            signal: dict[str, Value] = {names.PROCESS_SIGNAL: "SIGTERM"} if code < 0 else {}
            yield self._event(process.identity, process.ended_ns or 0, names.PROCESS, FATAL, f"process {how}", facts | signal)

    def processes(self) -> list[Process]:
        return [self._process(identity) for identity in self.identities]

    def _process(self, identity: Identity) -> Process:
        """How each ended: the culprit by its exception, its neighbours by the launcher's SIGTERM, the others by the exception of a lost peer."""
        guilty, near = identity.rank == self.culprit, identity.node == self.identities[self.culprit].node
        ending: Ending = "raised" if guilty or not near else "killed"
        gone_ms = 1_240 if guilty else 1_400 + (identity.local_rank or 0) * 9 if near else 1_900 + (identity.rank or 0)
        entered_ns = self.ends_ns[-1] + (12 * MS if guilty else 40 * MS)
        return Process(
            identity=identity,
            started_ns=ONSET_NS - 600 * S,
            last_ns=ONSET_NS + (2 * MS if guilty else self._late_ns(identity)),
            ending=ending,
            ended_ns=ONSET_NS + gone_ms * MS,
            exit_code=-15 if ending == "killed" else 1,
            last_step=FIRST_STEP + self.steps_done,
            phase="forward" if guilty else "backward",
            progress_ns=min(entered_ns, ONSET_NS - MS),
            records=60_000,
        )
