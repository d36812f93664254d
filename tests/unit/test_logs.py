"""Stdlib logging: each line that a logger lets through is stamped and captured once, whatever the user's own logging looks like."""

from __future__ import annotations

import copy
import io
import json
import logging
import logging.handlers
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmtrace.guard import guard
from llmtrace.rank import lines
from llmtrace.rank.instruments import logs
from llmtrace.record import DEBUG, ERROR, FATAL, INFO, WARN, Record
from tests.support.recorder import SPAN, TRACE, Recorder

Output = io.StringIO


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setattr(guard, "errors", type(guard.errors)())
    found = Recorder()
    found.install(logs.instrument)
    yield found
    found.close()
    assert not guard.errors


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger with one handler, which does not propagate."""
    yield from made("foreign", propagate=False)


def made(name: str, *, propagate: bool, level: int = logging.DEBUG) -> Iterator[logging.Logger]:
    """Not in the manager's table where it does not propagate: pytest would add its own handlers to it."""
    found = logging.getLogger(f"test_logs.{name}") if propagate else logging.Logger(f"test_logs.{name}")
    found.propagate = propagate
    found.setLevel(level)
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(logging.Formatter("%(trace_id)s %(span_id)s %(rank)s %(message)s"))
    found.handlers[:] = [handler]
    yield found
    found.handlers.clear()
    found.setLevel(logging.NOTSET)


def output(log: logging.Logger) -> list[str]:
    handler = log.handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    return handler.stream.getvalue().splitlines()


def bodies(recorder: Recorder) -> list[str | None]:
    return [record.body for record in recorder.records("llmtrace.log")]


def only(recorder: Recorder) -> Record:
    (record,) = recorder.records("llmtrace.log")
    return record


def test_a_line_is_stamped_for_the_users_own_formatter_and_captured(recorder: Recorder, log: logging.Logger) -> None:
    recorder.tracer.steps.begin(7)
    log.info("loss %.2f at %s", 0.25, "start")
    assert output(log) == [f"{TRACE} {SPAN} 3 loss 0.25 at start"]
    record = only(recorder)
    assert (record.body, record.severity, record.step, record.kind) == ("loss 0.25 at start", INFO, 7, "log")
    assert record.attributes["log.logger"] == "test_logs.foreign"
    assert record.attributes["code.file.path"] == __file__
    assert record.attributes["thread.name"] == "MainThread"
    assert int(record.attributes["code.line.number"]) > 0


def test_the_stamp_follows_an_identity_that_is_learned_late(recorder: Recorder, log: logging.Logger) -> None:
    recorder.tracer.stamp.trace_id, recorder.tracer.stamp.rank = "-", "-"
    log.info("early")
    recorder.tracer.stamp.read(recorder.tracer.identity)
    log.info("late")
    assert output(log) == [f"- {SPAN} - early", f"{TRACE} {SPAN} 3 late"]


@pytest.mark.parametrize(
    ("level", "severity"), [(5, 1), (10, DEBUG), (15, DEBUG), (20, INFO), (25, INFO), (30, WARN), (40, ERROR), (45, ERROR), (50, FATAL), (99, FATAL)]
)
def test_levels_become_severities(recorder: Recorder, log: logging.Logger, level: int, severity: int) -> None:
    log.setLevel(1)
    log.log(level, "x")
    assert only(recorder).severity == severity


def test_what_the_logger_does_not_let_through_is_no_line(recorder: Recorder, log: logging.Logger) -> None:
    log.setLevel(logging.WARNING)
    log.info("too quiet")
    log.disabled = True
    log.error("switched off")
    log.disabled = False
    veto = lambda record: False  # noqa: E731
    log.addFilter(veto)
    log.error("filtered")
    log.removeFilter(veto)
    assert bodies(recorder) == []


def test_a_propagating_line_with_three_handlers_on_the_way_is_one(recorder: Recorder) -> None:
    for log in made("a.b.c", propagate=True):
        parent = logging.getLogger("test_logs.a")
        parent.addHandler(logging.NullHandler())
        log.info("once")
        parent.handlers.clear()
    assert bodies(recorder) == ["once"]


def test_telemetry_loggers_that_nobody_can_see_are_no_lines(recorder: Recorder) -> None:
    telemetry = logging.getLogger("test_logs.telemetry")
    telemetry.propagate, telemetry.handlers[:] = False, [logging.NullHandler()]
    telemetry.setLevel(logging.DEBUG)
    telemetry.info({"event": "internal"})
    telemetry.handlers.clear()
    telemetry.propagate = True
    assert bodies(recorder) == []


def test_the_users_extra_of_the_same_name_wins_and_is_no_error(recorder: Recorder, log: logging.Logger) -> None:
    log.info("mine", extra={"rank": "77", "trace_id": "theirs", "shard": 5})
    assert output(log) == [f"theirs {SPAN} 77 mine"]
    record = only(recorder)
    assert record.attributes["shard"] == 5
    assert "rank" not in record.attributes


def test_extra_of_odd_kinds_is_described(recorder: Recorder, log: logging.Logger) -> None:
    log.info("x", extra={"t": torch.tensor(2.5), "l": [1, 2], "n": None, "big": 1 << 80, "f": float("nan"), "ü\udc80": "\udcff\x00", "o": object()})
    attributes = only(recorder).attributes
    assert attributes["t"] == 2.5
    assert "1, 2" in str(attributes["l"])
    assert attributes["big"] == str(1 << 80)
    assert str(attributes["f"]) == "nan"
    assert isinstance(attributes["o"], str)
    json.dumps(attributes).encode()


def test_the_users_adapter_that_passes_on_our_own_ids_loses_no_line(recorder: Recorder, log: logging.Logger) -> None:
    identity = recorder.tracer.identity
    adapter = logging.LoggerAdapter(log, {"trace_id": identity.trace_id, "span_id": identity.span_id, "rank": identity.rank})
    adapter.info("kept")
    assert bodies(recorder) == ["kept"]


def test_exceptions_keep_their_text_and_chain(recorder: Recorder, log: logging.Logger) -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError:
        log.exception("step failed")
    record = only(recorder)
    assert (record.body, record.severity) == ("step failed", ERROR)
    assert record.attributes["exception.type"] == "ValueError"
    assert record.attributes["exception.message"] == "outer"
    text = str(record.attributes["exception.stacktrace"])
    assert text.index("KeyError: 'inner'") < text.index("direct cause") < text.index("ValueError: outer")


def test_a_traceback_without_end_is_bounded_and_keeps_both_ends(recorder: Recorder, log: logging.Logger) -> None:
    def chain(depth: int) -> None:
        try:
            if depth:
                chain(depth - 1)
            raise ValueError(f"first {'x' * 500}")
        except (ValueError, RuntimeError) as error:
            raise RuntimeError(f"depth {depth} {'y' * 500}") from error

    try:
        chain(40)
    except RuntimeError:
        log.exception("deep")
    text = str(only(recorder).attributes["exception.stacktrace"])
    assert len(text.encode()) <= lines.TRACEBACK_BYTES
    assert text.startswith("Traceback")
    assert text.rstrip().endswith("yyy")
    assert "bytes left out" in text


def test_a_record_handed_on_to_another_logger_is_one_line(recorder: Recorder, log: logging.Logger) -> None:
    class Forward(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log.handle(record)
            log.handle(copy.copy(record))

    source = logging.getLogger("test_logs.source")
    source.propagate = False
    source.addHandler(Forward())
    source.error("once")
    source.handlers.clear()
    source.propagate = True
    assert len(output(log)) == 2  # the user's doing stays the user's
    assert bodies(recorder) == ["once"]


def test_a_record_through_a_queue_is_one_line(recorder: Recorder, log: logging.Logger) -> None:
    handler, waiting = log.handlers[0], queue.Queue[Any]()
    listener = logging.handlers.QueueListener(waiting, handler)
    log.handlers[:] = [logging.handlers.QueueHandler(waiting)]
    listener.start()
    log.info("queued %d", 1)
    listener.stop()
    log.handlers[:] = [handler]
    assert output(log) == [f"{TRACE} {SPAN} 3 queued 1"]
    assert bodies(recorder) == ["queued 1"]


def test_a_traced_childs_pickled_record_is_the_childs_line_and_an_untraced_ones_is_ours(recorder: Recorder, log: logging.Logger) -> None:
    def from_child(**stamps: str) -> logging.LogRecord:
        made = logging.makeLogRecord({"msg": "from a child", "levelno": 20, "levelname": "INFO", "process": os.getpid() + 1, **stamps})
        return pickle.loads(pickle.dumps(made))

    log.handle(from_child(trace_id=TRACE, span_id="c" * 16, rank="3"))
    assert bodies(recorder) == []
    log.handle(from_child())
    assert bodies(recorder) == ["from a child"]
    assert output(log) == [f"{TRACE} {'c' * 16} 3 from a child", f"{TRACE} {SPAN} 3 from a child"]


def test_records_stay_picklable_where_llmtrace_is_not_installed(recorder: Recorder, log: logging.Logger) -> None:
    seen: list[logging.LogRecord] = []
    log.addFilter(lambda record: bool(seen.append(record)) or True)
    log.info("x")
    assert type(seen[0]) is logging.LogRecord
    assert not [name for name in vars(seen[0]) if "llmtrace" in name]


def test_arguments_that_do_not_fit_are_the_users_error_and_captured_raw(recorder: Recorder, log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    log.info("%d of %d", 1)  # noqa: PLE1206
    assert "--- Logging error ---" in capsys.readouterr().err
    assert bodies(recorder) == ["%d of %d (1,)"]


def test_an_argument_whose_str_raises_hurts_nobody(log: logging.Logger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Bad:
        def __str__(self) -> str:
            raise ZeroDivisionError

    monkeypatch.setattr(guard, "errors", type(guard.errors)())
    recorder = Recorder()
    recorder.install(logs.instrument)
    log.info("%s", Bad())
    log.info("after")
    recorder.close()
    assert bodies(recorder)[-1] == "after"


def test_an_argument_whose_str_logs_is_two_lines(recorder: Recorder, log: logging.Logger) -> None:
    class Chatty:
        def __str__(self) -> str:
            log.debug("inside")
            return "chatty"

    log.info("%s", Chatty())
    assert [body for body in bodies(recorder) if body != "inside"] == ["chatty"]
    assert "inside" in bodies(recorder)


def test_logging_in_a_signal_handler_inside_a_line_is_safe(recorder: Recorder, log: logging.Logger) -> None:
    class Interrupted:
        def __str__(self) -> str:
            signal.raise_signal(signal.SIGUSR1)
            return "interrupted"

    before = signal.signal(signal.SIGUSR1, lambda *_: log.warning("from the handler"))
    try:
        log.info("%s", Interrupted())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "interrupted" in bodies(recorder)
    assert "from the handler" in bodies(recorder)


def test_keyboard_interrupt_in_the_users_handler_passes(recorder: Recorder, log: logging.Logger) -> None:
    class Stop(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise KeyboardInterrupt

    log.addHandler(Stop())
    with pytest.raises(KeyboardInterrupt):
        log.info("stopping")
    assert bodies(recorder) == ["stopping"]


def test_a_line_is_captured_before_its_handlers_may_kill_or_block(recorder: Recorder, log: logging.Logger) -> None:
    class Last(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(bodies(recorder))

    seen: list[list[str | None]] = []
    log.addHandler(Last())
    log.info("x")
    assert seen == [["x"]]


class OnDevice:
    """Looks like a tensor on a GPU; formatting it would wait for the device."""

    is_cpu, shape, device = False, (1,), "cuda:0"

    def __init__(self) -> None:
        self.formatted = 0

    def __str__(self) -> str:
        self.formatted += 1
        return "tensor(0.5, device='cuda:0')"


def test_a_tensor_on_a_device_is_formatted_by_the_users_handler_alone(recorder: Recorder, log: logging.Logger) -> None:
    loss = OnDevice()
    log.info("loss %s", loss)
    assert loss.formatted == 1
    assert bodies(recorder) == ["loss tensor(0.5, device='cuda:0')"]


def test_a_tensor_on_a_device_that_no_handler_formats_is_not_formatted_by_us(recorder: Recorder, log: logging.Logger) -> None:
    log.handlers[0].setLevel(logging.ERROR)
    loss = OnDevice()
    log.info("loss %s", loss)
    assert loss.formatted == 0
    assert bodies(recorder) == ["loss %s (arguments on a device, not formatted by any handler)"]


@pytest.mark.parametrize(
    "text",
    ["lone \udc80 surrogate", "a\x00b", "\x1b[31mred\x1b[0m", "Ω" * 5000, "x" * (1 << 20), "", "%", "{}", "line one\nline two", "\r100%|####|\r"],
    ids=["surrogate", "nul", "ansi", "wide", "1MB", "empty", "percent", "braces", "lines", "bar"],
)
def test_any_text_becomes_a_line_that_every_store_takes(recorder: Recorder, log: logging.Logger, text: str) -> None:
    log.info(text)
    body = only(recorder).body
    assert body is not None
    assert len(body.encode()) <= lines.BODY_BYTES
    assert "\x00" not in body
    if text.isprintable() and len(text) < 1000:
        assert body == text
    if len(text) > 4096:
        assert body.startswith(text[:1000])
        assert f"[{len(text)} characters]" in body


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(), st.lists(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.binary())))
def test_whatever_is_logged_is_captured_once(recorder: Recorder, message: str, arguments: list[object]) -> None:
    log = logging.getLogger("test_logs.property")
    log.propagate, log.handlers[:] = False, [_Sink()]
    recorder.frames.clear()
    log.error(message, *arguments)
    assert len(recorder.records("llmtrace.log")) == 1


class _Sink(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        return None


@given(st.text(max_size=300), st.integers(64, 200))
def test_fit_gives_valid_text_within_its_bound(text: str, limit: int) -> None:
    found = lines.fit(text, limit)
    assert len(found.encode()) <= limit
    if len(text) * 6 <= limit and text.isprintable():
        assert found == text


@given(st.text(max_size=400), st.integers(90, 200))
def test_middle_out_keeps_head_and_tail_within_its_bound(text: str, limit: int) -> None:
    found = lines.middle_out(text, limit)
    assert len(found.encode()) <= limit
    if text.isascii() and text.isprintable():
        assert found[:10] == text[:10]
        assert found[-10:] == text[-10:]


def test_loggers_of_other_classes_are_captured(recorder: Recorder) -> None:
    class Custom(logging.Logger):
        def handle(self, record: logging.LogRecord) -> None:  # as absl's
            if self.filter(record):
                self.callHandlers(record)

        def makeRecord(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
            made = logging.LogRecord(*args[:7])
            made.__dict__["shard"] = 9
            return made

    log = Custom("custom")
    log.addHandler(_Sink())
    log.error("custom line")
    assert (only(recorder).body, only(recorder).attributes["shard"]) == ("custom line", 9)


def test_the_users_record_factory_before_and_after_us_stays_in_force(log: logging.Logger) -> None:
    found = logging.getLogRecordFactory()

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = found(*args, **kwargs)
        record.host = "h1"
        return record

    recorder = Recorder()
    logging.setLogRecordFactory(factory)
    try:
        recorder.install(logs.instrument)
        log.info("x")
        assert logging.getLogRecordFactory() is factory
    finally:
        logging.setLogRecordFactory(found)
        recorder.close()
    assert only(recorder).attributes["host"] == "h1"


def test_basic_config_works_after_us() -> None:
    program = (
        "import logging\n"
        "from tests.support.recorder import Recorder\n"
        "from llmtrace.rank.instruments import logs\n"
        "recorder = Recorder(); recorder.install(logs.instrument)\n"
        "assert not logging.root.handlers\n"
        "logging.basicConfig(level=logging.INFO, format='%(rank)s %(message)s')\n"
        "logging.info('seen by the user')\n"
        "assert [r.body for r in recorder.records()] == ['seen by the user'], recorder.records()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "3 seen by the user\n"


def test_under_another_tools_wrapper_undo_leaves_a_pass_through(log: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.Logger, "callHandlers", logging.Logger.callHandlers)
    recorder = Recorder()
    undo = recorder.install(logs.instrument)
    ours = logging.Logger.callHandlers

    def theirs(self: logging.Logger, record: logging.LogRecord) -> None:
        ours(self, record)

    logging.Logger.callHandlers = theirs  # type: ignore[method-assign]
    undo()
    log.handlers[0].setFormatter(None)
    log.info("after")
    assert output(log) == ["after"]
    assert bodies(recorder) == []


def test_many_threads_lose_and_double_nothing(recorder: Recorder, log: logging.Logger) -> None:
    def write(number: int) -> None:
        for line in range(200):
            log.info("thread %d line %d", number, line)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, bodies(recorder))) == sorted(f"thread {number} line {line}" for number in range(8) for line in range(200))
    assert sorted(line.split(" ", 3)[3] for line in output(log)) == sorted(map(str, bodies(recorder)))


def test_a_program_that_only_logs_has_its_agent_looked_after(recorder: Recorder, log: logging.Logger) -> None:
    calls: list[int] = []
    recorder.tracer.watch = lambda: calls.append(1)
    for _ in range(100):
        log.info("x")
    assert calls == [1]
