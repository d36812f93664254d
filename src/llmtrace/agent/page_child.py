"""The process that writes a page: `llmtrace context INCIDENT --html FILE`, started so that nothing of the agent clings to it."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import Final

from ..clock import monotonic_ns
from ..config import Config, as_environment
from ..directory import Directory
from ..guard import shield
from ..links import page_file

KEPT_VARIABLES: Final = frozenset(
    ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
)
"""What Python and llmtrace are found by, and how times are spelled; and LC_*. Nothing of a job."""
LIMITS: Final = (
    (resource.RLIMIT_CPU, 60),
    (resource.RLIMIT_AS, 4 << 30),
    (resource.RLIMIT_FSIZE, 64 << 20),
    (resource.RLIMIT_CORE, 0),
)
"""Seconds of processor time, bytes of memory, bytes of a file. A window of 64 ranks takes 2.4 s, 136 MB and 4 MB, one of 1,024 ranks 14 s, 690 MB
and 5 MB (benchmarks/big_window.py)."""
FIRST_TO_GO: Final = b"1000"
"""oom_score_adj: where memory runs out it is the page that is given up, not a rank."""


class Child:
    """One such process. `code` is its exit code once it is over, negative for a signal, None where nobody can know."""

    def __init__(self, pid: int, incident_id: str) -> None:
        self.pid, self.incident_id = pid, incident_id
        self.begun_ns = monotonic_ns()
        self.code: int | None = None
        self._over = False

    def over(self) -> bool:
        """Whether it has ended; it is reaped then."""
        return self._over or self._reap(os.WNOHANG)

    def wait(self) -> None:
        self._reap(0)

    def _reap(self, options: int) -> bool:
        try:
            pid, status = os.waitpid(self.pid, options)
        except ChildProcessError:  # somebody else reaped it
            self._over = True
        else:
            if pid:
                self._over, self.code = True, os.waitstatus_to_exitcode(status)
        return self._over

    def kill(self) -> None:
        """Only while it is not over: until it is reaped its pid is nobody else's."""
        if not self.over():
            os.kill(self.pid, signal.SIGKILL)


def start(directory: Directory, config: Config, incident_id: str) -> Child:
    """Start it; raises OSError where it cannot be.

    posix_spawn: the agent's memory is neither copied nor counted twice. It has the agent's priority, a process group of its
    own, no descriptor but the agent's log, and the signals that the agent is deaf to.
    """
    command = [sys.executable, "-P", "-m", "llmtrace.cli", "context", incident_id, "--html", str(page_file(directory.pages, incident_id))]
    log = (os.POSIX_SPAWN_OPEN, 2, os.fspath(directory.log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)]
    others = [(os.POSIX_SPAWN_CLOSE, number) for number in inheritable()]
    pid = os.posix_spawn(
        sys.executable,
        [*command, "--dir", str(directory.path)],
        environment(directory, config, os.environ),
        file_actions=[*null, log, *others],
        setpgroup=0,
        setsigdef=(signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2),
    )
    child = Child(pid, incident_id)
    with shield("agent restrains a page's process"):  # whatever it says, the process is there and must be known
        restrain(pid)
    return child


def environment(directory: Directory, config: Config, environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environ.items() if name in KEPT_VARIABLES or name.startswith("LC_")}
    return kept | as_environment(config) | {"LLMTRACE": "0", "LLMTRACE_DIR": str(directory.path)}


def inheritable() -> list[int]:
    """Descriptors that a child would have besides the standard ones: those that a service was started with."""
    found: list[int] = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:  # that of the listing itself
            continue
    return found


def restrain(pid: int) -> None:
    """Its bounds, set from here: it has not begun to read the journal yet. One that is gone already needs none."""
    try:
        for limit, value in LIMITS:
            bound = min([value, *(old for old in resource.prlimit(pid, limit) if old != resource.RLIM_INFINITY)])
            resource.prlimit(pid, limit, (bound, bound))
        with open(f"/proc/{pid}/oom_score_adj", "wb") as stream:
            stream.write(FIRST_TO_GO)
    except OSError:
        pass
