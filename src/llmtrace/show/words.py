"""What the categories and roles are called: one table."""

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


def category_words(category: str) -> str:
    return CATEGORIES.get(category, category.replace("_", " "))


def role_words(role: str, category: str = "") -> str:
    if (role, category) == ("root_cause", "process_death"):
        return "the first to fail; why it left is not known"
    return ROLES.get(role, role.replace("_", " "))
