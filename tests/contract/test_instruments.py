"""What every instrument promises: it works, its undo leaves everything as found, it can be installed again, and its errors stay its own."""

from __future__ import annotations

import faulthandler
import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import torch
from opentelemetry import trace
from torch.optim import optimizer as optimizers
from torch.utils.data import dataloader

import llmtrace.rank.instruments as package
from llmtrace.guard import guard
from llmtrace.rank import patches
from llmtrace.rank.instruments import failures
from tests.support.recorder import Recorder

NAMES = sorted(path.stem for path in Path(package.__file__).parent.glob("*.py") if path.stem != "__init__")


def instrument(name: str) -> Any:
    return importlib.import_module(f"llmtrace.rank.instruments.{name}").instrument


def train(steps: int = 3, seed: int = 0) -> list[float]:
    """A small loop with everything in it that an instrument watches; gives the losses."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses: list[float] = []
    for batch in dataloader.DataLoader(torch.arange(steps * 32, dtype=torch.float32).reshape(-1, 8) / 100, batch_size=4, shuffle=True):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        logging.getLogger("contract").warning("loss %.3f", losses[-1])
        structlog.get_logger().info("stepped", loss=losses[-1])
    return losses


def fail(recorder: Recorder) -> None:
    """An exception that ends a program, as the interpreter hands it over."""
    try:
        torch.empty(1 << 50, dtype=torch.uint8)
    except RuntimeError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    recorder.tracer.publish("metric", "accuracy", torch.tensor(0.5), 2)


def globals_touched() -> dict[str, object]:
    """Everything in the process that any instrument changes, by identity."""
    seams = {seam.path: vars(owner)[name] for seam in patches.SEAMS for owner, name in [seam._owner()] if owner is not None}
    base: Any = structlog._base.BoundLoggerBase
    return seams | {
        "callHandlers": logging.Logger.__dict__["callHandlers"],
        "record factory": logging.getLogRecordFactory(),
        "root handlers": tuple(logging.root.handlers),
        "excepthook": sys.excepthook,
        "thread hook": threading.excepthook,
        "process event": vars(base)["_process_event"],
        "proxy": vars(base)["_proxy_to_logger"],
        "optimizer hooks": (tuple(optimizers._global_optimizer_pre_hooks.values()), tuple(optimizers._global_optimizer_post_hooks.values())),
        "descriptors of ours": [target for target in open_files() if target.endswith(("/statm", ".fatal"))],
        "current span": trace.get_current_span(),
        "faulthandler": faulthandler.is_enabled(),
        "threads": threading.active_count(),
        "signal handlers": tuple(__import__("signal").getsignal(number) for number in (2, 15)),
    }


def open_files() -> list[str]:
    found: list[str] = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:  # the listing's own
            continue
    return found


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)  # pytest's run is no place for a traceback on stderr
    monkeypatch.setattr(guard, "errors", type(guard.errors)())
    monkeypatch.setattr(structlog.PrintLogger, "msg", lambda self, message: None)
    monkeypatch.setattr(structlog.PrintLogger, "info", lambda self, message: None)
    found = Recorder()
    yield found
    found.close()


EXPECTED: dict[str, Callable[[Recorder], bool]] = {
    "logs": lambda r: [x.body for x in r.records("llmtrace.log") if x.attributes["log.logger"] == "contract"] == [f"loss {v:.3f}" for v in train_losses],
    "structlog": lambda r: [x.attributes["loss"] for x in r.records("llmtrace.log") if x.body == "stepped"] == train_losses,
    "steps": lambda r: [x.step for x in r.records("llmtrace.step")] == [0, 1, 2],
    "failures": lambda r: [x.attributes["exception.type"] for x in r.records("llmtrace.failure")] == ["RuntimeError"],
    "memory": lambda r: len(r.records("llmtrace.memory")) == 1 and int(r.records("llmtrace.memory")[0].attributes["llmtrace.memory.rss_bytes"]) > 1 << 20,
    "metrics": lambda r: [(x.step, x.attributes["llmtrace.metric.value"]) for x in r.records("llmtrace.metric")] == [(2, 0.5)],
    "oom": lambda r: [x.attributes["llmtrace.oom.size_bytes"] for x in r.records("llmtrace.oom")] == [1 << 50],
    "opentelemetry": lambda r: trace.get_current_span().get_span_context().span_id == int(r.tracer.identity.span_id, 16),
    "distributed": lambda r: r.tracer.identity.world_size == 1 and r.tracer.identity.rank == 0,
}
train_losses: list[float] = []
NEEDS = {"memory": ["steps"], "oom": ["failures"]}


def exercise(recorder: Recorder, name: str, port_file: Path) -> None:
    recorder.frames.clear()
    train_losses[:] = train()
    fail(recorder)
    if name == "distributed":
        hook = sys.excepthook  # torch puts its own before it, and leaves it there
        torch.distributed.init_process_group("gloo", init_method=port_file.as_uri(), rank=0, world_size=1)
        torch.distributed.destroy_process_group()
        sys.excepthook = hook


def test_every_instrument_has_a_check_here() -> None:
    assert sorted(EXPECTED) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_instrument_works_undoes_and_works_again(name: str, recorder: Recorder, tmp_path: Path) -> None:
    train()  # what torch, structlog and logging set up at the first use is not ours
    found = globals_touched()
    for attempt in range(2):
        recorder.tracer.steps.reset()
        undos = [recorder.install(instrument(needed)) for needed in (*NEEDS.get(name, ()), name)]
        exercise(recorder, name, tmp_path / f"store{attempt}")
        assert EXPECTED[name](recorder), [(x.name, x.step, x.body, x.attributes) for x in recorder.records()]
        for undo in reversed(undos):
            undo()
        assert globals_touched() == found
        exercise(recorder, "", tmp_path)
        assert recorder.records() == []
    assert not guard.errors


@pytest.mark.parametrize("name", NAMES)
def test_undo_may_be_called_twice(name: str, recorder: Recorder) -> None:
    found = globals_touched()
    undo = recorder.install(instrument(name))
    undo()
    undo()
    assert globals_touched() == found


def test_losses_are_bit_identical_with_all_instruments_on(recorder: Recorder) -> None:
    before = train(10)
    for name in NAMES:
        recorder.install(instrument(name))
    during = train(10)
    recorder.close()
    assert before == during == train(10)
    assert len(recorder.records("llmtrace.step")) == 10


def test_a_failing_ring_is_not_the_users_problem(recorder: Recorder) -> None:
    expected = train()

    def refuse(kind: int, payload: bytes) -> None:
        raise OSError("no ring")

    for name in NAMES:
        recorder.install(instrument(name))
    recorder.tracer.cell.append = refuse
    assert train() == expected
    fail(recorder)
    assert guard.errors


def test_instruments_are_undone_in_any_order(recorder: Recorder) -> None:
    found = globals_touched()
    undos = [recorder.install(instrument(name)) for name in NAMES]
    for undo in undos:
        undo()
    assert globals_touched() == found


def test_failures_is_what_the_traced_function_reports_through(recorder: Recorder) -> None:
    error = ValueError("once")
    failures.report(recorder.tracer, error, "trace")
    failures.report(recorder.tracer, error, "excepthook")
    assert [x.attributes["llmtrace.failure.seen_by"] for x in recorder.records("llmtrace.failure")] == ["trace"]
