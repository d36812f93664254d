"""How an agent begins and ends: alone under its lock, deaf to the signals meant for the job, holding nothing that others wait for."""

from __future__ import annotations

import os
import resource
import signal
import stat
import sys
from collections.abc import Sequence
from typing import Final

from ..config import Config, resolve
from ..directory import AgentLock, Directory, choose
from .log import BoundedLog, say

NICE: Final = 10
DEAF_TO: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(arguments: Sequence[str] = ()) -> int:
    """Run the agent of these settings' directory; 0 also where another one runs already, 1 where there is no directory to work in."""
    service = "--service" in arguments
    if not service:
        drop_descriptors()
    config = resolve()
    directory = choose(config)
    if directory is None:
        return 1
    lock = AgentLock(directory)
    if not lock.acquire():
        if service:
            say(f"an agent runs in {directory.path} already")
        return 0
    return serve(directory, config, lock, service)


def drop_descriptors() -> None:
    """Let go of everything inherited: a launcher that reads a pipe to its end must not wait for us.

    Output that goes to a file stays for the moment: it is the agent's own log, should the start fail.
    """
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    point(os.devnull, 0, *(standard for standard in (1, 2) if not is_file(standard)))


def is_file(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def point(path: str | os.PathLike[str], *descriptors: int) -> None:
    """Let these descriptors be the file at `path`."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in descriptors:
        os.dup2(opened, descriptor)
    if opened not in descriptors:
        os.close(opened)


def serve(directory: Directory, config: Config, lock: AgentLock, service: bool) -> int:
    asked = withdraw(directory, service)
    from .loop import Agent  # here: those who find the lock taken, most of those started, never need it

    while True:
        Agent(directory, config, lock, service=service, asked=lambda: bool(asked)).run()
        lock.release()
        # a rank that looked at the lock before its release has started no agent: it is for us to look again
        if (service and asked) or not somebody_lives(directory) or not acquire_again(lock):
            return 0


def acquire_again(lock: AgentLock) -> bool:
    try:
        return lock.acquire()
    except OSError:  # the directory was taken away
        return False


def withdraw(directory: Directory, service: bool) -> list[int]:
    """Out of the job's way: session, folder, signals, priority, words. What is returned fills with signals that ask to leave."""
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: asked.append(received))
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    if not service:
        sys.stderr = BoundedLog(directory.log)
        point(directory.log, 1, 2)  # what the interpreter itself may have to say
        if os.getpgrp() != os.getpid():
            os.setsid()
        os.chdir("/")
    raise_limit()
    os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    return asked


def raise_limit() -> None:
    """Two or three descriptors a ring: hundreds of workers need more than the usual 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def somebody_lives(directory: Directory) -> bool:
    from .rings import Rings

    rings = Rings(directory)
    rings.find(lambda _: (None,))
    alive = rings.living()
    rings.close()
    return alive > 0
