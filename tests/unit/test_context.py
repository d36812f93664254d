"""The window that a person asks for: by incident, by trace, by the beginning of either; of what is over and of what still runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtrace.record import Window
from llmtrace.sources.context import context
from llmtrace.sources.journal import JournalSource
from llmtrace.sources.merged import Merged
from tests.support.cases import TRACE, line, ns, process, seconds, who
from tests.support.journals import write
from tests.support.small_job import OTHER, PROCESSES, RECORDS, incident, journal, two_journals


def test_an_incident_is_shown_with_its_window_and_everybody(tmp_path: Path) -> None:
    found = context(journal(tmp_path), "1nc1dent0001")
    assert found.incident is not None and found.incident.id == "1nc1dent0001"
    assert (seconds(found.window.start_ns), seconds(found.window.end_ns)) == (70, pytest.approx(105.1))
    assert {r.identity.rank for r in found.records} == {0, 1}
    assert [p.identity.rank for p in found.processes] == [0, 1]
    assert {r.identity.trace_id for r in found.records} == {found.trace_id} == {TRACE}


@pytest.mark.parametrize("key", ["1nc", "1NC1DENT", "5a5a", TRACE, TRACE.upper(), f" {TRACE} "])
def test_the_beginning_of_an_id_is_enough(tmp_path: Path, key: str) -> None:
    assert context(journal(tmp_path), key).trace_id == TRACE


def test_an_incident_of_two_nodes_is_found_by_either_id(tmp_path: Path) -> None:
    first = write(
        tmp_path / "a", [r for r in RECORDS if r.identity.node == "a"], PROCESSES[:1], [incident("aaaa", 100.1, category="peer_loss", role="symptom")]
    )
    second = write(tmp_path / "b", [r for r in RECORDS if r.identity.node == "b"], PROCESSES[1:], [incident("bbbb", 100)])
    both = Merged([JournalSource(first), JournalSource(second)])
    assert context(both, "aaaa").incident == context(both, "bbbb").incident
    assert context(both, "aa").incident == context(both, "bb").incident


@pytest.mark.parametrize(
    ("key", "words"),
    [("zz", ["nothing is called 'zz'", "1 incident (1nc1dent0001)", "2 traces", TRACE]), ("", ["nothing is called ''"]), ("f" * 32, ["1 incident"])],
)
def test_an_unknown_id_says_what_there_is(tmp_path: Path, key: str, words: list[str]) -> None:
    with pytest.raises(LookupError) as raised:
        context(journal(tmp_path), key)
    assert all(word in str(raised.value) for word in words)
    assert "\n" not in str(raised.value)


def test_a_beginning_of_several_ids_says_which(tmp_path: Path) -> None:
    source = JournalSource(write(tmp_path, RECORDS, PROCESSES, [incident("abc111"), incident("abc222", 50)]))
    with pytest.raises(LookupError, match="begins more than one id: abc111, abc222"):
        context(source, "abc")
    assert context(source, "abc1").incident.id == "abc111"  # type: ignore[union-attr]


def test_an_empty_journal_says_so(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no run and no incident"):
        context(JournalSource(write(tmp_path, [])), "abc")


def test_a_running_job_is_shown_up_to_its_newest_record(tmp_path: Path) -> None:
    records = [line(who(r), 10 + n, f"line {n} of {r}", severity=9) for n in range(100) for r in (0, 1)]
    found = context(JournalSource(write(tmp_path, records, [process(0), process(1)])), TRACE)
    assert found.incident is None
    assert (seconds(found.window.start_ns), seconds(found.window.end_ns)) == (pytest.approx(74), pytest.approx(109))
    assert [r.body for r in found.records][-2:] == ["line 99 of 0", "line 99 of 1"]
    assert len(found.records) == 2 * 35
    assert [p.identity.rank for p in found.processes] == [0, 1]


def test_a_trace_with_an_incident_in_the_window_tells_of_it(tmp_path: Path) -> None:
    found = context(journal(tmp_path), TRACE)
    assert found.incident is not None
    assert context(journal(tmp_path / "again"), TRACE, at_ns=ns(62)).incident is None


def test_a_time_and_a_width_select(tmp_path: Path) -> None:
    source = two_journals(tmp_path)
    found = context(source, TRACE, at_ns=ns(70), before_ns=2_000_000_000, after_ns=1_000_000_000, kinds=("log",), rank=1)
    assert found.window == Window(ns(68), ns(71))
    assert [r.body for r in found.records] == ["step 8 marker-1", "step 9 marker-1", "step 10 marker-1"]
    wide = context(source, "1nc", before_ns=60_000_000_000, after_ns=0)
    assert (seconds(wide.window.start_ns), seconds(wide.window.end_ns)) == (40, pytest.approx(100.1))


def test_processes_of_other_times_are_left_out(tmp_path: Path) -> None:
    old = process(0, "clean", 0, 5, span="0ld" + "0" * 13)
    early = process(3, "killed", -9, 20, span="ea" * 8)
    records = [line(who(0), 100, "now", severity=9), line(who(1, trace=OTHER, span="9" * 16), 100, "other", severity=9)]
    source = JournalSource(write(tmp_path, records, [process(0), old, early], [incident()]))
    assert {p.identity.span_id for p in context(source, TRACE, at_ns=ns(100)).processes} >= {who(0).span_id}
    quiet = context(source, TRACE, at_ns=ns(60), before_ns=1_000_000_000, after_ns=1_000_000_000)
    assert [p.identity.span_id for p in quiet.processes] == [who(0).span_id]
