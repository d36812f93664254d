"""What holds on this machine: one finding a line, for `doctor`."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final, Literal

import msgspec

from ..bootstrap import is_installed
from ..config import SETTINGS, Config
from ..directory import Directory, agent_alive, filesystem, is_network, is_tmpfs
from ..journal import JournalError, JournalReader
from ..ring.create import allotment
from ..show.times import ago, length, size
from .rings import running

State = Literal["ok", "note", "bad"]
MASK: Final = "********"
DISTRIBUTIONS: Final = ("llmtrace", "llmtrace-auto", "torch", "lightning", "structlog", "msgspec", "wrapt")


class Finding(msgspec.Struct, frozen=True):
    """`state` is ok, note (it works, but less well, or somebody should know) or bad; `more` says where it comes from or what follows."""

    section: str
    name: str
    value: str
    more: str = ""
    state: State = "ok"


def settings(config: Config) -> Iterator[Finding]:
    """Every setting with its value and where that came from; secrets masked."""
    for setting in SETTINGS:
        value = getattr(config, setting.name)
        shown = MASK if setting.secret and value else _spelled(value)
        origin = config.origins[setting.name]
        yield Finding("settings", setting.variables[0], shown, origin)


def _spelled(value: object) -> str:
    if value is None or value in ("", ()):
        return "-"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)  # type: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def switches(config: Config) -> Iterator[Finding]:
    """Whether tracing is on at all, and what LLMTRACE=1 would do here."""
    if config.enabled is False:
        yield Finding("tracing", "LLMTRACE", "0", "nothing is traced: it beats callback, decorator and start", "note")
    if is_installed():
        yield Finding("tracing", "LLMTRACE=1", "works in every process", "llmtrace-auto is installed")
    else:
        yield Finding("tracing", "LLMTRACE=1", "only under `llmtrace run`", "llmtrace-auto, the .pth file, is not installed")


def versions() -> Iterator[Finding]:
    yield Finding("versions", "python", f"{platform.python_version()} ({sys.executable})")
    yield Finding("versions", "kernel", platform.release(), _endings())
    for name in DISTRIBUTIONS:
        try:
            yield Finding("versions", name, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding("versions", name, "not installed")


def _endings() -> str:
    """How well exit codes of processes that are not ours to reap can be known here."""
    if not hasattr(os, "pidfd_open"):
        return "no pidfd: deaths are found by looking"
    numbers = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())
    return "exit codes are always known" if numbers >= (6, 15) else "exit codes are known while the launcher has not reaped; before Linux 6.15"


def places(config: Config, directory: Directory | None) -> Iterator[Finding]:
    """Where journal and rings lie, and whether they can."""
    if directory is None:
        yield Finding("places", "journal", "nowhere", "no folder can be used: tracing is off", "bad")
        return
    kind = filesystem(directory.path)
    instead = "" if not config.dir or Path(config.dir).absolute() == directory.path else f"instead of LLMTRACE_DIR={config.dir}"
    state: State = "bad" if is_network(kind) else "note" if instead else "ok"
    yield Finding("places", "directory", str(directory.path), f"{kind or 'unknown file system'}, {_free(directory.path)} free {instead}".strip(), state)
    yield from _journal(directory)
    yield from _rings(config, directory)


def _journal(directory: Directory) -> Iterator[Finding]:
    if not directory.journal.exists():
        yield Finding("places", "journal", "none yet", "the first agent makes it")
        return
    try:
        with JournalReader(directory.journal) as reader:
            rings = reader.rings()
            dropped = {**reader.drops(), "overwritten in a ring": sum(ring.lost for ring in rings)}
    except JournalError as error:
        if error.trouble == "empty":
            yield Finding("places", "journal", "empty", "nothing has been written yet")
            return
        yield Finding("places", "journal", str(directory.journal), f"cannot be read: {error}", "bad")
        return
    bytes_on_disk = sum(path.stat().st_size for path in directory.path.glob(f"{directory.journal.name}*"))
    newest = max((ring.last_ns for ring in rings), default=0)
    last = f", the newest record {ago(newest, time.time_ns())}" if newest else ""
    yield Finding("places", "journal", size(bytes_on_disk), f"{len(rings)} processes{last}")
    lost = {reason: count for reason, count in dropped.items() if count}
    for reason, count in lost.items():
        yield Finding("places", "dropped", f"{count:,}", reason.replace("_", " "), "note")
    if not lost:
        yield Finding("places", "dropped", "0", "nothing is missing")


def _rings(config: Config, directory: Directory) -> Iterator[Finding]:
    kind = filesystem(Path(config.ring_dir))
    if not directory.rings.is_dir():
        yield Finding(
            "places",
            "rings",
            "memory files",
            f"{config.ring_dir} ({kind or 'not there'}) cannot be used; an agent in another container does not see them",
            "note",
        )
        return
    try:
        room = allotment(directory.rings, config.ring_bytes, 8)
    except OSError as error:
        yield Finding("places", "rings", str(directory.rings), f"{error}; rings are memory files then", "note")
        return
    state: State = "ok" if is_tmpfs(kind) and room >= config.ring_bytes else "note"
    yield Finding("places", "rings", str(directory.rings), f"{kind}, {_free(directory.rings)} free: {size(room)} each for 8 ranks", state)


def _free(path: Path) -> str:
    try:
        found = os.statvfs(path)
    except OSError as error:
        return f"unknown ({error.strerror})"
    return size(found.f_bavail * found.f_frsize)


def agent(directory: Directory) -> Iterator[Finding]:
    """Whether one runs, how it was placed, and what its log says."""
    alive = agent_alive(directory)
    pid, service = _agent_process(directory) if alive else (None, False)
    if not alive:
        yield Finding("agent", "agent", "none runs", "the first rank starts one (placement: child), and it leaves after the last")
    elif service:
        yield Finding("agent", "agent", f"runs, pid {pid}", "placement: service or beside (llmtrace agent)")
    else:
        yield Finding("agent", "agent", f"runs, pid {pid}" if pid else "runs", "placement: child" if pid else "its process is not visible from here")
    if _dies_together():
        yield Finding(
            "agent", "memory.oom.group", "1", "out of memory kills this whole container, agent and all; its records are read by the next agent", "note"
        )
    for line in _last_words(directory.log):
        yield Finding("agent", "log", line, str(directory.log), "note")


def _agent_process(directory: Directory) -> tuple[int | None, bool]:
    """The agent's pid and whether it runs as a service, from /proc; other users' processes cannot be looked at."""
    wanted = f"LLMTRACE_DIR={directory.path}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            if b"llmtrace.agent" in command and wanted in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name), b"--service" in command
        except OSError:
            continue
    return None, False


def _dies_together() -> bool:
    """Whether the cgroup (v2) that we are in is killed as a whole (memory.oom.group)."""
    try:
        path = Path("/proc/self/cgroup").read_text().strip().rpartition("0::")[2].split("\n")[0]
        return Path(f"/sys/fs/cgroup{path}/memory.oom.group").read_text().strip() == "1"
    except OSError:
        return False


def _last_words(log: Path, most: int = 3) -> list[str]:
    try:
        return log.read_text(errors="replace").splitlines()[-most:]
    except OSError:
        return []


def processes(directory: Directory) -> Iterator[Finding]:
    """What is being traced now, by the rings themselves."""
    for reader, identity in running([(directory.rings, directory.registry)]):
        header = reader.header()
        who = f"{identity.role} {identity.rank}" if identity.rank is not None else identity.role
        since = length(time.monotonic_ns() - header.progress_ns) if header.progress_ns else ""
        step = f"step {header.step:,}, {since} ago, " if header.step is not None and since else ""
        cut = f", {header.cut:,} bodies cut or dropped" if header.cut else ""
        name = identity.job or identity.trace_id[:12] or "a job without a name"
        more = f"{step}{header.count:,} records in {size(header.capacity)}{cut}{', switched off' if header.off else ''}"
        yield Finding("running", f"{who} (pid {header.pid})", name, more, "note" if header.off or header.cut else "ok")
        reader.close()


def instruments(config: Config) -> Iterator[Finding]:
    """Each instrument found, and whether what it needs is here in a version it knows."""
    from ..rank.loading import found_instruments

    for instrument in found_instruments(()):
        needed = instrument.requires
        if instrument.name in config.disable:
            yield Finding("instruments", instrument.name, "left out", "LLMTRACE_DISABLE", "note")
        elif needed is None:
            yield Finding("instruments", instrument.name, "on")
        else:
            bounds = " ".join([needed.module, needed.minimum and f"{needed.minimum} or newer", needed.maximum and f"before {needed.maximum}"]).strip()
            yield Finding("instruments", instrument.name, f"on, once {needed.module} is imported", f"for {bounds}")
