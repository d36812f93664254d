"""Ways to break a rank, for real: what the examples do where the user asks for a fault."""

from __future__ import annotations

import os
import signal

from torch import Tensor

FAULTS = ("oom", "kill", "exception", "none")
LONG = 1 << 23
"""Attention over so many bytes of text asks for 256 TiB at one go: more than an address space holds, so no setting of overcommit grants it."""


def misbehave(fault: str, batch: Tensor) -> Tensor:
    """The batch as it is from now on; or no return at all."""
    if fault == "oom":
        return batch[:1].repeat(1, LONG // batch.shape[1] + 1)
    if fault == "exception":
        raise ValueError(f"a document of {batch.numel()} bytes holds no text")
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return batch
