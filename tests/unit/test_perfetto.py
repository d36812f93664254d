"""The trace for Perfetto and chrome://tracing: what their importers demand of each event and each track, and what of a window is in it."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtrace import names
from llmtrace.record import INFO, Identity, Process, Record, Value, Window
from llmtrace.show.perfetto import trace_json
from llmtrace.show.slices import Slice, laid_out
from llmtrace.sources.context import Context
from tests.support.contexts import CONTEXTS, MS, ONSET, TRACE, S, exception, finished, hostile, kill, many, oom, running

Entry = dict[str, Any]


def refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def loaded(context: Context) -> dict[str, Any]:
    text = trace_json(context)
    assert not set(text) & (set(range(0x20)) - {0x0A} | {0x7F}), "a control character that is not escaped ends Perfetto's reading"
    return json.loads(text.decode("utf-8"), parse_constant=refuse)


def events(context: Context) -> list[Entry]:
    return loaded(context)["traceEvents"]


def check(found: list[Entry]) -> None:
    """What Perfetto's importer would count as an error, or drop."""
    for event in found:
        assert set(event) <= {"ph", "name", "pid", "tid", "ts", "dur", "s", "cat", "cname", "args"}
        assert event["ph"] in "XiCM"
        assert isinstance(event["name"], str)
        assert all(type(event[name]) is int and 0 < event[name] < 1 << 32 for name in ("pid", "tid"))
        assert event["ph"] == "M" or (type(event["ts"]) is int and event["ts"] >= 0)
        assert ("dur" in event) == (event["ph"] == "X")
        assert event.get("dur", 1) > 0
        assert event.get("s") == {"i": event.get("s") if event.get("s") in ("t", "g") else "t"}.get(event["ph"])
        assert all(isinstance(value, (str, float)) or abs(value) <= 1 << 53 for value in event.get("args", {}).values())
        assert event["ph"] != "C" or [type(value) in (int, float) for value in event["args"].values()] == [True]
    owners = {(event["tid"], event["pid"]) for event in found}
    assert len(owners) == len({tid for tid, _ in owners}), "a thread's number belongs to one process"
    named = [event["pid"] for event in found if event["name"] == "process_name"]
    assert sorted(named) == sorted(set(named) | {event["pid"] for event in found}), "each process has one name"
    for tid in {event["tid"] for event in found}:
        nest([event for event in found if event["tid"] == tid and (event["ph"] == "X" or event.get("s") == "t")])


def nest(track: list[Entry]) -> None:
    """SliceTracker::MaybeCloseStack of Perfetto: events in order of time, those of one time as they stand in the file."""
    stack: list[tuple[int, int]] = []
    for event in sorted(track, key=lambda event: event["ts"]):
        start, dur = event["ts"], event.get("dur", 0)
        while stack and (stack[-1][1] < start or (stack[-1][1] == start and not (stack[-1][0] == stack[-1][1] and dur == 0))):
            stack.pop()
        assert all(start + dur <= end for _, end in stack), f"{event} is torn off {stack}"
        stack.append((start, start + dur))
        assert len(stack) <= 512, "deeper is dropped"


def process_of(found: list[Entry], name: str) -> int:
    (pid,) = [event["pid"] for event in found if event["name"] == "process_name" and event["args"]["name"] == name]
    return pid


def thread_of(found: list[Entry], pid: int, name: str) -> list[Entry]:
    (tid,) = [event["tid"] for event in found if event["name"] == "thread_name" and event["pid"] == pid and event["args"]["name"] == name]
    return [event for event in found if event["tid"] == tid and event["ph"] in "Xi" and event.get("s") != "g"]


@pytest.mark.parametrize("name", sorted(CONTEXTS))
def test_every_event_of_every_context_is_what_the_importers_take(name: str) -> None:
    check(events(CONTEXTS[name]()))


def test_ranks_are_processes_the_culprit_first() -> None:
    found = events(kill())
    order = {event["pid"]: event["args"]["sort_index"] for event in found if event["name"] == "process_sort_index"}
    titles = {event["pid"]: event["args"]["name"] for event in found if event["name"] == "process_name"}
    assert [titles[pid] for pid in sorted(order, key=order.__getitem__)] == [f"rank {rank} (node-a)" for rank in (1, 0, 2, 3)]
    assert [event["pid"] for event in found if event["name"] == "process_labels"] == [process_of(found, "rank 1 (node-a)")]


def test_a_step_holds_its_phases_in_order_and_as_long_as_they_took() -> None:
    context = finished()
    found = events(context)
    track = thread_of(found, process_of(found, "rank 2 (node-a)"), "steps")
    step = next(event for event in track if event["name"] == "step 100")
    record = next(record for record in context.records if record.name == names.STEP and record.step == 100 and record.identity.rank == 2)
    assert abs(step["dur"] - (record.duration_ns or 0) // 1000) <= 1001  # its start is the end of the step before, at most a millisecond of clocks later
    inner = track[track.index(step) + 1 :][:5]
    assert [event["name"] for event in inner] == ["data wait", "forward", "backward", "gradient sync", "optimizer"]
    assert all(step["ts"] <= event["ts"] < step["ts"] + step["dur"] for event in inner)
    for event, attribute in list(zip(inner, ("data_wait", "forward", "backward", "gradient_sync_exposed", "optimizer"), strict=True))[1:]:
        assert abs(event["dur"] - int(record.attributes[names.phase_attribute(attribute)]) // 1000) <= 1
    assert step["args"] == {"id": record.id, "step": 100}
    assert len([event for event in track if event["cat"] == names.STEP]) == 200


def test_what_was_begun_and_never_finished_is_there_as_that() -> None:
    found = events(kill())
    culprit = thread_of(found, process_of(found, "rank 1 (node-a)"), "steps")
    assert [(event["name"], event["args"]["finished"]) for event in culprit[-2:]] == [("step 340 (never finished)", False), ("forward (never finished)", False)]
    other = thread_of(found, process_of(found, "rank 0 (node-a)"), "steps")
    assert [event["name"] for event in other[-2:]] == ["step 340 (never finished)", "backward (never finished)"]
    assert other[-1]["dur"] > culprit[-1]["dur"]


def test_of_a_job_that_runs_the_step_goes_on_to_the_windows_end() -> None:
    context = running()
    window = Window(context.window.start_ns, context.window.end_ns + 3 * S)
    found = events(msgspec.structs.replace(context, window=window))
    check(found)
    step, phase = thread_of(found, process_of(found, "rank 0 (node-a)"), "steps")[-2:]
    assert (step["name"], phase["name"]) == ("step 640 (running)", "forward")
    assert step["ts"] + step["dur"] == phase["ts"] + phase["dur"] == (window.end_ns - window.start_ns) // 1000
    assert step["dur"] == pytest.approx(3_000_000, abs=2000)


def test_lines_are_instants_with_level_and_text() -> None:
    context = oom()
    found = events(context)
    lines = thread_of(found, process_of(found, "rank 2 (node-a)"), "log")
    said = [record for record in context.records if record.kind == "log" and record.identity.rank == 2]
    assert [line["args"]["text"] for line in lines] == [record.body for record in said]
    assert {line["args"]["level"] for line in lines} == {"INFO"}
    assert all(line["ph"] == "i" and line["s"] == "t" for line in lines)
    assert [line["ts"] for line in lines] == [(record.time_ns - context.window.start_ns) // 1000 for record in said]


def test_events_are_instants_and_the_evidence_has_its_number() -> None:
    context = oom()
    assert context.incident is not None
    found = events(context)
    told = thread_of(found, process_of(found, "rank 2 (node-a)"), "events")
    assert [event["args"].get("evidence") for event in told] == [1, 2]
    assert [event["args"]["id"] for event in told] == context.incident.evidence[:2]
    assert told[0]["name"].startswith("memory refused on cpu: asked for 256.0 TiB")
    assert told[0]["cname"] == "terrible"


def test_onset_and_detection_are_everywhere() -> None:
    context = oom()
    assert context.incident is not None
    found = [event for event in events(context) if event.get("s") == "g"]
    assert [event["name"].partition(":")[0] for event in found] == ["onset", "detected"]
    assert [event["ts"] for event in found] == [30_000_000, 30_062_000]
    assert found[0]["args"]["evidence"].split() == context.incident.evidence
    assert found[0]["args"]["category"] == "host_oom"


def test_an_onset_outside_the_window_is_not_drawn() -> None:
    context = oom()
    window = Window(ONSET - 10 * S, ONSET - 5 * S)
    found = events(msgspec.structs.replace(context, window=window, records=[r for r in context.records if window.start_ns <= r.time_ns < window.end_ns]))
    check(found)
    assert [event for event in found if event.get("s") == "g"] == []


def test_the_wall_clock_of_time_zero_is_in_the_metadata() -> None:
    context = exception()
    found = loaded(context)["metadata"]
    assert int(found["base_unix_ns"]) == context.window.start_ns
    assert datetime.fromisoformat(found["base_time"]).timestamp() == pytest.approx(context.window.start_ns / S, abs=1e-3)
    assert found["trace_id"] == TRACE
    assert found["category"] == "program_error"


def sample(context: Context, rank: int, offset_ns: int, name: str, **attributes: Value) -> Record:
    who = context.processes[rank].identity
    return Record(id=f"{who.span_id}-{offset_ns:x}", time_ns=ONSET + offset_ns, kind="sample", name=name, identity=who, attributes=attributes)


def with_records(context: Context, *records: Record) -> Context:
    return msgspec.structs.replace(context, records=sorted([*context.records, *records], key=lambda record: record.time_ns))


def test_step_time_memory_and_what_the_user_logged_are_counters() -> None:
    context = exception()
    logged = [sample(context, 1, -number * MS, names.METRIC, **{names.METRIC_NAME: "train/loss", names.METRIC_VALUE: number / 4}) for number in range(5, 0, -1)]
    free = sample(context, 1, -7 * MS, "llmtrace.node.host", **{"llmtrace.node.host.memory_free_bytes": 1 << 34})
    found = events(with_records(context, *logged, free))
    check(found)
    counters = [event for event in found if event["ph"] == "C"]
    pid = process_of(found, f"rank {context.processes[1].identity.rank} (node-a)")
    own = {event["name"]: event for event in counters if event["pid"] == pid}
    assert set(own) == {"step time", "data wait", "process memory (RSS)", "train/loss"}
    assert own["train/loss"]["args"] == {"value": 0.25}
    assert own["process memory (RSS)"]["args"]["bytes"] > 1 << 30
    assert 40 < own["step time"]["args"]["ms"] < 70
    of_node = [event for event in counters if event["pid"] == process_of(found, "node node-a")]
    assert [event["args"] for event in of_node] == [{"bytes": 1 << 34}]


def test_a_number_that_is_none_is_no_counter_but_an_instant() -> None:
    context = exception()
    values = [1.0, float("nan"), float("inf"), -float("inf"), 2.0, "NaN"]
    logged = [sample(context, 1, number - 9, names.METRIC, **{names.METRIC_NAME: "loss", names.METRIC_VALUE: value}) for number, value in enumerate(values)]
    found = events(with_records(context, *logged))
    check(found)
    pid = process_of(found, f"rank {context.processes[1].identity.rank} (node-a)")
    assert [event["args"]["value"] for event in found if event["ph"] == "C" and event["name"] == "loss"] == [1.0, 2.0]
    assert [event["name"] for event in thread_of(found, pid, "not finite")] == ["loss is NaN", "loss is Infinity", "loss is -Infinity", "loss is NaN"]


def test_pids_that_repeat_over_nodes_stay_apart() -> None:
    context = many()
    processes = [msgspec.structs.replace(p, identity=msgspec.structs.replace(p.identity, pid=4100 + (p.identity.local_rank or 0))) for p in context.processes]
    by_span = {process.identity.span_id: process.identity for process in processes}
    records = [msgspec.structs.replace(record, identity=by_span[record.identity.span_id]) for record in context.records]
    found = events(msgspec.structs.replace(context, processes=processes, records=records))
    check(found)
    titles = [event["args"]["name"] for event in found if event["name"] == "process_name"]
    assert len(titles) == len(set(titles)) == 64
    assert titles[0] == "rank 37 (node-e)"


def test_spans_of_the_users_own_nest_in_lanes() -> None:
    context = exception()
    who = context.processes[0].identity

    def span(name: str, start_ms: int, end_ms: int) -> Record:
        facts: dict[str, Value] = {names.PHASE_NAME: name}
        length = (end_ms - start_ms) * MS
        return Record(id=f"x-{name}", time_ns=ONSET + end_ms * MS, kind="span", name=names.PHASE, identity=who, duration_ns=length, attributes=facts)

    spans = [span("eval", -900, -100), span("inner", -800, -700), span("across", -300, -50), span("later", -100, -90)]
    found = events(with_records(context, *spans))
    check(found)
    pid = process_of(found, f"rank {who.rank} (node-a)")
    assert [event["name"] for event in thread_of(found, pid, "spans")] == ["eval", "inner", "later"]
    assert [event["name"] for event in thread_of(found, pid, "spans 2")] == ["across"]


def test_lines_of_one_moment_lie_beside_one_another() -> None:
    context = exception()
    who = context.processes[0].identity
    lines = [Record(id=f"y-{n:x}", time_ns=ONSET - MS, kind="log", name=names.LOG, identity=who, body=f"line {n}") for n in range(700)]
    found = events(with_records(context, *lines))
    check(found)
    said = [event["args"]["text"] for event in thread_of(found, process_of(found, f"rank {who.rank} (node-a)"), "log")]
    assert [text for text in said if text.startswith("line ")] == [f"line {n}" for n in range(700)]


def test_hostile_text_is_text() -> None:
    text = trace_json(hostile()).decode("utf-8")
    assert "\x1b" not in text
    assert "\\u001b" not in text
    assert "訓練損失" in text
    assert "\\ud800" not in text.replace("\\\\ud800", "")


def test_secrets_do_not_leave() -> None:
    context = exception()
    who = context.processes[0].identity
    line = Record(id="z-1", time_ns=ONSET - MS, kind="log", name=names.LOG, identity=who, body="password=hunter2", attributes={"api_key": "abc"})
    found = trace_json(with_records(context, line)).decode()
    assert "hunter2" not in found
    assert "password=[redacted:password]" in found
    assert '"api_key":"[redacted:api-key]"' in found


def test_a_window_with_nobody_in_it_is_a_trace_too() -> None:
    found = loaded(Context(trace_id=TRACE, incident=None, window=Window(ONSET, ONSET + S), processes=[], records=[], drops={}))
    assert found["traceEvents"] == []
    assert found["metadata"]["source"] == "llmtrace"


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), max_size=60))
def test_lanes_nest_and_lose_nothing(spans: list[tuple[int, int]]) -> None:
    slices = [Slice(start, start + length, str(number)) for number, (start, length) in enumerate(spans)]
    lanes = laid_out(slices)
    assert Counter(found for lane in lanes for found in lane) == Counter(slices)
    for lane in lanes:
        nest([{"ts": found.start, "dur": found.end - found.start} for found in lane])
    assert all(a.start <= b.start for lane in lanes for a, b in pairwise(lane))


def test_what_is_too_deep_goes_to_the_next_lane() -> None:
    lanes = laid_out(Slice(number, 2000 - number, "x") for number in range(600))
    assert [len(lane) for lane in lanes] == [256, 256, 88]


TEXT = st.one_of(
    st.sampled_from(["", "loss", "\x1b[31mred", "</script>", "\ud800", "a\nb", "\x7f", "é令😀", "x" * 300, "__proto__", 'q"\\']), st.text(max_size=12)
)
NUMBERS = st.one_of(st.integers(-(1 << 70), 1 << 70), st.floats(), st.booleans(), TEXT)
START, LENGTH = ONSET, 2 * S
TIMES = st.integers(START, START + LENGTH - 1)
DURATIONS = st.one_of(st.integers(0, 3000), st.integers(0, 50 * MS), st.integers(0, 10 * S))
ATTRIBUTES = st.dictionaries(
    st.one_of(TEXT, st.sampled_from([names.METRIC_NAME, names.METRIC_VALUE, names.PHASE_NAME, "llmtrace.memory.rss_bytes"])), NUMBERS, max_size=3
)
STEP_ATTRIBUTES = st.dictionaries(
    st.sampled_from([*map(names.phase_attribute, names.PHASES), "llmtrace.step.own_ns", "llmtrace.step.tokens"]), st.integers(0, 60 * MS), max_size=4
)
KINDS = (("log", names.LOG), ("event", names.FAILURE), ("event", "mine"), ("sample", names.METRIC), ("sample", names.MEMORY), ("sample", "llmtrace.node.gpu"))
KINDS += (("span", names.PHASE), ("span", "llmtrace.checkpoint"), ("span", names.STEP), ("span", names.STEP))


@st.composite
def records(draw: st.DrawFn, identities: list[Identity]) -> Record:
    kind, name = draw(st.sampled_from(KINDS))
    return Record(
        id=f"r-{draw(st.integers(0, 1 << 40)):x}",
        time_ns=draw(TIMES),
        kind=kind,
        name=name,
        identity=draw(st.sampled_from(identities)),
        severity=draw(st.sampled_from([5, INFO, 13, 17, 21])),
        body=draw(st.one_of(st.none(), TEXT)),
        step=draw(st.one_of(st.none(), st.integers(0, 20))),
        duration_ns=draw(DURATIONS) if kind == "span" else None,
        attributes=draw(STEP_ATTRIBUTES if name == names.STEP else ATTRIBUTES),
    )


@st.composite
def contexts(draw: st.DrawFn) -> Context:
    pids = st.sampled_from([0, 7, 8, 9, -3, 1 << 40])
    identities = [
        Identity(
            trace_id=TRACE,
            span_id=f"{number:016x}",
            node=draw(TEXT),
            rank=draw(st.sampled_from([None, 0, 1])),
            pid=draw(pids),
            role=draw(st.sampled_from(["rank", "worker"])),
        )
        for number in range(draw(st.integers(1, 4)))
    ]
    processes = [
        Process(
            identity=identity,
            started_ns=draw(st.integers(START - S, START + LENGTH)),
            last_ns=draw(TIMES),
            ending=draw(st.sampled_from(["running", "clean", "raised", "killed", "exited", "unknown"])),
            ended_ns=draw(st.one_of(st.none(), TIMES)),
            exit_code=draw(st.sampled_from([None, 0, 1, -9])),
            last_step=draw(st.one_of(st.none(), st.integers(0, 20))),
            phase=draw(st.sampled_from(["", "forward", "mine\n"])),
            progress_ns=draw(st.one_of(st.none(), TIMES)),
        )
        for identity in identities[: draw(st.integers(0, 4))]
    ]
    found = sorted(draw(st.lists(records(identities), max_size=30)), key=lambda record: record.time_ns)
    return Context(trace_id=TRACE, incident=None, window=Window(START, START + LENGTH), processes=processes, records=found, drops={})


@settings(max_examples=200, deadline=None)
@given(contexts())
def test_whatever_was_recorded_every_track_nests(context: Context) -> None:
    found = events(context)
    check(found)
    told = Counter(record.kind for record in context.records)
    instants = [event for event in found if event["ph"] == "i" and event["cat"] in ("log", "event")]
    assert Counter(event["cat"] for event in instants) == Counter({kind: told[kind] for kind in ("log", "event") if told[kind]})
    assert len([event for event in found if event["ph"] == "X" and event["cat"] in (names.PHASE, "llmtrace.checkpoint")]) == len(
        [record for record in context.records if record.name in (names.PHASE, "llmtrace.checkpoint")]
    )
