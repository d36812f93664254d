"""What to look at next, by what broke and by how the culprit ended: one table."""

from __future__ import annotations

import signal
from typing import Final, Literal

from ..diagnose.shortage import grown, too_large
from ..names import FAILURE_SEEN_BY
from ..record import Incident
from .outcome import codes_seen, is_clean
from .page.model import Words
from .phrases import say
from .story import Standing, Story, signal_name

Manner = Literal["raised", "crashed", "killed", "asked", "left", "clean", "unseen", "running", ""]
"""How it ended: an exception, a fault in native code, a signal that nobody can catch, one that asks, an exit code of its own, well, unknown, not at all."""

CRASHES: Final = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS})
ASKS: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT})

MEMORY: Final = frozenset({"gpu_oom", "host_oom"})

HINTS: Final[dict[tuple[str, Manner], str]] = {
    ("gpu_oom", ""): "hint.gpu_oom",
    ("host_oom", ""): "hint.host_oom",
    ("host_oom", "killed"): "hint.host_oom_killed",
    ("process_death", ""): "hint.process_death",
    ("process_death", "left"): "hint.left",
    ("process_death", "crashed"): "hint.crashed",
    ("process_death", "killed"): "hint.killed",
    ("process_death", "asked"): "hint.asked",
    ("process_death", "unseen"): "hint.unseen",
    ("process_death", "clean"): "hint.ended_well",
    ("program_error", ""): "hint.program_error",
    ("program_error", "raised"): "hint.raised",
    ("program_error", "left"): "hint.left",
    ("program_error", "crashed"): "hint.crashed",
    ("gpu_program_error", ""): "hint.gpu_program_error",
    ("gpu_hardware", ""): "hint.gpu_hardware",
    ("nvlink", ""): "hint.nvlink",
    ("interconnect", ""): "hint.interconnect",
    ("device_unavailable", ""): "hint.device_unavailable",
    ("collective_stall", ""): "hint.collective_stall",
    ("collective_mismatch", ""): "hint.collective_mismatch",
    ("peer_loss", ""): "hint.peer_loss",
    ("rendezvous", ""): "hint.rendezvous",
    ("data_pipeline", ""): "hint.data_pipeline",
    ("storage", ""): "hint.storage",
    ("host_shm", ""): "hint.host_shm",
    ("scheduler", ""): "hint.scheduler",
    ("eviction", ""): "hint.eviction",
    ("numerics", ""): "hint.numerics",
    ("straggler", ""): "hint.straggler",
    ("node_loss", ""): "hint.node_loss",
    ("threshold", ""): "hint.threshold",
    ("unknown", ""): "hint.unknown",
    ("unknown", "left"): "hint.left",
    ("unknown", "crashed"): "hint.crashed",
    ("unknown", "unseen"): "hint.unseen",
}
"""(category, manner) -> the text of the advice; the manner "" is for every one that is not named."""


def manner(standing: Standing | None) -> Manner:
    """How a rank ended, as far as it is known; its own word counts more than what the launcher then did to it."""
    if standing is None:
        return ""
    process, code = standing.process, standing.process.exit_code
    if standing.trouble is not None:
        return "crashed" if standing.trouble.attributes.get(FAILURE_SEEN_BY) == "faulthandler" else "raised"
    if code is not None and code < 0:
        return "crashed" if -code in CRASHES else "asked" if -code in ASKS else "killed"
    if process.ending == "exited" or (code and process.ending not in ("raised", "running")):
        return "left" if code else "clean"
    return {"running": "running", "clean": "clean", "raised": "raised", "killed": "killed"}.get(process.ending, "unseen")  # type: ignore[return-value]


def hint(incident: Incident, culprit: Standing | None) -> Words:
    """One or two sentences; empty for a category that nobody has written any for."""
    how = manner(culprit)
    if how == "raised" and culprit is not None and culprit.trouble is None:  # its exception did not arrive: no line is named
        how = ""
    if incident.category in MEMORY and how == "raised" and (refused := _of_request(culprit)):
        return refused
    key = HINTS.get((incident.category, how)) or HINTS.get((incident.category, ""))
    if key is None:
        return ""
    code = culprit.process.exit_code if culprit is not None else None
    return say(key, code=str(code), signal=say("hint.signal", signal=signal_name(-code)) if code is not None and code < 0 else "")


def next_words(story: Story) -> Words:
    """What to do about an incident; after a clean end that nothing is to be done; "" else."""
    if story.incident is not None:
        return hint(story.incident, story.culprit)
    return say("hint.nothing") if is_clean(story) and codes_seen(story) else ""


def _of_request(culprit: Standing | None) -> Words:
    """One request that nothing could have met, or memory that had filled up before: they are looked for in other places; "" where the numbers do not tell."""
    if culprit is None or culprit.oom is None:
        return ""
    return say("hint.too_large") if too_large(culprit.oom) else say("hint.grown") if grown(culprit.oom) else ""
