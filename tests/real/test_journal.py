"""The journal among processes: killed writers, readers beside them, full disks, read-only folders, copies."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmtrace.frames import decode_values, encode
from llmtrace.journal import DERIVED, Journal, JournalError, JournalReader, RingRow
from llmtrace.record import INFO, Identity

S = 1_000_000_000
MB = 1 << 20
SPAN = "a" * 16
STRIDE = 1 << 10
OFFSET = 1_700_000_000 * S


def row(span_id: str, tail: int) -> RingRow:
    return RingRow(span_id=span_id, identity=Identity(span_id=span_id), description=[b"part"] * (1 + tail % 3), tail=tail, count=tail, started_ns=0, last_ns=0)


def ring_frames(first: int, number: int, size: int = 0) -> list[tuple[int, int, bytes]]:
    """Records `first` onwards of an endless ring: record i lies at i * STRIDE."""
    return [(2, i * STRIDE, encode([10 * S + i * S // 1000, INFO, f"line {i}", random.randbytes(size)])) for i in range(first, first + number)]


def numbers(chunks: list, derived: bool = False) -> list[int]:
    found = [position for chunk in chunks for _, position, _ in chunk.frames()]
    return [position - DERIVED for position in found if position >= DERIVED] if derived else [position // STRIDE for position in found if position < DERIVED]


def tail_forever(path: Path) -> None:
    """As an agent does: go on where the journal says, append what is new, derive from it, and know how far, together."""
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e12)
    print("open", flush=True)
    while True:
        known = journal.ring(SPAN)
        first = known.tail if known else 0
        number = random.randrange(0, 40)
        with journal.transaction() as transaction:
            transaction.put_ring(row(SPAN, first + number))
            transaction.append(SPAN, ring_frames(first, number, size=random.choice([0, 100])), OFFSET, bulk=bool(first % 2))
        for chunk, index in journal.unread("detection", 10):
            with journal.transaction() as transaction:
                for _, position, _ in list(chunk.frames())[index:]:
                    if position < DERIVED and position // STRIDE % 10 == 0:
                        transaction.append_derived(SPAN, encode([10 * S, "about", "event", INFO, str(position // STRIDE)]), OFFSET)
                transaction.move_cursor("detection", chunk.id, chunk.count)
        if random.random() < 0.1:
            journal.prune()
        print(first + number, flush=True)


def write_rounds(path: Path, span_id: str, rounds: int) -> None:
    """`rounds` transactions of ten records each, in a journal that another process may write as well."""
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e12)
    for i in range(rounds):
        with journal.transaction() as transaction:
            transaction.put_ring(row(span_id, 10 * i + 10))
            transaction.append(span_id, ring_frames(10 * i, 10), OFFSET, bulk=False)
    journal.close()


def fill_up(path: Path) -> None:
    """Fill a disk with the journal itself; it must fail whole, keep what was committed, and go on when there is space again."""
    ballast = path.parent / "ballast"
    ballast.write_bytes(b"\1" * (2 * MB))
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e12)
    committed = 0
    failures = 0
    while failures < 20:
        try:
            with journal.transaction() as transaction:
                transaction.put_ring(row(SPAN, committed + 40))
                transaction.append(SPAN, ring_frames(committed, 40, size=3000), OFFSET, bulk=False)
            committed += 40
            assert committed < 10_000, "nothing is ever full"
        except JournalError as error:
            assert error.trouble == "full", error
            failures += 1
            with_state(path, journal, committed)
    free_space(ballast)
    with journal.transaction() as transaction:
        transaction.put_ring(row(SPAN, committed + 40))
        transaction.append(SPAN, ring_frames(committed, 40), OFFSET, bulk=False)
        transaction.count_drop("journal_full", failures)
    with_state(path, journal, committed + 40)
    assert journal.drops() == {"journal_full": 20}
    journal.close()
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e12)
    with_state(path, journal, committed + 40)
    journal.close()
    print("held", committed)


def with_state(path: Path, journal: Journal, committed: int) -> None:
    found = journal.ring(SPAN)
    assert (found.tail if found else 0) == committed
    assert numbers(journal.chunks_after(0, 10_000)) == list(range(committed))
    with JournalReader(path) as reader:
        assert numbers(reader.chunks_between(0, 1 << 62)) == list(range(committed))


def free_space(ballast: Path) -> None:
    ballast.unlink()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)


def begin_full(path: Path) -> None:
    """A disk without space from the start: one kind of error, and a whole journal once there is some."""
    ballast = path.parent / "ballast"
    with open(ballast, "wb", buffering=0) as stream:
        try:
            while stream.write(b"\1" * 4096):
                pass
        except OSError:
            pass
    for _ in range(3):
        try:
            Journal.open(path, max_bytes=1 << 30, max_age_s=1e12)
        except JournalError as error:
            assert error.trouble == "full", error
        else:
            raise AssertionError("a journal was made on a full disk")
    ballast.unlink()
    write_rounds(path, SPAN, 3)
    with JournalReader(path) as reader:
        assert numbers(reader.chunks_between(0, 1 << 62)) == list(range(30))
        assert reader.drops() == {}
    print("held")


SCENARIOS: dict[str, Callable[..., None]] = {"tail": tail_forever, "write": write_rounds, "fill": fill_up, "begin": begin_full}


@contextmanager
def scenario(name: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, __file__, name, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def mounting() -> list[str] | None:
    """The command before which another gets a mount namespace of its own; None where this user may not have one."""
    for prefix in (["unshare", "-m"], ["unshare", "-Urm"]):
        if shutil.which("unshare") and subprocess.run([*prefix, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode == 0:
            return prefix
    return None


MOUNTING = mounting()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.1.sqlite"


def test_a_writer_killed_a_hundred_times_loses_nothing_and_doubles_nothing(path: Path) -> None:
    said = 0
    for _ in range(100):
        with scenario("tail", path) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            time.sleep(random.random() * 0.05)
            process.send_signal(signal.SIGKILL)
            for line in process.stdout:
                if line.endswith("\n"):
                    said = int(line)
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e12)
    chunks = journal.chunks_after(0, 1 << 30)
    found = numbers(chunks)
    known = journal.ring(SPAN)
    assert known is not None
    assert found == list(range(known.tail))
    assert len(found) >= said > 1000
    assert known.description == [b"part"] * (1 + known.tail % 3)
    at, _ = journal.cursor("detection")
    consumed = [number for number in numbers([chunk for chunk in chunks if chunk.id <= at]) if number % 10 == 0]
    about = [int(decode_values(payload)[4]) for chunk in chunks for _, position, payload in chunk.frames() if position >= DERIVED]
    assert about == consumed
    assert numbers(chunks, derived=True) == list(range(known.derived))
    assert journal.drops() == {}
    journal.close()


def test_a_reader_sees_whole_transactions_while_another_process_writes(path: Path) -> None:
    with scenario("tail", path) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        reader = JournalReader(path)
        seen = [0]
        until = time.monotonic() + 3
        while time.monotonic() < until:
            rings_before = reader.rings()
            found = sorted(numbers(reader.chunks_between(0, 1 << 62)))
            rings_after = reader.rings()
            assert found == list(range(len(found)))
            assert seen[-1] <= rings_before[0].tail <= len(found) <= rings_after[0].tail
            seen.append(len(found))
        reader.close()
    assert seen[-1] > seen[1]


def test_two_writers_of_one_journal_by_mistake_lose_nothing(path: Path) -> None:
    with scenario("write", path, "1" * 16, 60) as one, scenario("write", path, "2" * 16, 60) as two:
        assert (one.wait(60), two.wait(60)) == (0, 0)
    with JournalReader(path) as reader:
        for span_id in ("1" * 16, "2" * 16):
            assert numbers(reader.chunks_between(0, 1 << 62, [span_id])) == list(range(600))


def test_two_directories_are_two_journals(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    paths = [tmp_path / name / "journal.1.sqlite" for name in ("one", "two")]
    with scenario("write", paths[0], "1" * 16, 20) as one, scenario("write", paths[1], "2" * 16, 30) as two:
        assert (one.wait(60), two.wait(60)) == (0, 0)
    for path, span_id, count in zip(paths, ("1" * 16, "2" * 16), (200, 300), strict=True):
        with JournalReader(path) as reader:
            assert [ring.span_id for ring in reader.rings()] == [span_id]
            assert numbers(reader.chunks_between(0, 1 << 62)) == list(range(count))


@pytest.mark.parametrize("what", ["fill", "begin"])
@pytest.mark.parametrize("how", ["tmpfs", "quota"] if MOUNTING else ["quota"])
def test_a_full_disk_is_one_kind_of_error_and_passes(path: Path, what: str, how: str) -> None:
    if how == "tmpfs":
        script = f"mount -t tmpfs -o size=10m none '{path.parent}' && exec '{sys.executable}' '{__file__}' {what} '{path}'"
        command = [*(MOUNTING or []), "sh", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    elif what == "begin":
        done = run_limited(0, what, path)
    else:
        done = run_limited(5 * MB, what, path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("held")


def run_limited(limit: int, what: str, path: Path) -> subprocess.CompletedProcess[str]:
    """With no file allowed over `limit` bytes, which the process may lift again: what a quota does."""

    def restrict() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    return subprocess.run([sys.executable, __file__, what, str(path)], capture_output=True, text=True, check=False, preexec_fn=restrict)


def as_a_reader_without_rights(read: Callable[[], None]) -> None:
    """Run `read` in a child that may not write where the journal lies: as nobody where we are root."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            read()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def expose(path: Path, folder_mode: int = 0o555) -> None:
    """Readable by all, writable by none (root aside)."""
    for file in path.parent.iterdir():
        file.chmod(0o444)
    path.parent.chmod(folder_mode)
    for folder in list(path.parents)[1:]:
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)


@pytest.fixture
def shut(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "shut"
    folder.mkdir()
    yield folder / "journal.1.sqlite"
    folder.chmod(0o755)


def check_ten_rounds(path: Path) -> None:
    before = sorted(path.parent.iterdir())
    with JournalReader(path) as reader:
        assert numbers(reader.chunks_between(0, 1 << 62)) == list(range(100))
        assert reader.rings()[0].tail == 100
    assert sorted(path.parent.iterdir()) == before
    assert not os.access(path.parent, os.W_OK)


def test_a_closed_journal_is_read_in_a_folder_that_may_not_be_written(shut: Path) -> None:
    write_rounds(shut, SPAN, 10)
    expose(shut)
    as_a_reader_without_rights(lambda: check_ten_rounds(shut))


def test_a_live_journal_is_read_in_a_folder_that_may_not_be_written(shut: Path) -> None:
    journal = Journal.open(shut, max_bytes=1 << 30, max_age_s=1e12)
    expose(shut)
    write_rounds(shut, SPAN, 10)
    assert shut.with_name(shut.name + "-wal").stat().st_size > 0
    as_a_reader_without_rights(lambda: check_ten_rounds(shut))
    journal.close()


def copy_of_a_live_journal(path: Path, target: Path) -> None:
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e12)
    write_rounds(path, SPAN, 10)
    for suffix in ("", "-wal"):  # by another process: closing a file here would let go of SQLite's locks on it
        subprocess.run(["cp", f"{path}{suffix}", f"{target}{suffix}"], check=True)
    journal.close()
    assert Path(f"{target}-wal").stat().st_size > 0


def test_a_copy_with_its_log_is_read(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.sqlite"
    copy_of_a_live_journal(path, target)
    with JournalReader(target) as reader:
        assert numbers(reader.chunks_between(0, 1 << 62)) == list(range(100))


def test_a_copy_with_its_log_is_read_in_a_folder_that_may_not_be_written(path: Path, shut: Path) -> None:
    copy_of_a_live_journal(path, shut)
    expose(shut)
    as_a_reader_without_rights(lambda: check_ten_rounds(shut))


def test_what_a_killed_writer_left_is_read_before_anybody_writes_again(path: Path) -> None:
    with scenario("tail", path) as process:
        assert process.stdout is not None
        for _ in range(20):
            said = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
    with JournalReader(path) as reader:
        found = sorted(numbers(reader.chunks_between(0, 1 << 62)))
    assert found == list(range(len(found)))
    assert len(found) >= int(said)


if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](Path(sys.argv[2]), *(int(a) if len(a) < 16 else a for a in sys.argv[3:]))
