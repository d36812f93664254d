"""Journals whose pages were overwritten: what can be read is read, what cannot is counted, and nothing but a JournalError comes of it."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from llmtrace.frames import encode
from llmtrace.guard import guard
from llmtrace.journal import KIND_BITS, Journal, JournalError, JournalReader
from llmtrace.journal.pages import TABLE_LEAF, Pages
from llmtrace.record import INFO, Record, Window
from llmtrace.sources.journal import JournalSource
from tests.support.cases import TRACE, ns, process
from tests.support.journals import OFFSET_NS, row

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "journal-format-1.sqlite"
RANKS, SECONDS, LINES = 4, 60, 20
WHOLE = Window(ns(0), ns(1000))
PAGE = 8192
LONG = random.Random(1).randbytes(30_000).hex()
"""The body of one line of the 30th second of rank 0: its chunk goes on in pages of its own."""

Scribble = Callable[[Path, int], None]


def fill(journal: Journal, seconds: range) -> None:
    for second in seconds:
        with journal.transaction() as transaction:
            for rank in range(RANKS):
                known = process(rank, at=None)
                transaction.put_ring(row(known, []))
                made = random.Random(second * RANKS + rank)
                position, frames = second << 20, []
                for number in range(LINES):
                    body = LONG if (second, rank, number) == (30, 0, 0) else f"rank {rank} {second}.{number} {made.randbytes(100).hex()}"
                    payload = encode([ns(second) - OFFSET_NS + number * 1_000_000, INFO, body, second])
                    frames.append((2, position, payload))
                    position += 4 + len(payload)
                transaction.append(known.identity.span_id, frames, OFFSET_NS, bulk=False, kinds=KIND_BITS["log"], severity=INFO)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of 4 ranks and a minute, closed."""
    path = tmp_path_factory.mktemp("whole") / "journal.1.sqlite"
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e9)
    fill(journal, range(SECONDS))
    with journal.transaction() as transaction:
        transaction.count_drop("journal_age", 7)
    journal.close()
    return path


@pytest.fixture(scope="module")
def written(whole: Path) -> dict[str, Record]:
    source = JournalSource(whole.parent)
    found = {record.id: record for record in source.records(TRACE, WHOLE)}
    source.close()
    assert len(found) == RANKS * SECONDS * LINES
    return found


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copyfile(whole, tmp_path / "journal.1.sqlite"))


def overwrite(path: Path, *numbers: int, data: bytes | None = None) -> None:
    made = random.Random(sum(numbers))
    with open(path, "r+b") as stream:
        for number in numbers:
            stream.seek((number - 1) * PAGE)
            stream.write(data or b"\xff" + made.randbytes(PAGE - 1))


def root(path: Path, name: str) -> int:
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0]
    connection.close()
    return found


def leaf(path: Path, name: str) -> int:
    """The last leaf of a tree of two levels."""
    page = path.read_bytes()[(root(path, name) - 1) * PAGE :][:PAGE]
    return int.from_bytes(page[8:12], "big")


def reading(path: Path) -> tuple[dict[str, Record], dict[str, int], list[str]]:
    """Records, drops and warnings."""
    said = len(guard.warnings)
    source = JournalSource(path.parent)
    found = {record.id: record for record in source.records(TRACE, WHOLE)}
    drops = source.drops()
    source.close()
    return found, drops, guard.warnings[said:]


@pytest.mark.parametrize("page", ["header", "chunk", "chunk_time", "chunk_ring", "chunk_flags", "sqlite_sequence", "cursor", "clock", "dropped"])
def test_a_page_that_holds_no_record_costs_none(path: Path, written: dict[str, Record], page: str) -> None:
    overwrite(path, 1 if page == "header" else root(path, page))
    found, drops, said = reading(path)
    assert found == written
    assert drops == ({} if page == "dropped" else {"journal_age": 7})
    assert all("none is lost" in warning for warning in said)
    assert bool(said) == (page not in ("chunk_ring", "chunk_flags", "sqlite_sequence"))  # no window needs these


def test_every_tree_at_once_costs_no_record(path: Path, written: dict[str, Record]) -> None:
    overwrite(path, 1, 2, *(root(path, name) for name in ("chunk", "chunk_time", "chunk_ring", "chunk_flags", "cursor", "clock")), data=bytes(PAGE))
    assert reading(path)[0] == written


def test_a_page_of_chunks_costs_these_and_they_are_counted(path: Path, written: dict[str, Record]) -> None:
    overwrite(path, leaf(path, "chunk"))
    found, drops, said = reading(path)
    lost = drops.pop("chunks_lost_to_damage")
    assert lost >= 1
    assert found == {id_: record for id_, record in written.items() if id_ in found}
    assert len(written) - len(found) == lost * LINES
    assert drops == {"journal_age": 7}
    assert f"{RANKS * SECONDS - lost} chunks of records; about {lost} are lost" in said[0]


def test_a_page_in_which_a_chunk_goes_on_costs_that_chunk_and_its_records_are_counted(path: Path, written: dict[str, Record]) -> None:
    pages = Pages(path)
    cells = [cell for number in pages.leaves(TABLE_LEAF) for cell in pages.cells(number) if cell.size > 20_000]
    pages.close()
    assert len(cells) == 1
    overwrite(path, cells[0].overflow + 1, data=b"\0\0\0\0" + random.Random(1).randbytes(PAGE - 4))
    found, drops, said = reading(path)
    assert {id_ for id_ in written if id_ not in found} == {id_ for id_, r in written.items() if (r.step, r.identity.rank) == (30, 0)}
    lost = {reason: count for reason, count in drops.items() if reason != "journal_age"}
    assert lost in ({"in_damaged_chunks": LINES}, {"chunks_lost_to_damage": 1})  # as SQLite itself, or the chunk's checksum, finds it
    assert said


def test_processes_whose_rows_are_lost_are_made_again_from_what_they_said_of_themselves(path: Path, written: dict[str, Record]) -> None:
    overwrite(path, root(path, "ring"))
    source = JournalSource(path.parent)
    assert source.records(TRACE, WHOLE) == sorted(written.values(), key=lambda record: record.time_ns)
    processes = source.processes(TRACE)
    assert sorted(p.identity.rank for p in processes if p.identity.rank is not None) == list(range(RANKS))
    assert {(p.ending, p.started_ns, p.last_ns) for p in processes} == {("unknown", ns(0), ns(SECONDS - 1) + (LINES - 1) * 1_000_000)}
    assert source.last_time_ns(TRACE) == max(record.time_ns for record in written.values())
    source.close()


def test_lines_of_processes_whose_description_is_lost_are_read(path: Path, written: dict[str, Record]) -> None:
    overwrite(path, root(path, "description"))
    assert reading(path)[0] == written


@pytest.mark.parametrize("pages", [None, ("ring", "description")])
def test_where_nothing_can_be_read_one_error_says_so(path: Path, pages: tuple[str, ...] | None) -> None:
    said = len(guard.warnings)
    overwrite(path, *([root(path, name) for name in pages] if pages else range(1, path.stat().st_size // PAGE + 1)))
    with pytest.raises(JournalError) as caught:
        JournalSource(path.parent).processes()
    assert caught.value.trouble == "corrupt"
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert guard.warnings[said:] == []


def test_who_does_not_ask_for_it_gets_the_error_at_once(path: Path) -> None:
    overwrite(path, root(path, "chunk"))
    with pytest.raises(JournalError, match="malformed"):
        JournalReader(path)


def test_a_file_cut_short_is_read_as_far_as_it_goes(path: Path, written: dict[str, Record]) -> None:
    with open(path, "r+b") as stream:
        stream.truncate(path.stat().st_size // 2)
    found, drops, _ = reading(path)
    assert len(written) // 4 < len(found) < len(written)
    assert found == {id_: record for id_, record in written.items() if id_ in found}
    assert drops["chunks_lost_to_damage"] + drops.get("in_damaged_chunks", 0) // LINES == RANKS * SECONDS - len(found) // LINES


def test_what_only_the_write_ahead_log_holds_is_read_too(path: Path, tmp_path: Path, written: dict[str, Record]) -> None:
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e9)
    fill(journal, range(SECONDS, SECONDS + 10))
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in (path.name, f"{path.name}-wal"):
        shutil.copyfile(path.parent / name, copy / name)
    journal.close()
    pages = Pages(copy / path.name)
    first = next(number for number in pages.leaves(TABLE_LEAF) for cell in pages.cells(number) if len(cell.columns()) == 13)
    pages.close()
    overwrite(copy / path.name, first)
    found, drops, _ = reading(copy / path.name)
    lost = drops["chunks_lost_to_damage"]
    assert 0 < lost < 10
    assert len(found) == len(written) + (10 * RANKS - lost) * LINES
    assert {record.step for record in found.values()} >= set(range(SECONDS, SECONDS + 10))


def test_what_was_deleted_does_not_come_back(path: Path) -> None:
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e9)
    with journal.transaction() as transaction:
        transaction.append(process(0).identity.span_id, [(2, 1 << 40, encode([1 << 60, INFO, "new", 1]))], 0, bulk=False)
    journal.close()
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("DELETE FROM chunk WHERE id <= ?", (RANKS * SECONDS - 4,))
        assert connection.execute("PRAGMA freelist_count").fetchone()[0] > 20
    connection.close()
    overwrite(path, root(path, "chunk_time"))
    with JournalReader(path, salvaging=True) as reader:
        assert {chunk.id for chunk in reader.chunks_between(0, 1 << 62)} == {*range(RANKS * SECONDS - 3, RANKS * SECONDS + 2)}
        assert reader.drops() == {"journal_age": 7}


def test_a_page_size_that_is_not_ours_is_told_by_the_header(tmp_path: Path) -> None:
    path = Path(shutil.copyfile(GOLDEN, tmp_path / "journal.1.sqlite"))
    with JournalReader(path) as reader:
        wanted = reader.chunks_between(0, 1 << 62)
        rings = reader.rings()
    with sqlite3.connect(path) as connection:
        number = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'chunk_time'").fetchone()[0]
    connection.close()
    with open(path, "r+b") as stream:
        stream.seek((number - 1) * 1024)
        stream.write(b"\xff" * 1024)
    with JournalReader(path, salvaging=True) as reader:
        assert reader.chunks_between(0, 1 << 62) == wanted
        assert reader.rings() == rings
        assert reader.drops() == {"journal_age": 5}


@pytest.mark.parametrize("seed", range(12))
def test_any_pages_overwritten_leave_what_was_written_or_nothing(path: Path, written: dict[str, Record], seed: int) -> None:
    made = random.Random(seed)
    overwrite(path, *made.sample(range(1, path.stat().st_size // PAGE + 1), made.choice([1, 5, 20])))
    try:
        found, _, _ = reading(path)
    except JournalError:
        return
    assert found == {id_: record for id_, record in written.items() if id_ in found}


@pytest.mark.parametrize("seed", range(40))
def test_scribbles_of_any_size_anywhere_raise_nothing_else(path: Path, seed: int) -> None:
    made = random.Random(seed)
    with open(path, "r+b") as stream:
        for _ in range(made.choice([1, 30, 300])):
            stream.seek(made.randrange(path.stat().st_size if made.random() < 0.5 else PAGE * 20))
            stream.write(made.randbytes(made.choice([1, 2, 40, 3000])))
    try:
        source = JournalSource(path.parent)
    except JournalError:
        return
    try:
        source.processes()
        source.incidents()
        source.records(TRACE, WHOLE)
        source.records(TRACE, WHOLE, kinds=("log",))
        source.last_time_ns(TRACE)
        source.drops()
    except JournalError:
        pass
    source.close()
