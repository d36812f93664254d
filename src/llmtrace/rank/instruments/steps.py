"""Steps and phases of a training loop that says nothing itself: counted by the optimizer.

data_wait  a DataLoader's `__next__` (any loader of torch's)
forward    DistributedDataParallel.forward; in a loop without DDP the host's time from the data (or the end of the step before, or of
           the backward before) to the beginning of backward, less the phases inside it, so it holds what else the loop does there
backward   torch.autograd.backward, which Tensor.backward calls
optimizer  torch's global optimizer hooks; with a closure, what follows the first backward inside it

A step is what one optimizer step concludes, however many micro-batches went before it. Of several optimizers the first leads and
the others do not count; one that steps twice before the leader steps again takes the lead. While Lightning's callback or
`llmtrace.steps` counts, only data_wait (and backward and optimizer, for the latter) come from here.
"""

from __future__ import annotations

import sys
import threading
import weakref
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from ...clock import monotonic_ns
from ..instrument import Requirement, Undo
from ..patches import BACKWARD, DATA, FORWARD, make_hands_off, watch_optimizer

if TYPE_CHECKING:
    from ..tracer import Tracer


WAITING_IN: Final = ("", "data_wait", "forward")
"""Phases inside which a wait for data is the loop's own; in any other (validation, the user's "eval") it is part of that one."""


class Lead:
    """Which of several optimizers concludes a step."""

    def __init__(self) -> None:
        self._leader: weakref.ref[Any] | None = None
        self._followers: set[int] = set()

    def concludes(self, optimizer: object) -> bool:
        """Whether this optimizer's step, which has just ended, ends the step of the loop."""
        leader = self._leader() if self._leader is not None else None
        if leader is None or id(optimizer) in self._followers:
            self._leader = weakref.ref(optimizer)
        elif leader is not optimizer:
            self._followers.add(id(optimizer))
            return False
        self._followers.clear()
        return True


class Loop:
    """Follows one loop through its seams and tells the tracer's steps. Only the training thread counts."""

    def __init__(self, tracer: Tracer, torch: Any) -> None:
        self._steps = tracer.steps
        self._hands_off, self._grad_enabled = make_hands_off(torch), torch.is_grad_enabled
        self._lead = Lead()
        self._thread = threading.main_thread().ident
        self._has_ddp = self._optimizing = self._closure = self._open = False
        self._idle_since_ns = self._charged_ns = 0

    def _begin(self) -> None:
        """The first step of a run begins with the first sign of training; the later ones where the one before ended."""
        if self._steps.driver in ("", "optimizer"):
            self._steps.begin()

    def _idle(self) -> None:
        """From here on the time is forward's, in a loop that does not show where its forward is."""
        if not self._has_ddp:
            self._idle_since_ns, self._charged_ns = self._steps.since_ns, self._steps.accounted_ns

    def _charge_forward(self) -> None:
        if self._idle_since_ns and not self._has_ddp and not self._steps.phase:
            inside_ns = self._steps.accounted_ns - self._charged_ns
            self._steps.add("forward", max(0, monotonic_ns() - self._idle_since_ns - max(0, inside_ns)))
        self._idle_since_ns = 0

    def before_data(self, _loader: Any, _args: Any, _kwargs: Any) -> bool:
        """A loader's __next__ begins. What a thread of the user's reads ahead, or evaluation reads, is no wait of the loop's."""
        steps = self._steps
        if get_ident() != self._thread or not self._grad_enabled() or steps.phase not in WAITING_IN:
            return False
        if steps.current is None:
            self._begin()
        self._steps.enter("data_wait")
        return True

    def after_data(self, entered: bool | None, _result: Any, _error: BaseException | None) -> None:
        if entered:
            self._steps.leave()
            self._idle()

    def before_forward(self, _module: Any, _args: Any, _kwargs: Any) -> bool:
        if self._steps.driver == "lightning" or get_ident() != self._thread:
            return False
        self._has_ddp = True
        if self._grad_enabled():
            self._begin()
        self._steps.enter("forward")
        return True

    def after_forward(self, entered: bool | None, _result: Any, _error: BaseException | None) -> None:
        if entered:
            self._steps.leave()

    def before_backward(self, _module: Any, _args: Any, _kwargs: Any) -> bool:
        if self._steps.driver == "lightning":
            return False
        self._thread = get_ident()  # whoever runs backward trains
        if self._steps.current is None:
            self._begin()
        if self._optimizing:
            self._leave_optimizer()
        self._charge_forward()
        self._steps.enter("backward")
        return True

    def after_backward(self, entered: bool | None, _result: Any, _error: BaseException | None) -> None:
        if not entered:
            return
        self._steps.leave()
        if self._closure:
            self._enter_optimizer()
        else:
            self._idle()

    def before_optimizer(self, _optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The global pre hook. With a closure it fires before the forward that the closure runs, so the phase begins later."""
        if self._hands_off():
            return
        self._open = True
        if self._steps.driver == "lightning":
            return
        if self._optimizing:  # one that raised had no post hook
            self._leave_optimizer()
        self._closure = (len(args) > 1 or bool(kwargs)) and any(callable(value) for value in (*args[1:], *kwargs.values()))
        if self._closure:
            self._idle()
        else:
            self._enter_optimizer()

    def after_optimizer(self, optimizer: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        """The global post hook: the step of the loop is over, if this optimizer leads.

        One that calls another's step, or its own class's, has two pre hooks and then two post hooks: the first of these counts.
        """
        if not self._open or self._hands_off():
            return
        self._open = False
        self._leave_optimizer()
        self._closure = False
        if self._steps.claim("optimizer") and self._lead.concludes(optimizer):
            self._steps.roll()
        self._idle()

    def _enter_optimizer(self) -> None:
        self._optimizing = True
        self._steps.enter("optimizer")

    def _leave_optimizer(self) -> None:
        if self._optimizing:
            self._optimizing = False
            self._steps.leave()


class StepWatch:
    """Installs the loop's watchers."""

    name: Final = "steps"
    requires: Final = Requirement("torch", "2.4")

    def install(self, tracer: Tracer) -> Undo:
        loop = Loop(tracer, sys.modules["torch"])
        undos = (
            DATA.watch(loop.before_data, loop.after_data),
            FORWARD.watch(loop.before_forward, loop.after_forward),
            BACKWARD.watch(loop.before_backward, loop.after_backward),
            watch_optimizer(loop.before_optimizer, loop.after_optimizer),
        )

        def undo() -> None:
            for one in undos:
                one()

        return undo


instrument: Final = StepWatch()
