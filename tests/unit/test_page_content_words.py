"""A view does not contradict itself and says no more than is on record: order, margins, places, effects, ends, in both languages and on both views."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtrace import names
from llmtrace.record import INFO, Record
from llmtrace.show.facts import slower_steps
from llmtrace.show.order import order
from llmtrace.show.page.axis import Axis
from llmtrace.show.page.model import Page
from llmtrace.show.page.strips import band
from llmtrace.show.phrases import english, spelled
from llmtrace.show.story import tell
from llmtrace.show.times import after
from llmtrace.sources.context import Context
from tests.support.cases import FAULTS, death, failure, line, lost_peer, ns, process, shortage, step, who, window_of
from tests.support.contexts import CONTEXTS, MS, ONSET, S, exception, finished, kill, leave, oom, running
from tests.unit.test_page_content import fact, paged
from tests.unit.test_page_content_lanes import strips_of, times
from tests.unit.test_terminal import flat, seen


def sure(page: Page) -> str:
    assert page.head.confidence is not None
    return english(page.head.confidence)


# Order: what came first on record.


def test_an_end_that_was_felt_first_is_told_so_everywhere() -> None:
    context = FAULTS["felt first"]()
    page, text = paged(context), flat(seen(context))
    assert "named by inference: rank 0 lost its peer, so it was already gone; its own end was recorded 3 ms later" in sure(page)
    assert fact(page, "since")[0].endswith("dated by what rank 0 felt: the end itself was recorded 3 ms later")
    assert [(item.at_us, english(item.who), item.effect) for item in page.evidence] == [(0, "rank 0", True), (3_000, "rank 1", False)]
    assert "rank 0 lost its peer 3 ms before that end was recorded" in text
    assert not re.search(r"rank 0 then|came first|first to fail", text)
    for language, said in (("en", "so rank 1 was gone by then"), ("zh", "可见 rank 1 此时已经消失")):
        assert said in spelled(page.head.sentence, language)


@settings(deadline=None)
@given(st.integers(-900, 900))
def test_whoever_is_said_to_have_followed_did_follow(late_ms: int) -> None:
    context = window_of(
        [death(who(1), 100, -9), lost_peer(0, 100 + late_ms / 1000)], [process(0, "killed", -15, 101.3), process(1, "killed", -9, 100, progress=99)]
    )
    page, found = paged(context), order(tell(context))
    assert context.incident is not None and found is not None
    assert (" then " in english(page.head.sentence)) is (late_ms > 0)
    assert (" then " in context.incident.summary) is (late_ms > 0)
    assert (" before the first trouble" in sure(page)) is (late_ms > 0)
    assert found.inferred is (late_ms <= 0)
    assert [item.at_us for item in page.evidence] == sorted(item.at_us for item in page.evidence)


def test_the_margin_is_said_and_what_came_before_is_called_a_symptom() -> None:
    assert "its end was seen, 100 ms before the first trouble of another rank (rank 0)" in sure(paged(FAULTS["killed"]()))
    early = window_of([lost_peer(0, 99.9), failure(who(1), 100, "ValueError", "x")], [process(0), process(1)])
    assert "what rank 0 reports 100 ms before it is only a symptom" in sure(paged(early))
    assert "then" not in english(paged(early).head.sentence)
    alone = window_of([failure(who(1), 100, "ValueError", "x")], [process(0), process(1)])
    assert sure(paged(alone)) == "confidence high: its own exception is on record"


def test_of_two_nodes_clocks_nothing_is_inferred() -> None:
    context = window_of(
        [death(who(1), 100.02, -9), lost_peer(0, 100, node="b")], [process(0, "killed", -15, 101, node="b"), process(1, "killed", -9, 100.02, progress=99)]
    )
    page = paged(context)
    assert english(page.head.sentence).endswith("in forward of step 40; rank 0 lost its peer (-20 ms).")
    assert "what rank 0 reports 20 ms before it is only a symptom" in sure(page)
    assert "dated by" not in fact(page, "since")[0]


# What is said of the cause.


@pytest.mark.parametrize(
    ("name", "said"),
    [("killed", "SIGKILL ended it"), ("left", "it exited by itself with code 7; why is on no record"), ("segmentation fault", "SIGSEGV ended it")],
)
def test_a_death_is_told_as_far_as_it_is_known(name: str, said: str) -> None:
    page = paged(FAULTS[name]())
    assert fact(page, "what") == [f"a process died (process_death); {said}"]
    assert not re.search("outside|not known yet", str(fact(page, "why")))
    assert fact(paged(FAULTS["all killed"]()), "what") == ["a process died (process_death); what ended them is on no record"]
    assert fact(paged(FAULTS["unseen"]()), "what") == ["a process died (process_death); not certain to be the cause"]


def test_a_reason_that_but_repeats_what_broke_is_left_out() -> None:
    assert fact(paged(FAULTS["exception"]()), "why") == []
    assert fact(paged(FAULTS["two nodes"]()), "why") != []  # what is said of the clocks repeats nothing
    assert fact(paged(FAULTS["left"]()), "why") == ["the process exited with an error code, and raised no exception"]


def asked(size: int, **sizes: int) -> Context:
    record = shortage(who(1), 100, asked=size)
    record = msgspec.structs.replace(record, attributes={**record.attributes, **{f"llmtrace.oom.{name}_bytes": value for name, value in sizes.items()}})
    return window_of(
        [record, failure(who(1), 100.01, "RuntimeError", "DefaultCPUAllocator: can't allocate memory")], [process(0), process(1, "raised", 1, 101)]
    )


@pytest.mark.parametrize(
    ("context", "sentence", "advice"),
    [
        (
            asked(1 << 50, free=20 << 30, rss=850 << 20),
            "asked for 1.0 PiB of host memory at once in forward of step 40 and was refused (20.0 GiB free)",
            "too large",
        ),
        (asked(20 << 20, free=10 << 20, rss=60 << 30), "ran out of host memory in forward of step 40 (asked for 20.0 MiB, 10.0 MiB free)", "a leak"),
        (asked(2 << 30, free=1 << 30, rss=3 << 30), "ran out of host memory in forward of step 40 (asked for 2.0 GiB, 1.0 GiB free)", "Compare the size"),
    ],
)
def test_one_absurd_request_is_told_from_a_growth(context: Context, sentence: str, advice: str) -> None:
    page = paged(context)
    assert sentence in english(page.head.sentence)
    assert advice in english(page.head.advice[0])
    assert "no memory left" not in flat(seen(context))


def test_a_processs_memory_has_one_name() -> None:
    page = paged(oom())
    said = [english(words) for words in (page.evidence[0].text, *(strip.label for strip in page.strips))]
    assert sum("process memory (RSS)" in words for words in said) == 2
    notes = [english(note) for lane in page.lanes for note in lane.notes]
    assert any(note.startswith("RSS ") for note in notes)
    assert not any(re.search("resident|host memory", words) for words in [*said, *notes])


# Where, and what was before.


def test_where_is_answered_though_no_traceback_was_left() -> None:
    (where,) = fact(paged(kill()), "where")
    parts = where.split("; ")
    assert parts[0] == "not known: a process that a signal ends leaves no traceback"
    assert re.fullmatch(r'last line -\d+ ms "step 340 loss [\d.]+"', parts[1])
    assert parts[2] == "rank 0 stood at /home/ada/gpt/train.py:66 in train"
    assert fact(paged(leave()), "where")[0].startswith("not known: a process that exits by itself leaves no traceback")
    assert fact(paged(FAULTS["crash"]()), "where") == ["not known: no line of the program is on record"]  # but a stack is
    assert fact(paged(exception()), "where") == []  # the line stands with who
    assert "train.py:61 in training_step" in fact(paged(exception()), "who")[0]
    assert "where" in flat(seen(kill()))


def stepping(lengths: dict[int, list[int]]) -> Context:
    """Ranks whose steps took so many milliseconds each, up to the onset."""
    records: list[Record] = [failure(who(1), 100, "ValueError", "x", step=99)]
    for rank, took in lengths.items():
        at = 100.0 - sum(took) / 1000
        for number, ms in enumerate(took):
            at += ms / 1000
            records.append(msgspec.structs.replace(step(who(rank), at - 0.03, number), duration_ns=ms * MS))
    return window_of(records, [process(0, step=99), process(1, step=99)])


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ({0: [30] * 20 + [200, 30, 357], 1: [30] * 23}, "the last steps of rank 0 took up to 357 ms; the median step took 30 ms"),
        ({0: [30] * 20 + [200, 30, 357], 1: [30] * 20 + [210, 300]}, "the last steps of ranks 0, 1 took up to 357 ms; the median step took 30 ms"),
        ({0: [30] * 20 + [300], 1: [30] * 20 + [300]}, ""),
        ({0: [200] * 3 + [30] * 20, 1: [30] * 20}, ""),
        ({0: [30] * 4 + [200] * 2, 1: [30] * 5}, ""),
    ],
)
def test_steps_that_grew_slow_before_the_onset_are_said(lengths: dict[int, list[int]], said: str) -> None:
    context = stepping(lengths)
    assert english(slower_steps(tell(context))) == said
    assert fact(paged(context), "before") == ([said] if said else [])


# The others.


def waiting(gone: float, told: float, code: int = -15, node: str = "a") -> Context:
    processes = [process(0, "killed", code, gone + 0.1, node=node), process(1, "raised", 1, gone)]
    return window_of([failure(who(1), 100, "ValueError", "x"), lost_peer(0, told, node=node)], processes)


def test_a_rank_that_felt_it_only_when_the_process_was_gone_is_said_to_have_waited() -> None:
    assert "lost its peer +2.80 s (waited until the process of rank 1 was gone)" in fact(paged(waiting(102.8, 102.8)), "others")[0]
    assert "its process was gone +2.80 s" in fact(paged(waiting(102.8, 102.8)), "who")[0]
    assert "waited" not in fact(paged(waiting(102.8, 101)), "others")[0]
    assert "waited" not in fact(paged(waiting(100.1, 100.1)), "others")[0]


def test_a_sigterm_is_the_launchers_where_that_is_sure_and_nobodys_else() -> None:
    assert "killed by SIGTERM (its launcher's clean-up) +2.90 s" in fact(paged(waiting(102.8, 102.8)), "others")[0]
    for context in (waiting(102.8, 102.8, node="b"), waiting(102.8, 102.8, code=-9)):
        assert "clean-up" not in fact(paged(context), "others")[0]
    told = window_of([lost_peer(0, 100.1)], [process(0, "killed", -15, 101), process(1, "killed", -15, 100)])
    assert "clean-up" not in str(paged(told).head)


def test_a_victim_is_noted_by_what_befell_it_and_its_rows_are_marked_as_effects() -> None:
    page = paged(kill())
    notes = {english(lane.label): english(lane.notes[0]) for lane in page.lanes}
    assert (notes["rank 1"], notes["rank 0"]) == ("SIGKILL +0 ms", "lost its peer +310 ms")
    marked = {english(page.log.speakers[page.log.speaker[row]].words) for row in page.log.effects}
    assert marked == {"rank 0", "rank 2", "rank 3"}
    assert set(page.log.effects) <= set(page.log.events)
    assert paged(running()).log.effects == []


@pytest.mark.parametrize(
    ("make", "last"),
    [
        (kill, ["step", "process killed by SIGKILL"]),
        (leave, ["step", "process exited with code 7"]),
        (exception, ["step", "raised ValueError: bad batch 7f3a"]),
        (oom, ["step", "memory refused on cpu", "raised RuntimeError"]),
    ],
)
def test_the_last_lines_end_with_the_end(make: Callable[[], Context], last: list[str]) -> None:
    page = paged(make())
    rows = [english(page.log.texts[row]) for row in page.log.last][-len(last) :]
    assert all(row.startswith(words) for row, words in zip(rows, last, strict=True)), rows
    assert {page.log.speakers[page.log.speaker[row]].culprit for row in page.log.last} == {True}
    part = seen(make(), 200)
    part = part[part.index("── Last lines") : part.index("── All ranks")]
    assert all(words in part for words in last[1:])


# A clean end.


def test_a_clean_end_says_when_after_how_long_and_how() -> None:
    context = finished()
    page = paged(context)
    assert fact(page, "ranks") == ["ranks 0-3: ended cleanly after step 199, exit code 0"]
    assert "Nothing to do." in seen(context)
    assert fact(page, "end") == []
    late = [msgspec.structs.replace(p, exit_code=None) for p in context.processes]
    unseen = paged(msgspec.structs.replace(context, processes=late))
    assert (sure(unseen)[:17], unseen.head.advice) == ("confidence medium", [])
    assert "exit code" not in english(unseen.head.sentence)


def test_what_a_process_took_to_be_gone_is_said() -> None:
    context = finished(1)
    process_of = context.processes[0]
    assert process_of.ended_ns is not None
    facts = {names.PROCESS_ACTION: "finished", names.PROCESS_ENDING: "clean"}
    said = Record(
        id="e", time_ns=process_of.ended_ns - 4 * S, kind="event", name=names.PROCESS, identity=process_of.identity, severity=INFO, attributes=dict(facts)
    )
    page = paged(msgspec.structs.replace(context, records=sorted([*context.records, said], key=lambda record: record.time_ns)))
    assert fact(page, "end") == ["the program ended at 03:13:55.276, its processes were gone 4.0 s later"]
    assert english(page.head.sentence).startswith("The job finished cleanly at 03:13:55.276 after ")


def test_a_window_that_does_not_hold_the_beginning_counts_no_steps() -> None:
    context = finished()
    early = [msgspec.structs.replace(p, started_ns=context.window.start_ns - S) for p in context.processes]
    assert "last step 199, every exit code 0" in english(paged(msgspec.structs.replace(context, processes=early)).head.sentence)


# Numbers, times, names.


def test_a_single_other_rank_has_its_own_curve_and_several_have_a_band() -> None:
    (alone, several) = (strips_of(paged(make))["step time"] for make in (leave(), kill()))
    assert alone.others is None and alone.other is not None
    assert (english(alone.other_who), len(alone.other.values)) == ("rank 0", 340)
    assert several.others is not None and several.other is None


def test_a_band_never_pools_two_steps_of_a_rank_and_goes_on_no_longer_than_they_do() -> None:
    axis = Axis(ONSET, ONSET - 10 * S, ONSET + 5 * S)
    slow = [(ONSET - 9 * S, 1.0), (ONSET - 4 * S, 500.0)]
    quick = [(ONSET - 9 * S + number * 100 * MS, 30.0 if number % 2 else 357.0) for number in range(80)]
    found = band([quick, quick, slow], axis)
    assert set(found.middle) <= {30.0, 357.0}
    assert max(times(found)) <= max(axis.us(points[-1][0]) for points in (quick, slow))


def test_nothing_is_measured_of_a_process_that_is_gone() -> None:
    context = kill()
    guilty = next(p.identity for p in context.processes if p.identity.rank == 1)
    late = [
        Record(id=f"m{at}", time_ns=ONSET + at * MS, kind="sample", name=names.MEMORY, identity=guilty, attributes={"llmtrace.memory.rss_bytes": 5 << 30})
        for at in (-5, 230)
    ]
    strip = strips_of(paged(msgspec.structs.replace(context, records=sorted([*context.records, *late], key=lambda r: r.time_ns))))["process memory (RSS)"]
    assert times(strip.own)[-1] == -5_000


@pytest.mark.parametrize(
    ("ns_after", "said"),
    [
        *((0, "+0 ms"), (400_000, "+0 ms"), (-400_000, "+0 ms"), (4_700_000, "+5 ms"), (147 * MS, "+147 ms"), (-101 * MS, "-101 ms")),
        *((999_400_000, "+999 ms"), (999_600_000, "+1.00 s"), (2_846 * MS, "+2.85 s"), (-12_034 * MS, "-12.03 s")),
    ],
)
def test_offsets_are_milliseconds_below_a_second(ns_after: int, said: str) -> None:
    assert after(ns_after) == said


def test_the_trace_stands_in_the_header_and_not_with_the_job() -> None:
    assert "trace" not in fact(paged(kill()), "job")[0]
    assert "trace 4bf92f3577b34da6" in flat(seen(kill()))


def test_commands_are_named_by_what_they_show() -> None:
    page = paged(kill())
    assert {"this view in a terminal", "all lines of rank 1"} <= {english(command.why) for command in page.head.commands}


def test_a_lane_says_which_step_time_it_is() -> None:
    assert any(re.fullmatch(r"median \d+ ms/step", english(note)) for lane in paged(kill()).lanes for note in lane.notes)


@pytest.mark.parametrize("name", sorted({**CONTEXTS, **FAULTS}))
def test_nobody_is_said_to_have_left(name: str) -> None:
    context = {**CONTEXTS, **FAULTS}[name]()
    assert not re.search(r"\bleft (with|by)\b", flat(seen(context)))


def test_a_last_line_is_the_jobs_own_and_short() -> None:
    context = window_of(
        [line(who(1), 99.5, "y" * 500 + "\nmore", INFO), death(who(1), 100, -9), lost_peer(0, 100.1)], [process(0), process(1, "killed", -9, 100)]
    )
    (where,) = fact(paged(context), "where")
    assert 'last line -500 ms "' + "y" * 80 + " [" in where
    assert ns(100) == tell(context).zero_ns
