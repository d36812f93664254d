"""Writes ring-format-1.bin and ring-format-1.jsonl, once, when format 1 was fixed. Later versions read them and never write them again."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from llmtrace import frames, names
from llmtrace.frames import Description, Epoch
from llmtrace.record import Identity
from llmtrace.ring import RingReader, RingWriter, layout
from llmtrace.ring.create import lay_out

HERE = Path(__file__).resolve().parent
SPAN, PARENT = "00f067aa0ba902b7", "53995c3f42cd8ad8"


def main() -> None:
    path = HERE / "ring-format-1.bin"
    size = layout.SMALL_HEADER + (8 << 10)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.truncate(descriptor, size)
    ring = RingWriter(lay_out(descriptor, size, SPAN, PARENT), path)
    pretend(ring)
    describe(ring)
    for number in range(400):
        emit(ring, number)
    ring.append(2, bytes(600))  # over the frame cap of 508
    ring.progress(399, 2)
    ring.group(0, 1200, 1199)
    ring.group(63, 7, 7)
    ring.end("raised")
    for word in (layout.PROGRESS, layout.GROUP_SLOTS + 2, layout.GROUP_SLOTS + 3 * 63 + 2):
        ring._words[word] = 6_000_000
    os.close(descriptor)
    reader = RingReader(path)
    (HERE / "ring-format-1.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in expectation(reader)))


def pretend(ring: RingWriter) -> None:
    """A process that never was, so that the files say nothing of the machine that made them."""
    facts = {layout.PID: 4711, layout.PID_NAMESPACE: 4026531836, layout.START_TICKS: 123456, layout.STARTED_NS: 4_000_000}
    boot = {layout.BOOT_HIGH: 0x0123456789ABCDEF, layout.BOOT_LOW: 0xFEDCBA9876543210}
    for word, value in (facts | boot).items():
        ring._words[word] = value


def describe(ring: RingWriter) -> None:
    own = names.Schema(200, "llmtrace.from_another_version", "sample", ("step", "llmtrace.unknown_to_you_bytes"))
    early = Identity(span_id=SPAN, parent_span_id=PARENT, node="node-ä", pid=4711)
    late = msgspec.structs.replace(early, trace_id="4bf92f3577b34da6a3ce929d0e0e4736", rank=3, world_size=8, job="golden")
    for part in (
        frames.known_schemas(),
        Description(schemas=[own], epochs=[Epoch(0, early)]),
        Description(epochs=[Epoch(5_000_200, late)], phases={2: "backward"}),
    ):
        assert ring.describe(frames.encode_description(part))


def emit(ring: RingWriter, number: int) -> None:
    now = 5_000_000 + number
    if number % 3 == 0:
        ring.append(3, frames.encode([now, 21_000_000 + number, number, 1, 2, 3, 4, None, None, 32, None]))
    elif number % 3 == 1:
        ring.append(2, frames.encode([now, 9, f"line {number} " + "é" * (number % 50), number, "golden", "/a/b.py", 7, "MainThread", {"loss": 0.5}]))
    else:
        ring.append(200, frames.encode([now, number, 1 << 40]))


def expectation(reader: RingReader) -> list[object]:
    """Header, groups, what a first read says of itself, then a record a line."""
    reading = reader.read(0, 0)
    decoder = frames.Decoder(frames.merge_descriptions(reader.descriptions()))
    records = [decoder.record(f.kind, reading.data[f.start : f.end], f.position, 0) for f in reading.frames]
    return [reader.header(), reader.groups(), {"tail": reading.tail, "count": reading.count, "lost": reading.lost}, *records]


if __name__ == "__main__":
    main()
