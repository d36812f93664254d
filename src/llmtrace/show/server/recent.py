"""Answers of the last seconds: when an alert goes to a room, everybody in it opens the same page at the same moment, and it is made once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Final

from .answers import Answer, RefusedError, packed

LASTS_S: Final = 3.0
"""Less than the five seconds after which a page that follows its job asks again."""
KEPT: Final = 4


class _Slot:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.answer: Answer | None = None
        self.made_s = 0.0


class Recent:
    """Answers by what was asked. Whoever asks while one is being made waits for that one."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._slots: dict[Hashable, _Slot] = {}

    def get(self, key: Hashable, make: Callable[[], Answer]) -> Answer:
        """The answer to `key`, made by `make` unless there is a fresh one; raises what `make` raises, and Refused where it takes too long."""
        slot = self._slot(key)
        if not slot.lock.acquire(timeout=self._patience_s):
            raise RefusedError(503, "Too many pages are being made at this moment.", {"Retry-After": "5"})
        try:
            if slot.answer is None or time.monotonic() - slot.made_s > LASTS_S:
                slot.answer = None  # an old one is not kept while a new one is made
                slot.answer = packed(make())
                slot.made_s = time.monotonic()
            return slot.answer
        finally:
            slot.lock.release()

    def _slot(self, key: Hashable) -> _Slot:
        with self._lock:
            slot = self._slots.pop(key, None) or _Slot()
            self._slots[key] = slot  # now the newest
            while len(self._slots) > KEPT:
                del self._slots[next(iter(self._slots))]
            return slot
