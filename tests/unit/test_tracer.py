"""The tracer: what goes in comes out, whatever it was, and nothing ever comes back at the caller."""

from __future__ import annotations

import datetime
import pathlib
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmtrace.frames import merge_descriptions
from llmtrace.guard import guard
from llmtrace.names import GENERAL, METRIC, SCHEMAS, STEP
from llmtrace.rank.values import clean_attributes, clean_text, clean_value
from llmtrace.ring import RingReader, create_ring
from tests.support.recorder import Recorder

METRIC_SCHEMA = next(schema for schema in SCHEMAS if schema.name == METRIC)


def test_an_event_comes_back_as_it_was_given() -> None:
    recorder = Recorder()
    recorder.tracer.emit("my.event", severity=13, body="text", step=7, duration_ns=5, attributes={"a": 1, "b": 2.5, "c": True, "d": "x", "e": None})
    (record,) = recorder.records()
    assert (record.name, record.kind, record.severity, record.body, record.step, record.duration_ns) == ("my.event", "event", 13, "text", 7, 5)
    assert record.attributes == {"a": 1, "b": 2.5, "c": True, "d": "x"}


@given(
    st.text(alphabet=st.characters(exclude_categories=[])),
    st.dictionaries(st.text(alphabet=st.characters(exclude_categories=[])), st.text(alphabet=st.characters(exclude_categories=[]))),
)
def test_any_text_is_stored_and_has_neither_surrogates_nor_nul(body: str, attributes: dict[str, str]) -> None:
    recorder = Recorder()
    recorder.tracer.emit(body, body=body, attributes=attributes)
    (record,) = recorder.records()
    for text in (record.body or "", record.name, *record.attributes.keys(), *map(str, record.attributes.values())):
        assert "\0" not in text
        text.encode()


def test_a_positional_record_with_a_lone_surrogate_or_a_tensor_is_cleaned_not_lost() -> None:
    recorder = Recorder()
    emit = recorder.tracer.positional(METRIC_SCHEMA)
    emit(1, "loss\udc80", torch.tensor(0.5))
    emit(2, "loss", 1 << 80)
    first, second = recorder.records()
    assert first.attributes == {"llmtrace.metric.name": "loss\\udc80", "llmtrace.metric.value": 0.5}
    assert second.attributes["llmtrace.metric.value"] == str(1 << 80)


@pytest.mark.parametrize("size", [1 << 16, 1 << 20])
def test_a_body_longer_than_a_frame_is_cut_and_says_so(size: int) -> None:
    recorder = Recorder()
    recorder.tracer.emit("long", body="é" * size, attributes={"kept": "whole", "long": "x" * size})
    ((_, payload),) = recorder.frames
    assert len(payload) <= recorder.tracer.cell.frame_cap
    (record,) = recorder.records()
    assert record.attributes["kept"] == "whole"
    assert "cut by llmtrace" in (record.body or "") + str(record.attributes["long"])


@given(st.lists(st.integers(0, 80_000), min_size=1, max_size=6), st.integers(0, 80_000))
def test_whatever_is_long_the_record_fits_into_a_frame(sizes: list[int], body: int) -> None:
    recorder = Recorder()
    recorder.tracer.emit("n", body="b" * body, attributes={f"a{i}": "v" * size for i, size in enumerate(sizes)})
    ((_, payload),) = recorder.frames
    assert len(payload) <= recorder.tracer.cell.frame_cap


class Hostile:
    def __repr__(self) -> str:
        raise AssertionError("described by its own code")

    __str__ = __repr__


class Loud(str):
    def __str__(self) -> str:
        raise AssertionError("described by its own code")


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (torch.tensor(3), 3),
        (torch.tensor([[True]]), True),
        (torch.nn.Parameter(torch.tensor([1.5])), 1.5),
        (torch.zeros(2, 3), "Tensor(shape=[2, 3], dtype=torch.float32, device=cpu)"),
        (torch.zeros((), device="meta"), "Tensor(shape=[], dtype=torch.float32, device=meta)"),
        (torch.tensor(1 + 2j), "(1+2j)"),
        (torch.zeros(3).numpy(), "ndarray(shape=(3,), dtype=float32)"),
        (torch.zeros(3).numpy()[0], 0.0),
        ([1, "a", None], "list(3): 1, a, None"),
        ({"a": [1]}, "dict(1): a: list(1): 1"),
        (pathlib.Path("/a"), "/a"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (b"a\xff\0", "a\\xff\\x00"),
        (1 << 70, str(1 << 70)),
        ((1 << 64) - 1, (1 << 64) - 1),
        (Loud("a"), "a"),
        (None, None),
    ],
)
def test_values_become_numbers_or_words(value: object, stored: object) -> None:
    found = clean_value(value)
    assert found == stored
    assert type(found) in (str, int, float, bool, type(None))


def test_an_object_with_code_of_its_own_is_named_without_running_it() -> None:
    found = clean_attributes({"x": Hostile(), "y": [Hostile()]})
    assert "Hostile" in str(found["x"])
    assert "Hostile" in str(found["y"])


def test_a_device_tensor_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def item(*_: object) -> None:
        raise AssertionError("item() waits for the device")

    monkeypatch.setattr(torch.Tensor, "item", item)
    assert "device=meta" in str(clean_value(torch.zeros(1, device="meta")))


def test_plain_text_is_given_back_as_it_is() -> None:
    text = "plain ünïcode \n \x1b[31m"
    assert clean_text(text) is text


def test_subscribers_hear_each_other_and_one_that_fails_disturbs_nobody() -> None:
    recorder, heard = Recorder(), []
    before = guard.errors.copy()

    def fail(*_: object) -> None:
        raise RuntimeError("ours")

    undo_fail = recorder.tracer.subscribe("topic", fail)
    undo = recorder.tracer.subscribe("topic", lambda *values: heard.append(values))
    recorder.tracer.publish("topic", 1, 2)
    undo()
    undo()
    recorder.tracer.publish("topic", 3)
    undo_fail()
    assert heard == [(1, 2)]
    assert (guard.errors - before).total() == 2


def test_an_error_of_ours_in_emit_is_counted_and_not_raised() -> None:
    recorder = Recorder()
    before = guard.errors.total()
    recorder.tracer.emit("n", attributes=object())  # type: ignore[arg-type]
    assert guard.errors.total() == before + 1


def test_identity_learned_late_reaches_the_stamp_and_later_records_only_once() -> None:
    recorder, heard = Recorder(), []
    recorder.tracer.subscribe("identity", heard.append)
    recorder.tracer.epoch(rank=5, world_size=8)
    recorder.tracer.epoch(rank=5, world_size=8)
    assert recorder.tracer.stamp.rank == "5"
    assert recorder.tracer.identity.world_size == 8
    assert len(heard) == 1


def steps_of(recorder: Recorder) -> list[Any]:
    return recorder.records(STEP)


def test_phases_are_exclusive_and_sum_to_no_more_than_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(10, 10_000, 10))
    monkeypatch.setattr("llmtrace.rank.steps.monotonic_ns", lambda: next(now))
    recorder = Recorder()
    steps = recorder.tracer.steps
    steps.begin()
    steps.enter("forward")
    steps.enter("checkpoint")
    steps.leave()
    steps.leave()
    steps.add("gradient_sync_exposed", 3)
    steps.end(samples=4)
    (record,) = steps_of(recorder)
    found = record.attributes
    assert (found["llmtrace.step.forward_ns"], found["llmtrace.step.checkpoint_ns"], found["llmtrace.step.gradient_sync_exposed_ns"]) == (20, 10, 3)
    assert record.duration_ns == 60  # its beginning is told at once, which takes one more look at the clock
    assert found["llmtrace.step.samples"] == 4
    assert "llmtrace.step.tokens" not in found


def test_steps_count_from_nought_or_as_the_framework_says() -> None:
    recorder = Recorder()
    steps, heard = recorder.tracer.steps, []
    recorder.tracer.on_step(heard.append)
    assert steps.current is None
    steps.begin()
    assert steps.current == 0
    steps.begin()
    steps.end()
    assert steps.current is None
    steps.begin(100)
    steps.end()
    steps.end()
    assert [record.step for record in steps_of(recorder)] == [0, 100, 101] == heard


def test_a_phase_of_the_users_own_is_kept_in_the_step() -> None:
    recorder = Recorder()
    steps = recorder.tracer.steps
    steps.begin()
    steps.enter("augment\ud800")
    steps.leave()
    steps.end()
    (record,) = steps_of(recorder)
    assert record.attributes["llmtrace.step.augment\\ud800_ns"] >= 0
    assert record.kind == "span"


def test_the_stronger_count_takes_over_and_of_equals_the_first_stays() -> None:
    steps = Recorder().tracer.steps
    assert steps.claim("optimizer")
    assert steps.claim("lightning")
    assert not steps.claim("steps")
    assert not steps.claim("optimizer")
    assert steps.driver == "lightning"


def test_phases_of_another_thread_do_not_disturb_the_training_threads() -> None:
    recorder = Recorder()
    steps = recorder.tracer.steps
    steps.begin()
    steps.enter("forward")
    other = threading.Thread(target=lambda: (steps.leave(), steps.enter("x"), steps.end()))
    other.start()
    other.join()
    assert steps.phase == "forward"
    assert not steps_of(recorder)


def test_leaving_more_than_was_entered_does_nothing() -> None:
    steps = Recorder().tracer.steps
    steps.leave()
    steps.enter("forward")
    steps.leave()
    steps.leave()
    assert steps.phase == ""


def test_a_step_is_the_default_of_records_within_it() -> None:
    recorder = Recorder()
    recorder.tracer.steps.begin(3)
    recorder.tracer.emit("a")
    recorder.tracer.emit("b", step=None)
    assert [record.step for record in recorder.records()] == [3, None]


def test_the_hot_emitter_stamps_the_time_of_the_call() -> None:
    recorder = Recorder()
    emit = recorder.tracer.positional(GENERAL)
    emit("n", "event", 9, None, None, None, None, None, None)
    emit("m", "event", 9, None, None, None, None, None, None)
    first, second = recorder.records()
    assert 0 < first.time_ns <= second.time_ns


def test_thousands_of_runs_are_told_apart_in_one_ring(tmp_path: Path) -> None:
    ring = create_ring(rings := Path(tempfile.mkdtemp(dir="/dev/shm")), tmp_path, span_id="a" * 16, wanted_bytes=1 << 20)
    assert ring is not None
    tracer = Recorder().tracer
    tracer.cell.fill(ring)
    tracer.describe_all()
    for run in range(1, 1001):
        tracer.epoch(run=run)
    assert ring.path is not None
    reader = RingReader(ring.path)
    epochs = merge_descriptions(reader.descriptions()).epochs
    reader.close()
    shutil.rmtree(rings)
    assert [epoch.identity.run for epoch in epochs][-1000:] == list(range(1, 1001))
    assert all(epoch.identity.trace_id == tracer.identity.trace_id for epoch in epochs)
