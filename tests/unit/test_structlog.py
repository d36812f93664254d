"""structlog: every event stamped and captured once, wherever its output goes."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from llmtrace.guard import guard
from llmtrace.rank.instruments import logs
from llmtrace.rank.instruments import structlog as instrument
from llmtrace.record import DEBUG, ERROR, INFO, WARN
from tests.support.recorder import SPAN, TRACE, Recorder


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setattr(guard, "errors", type(guard.errors)())
    found = Recorder()
    found.install(logs.instrument)
    found.install(instrument.instrument)
    yield found
    found.close()
    structlog.reset_defaults()
    assert not guard.errors


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


def configure(output: io.StringIO, *processors: Any, **settings: Any) -> Any:
    structlog.configure(
        processors=[*processors, structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(output),
        cache_logger_on_first_use=False,
        **settings,
    )
    return structlog.get_logger()


def written(output: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def bodies(recorder: Recorder) -> list[str | None]:
    return [record.body for record in recorder.records("llmtrace.log")]


def test_an_event_is_stamped_in_the_users_output_and_captured_with_its_fields(recorder: Recorder, output: io.StringIO) -> None:
    recorder.tracer.steps.begin(4)
    with structlog.contextvars.bound_contextvars(experiment="e7"):
        configure(output).bind(shard=2).warning("loss jumped", loss=1.5)
    assert written(output) == [{"shard": 2, "loss": 1.5, "trace_id": TRACE, "span_id": SPAN, "rank": "3", "event": "loss jumped"}]
    (record,) = recorder.records("llmtrace.log")
    assert (record.body, record.severity, record.step) == ("loss jumped", WARN, 4)
    assert (record.attributes["shard"], record.attributes["loss"]) == (2, 1.5)
    assert record.attributes["code.file.path"] == __file__
    assert record.attributes["experiment"] == "e7"
    assert "trace_id" not in record.attributes


def test_what_the_user_has_bound_under_our_names_stays(recorder: Recorder, output: io.StringIO) -> None:
    configure(output).bind(rank=99).info("x", trace_id="theirs")
    assert (written(output)[0]["rank"], written(output)[0]["trace_id"]) == (99, "theirs")


@pytest.mark.parametrize(
    ("method", "severity"), [("debug", DEBUG), ("info", INFO), ("warning", WARN), ("error", ERROR), ("exception", ERROR), ("critical", 21)]
)
def test_methods_become_severities(recorder: Recorder, output: io.StringIO, method: str, severity: int) -> None:
    getattr(configure(output), method)("x")
    assert [record.severity for record in recorder.records("llmtrace.log")] == [severity]


def test_dropped_events_are_not_captured(recorder: Recorder, output: io.StringIO) -> None:
    def drop(logger: Any, method: str, event: Any) -> Any:
        raise structlog.DropEvent

    log = configure(output, wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    log.info("below the level")
    configure(output, drop).warning("dropped")
    assert (bodies(recorder), output.getvalue()) == ([], "")


def test_a_failing_processor_is_the_users_and_passes(recorder: Recorder, output: io.StringIO) -> None:
    def fail(logger: Any, method: str, event: Any) -> Any:
        raise ZeroDivisionError

    log = configure(output, fail)
    with pytest.raises(ZeroDivisionError):
        log.info("x")
    assert bodies(recorder) == []


class Sink(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(self.format(record))


def through_stdlib(render: Any) -> Any:
    structlog.configure(
        processors=[structlog.stdlib.add_logger_name, render],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    return structlog.get_logger("test_structlog.std")


RENDERERS: dict[str, Callable[[], Any]] = {
    "json": structlog.processors.JSONRenderer,
    "kwargs": lambda: structlog.stdlib.render_to_log_kwargs,
    "formatter": lambda: structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
}


@pytest.mark.parametrize("renderer", RENDERERS)
def test_an_event_through_stdlib_is_one_line(recorder: Recorder, renderer: str) -> None:
    sink, std = Sink(), logging.getLogger("test_structlog.std")
    std.propagate, std.handlers[:] = False, [sink]
    std.setLevel(logging.INFO)
    if renderer == "formatter":
        sink.setFormatter(structlog.stdlib.ProcessorFormatter(processor=structlog.processors.JSONRenderer()))
    log = through_stdlib(RENDERERS[renderer]())
    log.debug("below stdlib's level")
    log.info("epoch over", epoch=3)
    std.handlers.clear()
    std.propagate = True
    (record,) = recorder.records("llmtrace.log")
    assert "epoch over" in str(record.body)
    assert len(sink.seen) == 1
    if renderer != "kwargs":
        assert TRACE in sink.seen[0]
    if renderer != "json":
        assert (record.body, record.attributes["epoch"]) == ("epoch over", 3)


def test_an_event_whose_own_output_ends_in_stdlib_is_one_line(recorder: Recorder) -> None:
    std = logging.getLogger("test_structlog.hidden")
    std.propagate, std.handlers[:] = False, [Sink()]

    class Hidden:
        def warning(self, message: str) -> None:
            std.warning("something of the output's own")
            std.warning(message)

    structlog.configure(processors=[structlog.processors.JSONRenderer()], logger_factory=lambda *_: Hidden(), cache_logger_on_first_use=False)
    structlog.get_logger().warning("only once")
    std.warning("only once")  # a line of its own, later
    std.handlers.clear()
    std.propagate = True
    assert bodies(recorder) == ["only once", "something of the output's own", "only once"]


def test_exceptions_and_positional_arguments_are_kept(recorder: Recorder, output: io.StringIO) -> None:
    log = configure(output, structlog.processors.format_exc_info)
    try:
        raise ValueError("bad batch")
    except ValueError:
        log.exception("failed")
    attributes = recorder.records("llmtrace.log")[0].attributes
    assert (attributes["exception.type"], attributes["exception.message"]) == ("ValueError", "bad batch")
    assert "bad batch" in written(output)[0]["exception"]
    bound = structlog.make_filtering_bound_logger(logging.INFO)
    configure(output, wrapper_class=bound).info("%d of %d", 1, 2)
    structlog.configure(wrapper_class=structlog.stdlib.BoundLogger)
    structlog.get_logger().info("%s left", 3)
    assert bodies(recorder)[1:] == ["1 of 2", "3 left"]


def test_odd_events_are_captured(recorder: Recorder, output: io.StringIO) -> None:
    log = configure(output, lambda *_: {"event": "x"})
    log.info(None)
    log.info("lone \udc80", value=object(), text="a\x00b")
    log.info("x" * (1 << 20))
    assert len(bodies(recorder)) == 3


def test_the_callers_context_and_fields_are_not_changed(recorder: Recorder, output: io.StringIO) -> None:
    bound = configure(output).bind(shard=1)
    bound.info("x")
    assert structlog.get_context(bound) == {"shard": 1}
