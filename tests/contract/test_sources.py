"""What every source promises, whatever store is behind it; each is asked the same of the same small job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmtrace.record import Kind, Record, Window
from llmtrace.sources.base import Source
from tests.support.cases import TRACE, ns
from tests.support.small_job import OTHER, RECORDS, WHOLE, journal, two_journals


@pytest.fixture(params=[journal, two_journals], ids=["journal", "merged"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
    build: Callable[[Path], Source] = request.param
    opened = build(tmp_path)
    yield opened
    opened.close()


def told(records: list[Record]) -> list[tuple[int, str, str | None, int | None]]:
    return sorted((r.time_ns, r.name, r.body, r.identity.rank) for r in records)


def test_what_was_written_is_read_once_and_in_order_of_time(source: Source) -> None:
    found = source.records(TRACE, WHOLE)
    wanted = [r for r in RECORDS if r.identity.trace_id == TRACE]
    assert told([r for r in found if r.name != "llmtrace.incident"]) == told(wanted)
    assert [r.time_ns for r in found] == sorted(r.time_ns for r in found)
    assert len({r.id for r in found}) == len(found)


def test_every_fact_of_a_record_survives(source: Source) -> None:
    original = RECORDS[160]
    found = next(r for r in source.records(TRACE, WHOLE) if r.name == original.name and r.identity.rank == 1)
    assert (found.severity, found.body, found.step, found.kind) == (original.severity, original.body, original.step, original.kind)
    assert found.attributes == original.attributes
    assert (found.identity.trace_id, found.identity.node, found.identity.attempt, found.span_id) == (TRACE, "b", "1", original.identity.span_id)


def test_a_window_holds_its_start_and_not_its_end(source: Source) -> None:
    found = source.records(TRACE, Window(ns(65), ns(66)))
    assert {(r.body, r.step) for r in found} == {("step 5 marker-0", 5), ("step 5 marker-1", 5), (None, 5)}
    assert source.records(TRACE, Window(ns(66), ns(66))) == []
    assert source.records(TRACE, Window(ns(500), ns(600))) == []


@pytest.mark.parametrize("kinds", [("log",), ("span",), ("event",), ("log", "span"), ("sample",), ()])
def test_kinds_select(source: Source, kinds: tuple[Kind, ...]) -> None:
    found = [r for r in source.records(TRACE, WHOLE, kinds=kinds) if r.name != "llmtrace.incident"]
    assert len(found) == sum(r.kind in kinds and r.identity.trace_id == TRACE for r in RECORDS)
    assert {r.kind for r in found} <= set(kinds)


def test_a_rank_selects(source: Source) -> None:
    found = source.records(TRACE, WHOLE, rank=1)
    assert {r.identity.rank for r in found} == {1}
    assert source.records(TRACE, WHOLE, rank=7) == []


def test_jobs_do_not_mix(source: Source) -> None:
    assert [r.body for r in source.records(OTHER, WHOLE)] == ["another job"]
    assert source.records("0" * 32, WHOLE) == []
    assert {p.identity.trace_id for p in source.processes()} == {TRACE, OTHER}


def test_processes_tell_how_they_ended(source: Source) -> None:
    found = {p.identity.rank: p for p in source.processes(TRACE)}
    assert (found[0].ending, found[0].exit_code, found[0].ended_ns) == ("killed", -15, ns(101.3))
    assert (found[1].ending, found[1].last_step, found[1].phase, found[1].identity.node) == ("raised", 40, "forward", "b")


def test_incidents_are_found_by_trace(source: Source) -> None:
    (found,) = source.incidents(TRACE)
    assert (found.id, found.culprit.rank, found.category, found.onset_ns) == ("1nc1dent0001", 1, "program_error", ns(100))
    assert source.incidents() == [found]
    assert source.incidents(OTHER) == []


def test_the_newest_time_is_the_last_record_of_the_trace(source: Source) -> None:
    assert ns(101) <= (source.last_time_ns(TRACE) or 0) <= ns(101.3)
    assert source.last_time_ns(OTHER) == ns(70)
    assert source.last_time_ns("0" * 32) is None


def test_nothing_is_missing(source: Source) -> None:
    assert source.drops() == {}
