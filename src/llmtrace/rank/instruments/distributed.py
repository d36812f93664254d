"""The default process group: with it come the rank, the world's size and the store through which the job agrees on its trace id.

Collectives are not watched here. No collective and no wait of ours: what cannot be asked of the store at once stays unknown.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from ...guard import shielded
from ..instrument import Requirement, Undo
from ..patches import DEFAULT_GROUP

if TYPE_CHECKING:
    from ..tracer import Tracer


class Membership:
    """Tells the tracer who it is, each time a default group is made."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def before(self, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """True where a group is set, not taken away."""
        return (args[0] if args else kwargs.get("pg")) is not None

    def after(self, is_set: bool | None, _result: Any, error: BaseException | None) -> None:
        if is_set and error is None:
            self.learn()

    def learn(self) -> None:
        """Rank, size and trace id (rank/agreement.py), then word to whoever waits for a group."""
        from .. import agreement

        agreement.agree(self._tracer)
        self._tracer.publish("group")


class Distributed:
    """Watches the making of the default group, and looks at the one that stands already."""

    name: Final = "distributed"
    requires: Final = Requirement("torch", "2.4")

    def install(self, tracer: Tracer) -> Undo:
        membership = Membership(tracer)
        undo = DEFAULT_GROUP.watch(membership.before, membership.after)
        distributed: Any = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            shielded(membership.learn)()
        return undo


instrument: Final = Distributed()
