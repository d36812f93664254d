"""The one sentence that tells what happened: who, what, where, and what the other ranks did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from ..record import Process
from .absence import Absent
from .evidence import Evidence, signal_name

LONGEST_QUOTE = 160

PHASES = {"data_wait": "waiting for data", "gradient_sync_exposed": "gradient sync"}


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """What a summary is made of: the deciding evidence, its process, who was absent, and what befell the others."""

    cause: Evidence
    process: Process | None
    absent: Absent | None
    others: list[Evidence]
    many_nodes: bool


def summarise(story: Story) -> str:
    """One sentence in plain English, naming ranks as `rank N`."""
    head = _absence(story) if story.absent else f"{_who(story.cause, story.many_nodes)} {_what(story.cause)}{_where(story)}"
    return "; ".join([head, *_rest(story)])


def _who(e: Evidence, many_nodes: bool) -> str:
    who = "a process" if e.rank is None else f"rank {e.rank}"
    who = f"a worker process of {who}" if e.identity.role == "worker" else who
    return f"{who} on {e.node}" if many_nodes and e.node else who


def _absence(story: Story) -> str:
    assert story.absent is not None
    identity = story.absent.identity
    who = "a process" if identity.rank is None else f"rank {identity.rank}"
    return f"{who} on {identity.node} {story.absent.says}" if story.many_nodes and identity.node else f"{who} {story.absent.says}"


def _what(e: Evidence) -> str:
    """The predicate."""
    if e.category in ("host_oom", "gpu_oom") and e.sort in ("oom", "failure"):
        memory = "host memory" if e.category == "host_oom" else f"GPU memory on {e.device}" if e.device else "GPU memory"
        return f"ran out of {memory} ({_quote(e.says)})" if e.says else f"ran out of {memory}"
    if e.sort == "failure":
        return f"{_symptom(e)} ({_quote(e.says)})" if e.role == "symptom" else f"failed with {_quote(e.says)}"
    if e.sort == "line":
        return f"reported: {_quote(e.says)}"
    return e.says


def _symptom(e: Evidence) -> str:
    known = {
        "peer_loss": "lost its peer",
        "collective_stall": "waited in vain in a collective",
        "rendezvous": "did not find the others",
        "interconnect": "could not send to its peer",
        "data_pipeline": "lost a worker that loads its data",
        "gpu_program_error": "failed on its GPU",
    }
    return known.get(e.category, "failed")


def _where(story: Story) -> str:
    cause, process = story.cause, story.process
    step = cause.step if cause.step is not None else process.last_step if process else None
    phase = cause.phase or (process.phase if process and process.last_step == step else "")
    if step is None:
        return f" before its first step{_in(phase)}"
    return f" in step {step}{_in(phase)}"


def _in(phase: str) -> str:
    return f" ({PHASES.get(phase, phase.replace('_', ' '))})" if phase else ""


def _rest(story: Story) -> list[str]:
    """What befell the other ranks, those to whom the same happened together; the first word of each counts (a -15 after it says nothing)."""
    first: dict[int, Evidence] = {}
    for e in story.others:
        if e.rank is not None:
            first.setdefault(e.rank, e)
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for rank, e in first.items():
        groups[_fate(e)].append(rank)
    then = "" if story.absent else "then "
    return [f"{_ranks(ranks)} {then}{fate.replace('its', 'their') if len(ranks) > 1 else fate}" for fate, ranks in groups.items()]


def _fate(e: Evidence) -> str:
    if e.code is not None and e.code < 0:
        return f"{'was ended by' if e.sort == 'stop' else 'died of'} {signal_name(e.code)}"
    if e.sort == "stop":
        return "was stopped"
    if e.sort == "death":
        return e.says
    return _symptom(e) if e.role == "symptom" else f"failed as well ({e.says.partition(':')[0]})"


def _ranks(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0, 2-7`."""
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    return "ranks " + ", ".join(_run(run) for run in _runs(ordered))


def _runs(ordered: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return runs


def _run(run: Sequence[int]) -> str:
    return str(run[0]) if len(run) == 1 else f"{run[0]}, {run[-1]}" if len(run) == 2 else f"{run[0]}-{run[-1]}"


def _quote(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_QUOTE else f"{line[: LONGEST_QUOTE - 3]}..."
