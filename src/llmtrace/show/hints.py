"""What to look at next, by what broke and by how the culprit ended: one table."""

from __future__ import annotations

import signal
from typing import Final, Literal

from ..names import FAILURE_SEEN_BY
from ..record import Incident
from .story import Standing, signal_name

Manner = Literal["raised", "crashed", "killed", "asked", "left", "clean", "unseen", "running", ""]
"""How it ended: an exception, a fault in native code, a signal that nobody can catch, one that asks, an exit code of its own, well, unknown, not at all."""

CRASHES: Final = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS})
ASKS: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT})

_LEFT: Final = "It left by itself with exit code {code}: look for the exit({code}) or os._exit({code}) in its code, and at what it wrote to stderr last."
_CRASHED: Final = (
    "It crashed in native code{signal}: an extension, a driver or a kernel. The stack in its last lines, or a core dump (coredumpctl), says where."
)
_KILLED: Final = "It left no word of its own. Ask on its node who ended it: the kernel (out of memory?), the scheduler, or a person."
_ASKED: Final = "Somebody asked it to end{signal}: the scheduler (sacct or kubectl describe says), its launcher, or a person."
_UNSEEN: Final = "Nobody saw how it ended: ask its node's kernel log, and the scheduler."

HINTS: Final[dict[tuple[str, Manner], str]] = {
    ("gpu_oom", ""): "Compare this batch's shapes with the steps before; then allocated against reserved (fragmentation) in the evidence.",
    (
        "host_oom",
        "",
    ): "Compare the size that was asked for with what a step needs: a batch or sequence far too long asks at one go, a leak grows from step to step.",
    ("host_oom", "killed"): "The kernel killed it for memory: its log names the limit (the host's or a cgroup's). Is the growth in the numbers above a leak?",
    ("process_death", ""): "Read its last lines, then its node's kernel log.",
    ("process_death", "left"): _LEFT,
    ("process_death", "crashed"): _CRASHED,
    ("process_death", "killed"): _KILLED,
    ("process_death", "asked"): _ASKED,
    ("process_death", "unseen"): _UNSEEN,
    ("process_death", "clean"): "It ended well while the others had not: does every rank do the same number of steps?",
    ("program_error", ""): "Read its last lines: what it says of the error is all there is.",
    ("program_error", "raised"): "Open the line named above; the traceback is the whole story unless other ranks had other data.",
    ("program_error", "left"): _LEFT,
    ("program_error", "crashed"): _CRASHED,
    ("gpu_program_error", ""): "A kernel failed, and later than it was launched: repeat with CUDA_LAUNCH_BLOCKING=1 to see the line that launched it.",
    ("gpu_hardware", ""): "Look at the node's kernel log for Xid events, and take the GPU out of service until dcgmi diag has passed.",
    ("nvlink", ""): "nvidia-smi nvlink --status and -e on that node; take it out of service where errors grow.",
    ("interconnect", ""): "Look at the links of that node (ibstat, rdma link, ethtool -S), then at its switch.",
    ("device_unavailable", ""): "Does nvidia-smi on that node list the device, and does somebody else hold it?",
    ("collective_stall", ""): "Ask what the culprit does while the others wait: py-spy dump --pid PID on its node.",
    ("collective_mismatch", ""): "Compare the code paths of the ranks: one of them took a branch, or a batch, that the others did not.",
    ("peer_loss", ""): "The rank that was lost said nothing here: look at its node.",
    ("rendezvous", ""): "Do all nodes reach MASTER_ADDR and its port, and were all of them started?",
    ("data_pipeline", ""): "Look at the DataLoader's workers and at the file or shard read last.",
    ("storage", ""): "Look at the file system named in the evidence: full, read-only, or slow for every job?",
    ("host_shm", ""): "df -h /dev/shm; a container's default is 64 MB, DataLoader workers need more.",
    ("scheduler", ""): "Somebody asked the job to end; nothing in it broke. sacct or kubectl describe says who.",
    ("eviction", ""): "The node wanted its resources back: kubectl describe pod, or the scheduler's log, says which.",
    ("numerics", ""): "Look at the loss and the learning rate in the steps before.",
    ("straggler", ""): "Compare its numbers with the other ranks': its data, its GPU's clock and temperature, its neighbours on the node.",
    ("node_loss", ""): "Is the node up? Its console and the scheduler know more than it can say itself.",
    ("threshold", ""): "Training goes on: look at the numbers above and decide whether it should.",
    ("unknown", ""): "Nothing here explains it: read the last lines of every rank, then the node's kernel log.",
    ("unknown", "left"): _LEFT,
    ("unknown", "crashed"): _CRASHED,
    ("unknown", "unseen"): _UNSEEN,
}
"""(category, manner) -> advice; the manner "" is for every one that is not named."""


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


def hint(incident: Incident, culprit: Standing | None) -> str:
    """One or two sentences; empty for a category that nobody has written any for."""
    how = manner(culprit)
    text = HINTS.get((incident.category, how)) or HINTS.get((incident.category, ""), "")
    code = culprit.process.exit_code if culprit is not None else None
    return text.replace("{code}", str(code)).replace("{signal}", f" ({signal_name(-code)})" if code is not None and code < 0 else "")
