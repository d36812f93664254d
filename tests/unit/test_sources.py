"""Journals of one and of several nodes: identities learned late, damage, jobs that ended unseen, cascades over nodes; and runs."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtrace import clock, names
from llmtrace.directory import AgentLock, Directory
from llmtrace.frames import Decoder, Description, Epoch, encode, known_schemas
from llmtrace.guard import guard
from llmtrace.journal import Journal
from llmtrace.names import Schema
from llmtrace.record import INFO, Culprit, Identity, Process, Record, Window
from llmtrace.sources.journal import JournalSource
from llmtrace.sources.merged import Merged, cascades, combined
from llmtrace.sources.open import open_source
from llmtrace.sources.runs import runs
from llmtrace.unpacker import RECORD_FIELDS
from tests.support.cases import TRACE, death, ended, event, failure, line, lost_peer, ns, process, step, who
from tests.support.journals import OFFSET_NS, frame, row, write
from tests.support.small_job import incident

WHOLE = Window(ns(0), ns(1000))


def open_writer(path: Path) -> Journal:
    path.mkdir(parents=True, exist_ok=True)
    return Journal.open(path / "journal.1.sqlite", max_bytes=1 << 30, max_age_s=1e9)


# One journal.


def test_what_a_ring_learned_late_is_filled_in_before_it(tmp_path: Path) -> None:
    early = Identity(span_id="1" * 16, launch="L", pid=7)
    late = msgspec.structs.replace(early, trace_id=TRACE, rank=3, attempt="a1", node="n")
    before, after = line(early, 1, "before", severity=INFO), line(late, 5, "after", severity=INFO)
    source = JournalSource(write(tmp_path, [before, after], [Process(identity=late, started_ns=ns(0), last_ns=ns(5))]))
    found = source.records(TRACE, WHOLE, rank=3)
    assert [(r.body, r.identity.trace_id, r.identity.rank, r.identity.attempt) for r in found] == [("before", TRACE, 3, "a1"), ("after", TRACE, 3, "a1")]


def test_a_rank_that_died_before_it_knew_its_trace_has_its_siblings(tmp_path: Path) -> None:
    lost = Identity(span_id="1" * 16, launch="L", rank=1)
    knows = Identity(span_id="2" * 16, launch="L", rank=0, trace_id=TRACE, attempt="a1", job="demo")
    source = JournalSource(write(tmp_path, [line(lost, 1, "early end"), line(knows, 1, "lives")]))
    assert {r.body for r in source.records(TRACE, WHOLE)} == {"early end", "lives"}
    assert {(p.identity.rank, p.identity.attempt, p.identity.job) for p in source.processes(TRACE)} == {(0, "a1", "demo"), (1, "a1", "demo")}


def test_the_reader_sees_what_is_written_after_it_was_opened(tmp_path: Path) -> None:
    journal = open_writer(tmp_path)
    source = JournalSource(tmp_path)
    assert source.processes() == []
    alone = process(0)
    with journal.transaction() as transaction:
        transaction.put_ring(row(alone, []))
        transaction.append(alone.identity.span_id, [frame(line(alone.identity, 1, "first"), 0)], OFFSET_NS, bulk=False)
    assert [r.body for r in source.records(TRACE, WHOLE)] == ["first"]
    with journal.transaction() as transaction:
        transaction.append(alone.identity.span_id, [frame(line(alone.identity, 2, "second"), 100)], OFFSET_NS, bulk=False)
    assert [r.body for r in source.records(TRACE, WHOLE)] == ["first", "second"]
    journal.close()


def test_lines_of_a_schema_of_another_version_are_read_as_far_as_it_goes(tmp_path: Path) -> None:
    ident = who(0)
    description = known_schemas()
    description.schemas.append(names.Schema(77, "llmtrace.future", "event", ("severity", "body", "llmtrace.future.thing")))
    description.epochs.append(Epoch(0, ident))
    decoder = Decoder(description)
    short, long = encode([5, 9, "short"]), encode([6, 9, "long", "thing", "more than this version knows"])
    found = decoder.records([(77, 0, short), (77, 20, long), (99, 40, short)], 1000)
    assert [(r.time_ns, r.name, r.kind, r.body, r.attributes) for r in found] == [
        (1005, "llmtrace.future", "event", "short", {}),
        (1006, "llmtrace.future", "event", "long", {"llmtrace.future.thing": "thing"}),
    ]


def test_a_ring_whose_description_is_damaged_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    journal = open_writer(tmp_path)
    alone = process(0)
    died = death(alone.identity, 2, -9)
    with journal.transaction() as transaction:
        transaction.put_ring(msgspec.structs.replace(row(alone, []), description=[b"\xff\xff"]))
        transaction.append(alone.identity.span_id, [frame(line(alone.identity, 1, "unnamed"), 0), frame(died, 100)], OFFSET_NS, bulk=False)
    journal.close()
    source = JournalSource(tmp_path)
    assert [r.name for r in source.records(TRACE, WHOLE)] == [names.PROCESS]
    assert [p.identity.rank for p in source.processes(TRACE)] == [0]
    assert any("cannot be read" in warning for warning in guard.warnings)


def test_frames_that_are_no_records_cost_only_themselves_and_are_counted(tmp_path: Path) -> None:
    journal = open_writer(tmp_path)
    alone = process(0)
    good = frame(line(alone.identity, 1, "good"), 0)
    with journal.transaction() as transaction:
        transaction.put_ring(row(alone, []))
        bad = (2, 200, encode([ns(2) - OFFSET_NS, 9, "x"])[:-1] + b"\xc1\xc1")
        transaction.append(alone.identity.span_id, [good, bad, frame(line(alone.identity, 3, "also good"), 400)], OFFSET_NS, bulk=False)
    journal.close()
    source = JournalSource(tmp_path)
    assert [r.body for r in source.records(TRACE, WHOLE)] == ["good", "also good"]
    assert source.drops() == {"undecodable": 1}


def test_what_was_overwritten_is_counted_as_lost(tmp_path: Path) -> None:
    journal = open_writer(tmp_path)
    with journal.transaction() as transaction:
        transaction.put_ring(msgspec.structs.replace(row(process(0), []), lost=17))
        transaction.count_drop("age", 3)
    journal.close()
    assert JournalSource(tmp_path).drops() == {"age": 3, "overwritten": 17}


def test_a_clock_that_was_set_back_does_not_hide_the_newest(tmp_path: Path) -> None:
    journal = open_writer(tmp_path)
    alone = process(0, at=None)
    with journal.transaction() as transaction:
        transaction.put_ring(msgspec.structs.replace(row(alone, []), last_ns=ns(3600)))
        transaction.append(alone.identity.span_id, [frame(line(alone.identity, 3600, "before"), 0)], OFFSET_NS, bulk=False)
        transaction.append(alone.identity.span_id, [frame(line(alone.identity, 5, "after"), 500)], OFFSET_NS, bulk=False)
    journal.close()
    assert JournalSource(tmp_path).last_time_ns(TRACE) == ns(5)


def test_a_process_that_went_while_no_agent_was_there_is_not_running(tmp_path: Path) -> None:
    pid = os.getpid()
    ticks = clock.process_start_ticks(pid) or 0
    places = {0: (clock.boot_id(), ticks), 1: (clock.boot_id(), ticks + 1), 2: ("another machine", ticks + 1)}
    journal = open_writer(tmp_path)
    with journal.transaction() as transaction:
        for rank, (boot, start) in places.items():
            transaction.put_ring(msgspec.structs.replace(row(process(rank), []), boot_id=boot, pid=pid, start_ticks=start))
    journal.close()
    found = {p.identity.rank: (p.ending, p.ended_ns) for p in JournalSource(tmp_path).processes()}
    assert found == {0: ("running", None), 1: ("unknown", ns(100)), 2: ("running", None)}


def test_while_an_agent_is_there_it_is_believed(tmp_path: Path) -> None:
    write(tmp_path, [], [process(0)])
    journal = open_writer(tmp_path)
    with journal.transaction() as transaction:
        transaction.put_ring(msgspec.structs.replace(row(process(0), []), boot_id=clock.boot_id(), pid=1 << 22, start_ticks=1))
    journal.close()
    lock = AgentLock(Directory(path=tmp_path, rings=tmp_path, registry=tmp_path / "rings"))
    assert lock.acquire()
    code = "import sys, pathlib, llmtrace.sources.journal as j; print(j.JournalSource(pathlib.Path(sys.argv[1])).processes()[0].ending)"
    endings = []
    for release in (lambda: None, lock.release):
        release()
        endings.append(subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60).stdout.strip())
    assert endings == ["running", "unknown"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([schema for schema in names.SCHEMAS if schema.name]),
            st.integers(0, 1 << 62),
            st.lists(st.none() | st.integers(-(1 << 60), 1 << 60) | st.text(max_size=5), max_size=15),
        )
    )
)
def test_the_decoder_agrees_with_the_schemas_word_for_word(rows: list[tuple[names.Schema, int, list[object]]]) -> None:
    description = Description(schemas=list(names.SCHEMAS), epochs=[Epoch(0, who(0)), Epoch(1 << 61, who(1))])
    rows = [
        (schema, time, [v if field not in ("attributes",) else None for field, v in zip(schema.fields, values, strict=False)]) for schema, time, values in rows
    ]
    frames = [(schema.id, position, encode([time, *values])) for position, (schema, time, values) in enumerate(rows)]
    found = Decoder(description).records(frames, 7)
    for (schema, time, values), record in zip(rows, found, strict=True):
        told = {field: value for field, value in zip(schema.fields, values, strict=False) if value is not None}
        own = {"severity", "body", "step", "duration_ns", "attributes"}
        assert record.attributes == {field: value for field, value in told.items() if field not in own}
        assert (record.time_ns, record.name, record.kind) == (time + 7, schema.name, schema.kind)
        assert (record.severity, record.body, record.step) == (told.get("severity", INFO), told.get("body"), told.get("step"))
        assert record.identity.rank == (time >= 1 << 61)


def test_kinds_that_lie_mixed_come_in_the_order_of_their_ring_each_with_its_own_identity() -> None:
    description = Description(schemas=[*names.SCHEMAS, Schema(300, "no byte", "event", ())], epochs=[Epoch(0, who(0)), Epoch(50, who(1))])
    kinds = [5, 5, 3, 99, 5, 2, 5, 1, 3, 5]  # 99 was never named
    values = {5: [7, "loss", 0.5], 3: [10, 7], 99: [1], 2: [9, "line", 7], 1: ["my.event", "event"]}
    for first in (0, 45, 100):  # before, across and after the change
        frames = [(kind, 64 * place, encode([first + place, *values[kind]])) for place, kind in enumerate(kinds)]
        found = Decoder(description).records(frames, 1000)
        assert [record.time_ns - 1000 - first for record in found] == [place for place, kind in enumerate(kinds) if kind != 99]
        assert [record.id for record in found] == [f"{who(0).span_id}-{64 * place:x}" for place, kind in enumerate(kinds) if kind != 99]
        assert [record.name for record in found] == [{5: names.METRIC, 3: names.STEP, 2: names.LOG, 1: "my.event"}[kind] for kind in kinds if kind != 99]
        assert [record.identity.rank for record in found] == [int(record.time_ns >= 1050) for record in found]
        assert found == [record for frame in frames for record in Decoder(description).records([frame], 1000)]


def test_a_record_read_is_an_ordinary_record(tmp_path: Path) -> None:
    source = JournalSource(write(tmp_path, [line(who(0), 1, "one"), step(who(0), 2, 7)]))
    found = source.records(TRACE, WHOLE)
    for record in found:
        assert type(record) is Record
        assert record == Record(**msgspec.structs.asdict(record))
        assert msgspec.structs.replace(record, body="other") != record
        assert msgspec.json.decode(msgspec.json.encode(record), type=Record) == record
        assert pickle.loads(pickle.dumps(record)) == record
        with pytest.raises(AttributeError):
            record.body = "changed"  # type: ignore[misc]


# Several journals.


def two_nodes(tmp_path: Path, second_incident: float = 100.1, attempt: str = "1") -> Merged:
    cause, symptom = failure(who(1, "b"), 100, "ValueError", "the cause"), lost_peer(0, 100.1, node="a")
    here = incident(
        "aaaa", second_incident, category="peer_loss", role="symptom", culprit=Culprit(rank=0, node="a"), summary="rank 0 lost its peer", attempt=attempt
    )
    there = incident("bbbb", 100)
    first = write(tmp_path / "a", [symptom], [process(0, "killed", -15, 101.3, node="a")], [here])
    second = write(tmp_path / "b", [cause], [process(1, "raised", 1, 101, node="b")], [there])
    return Merged([JournalSource(first), JournalSource(second)])


def test_incidents_of_two_nodes_whose_windows_overlap_are_one_judged_over_both(tmp_path: Path) -> None:
    (found,) = two_nodes(tmp_path).incidents()
    assert (found.id, found.merged) == ("bbbb", ["aaaa"])
    assert (found.category, found.role, found.culprit) == ("program_error", "root_cause", Culprit(rank=1, node="b"))
    assert found.symptoms == [0]
    assert found.summary == "rank 1 on b failed in step 40 (forward): ValueError: the cause; rank 0 then lost its peer"
    assert (found.window.start_ns, found.window.end_ns) == (ns(70), ns(105.2))
    assert found.detected_ns == ns(100.1)


def test_a_symptom_that_one_node_saw_is_explained_by_what_the_other_wrote(tmp_path: Path) -> None:
    here = incident("aaaa", 100.1, category="peer_loss", role="symptom", culprit=Culprit(), summary="rank 0 lost its peer")
    first = write(tmp_path / "a", [lost_peer(0, 100.1, node="a")], [process(0, "killed", -15, 101.3, node="a")], [here])
    second = write(tmp_path / "b", [death(who(1, "b"), 100, -9)], [process(1, "killed", -9, 100, node="b")])
    (found,) = Merged([JournalSource(first), JournalSource(second)]).incidents()
    assert (found.id, found.category, found.culprit) == ("aaaa", "process_death", Culprit(rank=1, node="b"))


def test_incidents_far_apart_or_of_another_attempt_stay_apart(tmp_path: Path) -> None:
    assert len(two_nodes(tmp_path / "far", second_incident=300).incidents()) == 2
    assert len(two_nodes(tmp_path / "attempt", attempt="2").incidents()) == 2


def test_two_incidents_of_one_node_are_two_however_near() -> None:
    near = [(0, incident("a1", 100)), (1, incident("b1", 100.2)), (0, incident("a2", 115)), (1, incident("b2", 115.1))]
    assert [[i.id for _, i in group] for group in cascades(near)] == [["a1", "b1"], ["a2", "b2"]]


def test_links_of_all_nodes_stay_and_the_earliest_incidents_own_come_first() -> None:
    nodes = [
        incident("b", 100, links={"page": "file:///b", "kibana": None}),
        incident("a", 100.1, links={"page": "file:///a", "kibana": "http://k"}, merged=["z"]),
    ]
    whole = combined(nodes, None)
    assert whole.links == {"page": "file:///b", "kibana": "http://k"}
    assert whole.merged == ["a", "z"]


def test_what_all_nodes_find_to_be_nothing_keeps_what_was_told_first(tmp_path: Path) -> None:
    first = write(tmp_path / "a", [], [process(0, "clean", 0, 101, node="a")], [incident("aaaa", 100)])
    second = write(tmp_path / "b", [], [process(1, "clean", 0, 101, node="b")])
    (found,) = Merged([JournalSource(first), JournalSource(second)]).incidents()
    assert (found.category, found.summary) == ("program_error", "rank 1 failed")


def test_a_journal_named_twice_is_read_once(tmp_path: Path) -> None:
    path = write(tmp_path, [line(who(0), 1, "one")], [process(0)], [incident()])
    both = Merged([JournalSource(path), JournalSource(path)])
    assert len(both.processes()) == len(both.incidents()) == 1
    assert len([r for r in both.records(TRACE, WHOLE) if r.kind == "log"]) == 1


# Opening.


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLMTRACE_DIR", str(tmp_path / "default"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("settings")
def test_directories_that_are_named_are_read_as_one(tmp_path: Path) -> None:
    write(tmp_path / "default", [line(who(5), 1, "default")])
    for rank, name in enumerate(("a", "b")):
        write(tmp_path / name, [line(who(rank, name), 1, name)])
    source = open_source([str(tmp_path / "a"), str(tmp_path / "b")])
    assert [r.body for r in source.records(TRACE, WHOLE)] == ["a", "b"]
    assert [r.body for r in open_source().records(TRACE, WHOLE)] == ["default"]


@pytest.mark.usefixtures("settings")
def test_where_there_is_no_journal_the_sentence_names_the_place(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no journal in LLMTRACE_DIR"):
        open_source()
    with pytest.raises(LookupError, match="nowhere"):
        open_source([str(tmp_path / "nowhere")])
    with pytest.raises(ValueError, match="allowed: journal"):
        open_source(kind="loki")


@pytest.mark.usefixtures("settings")
def test_one_of_several_that_cannot_be_read_is_named_and_left_out(tmp_path: Path) -> None:
    good = write(tmp_path / "good", [line(who(0), 1, "good")])
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "journal.1.sqlite").write_bytes(b"no database at all" * 100)
    source = open_source([str(good), str(tmp_path / "bad"), str(tmp_path / "missing")])
    assert [r.body for r in source.records(TRACE, WHOLE)] == ["good"]
    assert sum(str(tmp_path / name) in warning for name in ("bad", "missing") for warning in guard.warnings) == 2


# Runs.


def run_rows(tmp_path: Path, records: list[Record], processes: list[Process]) -> list[tuple[str, int, str, int, int | None]]:
    found = runs(JournalSource(write(tmp_path, records, processes)))
    return [(run.attempt, run.run, run.state, run.ranks, run.last_step) for run in found]


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        ([("clean", 0), ("clean", None)], "finished"),
        ([("running", None), ("running", None)], "running"),
        ([("running", None), ("killed", -9)], "failed"),
        ([("clean", 0), ("unknown", None)], "lost"),
        ([("exited", 0), ("clean", 0)], "finished"),
        ([("exited", 3), ("clean", 0)], "failed"),
        ([("raised", 1), ("killed", -15)], "failed"),
    ],
)
def test_a_run_is_what_its_ranks_are(tmp_path: Path, ends: list[tuple[str, int | None]], state: str) -> None:
    processes = [process(r, ending, code, 100, step=40 + r) for r, (ending, code) in enumerate(ends)]  # type: ignore[arg-type]
    assert run_rows(tmp_path, [], processes) == [("1", 1, state, 2, 41)]


def test_a_run_names_its_job_and_nodes_and_times(tmp_path: Path) -> None:
    (found,) = runs(JournalSource(write(tmp_path, [], [process(0, "clean", 0, 90, node="b"), process(1, "clean", 0, 95, node="a")])))
    assert (found.trace_id, found.job, found.nodes, found.started_ns, found.ended_ns) == (TRACE, "demo", ["a", "b"], ns(0), ns(95))


def test_workers_are_no_ranks(tmp_path: Path) -> None:
    worker = process(0, "killed", -9, 50, span="f" * 16, role="worker")
    assert run_rows(tmp_path, [], [process(0, "clean", 0, 100), process(1, "clean", 0, 100), worker]) == [("1", 1, "finished", 2, 40)]


def test_attempts_of_one_trace_are_rows_of_their_own(tmp_path: Path) -> None:
    second = msgspec.structs.replace(process(0, "clean", 0, 200, span="2" * 16), started_ns=ns(120))
    second = msgspec.structs.replace(second, identity=msgspec.structs.replace(second.identity, attempt="2"))
    assert run_rows(tmp_path, [], [process(0, "raised", 1, 100), second]) == [("1", 1, "failed", 1, 40), ("2", 1, "finished", 1, 40)]


def started(identity: Identity, at: float) -> Record:
    return event(identity, at, names.PROCESS, "", INFO, None, {names.PROCESS_ACTION: "started"})


def test_several_runs_of_one_process_are_rows_of_their_own(tmp_path: Path) -> None:
    records = [
        started(who(0, run=1), 1), ended(who(0, run=1), 10, "raised"), started(who(0, run=2), 11), ended(who(0, run=2), 20), started(who(0, run=3), 21),
        *(step(who(0, run=3), 22 + n, n) for n in range(3)),
    ]  # fmt: skip
    assert run_rows(tmp_path, records, [process(0, run=3, at=None, step=3)]) == [
        ("1", 1, "failed", 1, None),
        ("1", 2, "finished", 1, None),
        ("1", 3, "running", 1, 3),
    ]


def test_a_run_that_ended_in_a_process_that_lives_on_is_finished(tmp_path: Path) -> None:
    rows = run_rows(tmp_path, [started(who(0), 1), ended(who(0), 99)], [process(0, at=None)])
    assert rows == [("1", 1, "finished", 1, 40)]


SECOND_NS = 1_000_000_000


@pytest.mark.parametrize("set_ns", [-20 * SECOND_NS, 3600 * SECOND_NS], ids=["back", "forth"])
def test_a_clock_that_was_set_hides_nothing_and_disorders_nothing(tmp_path: Path, set_ns: int) -> None:
    path, began_ns, turned = tmp_path / "set", 1_000 * SECOND_NS, 45
    ring = row(process(0), [])
    journal = open_writer(path)
    with journal.transaction() as transaction:
        transaction.put_ring(ring)
        for second in range(60):
            times = [began_ns + second * SECOND_NS + n for n in range(3)]
            lines = [(2, second * 1000 + n, encode([at, INFO, f"{second}.{n}"])) for n, at in enumerate(times)]
            transaction.append(ring.span_id, lines, OFFSET_NS + (set_ns if second >= turned else 0), bulk=False)
    journal.close()
    source = JournalSource(path)
    end_ns = OFFSET_NS + set_ns + began_ns + 60 * SECOND_NS
    found = source.records(TRACE, Window(end_ns - 30 * SECOND_NS, end_ns))
    source.close()
    assert [record.body for record in found] == [f"{second}.{n}" for second in range(30, 60) for n in range(3)]
    assert all(end_ns - 30 * SECOND_NS <= record.time_ns < end_ns for record in found)


FIELDS = st.lists(st.one_of(st.sampled_from(["step", "body", "severity", "name"]), st.text(max_size=12)), max_size=12)


@given(fields=FIELDS, surplus=st.integers(-3, 3))
def test_any_schema_that_a_ring_names_is_read_and_none_runs_as_code(fields: list[str], surplus: int) -> None:
    fields = [*fields, "x'] = __import__('os').abort() #", "\ud800", "a\nb"]
    written = list(range(1, len(fields) + 1 + surplus))
    decoder = Decoder(Description(schemas=[Schema(77, "odd'\n", "sample", tuple(fields))], epochs=[Epoch(0, who(0))]))
    (record,) = decoder.records([(77, 0, encode([5, *written]))], 10)
    values = dict(zip(fields, [*written, None, None, None], strict=False))
    assert record.time_ns == 15
    assert record.attributes == {field: value for field, value in values.items() if field not in RECORD_FIELDS and value is not None}
