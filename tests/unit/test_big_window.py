"""The page's figures hold for the window that they name: its size, its sums, and one verdict."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.big_window import big_window
from llmtrace.names import FAILURE, LOG, MEMORY, METRIC, PHASES, STEP, phase_attribute

SECOND_NS = 1_000_000_000


def test_it_has_what_it_says() -> None:
    found = big_window(ranks=16, seconds=6, steps_per_second=10, lines=500)
    names = Counter(record.name for record in found.records)
    assert names[LOG] == 500
    assert names[STEP] == 16 * 60
    assert names[MEMORY] == 16 * 6
    assert names[METRIC] == 3 * 16 * 6
    assert [process.identity.rank for process in found.processes] == list(range(16))
    assert Counter(process.identity.node for process in found.processes) == {"node-000": 8, "node-001": 8}


def test_two_are_alike() -> None:
    assert big_window(ranks=9, seconds=2, lines=300) == big_window(ranks=9, seconds=2, lines=300)


def test_phases_sum_to_the_step() -> None:
    for record in big_window(ranks=9, seconds=6, lines=100).records:
        if record.name == STEP:
            phases = [record.attributes.get(phase_attribute(phase), 0) for phase in PHASES]
            assert sum(map(int, phases)) == record.duration_ns and min(map(int, phases)) >= 0


def test_records_are_unique_in_order_and_in_the_window() -> None:
    found = big_window(ranks=9, seconds=3, lines=300)
    times = [record.time_ns for record in found.records]
    assert times == sorted(times)
    assert found.window.start_ns <= times[0] and times[-1] < found.window.end_ns
    assert len({record.id for record in found.records}) == len(times)


@pytest.mark.parametrize(("ranks", "culprit"), [(1, 0), (2, 1), (64, 37)])
def test_one_rank_is_to_blame_and_the_others_follow(ranks: int, culprit: int) -> None:
    found = big_window(ranks=ranks, seconds=1, lines=200)
    assert found.incident is not None
    assert found.incident.culprit.rank == culprit
    assert found.incident.category == "gpu_oom"
    assert found.incident.symptoms == [rank for rank in range(ranks) if rank != culprit]
    first = next(record for record in found.records if record.name == FAILURE)
    assert first.identity.rank == culprit
    assert abs(found.incident.onset_ns - first.time_ns) < SECOND_NS // 100


def test_lines_are_as_hostile_as_real_ones() -> None:
    bodies = [record.body or "" for record in big_window(ranks=8, seconds=1, lines=5000).records if record.name == LOG]
    for sign in ("</script>", "\x1b[33m", "检查点", "Traceback (most recent call last)"):
        assert any(sign in body for body in bodies), sign
