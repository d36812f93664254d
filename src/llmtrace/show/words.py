"""What the categories and roles are called, and what to look at next for each: one table."""

from __future__ import annotations

from typing import Final

CATEGORIES: Final = {
    "gpu_oom": "out of GPU memory",
    "host_oom": "out of host memory",
    "gpu_hardware": "a GPU's hardware failed",
    "nvlink": "NVLink failed",
    "interconnect": "the network between nodes failed",
    "device_unavailable": "a device could not be had",
    "gpu_program_error": "an error in a GPU kernel",
    "program_error": "an exception in the program",
    "collective_stall": "a collective does not end",
    "collective_mismatch": "ranks are in different collectives",
    "peer_loss": "a peer was lost",
    "process_death": "a process died",
    "rendezvous": "the ranks did not find one another",
    "data_pipeline": "the data pipeline failed",
    "storage": "storage failed",
    "host_shm": "shared memory ran out",
    "numerics": "the numbers went wrong",
    "scheduler": "ended by the scheduler or the user",
    "eviction": "evicted",
    "straggler": "one rank is slower than the others",
    "node_loss": "a node was lost",
    "threshold": "a threshold was crossed",
    "unknown": "the cause is not known",
}

ROLES: Final = {
    "root_cause": "this is the root cause",
    "symptom": "a symptom: the cause lies elsewhere",
    "cause_confirmation": "confirmed from outside",
    "benign": "harmless",
    "ambiguous": "what ended it is not known yet",
}

HINTS: Final = {
    "gpu_oom": "Compare this batch's shapes with the steps before; then allocated against reserved (fragmentation) in the evidence.",
    "host_oom": "Compare the size that was asked for with what a step needs: a batch or sequence far too long asks at one go, a leak grows from step to step.",
    "process_death": "It left no word of its own. Ask who ended it: the kernel (dmesg -T | grep -iE 'killed process|oom'), the scheduler, or a person.",
    "program_error": "Open the line named above; the traceback is the whole story unless other ranks had other data.",
    "peer_loss": "The rank that was lost said nothing here: look at its node.",
    "data_pipeline": "Look at the DataLoader's workers and at the file or shard read last.",
    "storage": "Look at the file system named in the evidence: full, read-only, or slow for every job?",
    "host_shm": "df -h /dev/shm; a container's default is 64 MB, DataLoader workers need more.",
    "scheduler": "Somebody asked the job to end; nothing in it broke. sacct or kubectl describe says who.",
    "numerics": "Look at the loss and the learning rate in the steps before.",
    "unknown": "Nothing here explains it: read the last lines of every rank, then the node's kernel log.",
}


def category_words(category: str) -> str:
    return CATEGORIES.get(category, category.replace("_", " "))


def role_words(role: str) -> str:
    return ROLES.get(role, role.replace("_", " "))
