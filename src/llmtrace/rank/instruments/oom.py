"""Out of memory: an llmtrace.oom event beside the failure, with what was asked for and what there was.

Told by the exception's text: torch's CPU allocator ("DefaultCPUAllocator: can't allocate memory: you tried to allocate N
bytes"), torch.OutOfMemoryError ("Tried to allocate 20.00 MiB. GPU 0 has a total capacity of ... of which ... is free"), CUDA's own
("CUDA error: out of memory"), MemoryError and NumPy's ("Unable to allocate 7.28 TiB for an array"). An observer on the CUDA
allocator, attached once CUDA is in use, also sees the ones that the program catches; torch offers no way to detach it, so after
undo it does nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...guard import shielded
from ...names import FAILURE_LINE, OOM, OOM_ALLOCATED, OOM_DEVICE, OOM_FREE, OOM_LIMIT, OOM_RESERVED, OOM_RSS, OOM_SIZE, OOM_STATISTICS
from ...record import ERROR, FATAL, Value
from ..instrument import Undo
from ..lines import safe_text, user_line

if TYPE_CHECKING:
    from ..tracer import Tracer

UNITS: Final = {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50, "EiB": 1 << 60}
_SIZE: Final = r"([\d.]+) (bytes|B|[KMGTPE]iB)"
_CPU: Final = re.compile(rf"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate {_SIZE}", re.IGNORECASE)
_NUMPY: Final = re.compile(rf"Unable to allocate {_SIZE} for an array")
_CUDA: Final = re.compile(r"(?:CUDA|HIP|XPU) out of memory|(?:CUDA|HIP) error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation")
_CUDA_FACTS: Final = {
    OOM_SIZE: re.compile(rf"Tried to allocate {_SIZE}"),
    OOM_LIMIT: re.compile(rf"total capacity of {_SIZE}"),
    OOM_FREE: re.compile(rf"of which {_SIZE} is free"),
    OOM_ALLOCATED: re.compile(rf"allocated memory {_SIZE} is allocated by PyTorch"),
    OOM_RESERVED: re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated"),
}
_GPU: Final = re.compile(r"GPU (\d+) has a total")


class Shortage(msgspec.Struct, frozen=True):
    """What an exception's text says: the device (cpu, cuda or cuda:N) and sizes in bytes by attribute name."""

    device: str
    sizes: dict[str, int]


def read_shortage(kind: str, text: str) -> Shortage | None:
    """What a message says about memory that ran out; `kind` is the exception's class name. None where it is about something else."""
    for pattern in (_CPU, _NUMPY):
        if found := pattern.search(text):
            return Shortage("cpu", {OOM_SIZE: _bytes(found)})
    if kind == "OutOfMemoryError" or _CUDA.search(text):
        ordinal = _GPU.search(text)
        sizes = {name: _bytes(found) for name, pattern in _CUDA_FACTS.items() if (found := pattern.search(text))}
        return Shortage(f"cuda:{ordinal[1]}" if ordinal else "cuda", sizes)
    return Shortage("cpu", {}) if kind in ("MemoryError", "_ArrayMemoryError") else None


def _bytes(found: re.Match[str]) -> int:
    try:
        return int(float(found[1]) * UNITS[found[2]]) if "." in found[1] else int(found[1]) * UNITS[found[2]]
    except ValueError:  # digits and dots that are no number
        return 0


def shortage_of(error: BaseException) -> Shortage | None:
    """The shortage behind an exception: its own, else that of the exception it was raised from, to a depth of 8."""
    seen: BaseException | None = error
    for _ in range(8):
        if seen is None:
            return None
        if shortage := read_shortage("MemoryError" if isinstance(seen, MemoryError) else type(seen).__name__, safe_text(seen)):
            return shortage
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return None


def host_facts() -> dict[str, Value]:
    """The host's side: our resident bytes, the cgroup's limit (the least on the way up), what is available, where the system tells."""
    found = {OOM_RSS: _kilobytes("/proc/self/status", "VmRSS"), OOM_FREE: _kilobytes("/proc/meminfo", "MemAvailable"), OOM_LIMIT: cgroup_limit()}
    return {name: value for name, value in found.items() if value is not None}


def _kilobytes(path: str, field: str) -> int | None:
    for line in _read(path).splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) << 10
    return None


def cgroup_limit(root: Path = Path("/sys/fs/cgroup"), own: str = "/proc/self/cgroup") -> int | None:
    """The memory limit of our cgroup in bytes, v2 or v1, the least of it and its parents'; None where there is none."""
    limits: list[int] = []
    for line in _read(own).splitlines():
        number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if number != "0" and "memory" not in controllers.split(","):
            continue
        top, name = (root, "memory.max") if number == "0" else (root / "memory", "memory.limit_in_bytes")
        folder = top / path.lstrip("/")
        texts = [_read(str(place / name)).strip() for place in (folder, *folder.parents) if place.is_relative_to(top)]
        limits += [int(text) for text in texts if text.isdigit() and int(text) < 1 << 62]
    return min(limits, default=None)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""


def device_facts(device: str) -> dict[str, Value]:
    """The CUDA allocator's own words; empty where CUDA is not in use."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return {}
    ordinal = int(device.partition(":")[2] or cuda.current_device())
    statistics = cuda.memory_stats(ordinal)
    return {
        OOM_ALLOCATED: statistics.get("allocated_bytes.all.current", 0),
        OOM_RESERVED: statistics.get("reserved_bytes.all.current", 0),
        OOM_STATISTICS: str(cuda.memory_summary(ordinal, abbreviated=True))[:3000],
    }


class Watch:
    """Hears of exceptions, and of the CUDA allocator's own word."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self.active, self._attached = True, False

    def on_failure(self, error: BaseException, _seen_by: str) -> None:
        """Before the failure's own record: the shortage behind it, if there is one."""
        shortage = shortage_of(error)
        if shortage is None:
            return
        attributes: dict[str, Value] = {OOM_DEVICE: shortage.device}
        attributes |= host_facts() if shortage.device == "cpu" else device_facts(shortage.device)
        attributes |= shortage.sizes
        if line := user_line(error):
            attributes[FAILURE_LINE] = line
        self._tracer.emit(OOM, severity=FATAL, body=safe_text(error), attributes=attributes)

    def each_second(self, _step: int) -> None:
        """Attach the observer as soon as CUDA is in use, and look no more."""
        torch: Any = sys.modules.get("torch")
        if self._attached or not getattr(getattr(torch, "cuda", None), "_initialized", False):  # is_initialized() costs a microsecond
            return
        self._attached = True
        attach: Callable[..., Any] | None = getattr(getattr(torch, "_C", None), "_cuda_attach_out_of_memory_observer", None)
        if attach is not None:
            attach(shielded(self.on_device))

    def on_device(self, device: int, size: int, total: int, free: int) -> None:
        """The allocator is about to raise; a program may catch it and go on, so this is an ERROR and no failure."""
        if not self.active:
            return
        attributes: dict[str, Value] = {OOM_DEVICE: f"cuda:{device}", OOM_SIZE: size, OOM_LIMIT: total, OOM_FREE: free}
        self._tracer.emit(OOM, severity=ERROR, body=f"cuda:{device}: {size} bytes asked, {free} of {total} free", attributes=attributes)


class OutOfMemory:
    """Subscribes to exceptions and steps."""

    name: Final = "oom"
    requires: Final = None

    def install(self, tracer: Tracer) -> Undo:
        watch = Watch(tracer)
        undos = (tracer.subscribe("failure", watch.on_failure), tracer.each_second(watch.each_second))

        def undo() -> None:
            watch.active = False
            for one in undos:
                one()

        return undo


instrument: Final = OutOfMemory()
