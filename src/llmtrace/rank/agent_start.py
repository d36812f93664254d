"""Starting the agent from a rank: whoever finds its lock free starts it, and nothing of the rank clings to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..config import Config, as_environment
from ..directory import Directory, agent_alive
from ..guard import guard, shielded

OWN_FACTS: Final = frozenset(
    {"LLMTRACE", "LLMTRACE_PARENT", "LLMTRACE_TRACE_ID", "LLMTRACE_RUN_ID", "LLMTRACE_JOB", "LLMTRACE_TEAM", "LLMTRACE_MODEL", "LLMTRACE_WORKLOAD"}
    | {"RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    | {"TRACEPARENT", "PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONPROFILEIMPORTTIME", "PYTHONDEVMODE", "LD_PRELOAD"}
)
"""Variables that are about one rank or one job: the agent serves all of a directory."""
OWN_PREFIXES: Final = ("TORCHELASTIC_", "ROLE_", "SLURM_", "PMI", "OMPI_")

COMMAND: Final = '"$0" -P -m llmtrace.agent &'
"""The shell leaves at once and the agent is an orphan: no rank ever has to reap it (it would stay a zombie for hours)."""


def agent_environment(config: Config, directory: Directory, environ: Mapping[str, str]) -> dict[str, str]:
    """The agent's environment: the rank's, without what is about this rank, and with this directory."""
    kept = {name: value for name, value in environ.items() if name not in OWN_FACTS and not name.startswith(OWN_PREFIXES)}
    settings = {name: value for name, value in as_environment(config).items() if name not in OWN_FACTS}
    package = str(Path(__file__).resolve().parents[2])
    path = [*filter(None, kept.get("PYTHONPATH", "").split(os.pathsep)), package]
    return kept | settings | {"LLMTRACE_DIR": str(directory.path), "LLMTRACE_RING_DIR": _ring_dir(config), "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}


def _ring_dir(config: Config) -> str:
    return os.path.abspath(config.ring_dir)


def interpreter() -> str:
    """This Python's program; a program that embeds Python has another name, and then the one beside its library counts."""
    if sys.executable and os.path.basename(sys.executable).startswith(("python", "pypy")):
        return sys.executable
    return str(Path(sys.prefix) / "bin" / f"python{sys.version_info.major}")


@shielded
def ensure(config: Config, directory: Directory) -> bool:
    """Start the agent of `directory` unless one lives; whether one was started. Takes some milliseconds when it starts one, microseconds when not.

    Started with closed descriptors, in a session of its own and in `/`: a launcher that waits for the end of a pipe, kills
    its process group or unmounts our working directory does not meet it.
    """
    if agent_alive(directory):
        return False
    start(config, directory)
    return True


def start(config: Config, directory: Directory) -> None:
    """Start an agent, whether or not one lives; the second one leaves by itself."""
    environ = agent_environment(config, directory, os.environ)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        log = os.open(directory.log, flags, 0o600)
    except OSError:
        log = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        shell = subprocess.Popen(
            ["/bin/sh", "-c", COMMAND, interpreter()],
            env=environ,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            close_fds=True,
            start_new_session=True,
        )
        shell.wait(10)
    except (OSError, subprocess.SubprocessError) as error:
        guard.warn(f"the agent could not be started, records stay in the ring until one runs: {error}")
    finally:
        os.close(log)
