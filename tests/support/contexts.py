"""Contexts as real jobs leave them, built without a job: one cascade for each fault, for what only reads."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from llmtrace import names
from llmtrace.incidents import incident_id, incident_window
from llmtrace.record import ERROR, FATAL, INFO, WARN, Culprit, Identity, Incident, Kind, Process, Record, Value, Window
from llmtrace.sources.context import Context

S = 1_000_000_000
MS = 1_000_000
START = 1_796_008_400 * S  # some November night
ONSET = START + 47 * S + 412 * MS
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"

LIGHTNING_TRACEBACK = """Traceback (most recent call last):
  File "/home/ada/gpt/train.py", line 88, in <module>
    trainer.fit(Model(fault, at, state), data)
  File "/opt/venv/lib/python3.11/site-packages/lightning/pytorch/trainer/trainer.py", line 584, in fit
    call._call_and_handle_interrupt(
  File "/opt/venv/lib/python3.11/site-packages/lightning/pytorch/trainer/call.py", line 48, in _call_and_handle_interrupt
    return trainer.strategy.launcher.launch(trainer_fn, *args, trainer=trainer, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1775, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/gpt/train.py", line 61, in training_step
    loss = self.net(batch[:, :-1], batch[:, 1:])
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1786, in _call_impl
    return forward_call(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/gpt/tiny_gpt.py", line 27, in attention
    scores = q @ k.transpose(-2, -1) / self.width**0.5
             ~~^~~~~~~~~~~~~~~~~~~~~
"""


class Job:
    """Ranks that step together until one of them stops; collects their processes and records."""

    def __init__(self, ranks: int = 4, nodes: int = 1, step_ns: int = 52 * MS, steps: int = 400, job: str = "gpt-demo", seed: int = 7) -> None:
        self.step_ns, self.steps = step_ns, steps
        self.noise = random.Random(seed)
        self.records: list[Record] = []
        self.identities = [
            Identity(
                trace_id=TRACE,
                span_id=f"{0xA0000000000000 + rank:016x}",
                parent_span_id="00000000000000aa",
                job=job,
                node=f"node-{'abcdefgh'[rank * nodes // ranks]}",
                rank=rank,
                local_rank=rank % max(1, ranks // nodes),
                world_size=ranks,
                attempt="a1",
                pid=4100 + rank,
                run=1,
            )
            for rank in range(ranks)
        ]
        self.processes: list[Process] = []
        self.positions = [4096] * ranks

    def add(
        self,
        rank: int,
        at_ns: int,
        kind: Kind,
        name: str,
        *,
        severity: int = INFO,
        body: str | None = None,
        step: int | None = None,
        duration_ns: int | None = None,
        **attributes: Value,
    ) -> Record:
        self.positions[rank] += 128
        identity = self.identities[rank]
        record = Record(
            id=f"{identity.span_id}-{self.positions[rank]:x}",
            time_ns=at_ns,
            kind=kind,
            name=name,
            identity=identity,
            severity=severity,
            body=body,
            step=step,
            duration_ns=duration_ns,
            span_id=identity.span_id,
            parent_span_id=identity.parent_span_id,
            attributes={key.replace("__", "."): value for key, value in attributes.items()},
        )
        self.records.append(record)
        return record

    def train(self, begin_ns: int, until: dict[int, int] | None = None) -> int:
        """Every rank does its steps from `begin_ns`; `until` names the step each stops at; the time of the last step's end."""
        at = begin_ns
        for step in range(self.steps):
            length = int(self.step_ns * (1 + self.noise.random() * 0.2))
            for rank in range(len(self.identities)):
                if step <= (until or {}).get(rank, self.steps):
                    self.add(
                        rank, at + self.noise.randrange(MS), "log", names.LOG, body=f"step {step} loss {4.2 / (1 + step / 90) + rank / 100:.4f}", step=step
                    )
                if step < (until or {}).get(rank, self.steps):
                    self._step(rank, at, length, step)
            if until and step >= max(until.values()):
                return at
            at += length
        return at

    def _step(self, rank: int, at: int, length: int, step: int) -> None:
        shares = {"data_wait": 0.06, "forward": 0.28, "backward": 0.44, "gradient_sync_exposed": 0.12, "optimizer": 0.08}
        phases: dict[str, Value] = {names.phase_attribute(phase): int(share * length) for phase, share in shares.items()}
        self.add(rank, at + length - self.noise.randrange(MS), "span", names.STEP, step=step, duration_ns=length, **phases)
        if step % 10 == 0:
            self.add(rank, at + length, "sample", names.MEMORY, step=step, **{"llmtrace.memory.rss_bytes": (1200 + step) << 20})

    def process(self, rank: int, started_ns: int, last_ns: int, **facts: object) -> None:
        values = {"identity": self.identities[rank], "started_ns": started_ns, "last_ns": last_ns, "records": self.positions[rank] // 128, **facts}
        self.processes.append(Process(**values))  # type: ignore[arg-type]


def _context(job: Job, incident: Incident | None, window: Window) -> Context:
    records = sorted((record for record in job.records if window.start_ns <= record.time_ns < window.end_ns), key=lambda record: record.time_ns)
    return Context(trace_id=TRACE, incident=incident, window=window, processes=job.processes, records=records, drops={})


def _incident(
    job: Job, evidence: list[Record], culprit: int, category: str, role: str, summary: str, reason: str, symptoms: list[int], late_ns: int = 62 * MS
) -> Incident:
    identity = job.identities[culprit]
    return Incident(
        id=incident_id(TRACE, identity.node, evidence[0].id),
        trace_id=TRACE,
        attempt="a1",
        onset_ns=ONSET,
        detected_ns=ONSET + late_ns,
        category=category,
        role=role,
        summary=summary,
        reason=reason,
        culprit=Culprit(rank=culprit, node=identity.node),
        window=incident_window(ONSET, ONSET + late_ns),
        evidence=[record.id for record in evidence],
        symptoms=symptoms,
    )


def _broken(ranks: int, culprit: int, nodes: int = 1, at: int = 340, step_ns: int = 52 * MS) -> Job:
    """A job whose `culprit` stops in step `at` at ONSET, the others after their forward pass."""
    job = Job(ranks, nodes, step_ns)
    begin = ONSET - at * step_ns - int(at * step_ns * 0.1) - 20 * MS
    job.train(begin, dict.fromkeys(range(ranks), at))
    shift = ONSET - 12 * MS - max(record.time_ns for record in job.records)
    job.records = [msgspec.structs.replace(record, time_ns=record.time_ns + shift) for record in job.records]
    return job


def _lose_peers(job: Job, culprit: int, at: int, started_ns: int, code: int = 1) -> list[Record]:
    """The others' exceptions, the programs that these leave, and the ends of their processes; what a real incident names as evidence too."""
    found: list[Record] = []
    for rank in range(len(job.identities)):
        if rank != culprit:
            lost = ONSET + 310 * MS + rank * 2 * MS
            message = f"[../third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:{30000 + rank}"
            failure = job.add(
                rank,
                lost,
                "event",
                names.FAILURE,
                severity=ERROR,
                step=at,
                body=f"RuntimeError: {message}",
                **_failure("RuntimeError", message, "backward", "/home/ada/gpt/train.py:66 in train"),
            )
            found.append(failure)
            job.add(rank, lost + 100_000, "event", names.PROCESS, **{names.PROCESS_ACTION: "finished", names.PROCESS_ENDING: "raised"})
            _die(job, rank, lost + 900 * MS, code, "raised")
            job.process(
                rank, started_ns, lost, ending="raised", ended_ns=lost + 900 * MS, exit_code=code, last_step=at, phase="backward", progress_ns=ONSET + 3 * MS
            )
    return found


def _die(job: Job, rank: int, at_ns: int, code: int, ending: str) -> Record:
    """The agent's word on a process that is gone."""
    facts: dict[str, Value] = {names.PROCESS_ACTION: "died", names.PROCESS_EXIT_CODE: code, names.PROCESS_ENDING: ending}
    return job.add(rank, at_ns, "event", names.PROCESS, severity=FATAL, **facts, **({names.PROCESS_SIGNAL: -code} if code < 0 else {}))


def _failure(kind: str, message: str, phase: str, line: str, trace: str = "") -> dict[str, Value]:
    return {
        names.EXCEPTION_TYPE: kind,
        names.EXCEPTION_MESSAGE: message,
        names.FAILURE_PHASE: phase,
        names.FAILURE_LINE: line,
        names.FAILURE_SEEN_BY: "trace",
        names.EXCEPTION_STACKTRACE: (trace or LIGHTNING_TRACEBACK) + f"{kind}: {message}\n",
    }


def oom(ranks: int = 4, culprit: int = 2, nodes: int = 1, at: int = 340) -> Context:
    """One rank asks for 256 TiB; the others lose their peer 0.3 s later."""
    job = _broken(ranks, culprit, nodes, at)
    started = ONSET - 24 * S
    refused = "you tried to allocate 281474976710656 bytes. Error code 12 (Cannot allocate memory)"
    message = f"[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: {refused}"
    facts: dict[str, Value] = {
        names.OOM_DEVICE: "cpu", names.OOM_SIZE: 1 << 48, names.OOM_FREE: 13_207_024_435, names.OOM_LIMIT: 25_207_024_435, names.OOM_RSS: 1_673_527_296,
        names.FAILURE_LINE: "/home/ada/gpt/tiny_gpt.py:27 in attention", names.FAILURE_PHASE: "forward",
    }  # fmt: skip
    first = job.add(culprit, ONSET, "event", names.OOM, severity=FATAL, step=at, body=message, **facts)
    failure = job.add(
        culprit,
        ONSET + 2 * MS,
        "event",
        names.FAILURE,
        severity=ERROR,
        step=at,
        body=f"RuntimeError: {message}",
        **_failure("RuntimeError", message, "forward", "/home/ada/gpt/tiny_gpt.py:27 in attention"),
    )
    job.process(
        culprit, started, ONSET + 2 * MS, ending="raised", ended_ns=ONSET + 1240 * MS, exit_code=1, last_step=at, phase="forward", progress_ns=ONSET - 12 * MS
    )
    symptoms = _lose_peers(job, culprit, at, started)
    others = [rank for rank in range(ranks) if rank != culprit]
    node = job.identities[culprit].node
    incident = _incident(
        job,
        [first, failure, *symptoms],
        culprit,
        "host_oom",
        "root_cause",
        f"rank {culprit} on {node} ran out of host memory in step {at} (forward); {len(others)} other ranks then lost their peer",
        "the CPU allocator was asked for 256.0 TiB and refused",
        others,
    )
    return _context(job, incident, incident.window)


def kill(ranks: int = 4, culprit: int = 1) -> Context:
    """kill -9: no word of its own; the agent sees the death."""
    job = _broken(ranks, culprit)
    started = ONSET - 24 * S
    death = job.add(
        culprit,
        ONSET,
        "event",
        names.PROCESS,
        severity=FATAL,
        **{names.PROCESS_ACTION: "died", names.PROCESS_SIGNAL: 9, names.PROCESS_EXIT_CODE: -9, names.PROCESS_ENDING: "killed"},
    )
    job.process(culprit, started, ONSET - 12 * MS, ending="killed", ended_ns=ONSET, exit_code=-9, last_step=340, phase="forward", progress_ns=ONSET - 12 * MS)
    symptoms = _lose_peers(job, culprit, 340, started, code=-15)
    others = [rank for rank in range(ranks) if rank != culprit]
    incident = _incident(
        job,
        [death, *symptoms],
        culprit,
        "process_death",
        "ambiguous",
        f"rank {culprit} on node-a was killed by SIGKILL in step 340 (forward); 3 other ranks then lost their peer",
        "the process ended without a word of its own; SIGKILL came from outside",
        others,
        31 * MS,
    )
    return _context(job, incident, incident.window)


def exception(ranks: int = 4, culprit: int = 3, slow: bool = False) -> Context:
    """A plain exception of the user's code."""
    job = _broken(ranks, culprit, at=11 if slow else 340, step_ns=2100 * MS if slow else 52 * MS)
    started = ONSET - 34 * S if slow else ONSET - 24 * S
    at = 11 if slow else 340
    first = job.add(
        culprit,
        ONSET,
        "event",
        names.FAILURE,
        severity=ERROR,
        step=at,
        body="ValueError: bad batch 7f3a",
        **_failure("ValueError", "bad batch 7f3a", "forward", "/home/ada/gpt/train.py:61 in training_step"),
    )
    job.process(culprit, started, ONSET, ending="raised", ended_ns=ONSET + 1100 * MS, exit_code=1, last_step=at, phase="forward", progress_ns=ONSET - 12 * MS)
    symptoms = _lose_peers(job, culprit, at, started, code=-15)
    others = [rank for rank in range(ranks) if rank != culprit]
    incident = _incident(
        job,
        [first, *symptoms],
        culprit,
        "program_error",
        "root_cause",
        f"rank {culprit} on node-a raised ValueError: bad batch 7f3a in step {at} (forward); ranks 0, 1, 2 then lost their peer",
        "an exception of the program's own code",
        others,
    )
    return _context(job, incident, incident.window)


def leave(ranks: int = 2, culprit: int = 1) -> Context:
    """os._exit(7): an exit code and nothing else."""
    job = _broken(ranks, culprit)
    started = ONSET - 24 * S
    death = job.add(
        culprit, ONSET, "event", names.PROCESS, severity=FATAL, **{names.PROCESS_ACTION: "died", names.PROCESS_EXIT_CODE: 7, names.PROCESS_ENDING: "exited"}
    )
    job.process(culprit, started, ONSET - 12 * MS, ending="exited", ended_ns=ONSET, exit_code=7, last_step=340, phase="forward", progress_ns=ONSET - 12 * MS)
    symptoms = _lose_peers(job, culprit, 340, started)
    incident = _incident(
        job,
        [death, *symptoms],
        culprit,
        "process_death",
        "root_cause",
        f"rank {culprit} on node-a exited with code 7 in step 340 (forward); rank 0 then lost its peer",
        "the process ended without a word of its own",
        [0],
        40 * MS,
    )
    return _context(job, incident, incident.window)


def running(ranks: int = 4, steps: int = 640) -> Context:
    """A healthy job, seen now."""
    job = Job(ranks, steps=steps)
    end = job.train(ONSET - 37 * S)
    for rank in range(ranks):
        job.process(rank, ONSET - 41 * S, end, last_step=steps, phase="forward", progress_ns=end)
    return _context(job, None, Window(end - 35 * S, end + 1))


def finished(ranks: int = 4) -> Context:
    """A job that ended well."""
    job = Job(ranks, steps=200)
    end = job.train(ONSET - 20 * S)
    for rank in range(ranks):
        job.process(rank, ONSET - 26 * S, end, ending="clean", ended_ns=end + 400 * MS, exit_code=0, last_step=199, phase="", progress_ns=end)
    return _context(job, None, Window(end - 35 * S, end + 500 * MS))


def many(ranks: int = 64) -> Context:
    """Sixty-four ranks on eight nodes; one runs out of memory."""
    return oom(ranks, culprit=37, nodes=8, at=180)


HOSTILE = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J\x1b[H cleared",
    "nul \x00 bell \x07 backspace \x08\x08 delete \x7f c1 \x9b31m",
    "rich [red]markup[/red] [link=https://example.org]link[/link] [/] :smile:",
    "lone \ud800 surrogate, right to left \u202e txt.exe, zero \u200b width, ideographs 訓練損失, emoji 😀",
    "tqdm  10%|#         | 1/10\r 20%|##        | 2/10\r",
    "tab\tand\nsecond line\n\nfourth line",
    "x" * 5000,
    "",
)


def hostile() -> Context:
    """Lines as no terminal should have to see them."""
    context = exception(2, 1)
    who = context.processes[-1].identity
    lines = [
        Record(id=f"{who.span_id}-{9_000_000 + number:x}", time_ns=ONSET - 5 * MS + number, kind="log", name=names.LOG, identity=who, severity=WARN, body=body)
        for number, body in enumerate(HOSTILE)
    ]
    assert context.incident is not None
    incident = msgspec.structs.replace(context.incident, summary=HOSTILE[0] + HOSTILE[2] + HOSTILE[3], reason=HOSTILE[1])
    return msgspec.structs.replace(context, incident=incident, records=sorted([*context.records, *lines], key=lambda record: record.time_ns))


CONTEXTS: dict[str, Callable[[], Context]] = {
    "oom": oom,
    "kill": kill,
    "exception": exception,
    "exit": leave,
    "slow": lambda: exception(slow=True),
    "running": running,
    "finished": finished,
    "many": many,
    "hostile": hostile,
}
"""By name: each is made when it is called."""
