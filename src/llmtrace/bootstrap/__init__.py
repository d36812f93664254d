"""LLMTRACE=1 without a line of code: what the .pth line of llmtrace-auto, or our sitecustomize, calls at interpreter start."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

PTH = "llmtrace-auto.pth"
OFF = ("0", "false", "off", "no")


def activate() -> None:
    """Wait for torch, unless this is a process that never trains; cheap, safe to call twice, and silent whatever happens."""
    if os.environ.get("LLMTRACE", "").strip().lower() in ("", *OFF) or never_trains(sys.orig_argv):
        return
    from . import wait

    wait.for_torch()


def never_trains(command: list[str]) -> bool:
    """Whether the command line is one of Python's own helpers or an installer."""
    return any("multiprocessing.resource_tracker" in word or word.rpartition("/")[2] in ("pip", "pip3", "ensurepip") for word in command[1:3])


def site_folder() -> str:
    """The folder of our sitecustomize.py."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")


def is_installed() -> bool:
    """Whether this Python has the .pth of llmtrace-auto in its site-packages."""
    return any(os.path.exists(os.path.join(folder, PTH)) for folder in sys.path if folder.endswith(("site-packages", "dist-packages")))


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a command runs with tracing on: LLMTRACE=1, and a way for Python to find us where no .pth is installed.

    LLMTRACE=0 stays: it beats everything.
    """
    found = dict(environ)
    if found.get("LLMTRACE", "").strip().lower() not in OFF:
        found["LLMTRACE"] = "1"
    if not is_installed():
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        path = [folder for folder in found.get("PYTHONPATH", "").split(os.pathsep) if folder and folder != site_folder()]
        last = [] if package in path or package.endswith(("site-packages", "dist-packages")) else [package]
        found["PYTHONPATH"] = os.pathsep.join([site_folder(), *path, *last])
    return found
