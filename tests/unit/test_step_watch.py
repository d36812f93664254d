"""A loop that says nothing itself: its steps and phases, as the optimizer, backward and the loader show them."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from llmtrace.guard import guard
from llmtrace.rank.instruments import steps
from tests.support.recorder import Recorder


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setattr(guard, "errors", type(guard.errors)())
    found = Recorder()
    found.install(steps.instrument)
    yield found
    found.close()
    assert not guard.errors


class Words(list[int]):
    """Stands where the ring's two words of progress are, and tells each time that both are written."""

    def __init__(self, told: Callable[[int, int], None]) -> None:
        super().__init__((0, 0))
        self.told = told

    def __setitem__(self, place: Any, word: Any) -> None:
        super().__setitem__(place, word)
        if place == 1:
            self.told((word >> 16) - 1, word & 0xFFFF)


class Slow(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        loss = closure() if closure is not None else None
        time.sleep(0.01)
        super().step()
        return loss


class Data(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.005)
        return torch.full((4,), index / 8)


class SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        time.sleep(0.03)
        return gradient


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 1)


def loss_of(net: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    time.sleep(0.02)
    return SlowBackward.apply(net(batch).square().mean())  # type: ignore[no-any-return]


def loader() -> Any:
    return torch.utils.data.DataLoader(Data(), batch_size=2)


def ms(record: Any) -> dict[str, float]:
    """The phases of a step in milliseconds, of those that took any."""
    return {name.split(".")[2].removesuffix("_ns"): value / 1e6 for name, value in record.attributes.items() if name.endswith("_ns")}


def found(recorder: Recorder) -> list[Any]:
    return recorder.records("llmtrace.step")


def assert_exclusive(records: list[Any]) -> None:
    for record in records:
        assert sum(ms(record).values()) <= record.duration_ns / 1e6 + 0.001, record


def test_a_plain_loop_has_all_four_phases_from_the_first_step_on(recorder: Recorder) -> None:
    net = model()
    optimizer = Slow(net.parameters(), lr=0.01)
    for batch in loader():
        optimizer.zero_grad()
        loss_of(net, batch).backward()
        optimizer.step()
    assert [record.step for record in found(recorder)] == [0, 1, 2, 3]
    for record in found(recorder):
        phases = ms(record)
        assert phases["data_wait"] >= 10
        assert phases["forward"] >= 20
        assert phases["backward"] >= 30
        assert phases["optimizer"] >= 10
    assert_exclusive(found(recorder))


def test_accumulated_micro_batches_are_one_step_and_signs_of_life(recorder: Recorder) -> None:
    backward = recorder.tracer.steps.phase_names()
    seen: list[tuple[int, str]] = []
    recorder.tracer.cell.progress = Words(lambda step, phase: seen.append((step, backward.get(phase, ""))))  # type: ignore[assignment]
    net = model()
    optimizer = Slow(net.parameters(), lr=0.01)
    for place, batch in enumerate(loader()):
        loss_of(net, batch).backward()
        if place % 2:
            optimizer.step()
            optimizer.zero_grad()
    assert [record.step for record in found(recorder)] == [0, 1]
    assert all(ms(record)["forward"] >= 40 and ms(record)["backward"] >= 60 for record in found(recorder))
    assert [step for step, phase in seen if phase == "backward"] == [0, 0, 1, 1]
    assert_exclusive(found(recorder))


@pytest.mark.parametrize("pattern", ["ab", "ba", "aab", "abbb", "ccab"])
def test_of_several_optimizers_the_busiest_counts(recorder: Recorder, pattern: str) -> None:
    net = model()
    optimizers = {name: torch.optim.SGD(net.parameters(), lr=0.01) for name in "abc"}
    turns = 6
    for _ in range(turns):
        for name in pattern:
            loss = net(torch.ones(2, 4)).sum()
            loss.backward()
            optimizers[name].step()
    busiest = max(pattern.count(name) for name in pattern)
    assert turns * busiest - 2 <= len(found(recorder)) <= turns * busiest + 1
    assert [record.step for record in found(recorder)] == list(range(len(found(recorder))))


def test_an_optimizer_for_each_parameter_is_one_step_a_turn(recorder: Recorder) -> None:
    net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(5)))
    each = [torch.optim.SGD([parameter], lr=0.01) for parameter in net.parameters()]
    for _ in range(3):
        net(torch.ones(1, 4)).sum().backward()
        for optimizer in each:
            optimizer.step()
    assert [record.step for record in found(recorder)] == [0, 1, 2]


def test_a_second_training_with_another_optimizer_goes_on_counting(recorder: Recorder) -> None:
    for _ in range(2):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(3):
            net(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        del optimizer, net
        gc.collect()
    assert [record.step for record in found(recorder)] == list(range(6))


def test_an_optimizer_that_steps_through_another_is_one_step(recorder: Recorder) -> None:
    class Around(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            super().__init__([torch.nn.Parameter(torch.ones(1))], {})
            self.inner = inner

        def step(self, closure: Any = None) -> Any:
            return self.inner.step()

    net = model()
    torch.optim.SGD(net.parameters(), lr=0.01)  # from now on SGD.step itself calls hooks
    around = Around(Slow(net.parameters(), lr=0.01))
    for _ in range(3):
        net(torch.ones(2, 4)).sum().backward()
        around.step()
    assert [record.step for record in found(recorder)] == [0, 1, 2]


@pytest.mark.parametrize("kind", ["sgd", "lbfgs"])
def test_a_closures_forward_and_backward_are_no_optimizer_time(recorder: Recorder, kind: str) -> None:
    net = model()
    optimizer = Slow(net.parameters(), lr=0.01) if kind == "sgd" else torch.optim.LBFGS(net.parameters(), max_iter=3)
    batch = torch.ones(2, 4)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    assert [record.step for record in found(recorder)] == [0, 1, 2]
    for record in found(recorder)[1:]:
        phases = ms(record)
        assert phases["forward"] >= 20
        assert phases["backward"] >= 30
        assert kind == "lbfgs" or phases["optimizer"] >= 10
    assert_exclusive(found(recorder)[1:])


def test_the_users_exceptions_leave_every_phase_closed(recorder: Recorder) -> None:
    class Breaks(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            raise ValueError("mine")

    class BadData(Data):
        def __getitem__(self, index: int) -> torch.Tensor:
            raise KeyError("no file")

    net = model()
    with pytest.raises(KeyError, match="no file"):
        next(iter(torch.utils.data.DataLoader(BadData(), batch_size=2)))
    with pytest.raises(RuntimeError):
        torch.ones(1).sum().backward()
    assert recorder.tracer.steps.phase == ""
    with pytest.raises(ValueError, match="mine"):
        Breaks(net.parameters(), lr=0.01).step()
    assert recorder.tracer.steps.phase == "optimizer"  # where it stands while the exception travels
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert recorder.tracer.steps.phase == ""
    assert len(found(recorder)) == 1


def test_a_loader_read_ahead_by_another_thread_is_no_wait_of_the_loops(recorder: Recorder) -> None:
    batches: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: batches.extend(loader()))
    thread.start()
    thread.join()
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for batch in batches:
        net(batch).sum().backward()
        optimizer.step()
    assert len(found(recorder)) == 4
    assert all("data_wait" not in ms(record) for record in found(recorder))


def test_training_in_another_thread_is_counted(recorder: Recorder) -> None:
    def train() -> None:
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for batch in loader():
            net(batch).sum().backward()
            optimizer.step()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert [record.step for record in found(recorder)] == [0, 1, 2, 3]
    assert all(ms(record)["data_wait"] >= 10 for record in found(recorder)[1:])


def test_evaluation_between_two_steps_is_neither_waiting_nor_a_step(recorder: Recorder) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for turn in range(3):
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        if turn == 1:
            with torch.no_grad():
                for batch in loader():
                    net(batch)
    assert len(found(recorder)) == 3
    assert all("data_wait" not in ms(record) for record in found(recorder))


def test_a_phase_of_the_users_is_not_counted_to_forward_too(recorder: Recorder) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for batch in loader():
        recorder.tracer.steps.enter("augment")
        time.sleep(0.02)
        recorder.tracer.steps.leave()
        net(batch).sum().backward()
        optimizer.step()
    for record in found(recorder)[1:]:
        assert ms(record)["augment"] >= 20
    assert_exclusive(found(recorder))


@pytest.mark.parametrize("driver", ["steps", "lightning"])
def test_while_another_counts_the_optimizer_does_not(recorder: Recorder, driver: str) -> None:
    recorder.tracer.steps.claim(driver)
    net = model()
    optimizer = Slow(net.parameters(), lr=0.01)
    for _ in range(2):
        recorder.tracer.steps.begin()
        for batch in loader():
            loss_of(net, batch).backward()
            optimizer.step()
        recorder.tracer.steps.end()
    first, second = found(recorder)
    assert (first.step, second.step) == (0, 1)
    assert ms(second)["data_wait"] >= 40
    assert ("backward" in ms(second)) is (driver == "steps")


def test_ddp_shows_its_own_forward(recorder: Recorder, tmp_path: Any) -> None:
    import sys

    hook = sys.excepthook
    torch.distributed.init_process_group("gloo", init_method=(tmp_path / "store").as_uri(), rank=0, world_size=1)
    try:
        net = torch.nn.parallel.DistributedDataParallel(model())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(3):
            loss = net(torch.ones(2, 4)).sum()
            time.sleep(0.03)  # not forward: DDP says where that is
            loss.backward()
            optimizer.step()
    finally:
        torch.distributed.destroy_process_group()
        sys.excepthook = hook
    for record in found(recorder):
        assert 0 < ms(record)["forward"] < record.duration_ns / 1e6 - 30


def test_where_the_program_is_shows_in_the_ring(recorder: Recorder) -> None:
    seen: list[tuple[int, int]] = []
    recorder.tracer.cell.progress = Words(lambda step, phase: seen.append((step, phase)))  # type: ignore[assignment]
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for batch in loader():
        net(batch).sum().backward()
        optimizer.step()
    assert {step for step, _ in seen} >= {0, 1, 2, 3}
    assert {phase for _, phase in seen} >= {0, 1, 3, 4}
