"""The Lightning callback: made lazily, picklable, for both names of Lightning, and true to the order of Lightning's hooks."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch.optim import optimizer as optimizers

import llmtrace
from llmtrace.guard import guard
from llmtrace.rank import lightning as subject
from llmtrace.rank.instruments import metrics, steps
from tests.support.recorder import Recorder

pytestmark = [pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"), pytest.mark.filterwarnings("ignore::UserWarning")]
"""Lightning's own."""


class Ours(subject.LLMTraceCallback):
    """A user's own class on top of ours, with another signature."""

    def __init__(self, colour: str) -> None:
        super().__init__(team="red")
        self.colour = colour


class Host:
    """Stands in for the runtime's host: one recorder, and what was entered and left."""

    def __init__(self, recorder: Recorder) -> None:
        self.runtime, self.events = SimpleNamespace(tracer=recorder.tracer), []

    def enter(self, settings: dict[str, Any]) -> Any:
        self.events.append(("enter", settings))
        return self.runtime

    def leave(self, runtime: Any, error: BaseException | None, seen_by: str) -> None:
        self.events.append(("leave", error, seen_by))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setattr(guard, "errors", type(guard.errors)())
    found = Recorder()
    found.install(steps.instrument)
    found.install(metrics.instrument)
    monkeypatch.setattr(subject, "host", Host(found))
    hooks = dict(optimizers._global_optimizer_post_hooks)
    yield found
    assert dict(optimizers._global_optimizer_post_hooks) == hooks
    found.close()
    assert not guard.errors


class Model(pl.LightningModule):
    """Phases of known lengths: 20 ms of forward, 30 of backward, 10 of the optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        time.sleep(0.02)
        loss = self.net(batch).square().mean()
        self.log("loss", loss, prog_bar=True)
        self.log("index", float(index), logger=False)
        return loss

    def backward(self, loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        time.sleep(0.03)
        super().backward(loss, *args, **kwargs)

    def validation_step(self, batch: Any, index: int) -> None:
        time.sleep(0.05)
        self.log("val_loss", self.net(batch).square().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return Slow(self.parameters(), lr=0.01)


class Slow(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        loss = closure() if closure is not None else None
        time.sleep(0.01)
        super().step()
        return loss


class Data(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, items: int, delay_s: float = 0.0) -> None:
        self.items, self.delay_s = items, delay_s

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.delay_s)
        return torch.full((4,), index / self.items)


def loader(items: int = 12, delay_s: float = 0.0) -> Any:
    return torch.utils.data.DataLoader(Data(items, delay_s), batch_size=2)


def trainer(tmp_path: Any, *callbacks: Any, **settings: Any) -> pl.Trainer:
    chosen = {"max_epochs": 1, "num_sanity_val_steps": 2, "accelerator": "cpu", "devices": 1} | settings
    silent = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    return pl.Trainer(default_root_dir=tmp_path, callbacks=list(callbacks), **(silent | chosen))


def step_records(recorder: Recorder) -> list[Any]:
    return recorder.records("llmtrace.step")


def milliseconds(record: Any, phase: str) -> float:
    return record.attributes.get(f"llmtrace.step.{phase}_ns", 0) / 1e6


def test_a_fit_is_entered_counted_in_phases_and_left(recorder: Recorder, tmp_path: Any) -> None:
    trainer(tmp_path, llmtrace.LLMTraceCallback(team="blue")).fit(Model(), loader(12, 0.004))
    assert subject.host.events == [("enter", {"team": "blue"}), ("leave", None, "lightning")]  # type: ignore[attr-defined]
    found = step_records(recorder)
    assert [record.step for record in found] == list(range(6))
    assert [record.attributes["llmtrace.step.samples"] for record in found] == [2] * 6
    for record in found[1:]:
        assert milliseconds(record, "forward") >= 20
        assert milliseconds(record, "backward") >= 30
        assert milliseconds(record, "optimizer") >= 10
        assert milliseconds(record, "data_wait") >= 8
        phases = sum(value for name, value in record.attributes.items() if name.endswith("_ns"))
        assert phases <= record.duration_ns


def test_validation_is_a_phase_of_its_own_and_no_wait_for_data(recorder: Recorder, tmp_path: Any) -> None:
    trainer(tmp_path, llmtrace.LLMTraceCallback(), val_check_interval=3).fit(Model(), loader(), loader(4, 0.02))
    found = step_records(recorder)
    assert [record.step for record in found] == list(range(6))
    assert [round(milliseconds(record, "validation")) > 100 for record in found] == [False, False, False, True, False, False]
    assert milliseconds(found[3], "data_wait") < milliseconds(found[3], "validation") / 2


def test_gradient_accumulation_is_one_step_for_each_optimizer_step(recorder: Recorder, tmp_path: Any) -> None:
    trainer(tmp_path, llmtrace.LLMTraceCallback(), accumulate_grad_batches=3).fit(Model(), loader())
    found = step_records(recorder)
    assert [record.step for record in found] == [0, 1]
    assert [record.attributes["llmtrace.step.samples"] for record in found] == [6, 6]
    assert all(milliseconds(record, "forward") >= 60 and milliseconds(record, "backward") >= 90 for record in found)


class Adversarial(Model):
    """Two optimizers by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, index: int) -> None:
        for optimizer in self.optimizers():  # type: ignore[union-attr]
            time.sleep(0.02)
            loss = self.net(batch).square().mean()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [Slow(self.parameters(), lr=0.01), Slow(self.parameters(), lr=0.01)]


def test_manual_optimization_with_two_optimizers_is_one_step_a_batch(recorder: Recorder, tmp_path: Any) -> None:
    trainer(tmp_path, llmtrace.LLMTraceCallback()).fit(Adversarial(), loader())
    found = step_records(recorder)
    assert [record.step for record in found] == list(range(6))
    for record in found[1:]:
        assert milliseconds(record, "forward") >= 40
        assert milliseconds(record, "backward") >= 60
        assert milliseconds(record, "optimizer") >= 20


def test_a_loader_that_is_not_torchs_shows_its_wait(recorder: Recorder, tmp_path: Any) -> None:
    class Lines:
        def __iter__(self) -> Iterator[torch.Tensor]:
            for _ in range(5):
                time.sleep(0.015)
                yield torch.ones(2, 4)

    trainer(tmp_path, llmtrace.LLMTraceCallback()).fit(Model(), Lines())
    waits = [milliseconds(record, "data_wait") for record in step_records(recorder)]
    assert [wait >= 14 for wait in waits[1:4]] == [True] * 3  # Lightning reads one ahead, so the last one waits for nothing


def test_logged_numbers_are_written_once_with_their_step(recorder: Recorder, tmp_path: Any) -> None:
    trainer(tmp_path, llmtrace.LLMTraceCallback()).fit(Model(), loader(), loader(4))
    found = [(r.attributes["llmtrace.metric.name"], r.step, r.attributes["llmtrace.metric.value"]) for r in recorder.records("llmtrace.metric")]
    assert [step for name, step, _ in found if name == "loss"] == list(range(6))
    assert [value for name, _, value in found if name == "index"] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert [step for name, step, _ in found if name == "val_loss"] == [5]
    assert all(isinstance(value, float) for _, _, value in found)


def test_reading_numbers_never_computes_what_lightning_has_not(recorder: Recorder, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning.pytorch.trainer.connectors.logger_connector.logger_connector import _LoggerConnector

    asked: list[str] = []
    for name in ("logged_metrics", "callback_metrics", "progress_bar_metrics"):
        original = getattr(_LoggerConnector, name).fget
        monkeypatch.setattr(_LoggerConnector, name, property(lambda self, name=name, original=original: (asked.append(name), original(self))[1]))
    trainer(tmp_path, llmtrace.LLMTraceCallback()).fit(Model(), loader())
    assert asked == []
    assert recorder.records("llmtrace.metric")


def test_an_exception_ends_the_fit_and_leaves_untouched(recorder: Recorder, tmp_path: Any) -> None:
    class Broken(Model):
        def training_step(self, batch: Any, index: int) -> Any:
            if index == 3:
                raise ValueError("bad batch")
            return super().training_step(batch, index)

    callback = llmtrace.LLMTraceCallback()
    with pytest.raises(ValueError, match="bad batch") as caught:
        trainer(tmp_path, callback).fit(Broken(), loader())
    assert subject.host.events[1:] == [("leave", caught.value, "lightning")]  # type: ignore[attr-defined]
    assert [record.step for record in step_records(recorder)] == [0, 1, 2]
    trainer(tmp_path, callback).fit(Model(), loader(4))  # and the same callback serves the next fit
    assert [event[0] for event in subject.host.events] == ["enter", "leave"] * 2  # type: ignore[attr-defined]


def test_training_is_the_same_with_the_callback(recorder: Recorder, tmp_path: Any) -> None:
    def weights(*callbacks: Any) -> torch.Tensor:
        pl.seed_everything(1, verbose=False)
        model = Model()
        trainer(tmp_path, *callbacks).fit(model, loader(8))
        return model.net.weight.detach().clone()

    assert torch.equal(weights(), weights(llmtrace.LLMTraceCallback()))


def test_evaluation_alone_is_no_fit(recorder: Recorder, tmp_path: Any) -> None:
    trainer(tmp_path, llmtrace.LLMTraceCallback()).validate(Model(), loader(4), verbose=False)
    assert subject.host.events == []  # type: ignore[attr-defined]
    assert recorder.frames == []


def test_a_resumed_fit_goes_on_counting(recorder: Recorder, tmp_path: Any) -> None:
    first = trainer(tmp_path, enable_checkpointing=True)
    first.fit(Model(), loader())
    first.save_checkpoint(tmp_path / "last.ckpt")
    recorder.frames.clear()
    recorder.tracer.steps.reset()  # as another process, or run
    trainer(tmp_path, llmtrace.LLMTraceCallback(), max_epochs=2).fit(Model(), loader(), ckpt_path=tmp_path / "last.ckpt", weights_only=False)
    assert [record.step for record in step_records(recorder)] == list(range(6, 12))


def test_it_is_a_callback_of_lightnings_and_ours() -> None:
    callback = llmtrace.LLMTraceCallback(job="j")
    assert isinstance(callback, pl.Callback)
    assert isinstance(callback, llmtrace.LLMTraceCallback)
    assert type(callback).__name__ == "LLMTraceCallback"


@pytest.mark.parametrize("make", [lambda: llmtrace.LLMTraceCallback(job="j"), lambda: Ours("green")], ids=["ours", "a subclass"])
def test_it_can_be_pickled_and_copied(make: Any) -> None:
    callback = make()
    for twin in (pickle.loads(pickle.dumps(callback)), copy.deepcopy(callback), copy.copy(callback)):
        assert type(twin) is type(callback)
        assert vars(twin) == vars(callback)


def test_a_running_fit_does_not_travel_with_the_callback(recorder: Recorder) -> None:
    callback = llmtrace.LLMTraceCallback()
    callback.setup(None, None, "fit")
    assert callback._fit is not None
    assert pickle.loads(pickle.dumps(callback))._fit is None
    callback._fit.close(None)


@pytest.mark.parametrize(("settings", "message"), [({"colour": 1}, "unknown setting colour"), ({"workload": "rest"}, "workload='rest'")])
def test_settings_that_can_never_be_right_are_refused_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llmtrace.LLMTraceCallback(**settings)


PROGRAMS = {
    "imports nothing of Lightning's by itself": """
import sys, pickle
from llmtrace import LLMTraceCallback
callback = LLMTraceCallback(job="j")
assert not [name for name in sys.modules if "lightning" in name and not name.startswith("llmtrace.")], sys.modules
pickle.dumps(callback)
assert not hasattr(callback, "state_key")
import lightning.pytorch as pl
trainer = pl.Trainer(callbacks=[callback], logger=False, accelerator="cpu", enable_checkpointing=False)
assert isinstance(callback, pl.Callback) and callback in trainer.callbacks
""",
    "serves pytorch_lightning": """
import sys
from llmtrace import LLMTraceCallback
import pytorch_lightning as pl
callback = LLMTraceCallback()
assert isinstance(callback, pl.Callback)
assert "lightning.pytorch" not in sys.modules
pl.Trainer(callbacks=callback, logger=False, accelerator="cpu", enable_checkpointing=False)
""",
    "serves both at once, also the one imported later": """
import pickle, lightning.pytorch
from llmtrace import LLMTraceCallback
first = LLMTraceCallback()
import pytorch_lightning
for callback in (LLMTraceCallback(), pickle.loads(pickle.dumps(first))):
    assert isinstance(callback, pytorch_lightning.Callback) and isinstance(callback, lightning.pytorch.Callback)
""",
}


@pytest.mark.parametrize("fact", PROGRAMS)
def test_the_class(fact: str) -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAMS[fact]], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (torch.ones(3, 2), 3),
        ([torch.ones(5), 1], 5),
        ({"x": {"y": (torch.ones(7, 1),)}}, 7),
        (torch.tensor(1.0), 0),
        ("text", 0),
        (None, 0),
        ([], 0),
        ([[[[torch.ones(2)]]]], 0),
    ],
    ids=str,
)
def test_samples_in_a_batch(batch: Any, samples: int) -> None:
    assert subject.samples_in(batch) == samples
