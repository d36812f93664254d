"""Memory, at most once a second and at a step's end: torch's CUDA allocator where CUDA is in use, and the process's resident size.

Sources: torch.cuda.memory_stats of the current device (allocated_bytes.all.current and .peak, reserved_bytes.all.current,
num_alloc_retries); /proc/self/statm, field 2, in pages. CUDA is never initialised by us, and nothing waits for a device.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ...names import MEMORY, SCHEMAS
from ..instrument import Undo

if TYPE_CHECKING:
    from ..tracer import Tracer

SCHEMA: Final = next(schema for schema in SCHEMAS if schema.name == MEMORY)
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Resident:
    """This process's resident bytes, from a descriptor kept open; a forked child opens its own, /proc/self was the parent's."""

    def __init__(self) -> None:
        self._pid, self._descriptor = 0, -1

    def read(self) -> int | None:
        """Bytes; None where /proc does not tell."""
        try:
            if self._pid != os.getpid():
                self._open()
            return int(os.pread(self._descriptor, 128, 0).split()[1]) * PAGE_BYTES
        except OSError:
            return None

    def _open(self) -> None:
        self.close()
        self._pid, self._descriptor = os.getpid(), os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._pid, self._descriptor = 0, -1


def cuda_statistics() -> Mapping[str, int]:
    """The allocator's statistics of the current device; empty where CUDA is not in use (yet)."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return {}
    return cuda.memory_stats()


class Sampler:
    """One llmtrace.memory sample a second at most."""

    def __init__(self, tracer: Tracer) -> None:
        self._emit = tracer.positional(SCHEMA)
        self.resident = Resident()

    def sample(self, step: int) -> None:
        found = cuda_statistics().get
        self._emit(
            step,
            found("allocated_bytes.all.current"),
            found("reserved_bytes.all.current"),
            found("allocated_bytes.all.peak"),
            found("num_alloc_retries"),
            self.resident.read(),
        )


class Memory:
    """Installs the sampler at the steps' ends."""

    name: Final = "memory"
    requires: Final = None

    def install(self, tracer: Tracer) -> Undo:
        sampler = Sampler(tracer)
        stop = tracer.each_second(sampler.sample)

        def undo() -> None:
            stop()
            sampler.resident.close()

        return undo


instrument: Final = Memory()
