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
"""Phases whose names do not speak for themselves."""

SYMPTOMS = {
    "peer_loss": "lost its peer",
    "collective_stall": "waited in vain in a collective",
    "collective_mismatch": "met another collective than its own",
    "rendezvous": "did not find the others",
    "interconnect": "could not send to its peer",
    "data_pipeline": "lost a worker that loads its data",
    "gpu_program_error": "failed on its GPU",
}


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """What a summary is made of: the deciding evidence, its process, who was absent, what befell the others, and who still runs."""

    cause: Evidence
    process: Process | None
    absent: Absent | None
    others: list[Evidence]
    many_nodes: bool


def summarise(story: Story) -> str:
    """One sentence in plain English, naming ranks as `rank N`."""
    return "; ".join([_head(story), *_rest(story)])


def _head(story: Story) -> str:
    if story.absent is not None:
        identity = story.absent.identity
        return f"{_who(identity.rank, identity.node, story.many_nodes)} {story.absent.says}"
    e = story.cause
    who = _who(e.rank, e.node, story.many_nodes)
    verb, detail = _what(e)
    return f"{f'a worker process of {who}' if e.identity.role == 'worker' else who} {verb}{_where(story)}{detail}"


def _who(rank: int | None, node: str, many_nodes: bool) -> str:
    who = "a process" if rank is None else f"rank {rank}"
    return f"{who} on {node}" if node and (many_nodes or rank is None) else who


def _what(e: Evidence) -> tuple[str, str]:
    """(predicate, what is said after the place)."""
    said = f": {quote(e.says)}" if e.says.strip() else ""
    if e.sort == "failure" and e.code is not None:
        return f"crashed ({signal_name(e.code)})", said
    if e.category in ("host_oom", "gpu_oom") and e.role == "root_cause" and e.sort in ("oom", "failure"):
        memory = "host memory" if e.category == "host_oom" else f"GPU memory on {e.device}" if e.device else "GPU memory"
        return f"{'asked for too much' if e.too_large else 'ran out of'} {memory}", said
    if e.sort == "failure":
        return (SYMPTOMS.get(e.category, "failed") if e.role == "symptom" else "failed"), said
    if e.sort == "line":
        return "reported", said
    verb, comma, detail = e.says.partition(",")
    return verb, comma + detail


def _where(story: Story) -> str:
    cause, process = story.cause, story.process
    step = cause.step if cause.step is not None else process.last_step if process else None
    phase = cause.phase or (process.phase if process and process.last_step == step else "")
    place = f" in step {step}" if step is not None else " before its first step" if process else ""
    return f"{place} ({PHASES.get(phase, phase.replace('_', ' '))})" if phase else place


def _rest(story: Story) -> list[str]:
    """What befell the other ranks, those to whom the same happened together; the first word of each counts (a -15 after it says nothing)."""
    first: dict[int, Evidence] = {}
    for e in story.others:
        if e.rank is not None:
            first.setdefault(e.rank, e)
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for rank, e in first.items():
        groups[_fate(e)].append(rank)
    return [f"{name_ranks(ranks)} {_told(fate, story, [first[rank] for rank in ranks])}" for fate, ranks in groups.items()]


def _told(fate: str, story: Story, group: Sequence[Evidence]) -> str:
    """`then` only of what came later; where an end is on record only after it was felt, by how much."""
    many, cause = len(group) > 1, story.cause
    late_ns = cause.time_ns - min(e.time_ns for e in group)
    if late_ns >= 0 and story.absent is None and cause.sort in ("death", "stop") and group[0].role == "symptom" and group[0].sort == "failure":
        when = f"{late_ns / 1e6:.0f} ms before" if late_ns >= 1_000_000 else "as"
        return f"{_plural(fate) if many else fate} {when} that end was recorded"
    if late_ns < 0 and story.absent is None:
        fate = fate.replace("was ", "was then ", 1) if fate.startswith("was ") else f"then {fate}"
    return _plural(fate) if many else fate


def _fate(e: Evidence) -> str:
    if e.sort == "stop":
        return f"was ended by {signal_name(e.code)}" if e.code is not None and e.code < 0 else "was stopped"
    if e.sort == "death":
        return e.says.partition(",")[0]
    return SYMPTOMS.get(e.category, "failed") if e.role == "symptom" else f"failed as well ({quote(e.says.partition(':')[0])})"


def _plural(fate: str) -> str:
    return fate.replace("was ", "were ").replace("its", "their").replace("is gone", "are gone")


def name_ranks(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0, 2-7`."""
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    return "ranks " + ", ".join(_stretch(run) for run in _stretches(ordered))


def _stretches(ordered: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for rank in ordered:
        if found and rank == found[-1][-1] + 1:
            found[-1].append(rank)
        else:
            found.append([rank])
    return found


def _stretch(run: Sequence[int]) -> str:
    return str(run[0]) if len(run) == 1 else f"{run[0]}, {run[-1]}" if len(run) == 2 else f"{run[0]}-{run[-1]}"


def quote(text: str) -> str:
    """A text as one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_QUOTE else f"{line[: LONGEST_QUOTE - 3]}..."
