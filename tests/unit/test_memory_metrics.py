"""Memory samples once a second, and the user's numbers without waiting for a device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from llmtrace.clock import monotonic_ns
from llmtrace.guard import guard
from llmtrace.rank.instruments import memory, metrics
from tests.support.recorder import Recorder


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setattr(guard, "errors", type(guard.errors)())
    found = Recorder()
    yield found
    found.close()
    assert not guard.errors


def values(recorder: Recorder) -> list[tuple[object, ...]]:
    return [(r.step, r.attributes["llmtrace.metric.name"], r.attributes["llmtrace.metric.value"]) for r in recorder.records("llmtrace.metric")]


def test_memory_is_sampled_once_a_second_however_fast_the_steps(recorder: Recorder) -> None:
    now = 1_000_000_000_000
    recorder.install(memory.instrument)
    for step in range(50):
        recorder.tracer.step_done(step, now)
        now += 100_000_000
    assert [record.step for record in recorder.records("llmtrace.memory")] == [0, 10, 20, 30, 40]


def test_the_resident_size_is_this_processs_after_a_fork_too() -> None:
    resident = memory.Resident()
    held = torch.ones(50 << 20, dtype=torch.uint8)
    before = resident.read()
    assert before is not None
    assert before > held.nbytes
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(writer, str(resident._pid == os.getppid() and resident.read() is not None and resident._pid == os.getpid()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        assert answer.read() == "True"
    resident.close()
    resident.close()


def test_the_allocators_statistics_are_read_only_where_cuda_is_in_use(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.cuda_statistics() == {} or torch.cuda.is_initialized()
    statistics = {"allocated_bytes.all.current": 5, "reserved_bytes.all.current": 7, "allocated_bytes.all.peak": 6, "num_alloc_retries": 1}
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(is_initialized=lambda: True, memory_stats=lambda: statistics))
    memory.Sampler(recorder.tracer).sample(3)
    found = recorder.records("llmtrace.memory")[0].attributes
    assert [found[f"llmtrace.memory.{name}"] for name in ("allocated_bytes", "reserved_bytes", "peak_bytes", "retries")] == [5, 7, 6, 1]


def test_numbers_of_every_kind_and_nothing_else(recorder: Recorder) -> None:
    recorder.install(metrics.instrument)
    for name, value in {
        "int": 3,
        "float": 0.5,
        "bool": True,
        "tensor": torch.tensor([2.5]),
        "nan": float("nan"),
        "text": "x",
        "many": torch.ones(3),
        "none": None,
    }.items():
        recorder.tracer.publish("metric", name, value, 7)
    found = values(recorder)
    assert [name for _, name, _ in found] == ["int", "float", "bool", "tensor", "nan"]
    assert [value for _, _, value in found[:4]] == [3, 0.5, True, 2.5]
    assert {step for step, _, _ in found} == {7}


class Device:
    """A device that is late: a copy has arrived when `done` is set. Whoever asks for the number itself waits, and fails."""

    def __init__(self, value: float) -> None:
        self.value, self.done = value, False
        self.is_cpu, self.shape, self.device = False, (1,), SimpleNamespace(type="cuda")

    def numel(self) -> int:
        return 1

    def detach(self) -> Device:
        return self

    def to(self, where: str, *, non_blocking: bool) -> Any:
        assert (where, non_blocking) == ("cpu", True)
        return SimpleNamespace(item=lambda: self.value if self.done else pytest.fail("waited for the device"))


def test_a_number_on_a_device_is_written_when_its_copy_has_arrived(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Device(0.25), Device(0.75)
    events = iter([first, second])

    class Event:
        def __init__(self) -> None:
            self.of = next(events)

        def record(self, stream: object) -> None:
            return None

        def query(self) -> bool:
            return self.of.done

    monkeypatch.setattr(torch, "cuda", SimpleNamespace(Event=Event, current_stream=lambda device: None))
    recorder.install(metrics.instrument)
    recorder.tracer.publish("metric", "loss", first, 1)
    recorder.tracer.publish("metric", "loss", second, 2)
    recorder.tracer.step_done(2, monotonic_ns())
    assert values(recorder) == []
    first.done = True
    recorder.tracer.step_done(3, monotonic_ns())
    assert values(recorder) == [(1, "loss", 0.25)]
    second.done = True
    recorder.tracer.step_done(4, monotonic_ns())
    assert values(recorder) == [(1, "loss", 0.25), (2, "loss", 0.75)]


def test_copies_that_never_arrive_are_bounded(recorder: Recorder) -> None:
    numbers = metrics.Numbers(recorder.tracer)
    for number in range(1000):
        numbers.pending.append((number, "x", None, None))
    assert len(numbers.pending) == metrics.MOST_PENDING
