"""The journal of format 1 that was committed with it: this and every later version reads it."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from llmtrace.frames import Decoder, encode, merge_descriptions
from llmtrace.incidents import incident_of
from llmtrace.journal import DERIVED, Journal, JournalReader
from llmtrace.record import Record

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
S = 1_000_000_000
OFFSET = 1_795_000_000 * S
RANK0, RANK1 = "00f067aa0ba902b7", "53995c3f42cd8ad8"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copyfile(GOLDEN / "journal-format-1.sqlite", tmp_path / "journal.1.sqlite"))


def test_every_record_is_read_as_it_was_written(path: Path) -> None:
    wanted = [msgspec.json.decode(line, type=Record) for line in (GOLDEN / "journal-format-1.jsonl").read_bytes().splitlines()]
    with JournalReader(path) as reader:
        decoders = {row.span_id: Decoder(merge_descriptions(row.description)) for row in reader.rings()}
        chunks = sorted(reader.chunks_between(0, 1 << 62), key=lambda chunk: chunk.id)
        found = [decoders[chunk.span_id].record(kind, payload, at, chunk.offset_ns) for chunk in chunks for kind, at, payload in chunk.frames()]
    assert found == wanted
    assert len(wanted) == 2 * 12 * 3 + 2
    assert {record.name for record in wanted} == {"llmtrace.log", "llmtrace.step", "my.own", "llmtrace.process", "llmtrace.incident"}
    assert wanted[0].body == "step 0 marker-0 äöü \N{SNOWMAN}"
    assert wanted[0].identity.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"  # learned two seconds later, filled backwards


def test_rows_cursors_and_drops_are_read(path: Path) -> None:
    journal = Journal.open(path, max_bytes=1 << 26, max_age_s=1e12)
    first, second = journal.rings()
    assert (first.span_id, first.ending, first.count, first.derived) == (RANK0, "running", 6, 0)
    assert (second.ending, second.ended_ns, second.exit_code, second.step, second.phase) == ("killed", OFFSET + 31 * S, -9, 39, "forward")
    assert (second.tail, second.count, second.lost, second.derived, second.pid, second.start_ticks) == (99_000, 120, 3, 2, 101, 4711)
    assert journal.cursor("detection") == (7, 1)
    assert journal.drops() == {"journal_age": 5}
    journal.close()


def test_windows_incidents_and_positions_are_found(path: Path) -> None:
    with JournalReader(path) as reader:
        assert [chunk.id for chunk in reader.chunks_between(OFFSET + 10 * S, OFFSET + 12 * S, bulk=False)] == [1, 5]
        assert [chunk.id for chunk in reader.chunks_between(OFFSET - 3600 * S, OFFSET - 3000 * S, [RANK1], kinds=["span"])] == [8]
        (chunk,) = reader.incident_chunks()
        ((_, position, payload),) = list(chunk.frames())
        assert position == DERIVED + 1
        record = Decoder(merge_descriptions(reader.rings()[1].description)).record(1, payload, position, chunk.offset_ns)
        assert record is not None
        incident = incident_of(record)
        assert (incident.id, incident.culprit.rank, incident.evidence) == ("0123456789ab", 1, [f"{RANK1}-{DERIVED:x}"])
        assert reader.chunk_at(RANK1, DERIVED) is not None


def test_it_can_be_written_on(path: Path) -> None:
    journal = Journal.open(path, max_bytes=1 << 26, max_age_s=1e12)
    with journal.transaction() as transaction:
        id_ = transaction.append_derived(RANK1, encode([40 * S, "llmtrace.process", "event", 9]), OFFSET)
    assert id_ == f"{RANK1}-{DERIVED + 2:x}"
    assert [chunk.id for chunk, _ in journal.unread("detection", 99)][-1] == 11
    journal.close()
