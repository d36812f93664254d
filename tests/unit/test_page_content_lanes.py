"""The picture's data: lanes that never overlap or run backwards, folds that hide nobody who is bad, columns that sum up, curves that keep their peaks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llmtrace import names
from llmtrace.record import Identity, Process, Record, Value, Window
from llmtrace.show.measurements import MEASUREMENTS, measured
from llmtrace.show.page import strips as page_strips
from llmtrace.show.page.axis import Axis, steps
from llmtrace.show.page.lanes import LANES_MAX, folded, middle
from llmtrace.show.page.model import Band, Lane, Page, Series
from llmtrace.show.page.strips import BAND_MAX, OWN_MAX, band, thinned
from llmtrace.show.phrases import english
from llmtrace.show.story import ORDER, Standing, tell
from llmtrace.show.strips import Scale, stretches
from llmtrace.sources.context import Context
from tests.support.cases import FAULTS
from tests.support.contexts import CONTEXTS, MS, ONSET, TRACE, S, exception, kill, many, oom, running
from tests.unit.test_page_content import paged

AXIS = Axis(ONSET, ONSET - 30 * S, ONSET + 5 * S)


def drawn(lane: Lane) -> Iterator[tuple[int, int, int]]:
    """(start, end, phase) of each segment, in microseconds from zero."""
    at = lane.start_us
    for gap, length, phase in zip(lane.segments[::3], lane.segments[1::3], lane.segments[2::3], strict=True):
        yield at + gap, at + gap + length, phase
        at += gap + length


def all_lanes(page: Page) -> list[Lane]:
    return [*page.lanes, *(member for lane in page.lanes for member in lane.members)]


def check_lane(lane: Lane, page: Page) -> None:
    at = lane.start_us
    assert page.start_us <= lane.start_us
    for start, end, phase in drawn(lane):
        assert at <= start < end <= page.end_us
        assert 0 <= (phase if phase >= 0 else -1 - phase) < len(page.phases)
        at = end
    assert all(page.start_us <= mark.at_us <= page.end_us for mark in lane.marks)
    assert [mark.at_us for mark in lane.marks] == sorted(mark.at_us for mark in lane.marks)
    assert lane.end_us is None or page.start_us <= lane.end_us <= page.end_us


@pytest.mark.parametrize("name", sorted({**CONTEXTS, **FAULTS}))
def test_segments_lie_in_order_within_the_window(name: str) -> None:
    page = paged({**CONTEXTS, **FAULTS}[name]())
    for lane in all_lanes(page):
        check_lane(lane, page)


def a_step(number: int, at_ns: int, took_ns: int, shares: list[float], extra: float) -> Record:
    attributes: dict[str, Value] = {names.phase_attribute(phase): int(share * took_ns) for phase, share in zip(ORDER, shares, strict=False)}
    attributes[names.phase_attribute("eval")] = int(extra * took_ns)
    identity = Identity(trace_id=TRACE, span_id="a" * 16, node="n", rank=0, attempt="a1")
    return Record(id=f"s-{number}", time_ns=at_ns, kind="span", name=names.STEP, identity=identity, step=number, duration_ns=took_ns, attributes=attributes)


@st.composite
def jobs(draw: st.DrawFn) -> Context:
    """One rank's steps as they never should be: overlapping, longer than their phases or shorter, beyond the window, at odd nanoseconds."""
    count = draw(st.integers(0, 12))
    ends = sorted(draw(st.lists(st.integers(ONSET - 32 * S, ONSET + 7 * S), min_size=count, max_size=count)))
    lengths = draw(st.lists(st.integers(0, 6 * S), min_size=count, max_size=count))
    shares = draw(st.lists(st.lists(st.floats(0, 1.5), max_size=6), min_size=count, max_size=count))
    records = [a_step(number, end, took, share, draw(st.floats(0, 1))) for number, (end, took, share) in enumerate(zip(ends, lengths, shares, strict=True))]
    started = draw(st.integers(ONSET - 60 * S, ONSET))
    ended = draw(st.none() | st.integers(started, ONSET + 9 * S))
    process = Process(
        identity=Identity(trace_id=TRACE, span_id="a" * 16, node="n", rank=0, attempt="a1"),
        started_ns=started,
        last_ns=ended or ONSET,
        ending="running" if ended is None else draw(st.sampled_from(["clean", "killed", "raised", "unknown"])),
        ended_ns=ended if draw(st.booleans()) else None,
        last_step=draw(st.none() | st.integers(0, 14)),
        phase=draw(st.sampled_from(["", "forward", "eval", "of my own"])),
        progress_ns=draw(st.none() | st.integers(ONSET - 40 * S, ONSET + 6 * S)),
    )
    return Context(trace_id=TRACE, incident=None, window=Window(ONSET - 30 * S, ONSET + 5 * S), processes=[process], records=records, drops={})


@settings(deadline=None, max_examples=200)
@given(jobs())
def test_whatever_the_steps_are_segments_never_overlap_or_run_backwards(context: Context) -> None:
    page = paged(context)
    for lane in all_lanes(page):
        check_lane(lane, page)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 300 * MS), st.integers(0, 40 * MS)), min_size=1, max_size=30), st.integers(0, 999))
def test_rounding_never_adds_up(lengths: list[tuple[int, int]], odd_ns: int) -> None:
    """Each boundary lies within a microsecond of where it is, however many segments came before it."""
    at, records = ONSET - 20 * S + odd_ns, list[Record]()
    for number, (took, gap) in enumerate(lengths):
        at += took + gap
        records.append(a_step(number, at, took, [0.1, 0.3, 0.6], 0.0))
    process = Process(identity=records[0].identity, started_ns=ONSET - 60 * S, last_ns=ONSET)
    context = Context(trace_id=TRACE, incident=None, window=Window(ONSET - 30 * S, ONSET + 5 * S), processes=[process], records=records, drops={})
    page, story = paged(context), tell(context)
    found = [(start * 1000, end * 1000) for start, end, _ in drawn(page.lanes[0])]
    exact = [(part.start_ns - story.zero_ns, part.end_ns - story.zero_ns) for part in stretches(story.standings[0], Scale(0, 1 << 62, 1))]
    for start, end in found:
        assert any(abs(start - begun) < 1000 and abs(end - over) < 1000 for begun, over in exact)


def test_phases_come_in_the_order_of_a_step_and_what_never_finished_is_open() -> None:
    page = paged(kill())
    words = [english(phase.words) for phase in page.phases]
    assert words[:5] == ["data wait", "forward", "backward", "gradient sync", "optimizer"]
    assert [phase.name for phase in page.phases[:5]] == ["data_wait", "forward", "backward", "gradient_sync_exposed", "optimizer"]
    culprit = list(drawn(page.lanes[0]))
    assert [phase for _, _, phase in culprit[:10]] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    start, end, phase = culprit[-1]
    assert (phase, end) == (-1 - words.index("forward"), 0)
    assert end - start == 12_000
    victims = [list(drawn(lane))[-1] for lane in page.lanes[1:]]
    assert {phase for _, _, phase in victims} == {-1 - words.index("backward")}


def test_marks_say_what_happened_at_which_moment() -> None:
    page = paged(kill())
    assert [(mark.kind, mark.at_us, english(mark.words)) for mark in page.lanes[0].marks] == [
        ("started", -24_000_000, "process started"),
        ("died", 0, "killed by SIGKILL"),
    ]
    assert [(mark.kind, mark.at_us, english(mark.words)) for mark in page.lanes[1].marks][1:] == [
        ("failed", 310_000, "lost its peer"),
        ("died", 1_210_000, "killed by SIGTERM"),
    ]
    finished = paged(CONTEXTS["finished"]())
    assert all(lane.marks[-1].kind == "clean" and lane.end_us == -100_000 for lane in finished.lanes)


def test_a_start_before_the_window_and_an_end_after_it_have_no_mark() -> None:
    context = kill()
    processes = [msgspec.structs.replace(p, started_ns=ONSET - 40 * S, ended_ns=ONSET + 60 * S) if p.identity.rank != 1 else p for p in context.processes]
    page = paged(msgspec.structs.replace(context, processes=processes))
    other = page.lanes[1]
    assert [mark.kind for mark in other.marks] == ["failed"]
    assert (other.start_us, other.end_us) == (page.start_us, None)


# Who shares a lane.


def test_up_to_eight_ranks_each_have_a_lane_the_culprit_and_its_node_first() -> None:
    page = paged(oom(8, 5, nodes=4))
    assert [lane.ranks for lane in page.lanes] == [[5], [4], [0], [1], [2], [3], [6], [7]]
    assert [lane.node for lane in page.lanes] == ["node-c", "node-c", "node-a", "node-a", "node-b", "node-b", "node-d", "node-d"]
    assert [lane.culprit for lane in page.lanes] == [True] + [False] * 7
    assert not any(lane.members for lane in page.lanes)


def test_more_are_folded_by_node_and_can_be_unfolded() -> None:
    page = paged(many())
    assert len(page.lanes) == 9
    assert (page.lanes[0].ranks, page.lanes[0].members) == ([37], [])
    assert (page.lanes[1].node, english(page.lanes[1].label)) == ("node-e", "7 ranks: 32-36, 38, 39")
    assert sorted(rank for lane in page.lanes for rank in lane.ranks if rank is not None) == list(range(64))
    for lane in page.lanes[1:]:
        assert [member.ranks for member in lane.members] == [[rank] for rank in lane.ranks]
        assert any(member.segments == lane.segments for member in lane.members)
        assert re_shown(lane) in {f"rank {rank}" for rank in lane.ranks}
    assert not page.missing


def re_shown(lane: Lane) -> str:
    (note,) = [words for words in map(english, lane.notes) if words.startswith("drawn is ")]
    return note.removeprefix("drawn is ").partition(",")[0]


def test_a_great_many_are_folded_across_nodes_without_members_and_the_page_says_so() -> None:
    context = oom(160, 37, nodes=8, at=20)
    processes = [
        msgspec.structs.replace(p, identity=msgspec.structs.replace(p.identity, node=f"node-{(p.identity.rank or 0) // 4:03d}")) for p in context.processes
    ]
    page = paged(msgspec.structs.replace(context, processes=processes))
    assert len(page.lanes) == 2
    assert (english(page.lanes[1].label), page.lanes[1].node, page.lanes[1].members) == ("159 ranks: 0-36, 38-159", "", [])
    assert "40 nodes" in [english(words) for words in page.lanes[1].notes]
    assert [english(words) for words in page.missing] == ["a lane of several ranks shows one of them, the middle one: 159 ranks are too many to draw each"]
    assert page.lanes[1].segments


def changed(context: Context, ranks: dict[int, dict[str, object]]) -> Context:
    return msgspec.structs.replace(
        context,
        processes=[msgspec.structs.replace(p, **ranks.get(p.identity.rank or 0, {})) for p in context.processes],  # type: ignore[arg-type]
    )


def test_one_that_failed_is_not_folded_with_those_that_did_not_however_many_groups_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = msgspec.structs.replace(running(40, steps=10), incident=None)
    scattered = {rank: {"last_step": 5000 + rank % 2, "phase": f"phase {rank}"} for rank in range(40)}
    scattered[7] = {"ending": "killed", "exit_code": -9, "ended_ns": calm.window.end_ns - S, "last_step": 5000}
    scattered[9] = {"last_step": 4000}
    page = paged(changed(calm, scattered))
    assert len(page.lanes) <= LANES_MAX
    alone = [lane.ranks for lane in page.lanes if len(lane.ranks) == 1]
    assert [7] in alone and [9] in alone
    assert all(len({rank == 7 for rank in lane.ranks}) == 1 for lane in page.lanes)
    assert [lane.bad for lane in page.lanes if lane.ranks == [7]] == [True]


def test_one_that_said_that_memory_ran_out_is_not_folded_with_those_that_said_nothing() -> None:
    context = running(12, steps=10)
    short = Record(id="o-1", time_ns=context.window.end_ns - S, kind="event", name=names.OOM, identity=context.processes[4].identity)
    page = paged(with_records(context, [short]))
    assert [(lane.ranks, lane.bad) for lane in page.lanes] == [([4], True), ([*range(4), *range(5, 12)], False)]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["running", "clean", "killed", "raised"]), st.integers(0, 3), st.sampled_from(["a", "b", "c"]), st.integers(0, 30)),
        min_size=1,
        max_size=60,
    )
)
def test_every_rank_is_in_one_lane_with_others_like_it(ranks: list[tuple[str, int, str, int]]) -> None:
    processes = [
        Process(
            identity=Identity(trace_id=TRACE, span_id=f"{rank:016x}", node=node, rank=rank, attempt="a1"),
            started_ns=ONSET - 60 * S,
            last_ns=ONSET - S,
            ending=ending,  # type: ignore[arg-type]
            ended_ns=None if ending == "running" else ONSET - S,
            exit_code={"running": None, "clean": 0, "killed": -9, "raised": code}[ending],
            last_step=step,
        )
        for rank, (ending, code, node, step) in enumerate(ranks)
    ]
    context = Context(trace_id=TRACE, incident=None, window=Window(ONSET - 30 * S, ONSET), processes=processes, records=[], drops={})
    groups = folded(tell(context))
    assert sorted(standing.rank or 0 for group in groups for standing in group) == list(range(len(ranks)))
    for group in groups:
        assert len({(standing.bad, standing.process.ending, standing.process.exit_code) for standing in group}) == 1
        assert len(ranks) > 8 or len(group) == 1
    page = paged(context)
    assert [lane.bad for lane in page.lanes] == [group[0].bad for group in groups]


def test_the_middle_one_is_neither_the_fastest_nor_the_slowest() -> None:
    story = tell(kill())

    def paced(rank: int, took_ns: int) -> Standing:
        standing = story.standings[rank]
        return msgspec.structs.replace(standing, steps=[msgspec.structs.replace(step, duration_ns=took_ns) for step in standing.steps[:3]])

    group = [paced(0, 50 * MS), paced(1, 90 * MS), paced(2, 10 * MS)]
    assert middle(group).rank == 0
    assert middle(group[:1]).rank == 0


# Strips.


def sample(identity: Identity, at_ns: int, name: str, step: int | None = None, **attributes: Value) -> Record:
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    return Record(id=f"{identity.span_id}-{name}-{at_ns}", time_ns=at_ns, kind="sample", name=name, identity=identity, step=step, attributes=named)


def with_records(context: Context, records: list[Record]) -> Context:
    return msgspec.structs.replace(context, records=sorted([*context.records, *records], key=lambda record: record.time_ns))


def strips_of(page: Page) -> dict[str, page_strips.Strip]:
    return {english(strip.label): strip for strip in page.strips}


def times(column: Series | Band) -> list[int]:
    at, found = 0, list[int]()
    for step in column.times_us:
        at += step
        found.append(at)
    return found


def test_step_time_data_wait_and_memory_are_the_culprits_against_the_others() -> None:
    page = paged(oom())
    found = strips_of(page)
    assert list(found) == ["step time", "data wait", "process memory (RSS)"]
    assert {english(strip.who) for strip in page.strips} == {"rank 2"}
    assert [strip.unit for strip in page.strips] == ["ns", "ns", "bytes"]
    strip = found["step time"]
    assert strip.others is not None
    assert len(strip.own.values) == 340
    for low, mid, high in zip(strip.others.low, strip.others.middle, strip.others.high, strict=True):
        assert low is not None and mid is not None and high is not None
        assert low <= mid <= high
    assert all(page.start_us <= at <= page.end_us for at in times(strip.own) + times(strip.others))
    assert times(strip.own) == [(r.time_ns - ONSET) // 1000 for r in oom().records if r.name == names.STEP and r.identity.rank == 2]


def test_what_later_instruments_emit_has_its_strip_by_the_table() -> None:
    context = exception()
    records: list[Record] = []
    for process in context.processes:
        who, base = process.identity, (process.identity.rank or 0) + 1
        for second in range(1, 20):
            at, step = ONSET - second * S, 400 - second
            for op in ("all_reduce", "all_gather"):
                records.append(sample(who, at, "llmtrace.collective", step, llmtrace__collective__op=op, llmtrace__collective__duration_sum_ns=base * MS))
            records.append(sample(who, at, "llmtrace.gradient_sync", step, llmtrace__gradient_sync__exposed_ns=base, llmtrace__gradient_sync__total_ns=9))
            if second % 5 == 0:
                records.append(sample(who, at, "llmtrace.checkpoint", step, llmtrace__checkpoint__bytes_per_second=2e9))
    node = Identity(trace_id=TRACE, span_id="e" * 16, node="node-a", role="agent")
    for second in range(1, 20):
        for gpu in range(2):
            facts: dict[str, Value] = {
                "llmtrace.node.gpu.temperature_celsius": 61 - gpu,
                "llmtrace.node.gpu.power_watts": 300.0,
                "llmtrace.node.gpu.clock_hertz": 1.9e9,
                "llmtrace.node.gpu.busy_ratio": 0.97,
                "llmtrace.node.gpu.uuid": "GPU-1",
            }
            records.append(msgspec.structs.replace(sample(node, ONSET - second * S + gpu, "llmtrace.node.gpu"), id=f"g-{second}-{gpu}", attributes=facts))
    found = strips_of(paged(with_records(context, records)))
    assert found["collectives"].own.values == [8 * MS] * 19  # two operations of 4 ms in each step of rank 3
    assert (found["collectives"].unit, english(found["collectives"].who)) == ("ns", "rank 3")
    others = found["collectives"].others
    assert others is not None
    assert {(low, middle, high) for low, middle, high in zip(others.low, others.middle, others.high, strict=True)} == {(2 * MS, 4 * MS, 6 * MS)}
    assert set(found["gradient sync, exposed"].own.values) == {4}
    assert found["checkpoint speed"].unit == "bytes_per_second"
    temperature = found["gpu.temperature_celsius"]
    assert (temperature.unit, temperature.who, temperature.others) == ("celsius", "node-a", None)
    assert set(temperature.own.values) == {61}
    units = {name: strip.unit for name, strip in found.items() if name.startswith("gpu.")}
    assert units == {"gpu.temperature_celsius": "celsius", "gpu.power_watts": "watts", "gpu.clock_hertz": "hertz", "gpu.busy_ratio": "ratio"}


def test_a_number_that_only_another_rank_logged_is_shown_as_its() -> None:
    context = kill()
    logger = next(p.identity for p in context.processes if p.identity.rank == 0)
    values = [3.5, math.nan, 3.1, math.inf, -math.inf, 2.9]
    facts = [{names.METRIC_NAME: "train/loss", names.METRIC_VALUE: value} for value in values]
    records = [
        msgspec.structs.replace(sample(logger, ONSET - (9 - n) * S, names.METRIC, n), id=f"m-{n}", attributes=dict(fact)) for n, fact in enumerate(facts)
    ]
    strip = strips_of(paged(with_records(context, records)))["train/loss"]
    assert (english(strip.who), strip.others, strip.unit) == ("rank 0", None, "")
    assert strip.own.values == [3.5, None, 3.1, None, None, 2.9]


def test_what_stays_zero_is_left_out_and_a_users_zero_is_not() -> None:
    context = kill()
    who = next(p.identity for p in context.processes if p.identity.rank == 1)
    records = [
        msgspec.structs.replace(sample(who, ONSET - (9 - n) * S, names.METRIC, n), id=f"m-{n}", attributes={names.METRIC_NAME: "lr", names.METRIC_VALUE: 0.0})
        for n in range(4)
    ] + [sample(who, ONSET - (9 - n) * S, names.MEMORY, n, llmtrace__memory__allocated_bytes=0) for n in range(4)]
    found = strips_of(paged(with_records(context, records)))
    assert "lr" in found
    assert "GPU memory, allocated" not in found


def test_of_more_logged_numbers_than_a_page_holds_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_strips, "USERS_MAX", 3)
    context = kill()
    who = next(p.identity for p in context.processes if p.identity.rank == 1)
    records = [
        msgspec.structs.replace(
            sample(who, ONSET - S - n, names.METRIC, 1), id=f"m-{n}", attributes={names.METRIC_NAME: f"metric {n % 5}", names.METRIC_VALUE: float(n)}
        )
        for n in range(20)
    ]
    page = paged(with_records(context, records))
    assert [name for name in strips_of(page) if name.startswith("metric")] == ["metric 4", "metric 3", "metric 2"]
    assert [english(words) for words in page.missing] == ["2 more logged numbers are left out of this page"]


def test_the_step_that_failed_is_no_step_time() -> None:
    context = exception()
    last = msgspec.structs.replace(
        next(r for r in context.records if r.name == names.STEP and r.identity.rank == 3), id="x-1", step=340, time_ns=ONSET, duration_ns=12 * MS
    )
    page = paged(with_records(context, [last]))
    assert 12 * MS not in strips_of(page)["step time"].own.values


FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(FLOATS, min_size=1, max_size=400), st.integers(6, 60))
@example([1.0] * 50 + [math.nan] + [2.0] * 50, 12)
def test_a_thinned_curve_keeps_its_peaks_and_what_is_no_number(values: list[float], most: int) -> None:
    points = [(place * 10, value) for place, value in enumerate(values)]
    kept = thinned(points, most)
    assert len(kept) <= max(most, 0) or len(points) <= most
    assert set(map(repr, kept)) <= set(map(repr, points))
    assert [time for time, _ in kept] == sorted({time for time, _ in kept})
    finite, left = [v for v in values if math.isfinite(v)], [v for _, v in kept if math.isfinite(v)]
    if finite:
        assert (min(left), max(left)) == (min(finite), max(finite))
    assert any(not math.isfinite(v) for _, v in kept) == any(not math.isfinite(v) for v in values)


@given(st.lists(st.lists(st.tuples(st.integers(-30 * S, 5 * S - 1), FLOATS), min_size=1, max_size=60), min_size=1, max_size=6))
@example([[(0, 8.98846567431158e307)], [(0, 8.98846567431158e307)]])
def test_a_band_goes_up_to_the_largest_value_and_counts_each_rank_once_at_a_place(ranks: list[list[tuple[int, float]]]) -> None:
    series = [sorted(((ONSET + at, value) for at, value in points), key=lambda point: point[0]) for points in ranks]
    found = band(series, AXIS)
    assert len(found.times_us) <= BAND_MAX + 1
    assert len(found.times_us) == len(found.low) == len(found.middle) == len(found.high)
    at = times(found)
    assert at == sorted(set(at))
    finite = [value for points in series for _, value in points if math.isfinite(value)]
    lows, highs = [v for v in found.low if v is not None], [v for v in found.high if v is not None]
    assert bool(lows) == bool(finite)
    if finite:
        assert set(lows) | set(highs) <= {float(f"{value:.6g}") for value in finite}
        assert max(highs) == float(f"{max(finite):.6g}")
    for low, mid, high in zip(found.low, found.middle, found.high, strict=True):
        assert (low is None) == (mid is None) == (high is None)
        assert low is None or mid is None or high is None or low <= mid <= high


@given(st.lists(st.integers(-(10**9), 10**9)))
def test_a_column_of_times_sums_up(column: list[int]) -> None:
    times_us = sorted(column)
    at, found = 0, list[int]()
    for step in steps(times_us):
        at += step
        found.append(at)
    assert found == times_us


def test_a_long_curve_is_thinned_and_its_peak_stays() -> None:
    context = kill()
    who = next(p.identity for p in context.processes if p.identity.rank == 1)
    facts: list[dict[str, Value]] = [{names.METRIC_NAME: "norm", names.METRIC_VALUE: 99.5 if n == 4321 else n % 7 / 10} for n in range(9000)]
    records = [msgspec.structs.replace(sample(who, ONSET - 20 * S + n * 2 * MS, names.METRIC, 1), id=f"m-{n}", attributes=fact) for n, fact in enumerate(facts)]
    strip = strips_of(paged(with_records(context, records)))["norm"]
    assert len(strip.own.values) <= OWN_MAX
    assert strip.own.values.count(99.5) == 1


def test_every_row_of_the_table_has_words_or_takes_them_from_the_record() -> None:
    for row in MEASUREMENTS:
        assert row.words or row.of_node or row.of_user
        assert row.record.endswith(".") == row.of_node
    assert measured([]) == {}
