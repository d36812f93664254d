"""What processes do with a journal in its tests: `python journal_processes.py SCENARIO PATH ...`. Imports little: it is started a hundred times."""

from __future__ import annotations

import os
import random
import resource
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from llmtrace.frames import encode
from llmtrace.journal import DERIVED, Chunk, Journal, JournalError, JournalReader, RingRow
from llmtrace.record import INFO, Identity

S = 1_000_000_000
MB = 1 << 20
SPAN = "a" * 16
STRIDE = 1 << 10
OFFSET = 1_700_000_000 * S


def parts(tail: int) -> list[bytes]:
    """What a ring has said of itself by then: it says something now and then."""
    return [b"part"] * (1 + tail // 1000)


def row(span_id: str, tail: int) -> RingRow:
    return RingRow(span_id=span_id, identity=Identity(span_id=span_id), description=parts(tail), tail=tail, count=tail, started_ns=0, last_ns=0)


def ring_frames(first: int, number: int, size: int = 0) -> list[tuple[int, int, bytes]]:
    """Records `first` onwards of an endless ring: record i lies at i * STRIDE."""
    return [(2, i * STRIDE, encode([10 * S + i * S // 1000, INFO, f"line {i}", random.randbytes(size)])) for i in range(first, first + number)]


def numbers(chunks: Iterable[Chunk], derived: bool = False) -> list[int]:
    found = [position for chunk in chunks for _, position, _ in chunk.frames()]
    return [position - DERIVED for position in found if position >= DERIVED] if derived else [position // STRIDE for position in found if position < DERIVED]


def say(what: object) -> None:
    """One line, whole or not at all, whenever this process is killed."""
    os.write(1, f"{what}\n".encode())


def tail_forever(path: Path) -> None:
    """As an agent does: go on where the journal says, append what is new, derive from it, and know how far, together."""
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e12)
    say(os.getpid())
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
        say(first + number)


def fork_writers(path: Path) -> None:
    """For each line of input a writer that goes on until it is killed; then "gone"."""
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            tail_forever(path)
        os.waitpid(child, 0)
        say("gone")


def write_rounds(path: Path, span_id: str, rounds: int) -> None:
    """`rounds` transactions of ten records each, in a journal that another process may write as well."""
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e12)
    for i in range(rounds):
        with journal.transaction() as transaction:
            transaction.put_ring(row(span_id, 10 * i + 10))
            transaction.append(span_id, ring_frames(10 * i, 10), OFFSET, bulk=False)
    journal.close()


def fill_up(path: Path, quota: int) -> None:
    """Fill a disk with the journal itself; it must fail whole, keep what was committed, and go on when there is space again."""
    limit_files(quota)
    ballast = path.parent / "ballast"
    ballast.write_bytes(b"\1" * (2 * MB))
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e12)
    committed = 0
    failures = 0
    while failures < 5:
        try:
            with journal.transaction() as transaction:
                transaction.put_ring(row(SPAN, committed + 40))
                transaction.append(SPAN, ring_frames(committed, 40, size=3000), OFFSET, bulk=False)
            committed += 40
            assert committed < 10_000, "nothing is ever full"
        except JournalError as error:
            check_trouble(error)
            failures += 1
            check_state(path, journal, committed)
    free_space(ballast)
    with journal.transaction() as transaction:
        transaction.put_ring(row(SPAN, committed + 40))
        transaction.append(SPAN, ring_frames(committed, 40), OFFSET, bulk=False)
        transaction.count_drop("journal_full", failures)
    check_state(path, journal, committed + 40)
    assert journal.drops() == {"journal_full": 5}
    journal.close()
    journal = Journal.open(path, max_bytes=1 << 30, max_age_s=1e12)
    check_state(path, journal, committed + 40)
    journal.close()
    print("held", committed)


def check_state(path: Path, journal: Journal, committed: int) -> None:
    found = journal.ring(SPAN)
    assert (found.tail if found else 0) == committed
    assert numbers(journal.chunks_after(0, 10_000)) == list(range(committed))
    with JournalReader(path) as reader:
        assert numbers(reader.chunks_between(0, 1 << 62)) == list(range(committed))


def check_trouble(error: JournalError) -> None:
    if error.trouble != "full":
        raise error


def limit_files(size: int) -> None:
    """No file may be longer, as under a quota; 0 is no limit."""
    if size:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def free_space(ballast: Path) -> None:
    ballast.unlink()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)


def begin_full(path: Path, quota: int) -> None:
    """A disk without space from the start: one kind of error, and a whole journal once there is some."""
    limit_files(quota // MB)
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
            check_trouble(error)
        else:
            raise AssertionError("a journal was made on a full disk")
    free_space(ballast)
    write_rounds(path, SPAN, 3)
    with JournalReader(path) as reader:
        assert numbers(reader.chunks_between(0, 1 << 62)) == list(range(30))
        assert reader.drops() == {}
    print("held")


def read_without_rights(path: Path) -> None:
    """Read ten rounds of `write_rounds` where this process may write nothing: as nobody where it is root's."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    assert not os.access(path.parent, os.W_OK)
    before = sorted(path.parent.iterdir())
    with JournalReader(path) as reader:
        assert numbers(reader.chunks_between(0, 1 << 62)) == list(range(100))
        assert reader.rings()[0].tail == 100
    assert sorted(path.parent.iterdir()) == before
    print("held")


SCENARIOS: dict[str, Callable[..., None]] = {
    "tail": tail_forever,
    "fork": fork_writers,
    "write": write_rounds,
    "fill": fill_up,
    "begin": begin_full,
    "read": read_without_rights,
}


if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](Path(sys.argv[2]), *(int(a) if len(a) < 16 else a for a in sys.argv[3:]))
