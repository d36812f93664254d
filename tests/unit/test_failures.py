"""Failures: once for each exception, with the user's own line, and the chains of hooks whole."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmtrace.guard import guard
from llmtrace.rank import lines
from llmtrace.rank.instruments import failures
from llmtrace.record import ERROR, FATAL, WARN, Record
from tests.support.recorder import Recorder


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(guard, "errors", type(guard.errors)())
    found = Recorder()
    yield found
    found.close()
    assert not guard.errors


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as found:
        return found


def reported(recorder: Recorder) -> list[Record]:
    return recorder.records("llmtrace.failure")


def test_the_programs_last_exception_is_recorded_and_the_users_hook_still_runs(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda *args: seen.append(args))
    recorder.install(failures.instrument)
    recorder.tracer.steps.begin(12)
    recorder.tracer.steps.enter("backward")
    error = raised(ValueError("bad batch"))
    sys.excepthook(ValueError, error, error.__traceback__)
    assert seen == [(ValueError, error, error.__traceback__)]
    (record,) = reported(recorder)
    assert (record.severity, record.step, record.body) == (FATAL, 12, "ValueError: bad batch")
    attributes = record.attributes
    assert (attributes["exception.type"], attributes["exception.message"]) == ("ValueError", "bad batch")
    assert (attributes["llmtrace.failure.seen_by"], attributes["llmtrace.failure.phase"]) == ("excepthook", "backward")
    assert str(attributes["llmtrace.failure.line"]).startswith(f"{__file__}:")
    assert str(attributes["llmtrace.failure.line"]).endswith(" in raised")
    assert "raise error" in str(attributes["exception.stacktrace"])


def test_a_hook_that_the_user_sets_later_and_chains_keeps_us(recorder: Recorder) -> None:
    recorder.install(failures.instrument)
    ours, order = sys.excepthook, []
    sys.excepthook = lambda *args: (order.append("theirs"), ours(*args))  # type: ignore[assignment]
    error = raised(ValueError("x"))
    sys.excepthook(ValueError, error, None)
    assert order == ["theirs"]
    assert len(reported(recorder)) == 1


def test_undo_under_a_later_hook_leaves_a_link_that_only_passes_on(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda *args: seen.append(args))
    undo = recorder.install(failures.instrument)
    ours = sys.excepthook
    sys.excepthook = lambda *args: ours(*args)
    theirs = sys.excepthook
    undo()
    assert sys.excepthook is theirs
    sys.excepthook(ValueError, ValueError("x"), None)
    assert len(seen) == 1
    assert reported(recorder) == []


def test_a_threads_exception_is_an_error_and_the_users_hook_still_runs(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    recorder.install(failures.instrument)
    for error in (ValueError("in a thread"), SystemExit(3)):
        thread = threading.Thread(target=raised_in_thread, args=(error,))
        thread.start()
        thread.join()
    assert [args.exc_type for args in seen] == [ValueError, SystemExit]
    (record,) = reported(recorder)
    assert (record.severity, record.attributes["llmtrace.failure.seen_by"]) == (ERROR, "thread")


def raised_in_thread(error: BaseException) -> None:
    raise error


def test_one_exception_object_is_one_record_whoever_sees_it(recorder: Recorder) -> None:
    error = raised(ValueError("x"))
    for seen_by in ("lightning", "trace", "excepthook"):
        failures.report(recorder.tracer, error, seen_by)
    failures.report(recorder.tracer, raised(ValueError("x")), "excepthook")
    assert [record.attributes["llmtrace.failure.seen_by"] for record in reported(recorder)] == ["lightning", "excepthook"]


@pytest.mark.parametrize("error", [SystemExit(0), SystemExit(), SystemExit(None), GeneratorExit()], ids=repr)
def test_leaving_well_is_no_failure(recorder: Recorder, error: BaseException) -> None:
    failures.report(recorder.tracer, raised(error), "trace")
    assert reported(recorder) == []


def test_leaving_badly_is_one(recorder: Recorder) -> None:
    failures.report(recorder.tracer, raised(SystemExit("no data")), "trace")
    failures.report(recorder.tracer, raised(SystemExit(3)), "trace")
    assert [record.body for record in reported(recorder)] == ["SystemExit: no data", "SystemExit: 3"]


def exit_after(error: BaseException) -> BaseException:
    try:
        try:
            raise error
        except BaseException:
            sys.exit(1)
    except SystemExit as found:
        return found


def test_the_exit_that_an_exception_became_is_not_a_second_failure(recorder: Recorder) -> None:
    error = ValueError("first")
    leaving = exit_after(error)
    failures.report(recorder.tracer, error, "lightning")
    failures.report(recorder.tracer, leaving, "trace")
    assert [record.body for record in reported(recorder)] == ["ValueError: first"]


def test_what_the_user_stopped_is_a_warning(recorder: Recorder) -> None:
    failures.report(recorder.tracer, raised(KeyboardInterrupt()), "excepthook")
    failures.report(recorder.tracer, exit_after(KeyboardInterrupt()), "trace")  # as Lightning turns Ctrl-C into exit(1)
    assert [record.severity for record in reported(recorder)] == [WARN, WARN]


def test_exceptions_that_resist_are_recorded(recorder: Recorder) -> None:
    class Unspeakable(Exception):
        __slots__ = ()

        def __str__(self) -> str:
            raise ZeroDivisionError

        def __setattr__(self, name: str, value: object) -> None:
            raise TypeError("frozen")

    failures.report(recorder.tracer, raised(Unspeakable()), "trace")
    failures.report(recorder.tracer, raised(ValueError("lone \udc80 and \x00" + "x" * (1 << 20))), "trace")
    failures.report(recorder.tracer, raised(ExceptionGroup("several", [ValueError("a"), KeyError("b")])), "trace")
    failures.report(recorder.tracer, KeyError(), "trace")  # never raised: no traceback
    first, second, third, fourth = reported(recorder)
    assert "Unspeakable" in str(first.attributes["exception.type"])
    assert len(str(second.body)) < 3000
    assert "KeyError: 'b'" in str(third.attributes["exception.stacktrace"])
    assert "llmtrace.failure.line" not in fourth.attributes


def test_an_endless_recursion_is_bounded(recorder: Recorder) -> None:
    def again(depth: int) -> None:
        again(depth + 1)

    try:
        again(0)
    except RecursionError as error:
        failures.report(recorder.tracer, error, "trace")
    (record,) = reported(recorder)
    text = str(record.attributes["exception.stacktrace"])
    assert len(text.encode()) <= failures.STACKTRACE_BYTES
    assert "RecursionError" in text


def test_the_exception_keeps_its_arguments_context_and_traceback(recorder: Recorder) -> None:
    error = raised(ValueError("x", 1))
    before = (error.args, error.__cause__, error.__context__, error.__traceback__, getattr(error, "__notes__", None))
    failures.report(recorder.tracer, error, "trace")
    assert (error.args, error.__cause__, error.__context__, error.__traceback__, getattr(error, "__notes__", None)) == before


def test_others_hear_of_it_before_its_record_and_their_errors_do_not_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "errors", type(guard.errors)())
    recorder, heard = Recorder(), []

    def listener(error: BaseException, seen_by: str) -> None:
        heard.append((error, seen_by, len(reported(recorder))))
        raise RuntimeError("ours")

    recorder.tracer.subscribe("failure", listener)
    error = raised(ValueError("x"))
    failures.report(recorder.tracer, error, "trace")
    assert heard == [(error, "trace", 0)]
    assert len(reported(recorder)) == 1


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/home/ada/train.py", True),
        ("/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", False),
        ("/usr/lib/python3/dist-packages/yaml/__init__.py", False),
        (threading.__file__, False),
        (lines.__file__, False),
        ("<frozen importlib._bootstrap>", False),
        ("<string>", False),
        ("<ipython-input-3-0af>", True),
        ("/tmp/ipykernel_77/123.py", True),
    ],
)
def test_whose_file_it_is(path: str, own: bool) -> None:
    assert lines.is_user_file(path) is own


def test_a_failure_in_library_code_names_the_users_line_that_led_there(recorder: Recorder) -> None:
    try:
        Path("/nonexistent/file").read_text()
    except OSError as error:
        failures.report(recorder.tracer, error, "trace")
    assert str(reported(recorder)[0].attributes["llmtrace.failure.line"]).startswith(f"{__file__}:")


def test_a_traceback_shows_no_frame_of_ours_also_in_its_causes_and_groups(recorder: Recorder) -> None:
    space: dict[str, Any] = {}
    exec(compile("def passed_on(function):\n    return function()", lines._OWN + "rank/ours.py", "exec"), space)

    def fails() -> None:
        raise ValueError("first")

    def wraps() -> None:
        try:
            space["passed_on"](fails)
        except ValueError as error:
            raise ExceptionGroup("several", [RuntimeError("second")]) from error

    try:
        space["passed_on"](wraps)
    except ExceptionGroup as error:
        failures.report(recorder.tracer, error, "trace")
        whole = "".join(traceback.format_exception(error))
    text = str(reported(recorder)[0].attributes["exception.stacktrace"])
    assert all(word in text for word in ("in fails", "in wraps", "second"))
    assert "ours.py" not in text
    assert whole.count("ours.py") == 2  # the user's own traceback stays as it is
