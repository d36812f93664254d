"""Made journal-format-1.sqlite and journal-format-1.jsonl (what must be read from it), once. Not to be run again: a later format has files of its own.

python tests/golden/journal_format_1.py
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

import msgspec

from llmtrace import names
from llmtrace.frames import Decoder, Description, Epoch, encode, encode_description, known_schemas, merge_descriptions
from llmtrace.incidents import incident_attributes
from llmtrace.journal import KIND_BITS, Journal, JournalReader, RingRow, opening
from llmtrace.names import Schema
from llmtrace.record import FATAL, INFO, Culprit, Identity, Incident, Record, Window

HERE = Path(__file__).resolve().parent
SQLITE, RECORDS = HERE / "journal-format-1.sqlite", HERE / "journal-format-1.jsonl"
S = 1_000_000_000
OFFSET = 1_795_000_000 * S
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
RANK0, RANK1 = "00f067aa0ba902b7", "53995c3f42cd8ad8"


def row(span_id: str, rank: int, **facts: object) -> RingRow:
    early = Identity(span_id=span_id, node="node-a", rank=rank, launch="launch-1", pid=100 + rank)
    late = msgspec.structs.replace(early, trace_id=TRACE, attempt="attempt-1", world_size=2, job="gpt")
    parts = [encode_description(known_schemas()), encode_description(Description(epochs=[Epoch(0, early)], phases={1: "forward", 2: "my own"}))]
    parts += [encode_description(Description(epochs=[Epoch(12 * S, late)], schemas=[Schema(40, "my.own", "sample", ("step", "llmtrace.own"))]))]
    known: dict[str, object] = {"started_ns": OFFSET + 10 * S, "last_ns": OFFSET + 30 * S, "boot_id": "b" * 32, "pid": 100 + rank, "start_ticks": 4711}
    return RingRow(span_id=span_id, identity=late, description=parts, **{**known, **facts})  # type: ignore[arg-type]


def frames(rank: int) -> tuple[list[tuple[int, int, bytes]], list[tuple[int, int, bytes]]]:
    """Lines and steps of a rank, as a ring holds them: one after another, with the gap of a segment in between."""
    rest, bulk = [], []
    position = 8192
    for step in range(12):
        for kind, values in (
            (
                2,
                [
                    (10 * S) + step * S // 2,
                    INFO,
                    f"step {step} marker-{rank} äöü \N{SNOWMAN}",
                    step,
                    "train",
                    "train.py",
                    12,
                    "MainThread",
                    {"loss": 1 / (step + 1)},
                ],
            ),
            (3, [(10 * S) + step * S // 2 + S // 4, S // 2, step, 1000, 2000, 3000, 4000, None, None, 32]),
            (40, [(10 * S) + step * S // 2 + S // 3, step, 0.5]),
        ):
            payload = encode(values)
            (rest if kind == 2 else bulk).append((kind, position, payload))
            position += 4 + len(payload) + (1000 if step == 3 else 0)
    return rest, bulk


def fill(journal: Journal) -> None:
    for span_id, rank in ((RANK0, 0), (RANK1, 1)):
        rest, bulk = frames(rank)
        for half, offset_ns in ((slice(0, 6), OFFSET), (slice(6, None), OFFSET - 3600 * S)):  # the clock was set back by an hour in between
            with journal.transaction() as transaction:
                transaction.put_ring(row(span_id, rank, tail=half.start + 1, count=half.start))
                transaction.append(span_id, rest[half], offset_ns, bulk=False, kinds=KIND_BITS["log"], severity=INFO)
                transaction.append(span_id, bulk[half], offset_ns, bulk=True, kinds=KIND_BITS["span"] | KIND_BITS["sample"], severity=INFO)
    with journal.transaction() as transaction:
        transaction.put_ring(
            row(
                RANK1,
                1,
                tail=99_000,
                count=120,
                lost=3,
                ending="killed",
                ended_ns=OFFSET + 31 * S,
                exit_code=-9,
                step=39,
                phase="forward",
                progress_ns=OFFSET + 29 * S,
            )
        )
        died = {names.PROCESS_ACTION: "died", names.PROCESS_SIGNAL: 9}
        evidence = transaction.append_derived(RANK1, encode([31 * S, names.PROCESS, "event", FATAL, "killed", 39, None, None, None, died]), OFFSET)
        transaction.append_derived(
            RANK1,
            encode([31 * S + 1, names.INCIDENT, "event", FATAL, "rank 1 was killed", None, None, None, None, incident_attributes(incident(evidence))]),
            OFFSET,
        )
        transaction.move_cursor("detection", 7, 1)
        transaction.count_drop("journal_age", 5)


def incident(evidence: str) -> Incident:
    return Incident(
        id="0123456789ab",
        trace_id=TRACE,
        attempt="attempt-1",
        onset_ns=OFFSET + 31 * S,
        detected_ns=OFFSET + 31 * S + 5,
        category="process_death",
        role="ambiguous",
        summary="rank 1 was killed",
        reason="unmarked death",
        culprit=Culprit(rank=1, node="node-a"),
        window=Window(OFFSET + S, OFFSET + 36 * S),
        evidence=[evidence],
        symptoms=[0],
    )


def read(path: Path) -> list[Record]:
    """All records in the order of their chunks."""
    with JournalReader(path) as reader:
        decoders = {row.span_id: Decoder(merge_descriptions(row.description)) for row in reader.rings()}
        chunks = sorted(reader.chunks_between(0, 1 << 62), key=lambda chunk: chunk.id)
        found = [decoders[chunk.span_id].record(kind, payload, position, chunk.offset_ns) for chunk in chunks for kind, position, payload in chunk.frames()]
    return [record for record in found if record is not None]


def make(folder: Path) -> Path:
    opening.PAGE_BYTES = 1024  # type: ignore[misc]  # not part of the format, and smaller to commit
    path = folder / "journal.1.sqlite"
    journal = Journal.open(path, max_bytes=1 << 26, max_age_s=1e12)
    fill(journal)
    journal.close()
    with sqlite3.connect(path) as connection:
        connection.execute("VACUUM")
    connection.close()
    return path


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        path = make(Path(made))
        SQLITE.write_bytes(path.read_bytes())
        RECORDS.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in read(path)))
