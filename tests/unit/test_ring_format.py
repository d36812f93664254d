"""What lies in a ring is what was appended: frames, laps, overruns, the header, and files that are no ring."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtrace import frames
from llmtrace.clock import boot_id, process_start_ticks
from llmtrace.frames import Description, Epoch
from llmtrace.record import Identity
from llmtrace.ring import GroupState, RingError, RingReader, RingWriter, find_rings, layout
from llmtrace.ring.create import lay_out
from llmtrace.ring.reader import walk

SPAN = "00f067aa0ba902b7"
HEADER = layout.SMALL_HEADER


def new_ring(folder: Path, capacity: int, name: str = f"1-2-{SPAN}.ring", header_bytes: int = HEADER) -> RingWriter:
    path = folder / name
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.posix_fallocate(descriptor, 0, header_bytes + capacity)
    file = lay_out(descriptor, header_bytes + capacity, SPAN, "b7ad6b7169203331", header_bytes)
    os.close(descriptor)
    return RingWriter(file, path)


@pytest.fixture
def ring(tmp_path: Path) -> RingWriter:
    return new_ring(tmp_path, 64 << 10)


@pytest.fixture
def reader(ring: RingWriter) -> Iterator[RingReader]:
    assert ring.path
    reader = RingReader(ring.path)
    yield reader
    reader.close()


def payloads(reading: layout.Reading) -> list[tuple[int, bytes]]:
    return [(frame.kind, reading.data[frame.start : frame.end]) for frame in reading.frames]


appends = st.lists(st.one_of(st.tuples(st.integers(1, 254), st.integers(0, 80)), st.just("read")), max_size=150)


@settings(max_examples=300, deadline=None)
@given(appends, st.sampled_from([256, 512, 1024, 1040, 2048]), st.booleans())
def test_each_record_is_read_once_in_order_or_counted_as_lost(steps: list[tuple[int, int] | str], capacity: int, ordered: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ring = new_ring(Path(folder), capacity)
        assert ring.path
        reader = RingReader(ring.path, ordered=ordered)
        written: list[tuple[int, bytes]] = []
        ends = [0]
        tail = count = cut = 0

        def read() -> None:
            nonlocal tail, count
            reading = reader.read(tail, count)
            begin = count + reading.lost
            assert payloads(reading) == written[begin : reading.count]
            assert reading.count == begin + len(reading.frames)
            if reading.lost:
                assert ring._state[0][0] - tail > capacity - layout.frame_cap_for(capacity), "lost although there was room"
            tail, count = reading.tail, reading.count

        for number, step in enumerate(steps):
            if isinstance(step, str):
                read()
                continue
            payload = random.Random(number).randbytes(step[1])
            ring.append(step[0], payload)
            if len(payload) <= ring.frame_cap:
                written.append((step[0], payload))
                ends.append(ring._state[0][0])
            else:
                cut += 1
        header = reader.header()
        assert (header.count, header.cut, header.head) == (len(written), cut, ends[-1])
        read()
        read()
        assert (tail, count) == (header.head, len(written))
        reader.close()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=60), st.integers(0, 40), st.data())
def test_a_writer_that_laps_the_reader_while_it_copies_costs_only_what_it_overwrote(sizes: list[int], before: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ring = new_ring(Path(folder), 1024)
        assert ring.path
        written: list[bytes] = []

        def append(size: int) -> None:
            payload = len(written).to_bytes(2, "little") * (size // 2 + 1)
            ring.append(7, payload)
            if len(payload) <= ring.frame_cap:
                written.append(payload)

        class Interrupted(RingReader):
            def _copy(self, start: int, head: int) -> bytes:
                first = super()._copy(start, head)
                for _ in range(data.draw(st.integers(0, 30))):
                    append(data.draw(st.integers(0, 60)))
                return first

        reader = Interrupted(ring.path)
        for size in sizes[:before]:
            append(size)
        tail = count = 0
        for size in sizes:
            append(size)
            reading = reader.read(tail, count)
            assert [payload for _, payload in payloads(reading)] == written[count + reading.lost : reading.count]
            tail, count = reading.tail, reading.count
        reader.close()


def test_a_segment_is_the_longest_frame_and_a_longer_one_is_counted(ring: RingWriter, reader: RingReader) -> None:
    assert ring.frame_cap == (64 << 10) // 16 - 4
    for _ in range(40):  # two laps and a half
        ring.append(1, bytes(ring.frame_cap))
    ring.append(1, bytes(ring.frame_cap + 1))
    ring.append(1, bytes(1 << 24))
    header = reader.header()
    assert (header.count, header.cut) == (40, 2)
    reading = reader.read(0, 0)
    assert reading.lost + len(reading.frames) == 40
    assert len(reading.frames) >= 15


def test_a_frame_is_never_over_64_kib(tmp_path: Path) -> None:
    assert new_ring(tmp_path, 4 << 20).frame_cap == (64 << 10) - 4


def test_the_header_says_who_it_is_and_how_it_goes(ring: RingWriter, reader: RingReader) -> None:
    header = reader.header()
    assert (header.span_id, header.parent_span, header.pid) == (SPAN, "b7ad6b7169203331", os.getpid())
    assert (header.boot_id, header.start_ticks) == (boot_id(), process_start_ticks(os.getpid()))
    assert header.pid_namespace == os.stat("/proc/self/ns/pid").st_ino
    assert (header.step, header.phase, header.progress_ns, header.ended, header.off) == (None, 0, 0, "running", False)
    ring.progress(0, 3)
    first = reader.header()
    ring.progress(-1, 65535)
    second = reader.header()
    assert (first.step, first.phase) == (0, 3)
    assert (second.step, second.phase) == (None, 65535)
    assert header.started_ns < first.progress_ns < second.progress_ns


@pytest.mark.parametrize(("said", "ended"), [(["clean"], "clean"), (["raised"], "raised"), (["raised", "clean"], "raised"), (["clean", "raised"], "raised")])
def test_how_it_ended_is_its_own_word_and_raised_stays(ring: RingWriter, reader: RingReader, said: list[str], ended: str) -> None:
    for word in said:
        ring.end(word)  # type: ignore[arg-type]
    assert reader.header().ended == ended


def test_64_groups_have_a_slot_each(ring: RingWriter, reader: RingReader) -> None:
    assert reader.groups() == []
    for slot in range(70):
        ring.group(slot, 1000 + slot, slot)
    ring.append(1, b"and the frames lie elsewhere")
    found = reader.groups()
    assert [(g.slot, g.enqueued, g.completed) for g in found] == [(s, 1000 + s, s) for s in range(64)]
    assert all(isinstance(g, GroupState) and g.since_ns > 0 for g in found)
    assert reader.read(0, 0).data.endswith(b"elsewhere")


def test_a_ring_describes_itself_until_its_area_is_full(ring: RingWriter, reader: RingReader) -> None:
    epoch = Epoch(1, Identity(span_id=SPAN, rank=3, node="a" * 200))
    assert ring.describe(frames.encode_description(frames.known_schemas()))
    taken = 1
    while ring.describe(frames.encode_description(Description(epochs=[epoch]))):
        taken += 1
    whole = frames.merge_descriptions(reader.descriptions())
    assert whole.schemas == frames.known_schemas().schemas
    assert whole.epochs == [epoch] * (taken - 1)
    assert taken > 5
    assert ring.describe(b""), "a smaller one still fits"
    assert reader.read(0, 0).frames == []


def test_off_stops_what_is_written_and_on_lets_it_go_on(ring: RingWriter, reader: RingReader) -> None:
    ring.append(1, b"before")
    reader.set_off(True)
    assert ring.off
    assert reader.header().off
    ring.append(1, b"while off")
    reader.set_off(False)
    ring.append(1, b"after")
    assert payloads(reader.read(0, 0)) == [(1, b"before"), (1, b"after")]


def test_a_closed_ring_takes_nothing_even_by_a_kept_reference(ring: RingWriter, reader: RingReader) -> None:
    kept = ring.append
    ring.append(1, b"one")
    ring.close()
    kept(1, b"two")
    ring.append(1, b"three")
    ring.progress(5, 5)
    ring.group(1, 1, 1)
    ring.end("clean")
    ring.count_cut()
    assert not ring.describe(b"x")
    ring.close()
    header = reader.header()
    assert (header.count, header.step, header.ended, header.cut) == (1, None, "running", 0)
    assert reader.groups() == []
    assert reader.descriptions() == []


def test_where_stores_come_out_of_order_a_poll_ends_where_the_one_before_saw_head(ring: RingWriter) -> None:
    assert ring.path
    reader = RingReader(ring.path, ordered=False)
    ring.append(1, b"one")
    assert reader.read(0, 0).frames == []
    ring.append(1, b"two")
    first = reader.read(0, 0)
    assert payloads(first) == [(1, b"one")]
    assert payloads(reader.read(first.tail, first.count)) == [(1, b"two")]
    fresh = RingReader(ring.path, ordered=False)  # an agent that goes on where another left off
    assert fresh.read(first.tail, first.count).frames == []
    assert payloads(fresh.read(first.tail, first.count)) == [(1, b"two")]
    fresh.close()
    reader.close()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is no ring"),
        (b"LLMTRING", "is no ring"),
        (bytes(200_000), "is no ring"),
        (b"\x7fELF" + bytes(200_000), "is no ring"),
        (b"LLMTRING" + (2).to_bytes(8, "little") + bytes(8192), "format 2"),
        (b"LLMTRING" + (1).to_bytes(8, "little") + bytes(8192), "corrupt"),
        (b"LLMTRING" + (1).to_bytes(8, "little") + (8192).to_bytes(8, "little") + (1 << 40).to_bytes(8, "little") + bytes(8192), "cut short"),
        (b"LLMTRING" + b"\xff" * 100_000, "format"),
    ],
)
def test_what_is_no_ring_raises_ring_error(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "1-2-3.ring"
    path.write_bytes(content)
    with pytest.raises(RingError, match=why):
        RingReader(path)


def test_what_is_no_file_raises_ring_error_and_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/proc/1/fd/99999")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("fifo", "link", "loop", "absent", "."):
        with pytest.raises(RingError):
            RingReader(tmp_path / name)
    with pytest.raises(RingError):
        RingReader(Path("/dev/null"))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 10_000))
def test_bytes_that_are_no_frames_raise_ring_error_or_are_frames(data: bytes, position: int) -> None:
    try:
        found = walk(data, position, 256)
    except RingError:
        return
    assert all(4 <= frame.start <= frame.end <= len(data) and 1 <= frame.kind <= 254 for frame in found)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(16, HEADER + 4096 - 1), st.integers(0, 255)), min_size=1, max_size=40), st.integers(0, 300))
def test_a_corrupt_ring_raises_ring_error_and_nothing_else(changes: list[tuple[int, int]], records: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ring = new_ring(Path(folder), 4096)
        assert ring.path
        ring.describe(frames.encode_description(frames.known_schemas()))
        for number in range(records):
            ring.append(1, bytes([number & 0xFF]) * (number % 70))
        content = bytearray(ring.path.read_bytes())
        for at, value in changes:
            content[at] = value
        ring.path.write_bytes(content)
        try:
            reader = RingReader(ring.path)
        except RingError:
            return
        for part in (reader.header, reader.groups, reader.descriptions, lambda: reader.read(0, 0)):
            try:
                part()
            except RingError:
                continue
        reader.close()


def test_a_tail_beyond_the_end_is_a_ring_error(ring: RingWriter, reader: RingReader) -> None:
    ring.append(1, b"x")
    with pytest.raises(RingError, match="beyond"):
        reader.read(1000, 1)


def test_a_ring_that_may_only_be_read_is_read(ring: RingWriter, tmp_path: Path) -> None:
    assert ring.path
    ring.append(1, b"x")
    reader = RingReader(ring.path)
    reader._writable = False
    with pytest.raises(RingError, match="only be read"):
        reader.set_off(True)
    reader.close()
    reader.close()


def test_rings_are_found_as_files_and_as_links(tmp_path: Path) -> None:
    folder, registry = tmp_path / "rings", tmp_path / "registry"
    assert find_rings(folder, registry) == []
    folder.mkdir()
    registry.mkdir()
    assert find_rings(folder, registry) == []
    new_ring(folder, 1024, "9-9-b.ring")
    new_ring(folder, 1024, "10-9-a.ring")
    (folder / "9-9-b.fatal").write_text("not one")
    (registry / "5-5-c").symlink_to("/proc/5/fd/5")
    (registry / "notes.txt").write_text("not one")
    assert [path.name for path in find_rings(folder, registry)] == ["10-9-a.ring", "9-9-b.ring", "5-5-c"]
