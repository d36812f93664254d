"""What diagnosis says is no more than is on record: of memory that was refused, of ends that were felt before they were seen, of signals."""

from __future__ import annotations

import msgspec
import pytest

from llmtrace import names
from llmtrace.diagnose import Verdict, diagnose
from llmtrace.diagnose.shortage import grown, too_large
from llmtrace.record import Record, Value
from tests.support.cases import death, failure, lost_peer, ns, process, shortage, who

MIB, GIB = 1 << 20, 1 << 30


def refused(device: str, **sizes: Value) -> Record:
    record = shortage(who(1), 100, device)
    attributes = {names.OOM_DEVICE: device, **{f"llmtrace.oom.{name}_bytes": value for name, value in sizes.items()}}
    return msgspec.structs.replace(record, attributes=attributes)


def verdict_of(records: list[Record], *processes: object) -> Verdict:
    found = diagnose(records, list(processes) or [process(0), process(1, "raised", 1, 101)], ns(200))  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("device", "sizes", "said"),
    [
        ("cpu", {"size": 1 << 50, "free": 20 * GIB}, "one request of 1.0 PiB could not be met: 20.0 GiB was free"),
        ("cuda:0", {"size": 2 * GIB, "free": 300 * MIB, "limit": 80 * GIB}, "one request of 2.0 GiB could not be met: 300.0 MiB was free"),
        ("cgroup", {"size": 9 * GIB, "limit": 8 * GIB}, "one request of 9.0 GiB could not be met: the limit is 8.0 GiB"),
        ("cuda:0", {"size": 20 * MIB, "free": 300 * MIB}, "a request of 20.0 MiB could not be met though 300.0 MiB was free: fragments, or a limit"),
        ("cuda:3", {"size": 20 * MIB}, "a request of 20.0 MiB was refused by the allocator of cuda:3"),
        ("cpu", {"size": 20 * MIB}, "a request of 20.0 MiB was refused by the allocator of the host"),
        ("cpu", {"size": float("inf"), "free": float("nan")}, "the allocator of the host refused a request"),
        ("cpu", {}, "the allocator of the host refused a request"),
    ],
)
def test_a_refusal_is_told_by_its_numbers(device: str, sizes: dict[str, Value], said: str) -> None:
    assert verdict_of([refused(device, **sizes)]).reason == said


@pytest.mark.parametrize(
    ("sizes", "large", "small"),
    [
        ({"size": 1 << 50, "free": 20 * GIB, "rss": 850 * MIB}, True, False),
        ({"size": 81 * GIB, "limit": 80 * GIB, "allocated": 70 * GIB}, True, False),
        ({"size": 2 * GIB, "free": 1 * GIB, "rss": 3 * GIB}, False, False),
        ({"size": 20 * MIB, "free": 10 * MIB, "allocated": 70 * GIB, "limit": 80 * GIB}, False, True),
        ({"size": 20 * MIB}, False, False),
        ({"free": 10 * MIB}, False, False),
    ],
)
def test_one_request_that_nothing_could_meet_and_a_growth_are_told_apart(sizes: dict[str, Value], large: bool, small: bool) -> None:
    record = refused("cpu", **sizes)
    assert (too_large(record), grown(record)) == (large, small)
    assert ("asked for too much host memory" in verdict_of([record]).summary) is large


def test_an_end_that_was_felt_before_it_was_recorded_is_no_then() -> None:
    found = verdict_of([lost_peer(0, 100), death(who(1), 100.003, 7)], process(0), process(1, "exited", 7, 100.003))
    assert (found.culprit.rank, found.onset_ns) == (1, ns(100))
    assert found.summary == "rank 1 exited with code 7 in step 40 (forward), without an exception; rank 0 lost its peer 3 ms before that end was recorded"
    assert "then" in verdict_of([lost_peer(0, 100.003), death(who(1), 100, 7)], process(0), process(1, "exited", 7, 100)).summary


def test_a_symptom_before_an_exception_is_no_then() -> None:
    found = verdict_of([lost_peer(0, 99.9), failure(who(1), 100, "ValueError", "x")], process(0), process(1))
    assert found.summary.endswith("rank 0 lost its peer")


def test_who_sent_a_kill_is_not_guessed() -> None:
    found = verdict_of([death(who(1), 100, -9), lost_peer(0, 100.1)], process(0), process(1, "killed", -9, 100))
    assert "outside" not in found.reason
    assert found.reason.startswith("who sent SIGKILL is on no record")
