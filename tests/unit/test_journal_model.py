"""The journal against a model: random appends, reads, failures, reopenings; and its chunk format against any frames at all."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from llmtrace.frames import encode, payload_time_ns
from llmtrace.journal import DERIVED, Journal, JournalReader, RingRow
from llmtrace.journal.format import LARGEST_BYTES, LONGEST_NS, pieces, span_of_times
from llmtrace.record import Identity

S = 1_000_000_000
SPANS = [f"{n:016x}" for n in range(3)]
times = st.one_of(st.integers(0, 300), st.integers(0, 100 * S), st.integers(1 << 33, 1 << 63))
values = st.lists(st.one_of(st.none(), st.integers(-5, 1 << 40), st.text(max_size=5)), max_size=20)


@st.composite
def frames(draw: st.DrawFn) -> list[tuple[int, int, bytes]]:
    found = []
    position = draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(1, 12))):
        payload = encode([draw(times), *draw(values), b"x" * draw(st.sampled_from([0, 0, 3, 60_000]))])
        found.append((draw(st.integers(1, 254)), position, payload))
        position += 4 + len(payload) + draw(st.sampled_from([0, 0, 0, 7, 1 << 33, -len(payload) - 4]))
        position = max(position, 0)
    return found


@given(frames())
def test_any_frames_are_cut_into_pieces_within_bounds_and_nothing_is_lost(given_frames: list[tuple[int, int, bytes]]) -> None:
    found = list(pieces(given_frames))
    assert [frame for piece in found for frame in piece.frames] == given_frames
    for piece in found:
        moments = [payload_time_ns(payload) for _, _, payload in piece.frames]
        assert (piece.first_ns, piece.last_ns) == (min(moments), max(moments))
        assert piece.last_ns - piece.first_ns <= LONGEST_NS
        assert len(piece.frames) == 1 or sum(len(payload) for _, _, payload in piece.frames) <= LARGEST_BYTES
        ends = [position + 4 + len(payload) for _, position, payload in piece.frames]
        assert all(0 <= position - end < 1 << 32 for (_, position, _), end in zip(piece.frames[1:], ends, strict=False))


@given(st.lists(st.tuples(times, values), min_size=1, max_size=30))
def test_times_of_any_payloads_are_found(made: list[tuple[int, list[Any]]]) -> None:
    payloads = [encode([time_ns, *rest]) for time_ns, rest in made]
    moments = [time_ns for time_ns, _ in made]
    assert span_of_times(payloads) == (min(moments), max(moments))


class Model(RuleBasedStateMachine):
    """What the journal must hold, as plain lists, beside the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="llmtrace-model-")
        self.path = Path(self.folder.name) / "journal.1.sqlite"
        self.written: list[tuple[str, bool, int, int, bytes, int]] = []  # span, bulk, kind, position, payload, wall time
        self.rings: dict[str, RingRow] = {}
        self.cursor = (0, 0)
        self.next_position = 0

    @initialize()
    def begin(self) -> None:
        self.journal = Journal.open(self.path, max_bytes=1 << 30, max_age_s=1e12)
        self.reader = JournalReader(self.path)

    def row(self, span_id: str, tail: int) -> RingRow:
        before = self.rings.get(span_id)
        description = (before.description if before else []) + ([b"part"] if tail % 3 == 0 else [])
        derived = before.derived if before else 0
        return RingRow(
            span_id=span_id, identity=Identity(span_id=span_id), description=description, tail=tail, count=tail, derived=derived, started_ns=0, last_ns=tail
        )

    @rule(
        span_id=st.sampled_from(SPANS),
        bulk=st.booleans(),
        made=st.lists(st.tuples(times, values), max_size=8),
        offset_ns=st.integers(0, 50 * S),
        fail=st.booleans(),
    )
    def append(self, span_id: str, bulk: bool, made: list[tuple[int, list[Any]]], offset_ns: int, fail: bool) -> None:
        made_frames = []
        at = self.next_position
        for time_ns, rest in made:
            payload = encode([min(time_ns, 1 << 61), *rest])
            made_frames.append((2, at, payload))
            at += 4 + len(payload)
        row = self.row(span_id, at)
        try:
            with self.journal.transaction() as transaction:
                transaction.put_ring(row)
                transaction.append(span_id, made_frames, offset_ns, bulk=bulk)
                if fail:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            return
        self.next_position = at
        self.rings[span_id] = row
        self.written += [(span_id, bulk, kind, position, payload, payload_time_ns(payload) + offset_ns) for kind, position, payload in made_frames]

    @rule(span_id=st.sampled_from(SPANS), time_ns=times)
    def derive(self, span_id: str, time_ns: int) -> None:
        if (row := self.rings.get(span_id)) is None:
            return
        payload = encode([min(time_ns, 1 << 61), "llmtrace.process", "event", 9])
        with self.journal.transaction() as transaction:
            id_ = transaction.append_derived(span_id, payload, 7)
            transaction.move_cursor("detection", 1, 2)
        self.cursor = (1, 2)
        assert id_ == f"{span_id}-{DERIVED + row.derived:x}"
        self.written.append((span_id, False, 1, DERIVED + row.derived, payload, payload_time_ns(payload) + 7))
        self.rings[span_id] = RingRow(**{name: getattr(row, name) for name in row.__struct_fields__} | {"derived": row.derived + 1})

    @rule()
    def reopen(self) -> None:
        self.journal.close()
        self.journal = Journal.open(self.path, max_bytes=1 << 30, max_age_s=1e12)

    @rule(
        start_ns=st.integers(0, 120 * S), length_ns=st.integers(1, 100 * S), spans=st.none() | st.sets(st.sampled_from(SPANS)), bulk=st.none() | st.booleans()
    )
    def window(self, start_ns: int, length_ns: int, spans: set[str] | None, bulk: bool | None) -> None:
        end_ns = start_ns + length_ns
        found = []
        for chunk in self.reader.chunks_between(start_ns, end_ns, spans, bulk):
            assert spans is None or chunk.span_id in spans
            for kind, position, payload in chunk.frames():
                wall_ns = payload_time_ns(payload) + chunk.offset_ns
                assert chunk.first_ns <= wall_ns <= chunk.last_ns
                if start_ns <= wall_ns < end_ns:
                    found.append((chunk.span_id, chunk.bulk, kind, position, payload, wall_ns))
        wanted = [
            entry for entry in self.written if start_ns <= entry[5] < end_ns and (spans is None or entry[0] in spans) and (bulk is None or entry[1] == bulk)
        ]
        assert sorted(found) == sorted(wanted)

    @rule()
    def look_up(self) -> None:
        for span_id, bulk, kind, position, payload, _ in self.written[-3:]:
            chunk = self.reader.chunk_at(span_id, position)
            assert chunk is not None
            assert chunk.bulk == bulk
            assert (kind, position, payload) in list(chunk.frames())

    @invariant()
    def everything_is_there_once_in_order(self) -> None:
        if not hasattr(self, "journal"):
            return
        chunks = self.journal.chunks_after(0, 1 << 30)
        found = [(chunk.span_id, chunk.bulk, *frame, payload_time_ns(frame[2]) + chunk.offset_ns) for chunk in chunks for frame in chunk.frames()]
        assert found == self.written
        assert {row.span_id: row for row in self.reader.rings()} == self.rings
        assert self.journal.cursor("detection") == self.cursor

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.reader.close()
            self.journal.close()
        self.folder.cleanup()


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
