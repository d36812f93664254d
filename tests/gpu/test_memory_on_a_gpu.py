"""Memory on a real device: the allocator's statistics, an out-of-memory error's evidence, and numbers that are fetched without waiting."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch

from llmtrace.guard import guard
from llmtrace.names import OOM_DEVICE, OOM_LIMIT, OOM_SIZE
from llmtrace.rank.instruments import failures, memory, metrics, oom, steps
from tests.support.recorder import Recorder


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    monkeypatch.setattr(guard, "errors", type(guard.errors)())
    torch.zeros(1, device="cuda")
    found = Recorder()
    yield found
    found.close()
    assert not guard.errors


def train(count: int) -> None:
    model = torch.nn.Linear(256, 256, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(count):
        model(torch.ones(64, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_the_sample_holds_the_allocators_figures(recorder: Recorder) -> None:
    recorder.install(steps.instrument)
    recorder.install(memory.instrument)
    train(3)
    found = recorder.records("llmtrace.memory")[0].attributes
    assert 0 < int(found["llmtrace.memory.allocated_bytes"]) <= int(found["llmtrace.memory.peak_bytes"])
    assert int(found["llmtrace.memory.reserved_bytes"]) >= int(found["llmtrace.memory.allocated_bytes"])


def test_an_out_of_memory_error_leaves_its_evidence(recorder: Recorder) -> None:
    for instrument in (steps.instrument, oom.instrument, failures.instrument):
        recorder.install(instrument)
    train(2)
    asked = torch.cuda.get_device_properties(0).total_memory * 4
    try:
        torch.empty(asked, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    told = recorder.records("llmtrace.oom")
    assert {record.attributes[OOM_DEVICE] for record in told} == {"cuda:0"}
    assert any(abs(int(record.attributes[OOM_SIZE]) / asked - 1) < 0.01 for record in told)
    assert any(int(record.attributes.get(OOM_LIMIT, 0)) > 1 << 30 for record in told)
    assert [record.attributes["exception.type"] for record in recorder.records("llmtrace.failure")] == ["torch.OutOfMemoryError"]


def test_a_number_on_the_device_arrives_at_a_later_step_and_nothing_waits(recorder: Recorder) -> None:
    recorder.install(steps.instrument)
    recorder.install(metrics.instrument)
    recorder.tracer.publish("metric", "loss", torch.tensor(0.25, device="cuda"), 0)
    assert recorder.records("llmtrace.metric") == []
    torch.cuda.synchronize()
    train(2)
    assert [record.attributes["llmtrace.metric.value"] for record in recorder.records("llmtrace.metric")] == [0.25]
