"""Waiting for the moment a process turns out to train: a launcher's rank at `import torch`, any other at its first process group, optimizer or fit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .finder import Waiting, imported, the_finder, when_imported

if TYPE_CHECKING:
    from ..rank.patches import Seam

TRAINERS = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")


def for_torch() -> None:
    """Have `torch_arrived` called after `import torch`; once, however often a .pth is read."""
    if torch_arrived not in the_finder().waiting.get("torch", ()) and not imported("torch"):
        when_imported("torch", torch_arrived)


def torch_arrived() -> None:
    """torch is there: a launcher's rank is traced from here on, and so is a worker of a traced process; any other process once it trains."""
    from ..guard import shield

    with shield("LLMTRACE=1"):
        from ..rank import children

        is_child = children.is_multiprocessing_child()
        if not is_child and is_launched(os.environ) and children.PARENT not in os.environ:
            start()
            return
        if is_child and children.parent() is not None:
            start_worker()
        Trigger().arm()


def is_launched(environ: Mapping[str, str]) -> bool:
    """Whether a launcher made this process one of its ranks: it will train, and what breaks it before it does is the job's trouble too."""
    return environ.get("RANK", "").isdecimal() and environ.get("WORLD_SIZE", "").isdecimal()


def start() -> None:
    from ..rank.runtime import start_by_environment

    start_by_environment()


def start_worker() -> None:
    from ..rank.runtime import host

    host.start({})


class Trigger:
    """Waits at the seams where training begins, starts tracing at the first that is passed, and leaves them all."""

    def __init__(self) -> None:
        self._undos: list[Callable[[], None]] = []

    def arm(self) -> None:
        from ..rank.patches import DEFAULT_GROUP

        self._undos.append(DEFAULT_GROUP.watch(is_set, self._group_made))
        self._undos.append(optimizer_seam().watch(nothing, self._optimizer_made))
        for module in TRAINERS:
            self._undos.append(when_imported(module, self._at_fit(module)))

    def _at_fit(self, module: str) -> Waiting:
        def watch() -> None:
            from ..rank.patches import Seam

            seam = Seam(module, "Trainer.fit", "when Lightning begins to train, if nobody added the callback")
            self._undos.append(seam.watch(self._fit_begins, nothing))

        return watch

    def _group_made(self, is_group: bool | None, _result: Any, error: BaseException | None) -> None:
        if is_group and error is None:
            self._fire()

    def _optimizer_made(self, _token: object, _result: Any, error: BaseException | None) -> None:
        if error is None:
            self._fire()

    def _fit_begins(self, *_call: object) -> None:
        self._fire()

    def _fire(self) -> None:
        while self._undos:
            self._undos.pop()()
        start()


def optimizer_seam() -> Seam:
    from ..rank.patches import Seam

    return Seam("torch.optim.optimizer", "Optimizer.__init__", "when a process without a group begins to train: torch's optimizer hooks come a step later")


def is_set(_instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True where a default group is set, not taken away."""
    return (args[0] if args else kwargs.get("pg")) is not None


def nothing(*_call: object) -> None:
    return None
