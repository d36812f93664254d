"""Agreement through torch's own stores: one trace id over all ranks and restarts, one attempt a start, and never a wait."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import torch.distributed as dist

from llmtrace.rank import agreement
from llmtrace.rank.agreement import Arrival, agree_attempt, agree_trace, base_store, span_before
from llmtrace.record import Identity
from tests.support.recorder import Recorder

SECOND = 1_000_000_000
TRACES = [f"{number:032x}" for number in range(1, 5)]


@pytest.fixture(params=["hash", "tcp"])
def store(request: pytest.FixtureRequest) -> Any:
    if request.param == "hash":
        return dist.HashStore()
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=5))


def arrival(rank: int, started_ns: int, boot: str = "b", wall_ns: int | None = None) -> Arrival:
    return Arrival(who=str(rank), key="k", boot=boot, started_since_boot_ns=started_ns, started_wall_ns=started_ns if wall_ns is None else wall_ns)


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def test_the_first_proposal_is_everybodys_trace(store: Any) -> None:
    assert [agree_trace(store, trace) for trace in TRACES] == [TRACES[0]] * 4


def test_a_store_that_holds_something_else_gives_no_trace(store: Any) -> None:
    store.set(agreement.TRACE_KEY, "nonsense")
    assert agree_trace(store, TRACES[0]) == ""


def test_the_prefixes_of_a_start_are_taken_off(store: Any) -> None:
    wrapped = dist.PrefixStore("a", dist.PrefixStore("b", store))
    assert base_store(wrapped) is not None
    assert agree_trace(base_store(wrapped), TRACES[0]) == agree_trace(store, TRACES[1]) == TRACES[0]


def test_one_attempt_for_the_ranks_of_a_start_and_another_at_the_next(store: Any) -> None:
    first_start = now_ns()
    first = [agree_attempt(store, arrival(rank, first_start), f"first-{rank}") for rank in range(3)]
    second_start = now_ns()
    second = [agree_attempt(store, arrival(rank, second_start), f"second-{rank}") for rank in (2, 0, 1)]
    assert first == ["first-0"] * 3
    assert second == ["second-2"] * 3


def test_a_rank_that_missed_the_first_start_does_not_join_it_at_the_second(store: Any) -> None:
    first = agree_attempt(store, arrival(0, now_ns()), "first")
    start = now_ns()
    assert [agree_attempt(store, arrival(rank, start), f"second-{rank}") for rank in (1, 0)] == ["second-1"] * 2
    assert first == "first"


def test_other_machines_join_by_wall_clock_with_some_tolerance(store: Any) -> None:
    announced = agree_attempt(store, arrival(0, now_ns()), "one")
    wall = time.time_ns()
    assert agree_attempt(store, arrival(1, 5, "other boot", wall + SECOND), "two") == announced
    assert agree_attempt(store, arrival(2, 5, "other boot", wall + 60 * SECOND), "three") == "three"


def test_a_rank_that_is_in_a_start_already_is_in_the_next_one_however_the_clocks_stand(store: Any) -> None:
    wall = time.time_ns() - 3600 * SECOND
    assert agree_attempt(store, arrival(1, 5, "x", wall), "one") == "one"
    assert agree_attempt(store, arrival(1, 5, "x", wall), "two") == "two"


def test_a_restarted_rank_learns_the_span_it_had_before(store: Any) -> None:
    first, second = (Identity(span_id=span * 16, rank=1) for span in "ab")
    assert span_before(store, first, "t") == ""
    assert span_before(store, second, "t") == "a" * 16
    assert span_before(store, Identity(span_id="c" * 16, rank=0), "t") == ""


class World:
    """Stands for torch's module state: one rank of a group of two over a given store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Any, rank: int, size: int = 2) -> None:
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        monkeypatch.setattr(dist, "get_rank", lambda: rank)
        monkeypatch.setattr(dist, "get_world_size", lambda: size)
        monkeypatch.setattr(agreement, "default_store", lambda: dist.PrefixStore("default_pg", store))


def unknown(recorder: Recorder, **facts: Any) -> None:
    recorder.tracer.identity = msgspec.structs.replace(recorder.tracer.identity, **({"trace_id": "", "rank": None, "attempt": ""} | facts))


def test_a_rank_learns_all_from_its_group_and_only_once(monkeypatch: pytest.MonkeyPatch, store: Any) -> None:
    found = []
    for rank in range(2):
        recorder = Recorder()
        unknown(recorder)
        World(monkeypatch, store, rank)
        agreement.agree(recorder.tracer)
        before = recorder.tracer.identity
        agreement.agree(recorder.tracer)
        assert recorder.tracer.identity == before
        found.append(before)
    assert [identity.rank for identity in found] == [0, 1]
    assert {identity.world_size for identity in found} == {2}
    assert found[0].trace_id == found[1].trace_id != ""
    assert found[0].attempt == found[1].attempt != ""
    assert found[0].parent_span_id == found[1].parent_span_id != ""


def test_an_id_from_the_environment_is_not_asked_for(monkeypatch: pytest.MonkeyPatch, store: Any) -> None:
    recorder = Recorder(trace_id=TRACES[2])
    unknown(recorder)
    store.set(agreement.TRACE_KEY, TRACES[0])
    World(monkeypatch, store, 0)
    agreement.agree(recorder.tracer)
    assert recorder.tracer.identity.trace_id == TRACES[2]


def test_a_store_that_fails_leaves_the_facts_unknown_and_training_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    unknown(recorder)
    World(monkeypatch, dist.Store(), 1)
    agreement.agree(recorder.tracer)
    assert (recorder.tracer.identity.trace_id, recorder.tracer.identity.rank) == ("", 1)


def test_a_worker_of_a_rank_stays_one_whatever_group_it_makes(monkeypatch: pytest.MonkeyPatch, store: Any) -> None:
    recorder = Recorder()
    unknown(recorder, role="worker", rank=3)
    World(monkeypatch, store, 0)
    agreement.agree(recorder.tracer)
    assert (recorder.tracer.identity.role, recorder.tracer.identity.rank) == ("worker", 3)


def test_a_forked_child_of_a_launcher_that_joins_a_group_is_a_rank(monkeypatch: pytest.MonkeyPatch, store: Any) -> None:
    recorder = Recorder()
    unknown(recorder, role="worker")
    World(monkeypatch, store, 1)
    agreement.agree(recorder.tracer)
    assert (recorder.tracer.identity.role, recorder.tracer.identity.rank) == ("rank", 1)


def test_without_a_group_nothing_is_learned() -> None:
    recorder = Recorder()
    unknown(recorder)
    agreement.agree(recorder.tracer)
    assert recorder.tracer.identity.rank is None
