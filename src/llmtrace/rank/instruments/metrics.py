"""Numbers that the user logs: an llmtrace.metric sample for each, as another part publishes them (`metric`: name, value, step).

A number is taken as it is, a one-element CPU tensor read. One on a device is copied to pinned memory without waiting, on the
stream that made it, and its sample is written at a later step's end, when the copy has arrived; the tensor itself is not kept.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from ...guard import guard
from ...names import METRIC, SCHEMAS
from ..instrument import Undo
from ..lines import on_device
from ..values import clean_text, clean_value

if TYPE_CHECKING:
    from ..tracer import Tracer

SCHEMA: Final = next(schema for schema in SCHEMAS if schema.name == METRIC)
TOPIC: Final = "metric"
MOST_PENDING: Final = 256
"""Copies on their way; at more the oldest is dropped."""


class Numbers:
    """Writes the samples; `pending` holds (step, name, copy on the host, event) of copies on their way."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._emit = tracer.positional(SCHEMA)
        self._stop: Undo | None = None
        self.pending: deque[tuple[int | None, str, Any, Any]] = deque(maxlen=MOST_PENDING)

    def take(self, name: str, value: object, step: int | None) -> None:
        if on_device(value):
            self._copy(name, value, step)
            return
        number = clean_value(value)
        if type(number) in (int, float, bool):
            self._emit(step, clean_text(name), number)

    def _copy(self, name: str, value: Any, step: int | None) -> None:
        torch: Any = sys.modules["torch"]
        if value.numel() != 1 or value.device.type != "cuda":
            return
        copy = value.detach().to("cpu", non_blocking=True)  # pinned by torch, because non_blocking
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(value.device))
        if len(self.pending) == MOST_PENDING:
            guard.warn(f"more than {MOST_PENDING} logged numbers wait for their device: the oldest are left out")
        self.pending.append((step, name, copy, event))
        if self._stop is None:
            self._stop = self._tracer.on_step(self.on_step)

    def on_step(self, _step: int) -> None:
        """Write what has arrived, oldest first; query() asks the device and does not wait. Steps are listened to only meanwhile."""
        while self.pending and self.pending[0][3].query():
            step, name, copy, _ = self.pending.popleft()
            self._emit(step, clean_text(name), copy.item())
        if not self.pending:
            self.close()

    def close(self) -> None:
        """Wait for nothing more."""
        self.pending.clear()
        if self._stop is not None:
            self._stop()
            self._stop = None


class Metrics:
    """Listens for numbers."""

    name: Final = "metrics"
    requires: Final = None

    def install(self, tracer: Tracer) -> Undo:
        numbers = Numbers(tracer)
        stop = tracer.subscribe(TOPIC, numbers.take)

        def undo() -> None:
            stop()
            numbers.close()

        return undo


instrument: Final = Metrics()
