"""A real tracer whose records go to a list instead of a ring, and come back as an agent would read them."""

from __future__ import annotations

from collections.abc import Callable

from llmtrace.config import resolve
from llmtrace.frames import Decoder, Description, Epoch, known_schemas
from llmtrace.rank.tracer import Tracer
from llmtrace.record import Identity, Record

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Recorder:
    """`tracer` for what is tested; `records()` for what it wrote. `undos` run at close, newest first."""

    def __init__(self, **settings: object) -> None:
        self.tracer = Tracer(resolve(settings, {}, "/nonexistent"), Identity(trace_id=TRACE, span_id=SPAN, rank=3, node="node-a"))
        self.frames: list[tuple[int, bytes]] = []
        self.undos: list[Callable[[], None]] = []
        self.tracer.cell.append = lambda kind, payload: self.frames.append((kind, bytes(payload)))

    def records(self, name: str | None = None) -> list[Record]:
        decoder = Decoder(Description(schemas=known_schemas().schemas, epochs=[Epoch(0, self.tracer.identity)]))
        found = [decoder.record(kind, payload, position, 0) for position, (kind, payload) in enumerate(self.frames)]
        return [record for record in found if record is not None and name in (None, record.name)]

    def install(self, instrument: object) -> Callable[[], None]:
        undo = instrument.install(self.tracer)  # type: ignore[attr-defined]
        self.undos.append(undo)
        return undo

    def close(self) -> None:
        while self.undos:
            self.undos.pop()()
