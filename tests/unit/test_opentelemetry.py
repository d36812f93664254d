"""The rank's span as OpenTelemetry's current one: with our ids, under no span of the user's, and gone when tracing ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import context, trace

from llmtrace.rank.instruments.opentelemetry import instrument
from tests.support.recorder import Recorder

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture(autouse=True)
def empty_context() -> Iterator[None]:
    token = context.attach(context.Context())
    yield
    context.detach(token)


def current() -> tuple[str, str]:
    ids = trace.get_current_span().get_span_context()
    return f"{ids.trace_id:032x}", f"{ids.span_id:016x}"


def test_spans_of_the_program_hang_under_the_ranks() -> None:
    recorder = Recorder()
    undo = instrument.install(recorder.tracer)
    identity = recorder.tracer.identity
    assert current() == (identity.trace_id, identity.span_id)
    child = trace.get_tracer("user").start_span("work")
    assert child.get_span_context().trace_id == int(identity.trace_id, 16)
    undo()
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_trace_id_learned_late_is_followed() -> None:
    recorder = Recorder()
    undo = instrument.install(recorder.tracer)
    recorder.tracer.epoch(trace_id=TRACE)
    assert current()[0] == TRACE
    undo()


def test_a_span_of_the_users_stays_the_current_one() -> None:
    recorder = Recorder()
    own = trace.NonRecordingSpan(trace.SpanContext(7, 8, is_remote=False))
    with trace.use_span(own):
        undo = instrument.install(recorder.tracer)
        recorder.tracer.epoch(trace_id=TRACE)
        assert trace.get_current_span() is own
        undo()
        assert trace.get_current_span() is own


def test_a_span_begun_meanwhile_is_not_taken_away() -> None:
    recorder = Recorder()
    undo = instrument.install(recorder.tracer)
    own = trace.NonRecordingSpan(trace.SpanContext(7, 8, is_remote=False))
    with trace.use_span(own):
        undo()
        assert trace.get_current_span() is own
