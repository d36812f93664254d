"""The parts of the view by themselves: text made harmless, times, lists of ranks, strips, curves, rows of JSON."""

from __future__ import annotations

import json
import math
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtrace.record import Culprit, Identity, Incident, Record, Run, Window
from llmtrace.show.clean import clean, cut, one_line
from llmtrace.show.evidence import traceback
from llmtrace.show.numbers import drawn, sparkline
from llmtrace.show.phrases import english
from llmtrace.show.rows import encode, incident_row, record_row, run_row, severity_text
from llmtrace.show.story import briefly, plainly, rank_list, tell, who
from llmtrace.show.strips import Scale, letter, nice_ns, strip
from llmtrace.show.times import length, offset, size
from llmtrace.show.view import View
from tests.support.contexts import MS, ONSET, S, kill, oom

ANY_TEXT = st.text(alphabet=st.characters())  # surrogates and controls as well


@given(ANY_TEXT)
def test_clean_text_holds_nothing_that_moves_hides_or_reorders(text: str) -> None:
    cleaned = clean(text)
    assert all(c == "\n" or unicodedata.category(c) not in ("Cc", "Cs", "Zl", "Zp") for c in cleaned)
    assert not set(cleaned) & set("\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
    assert "\n" not in one_line(text)
    cleaned.encode()


@given(st.text(alphabet=st.characters(codec="ascii", exclude_categories=("Cc",))))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[1;31mError\x1b[0m", "Error"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[2J\x1b[Htop", "top"),
        ("\x1b(Bx\x1b", "\\x1b(Bx\\x1b"),
        ("a\tb", "a   b"),
        ("10%\r20%", "10%\\x0d20%"),
        ("line\r\nnext\r\n", "line\nnext"),
    ],
)
def test_escape_sequences_go_and_other_controls_are_spelled(raw: str, shown: str) -> None:
    assert clean(raw) == shown


def test_what_is_cut_says_how_much() -> None:
    assert cut("x" * 1000, 100) == "x" * 100 + " [900 more characters]"
    assert cut("x" * 110, 100) == "x" * 110


@given(st.sets(st.integers(0, 200), min_size=1))
def test_a_list_of_ranks_names_each_rank_once(ranks: set[int]) -> None:
    named: list[int] = []
    for part in rank_list(ranks).split(", "):
        first, _, last = part.partition("-")
        named += range(int(first), int(last or first) + 1)
    assert named == sorted(ranks)
    assert english(who(list(ranks))).startswith("rank " if len(ranks) == 1 else "ranks ")


def test_lengths_sizes_and_offsets_read_as_people_say_them() -> None:
    assert [length(ns) for ns in (37_000, 62 * MS, 1_240 * MS, 185 * S, 7_380 * S, 360_000 * S)] == [
        "37 us",
        "62 ms",
        "1.2 s",
        "3 min 5 s",
        "2 h 3 min",
        "4 d 4 h",
    ]
    assert [size(n) for n in (17, 2048, 13_207_024_435, 1 << 48, 1 << 62)] == ["17 bytes", "2.0 KiB", "12.3 GiB", "256.0 TiB", "4.0 EiB"]
    assert [offset(ns) for ns in (-12_034 * MS, 0, 310 * MS)] == ["-12.034", "+0.000", "+0.310"]


@given(st.floats(1, 1e13))
def test_ticks_are_round_and_never_closer_than_asked(least: float) -> None:
    assert nice_ns(least) >= least - 1


def test_a_message_loses_its_c_sources_and_its_advice() -> None:
    message = "[/w/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:15265. This is typically caused by a crash. Look."
    assert briefly(plainly(message)) == "Connection closed by peer [127.0.0.1]:15265"
    assert plainly("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: no") == "DefaultCPUAllocator: no"


def test_a_strip_shows_phases_the_open_one_and_the_end() -> None:
    story = tell(kill())
    culprit = story.culprit
    assert culprit is not None
    cells = strip([culprit], Scale(ONSET - 100 * MS, ONSET + 20 * MS, 120))
    assert letter(cells[99]) == "F"
    assert cells[100].mark == "died"
    assert all(not cell.alive for cell in cells[101:])
    assert {letter(cell) for cell in cells[:80]} >= {"f", "b"}


def test_ranks_that_share_a_lane_show_what_most_did() -> None:
    story = tell(oom(8, 2))
    cells = strip(story.others, Scale(ONSET, ONSET + 200 * MS, 20))
    assert [letter(cell) for cell in cells[1:]] == ["B"] * 19


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=300), st.integers(1, 60))
def test_a_curve_is_as_long_as_there_is_room_and_says_where_it_is_no_number(values: list[float], cells: int) -> None:
    curve = sparkline(drawn(values, cells))
    assert len(curve) == min(cells, len(values))
    assert set(curve) <= set("▁▂▃▄▅▆▇█?")
    assert math.isfinite(values[-1]) is (curve[-1] != "?")


@given(st.lists(st.floats(0, 1e12), min_size=2, max_size=300), st.integers(3, 60))
def test_the_first_the_last_and_the_largest_value_are_bars_and_the_largest_is_the_tallest(values: list[float], cells: int) -> None:
    bars = drawn(values, cells)
    assert (bars[0], bars[-1], max(bars)) == (values[0], values[-1], max(values))
    curve = sparkline(bars)
    assert curve[bars.index(max(values))] == max(curve)


def test_frames_of_libraries_are_folded_and_ours_are_among_them() -> None:
    text = "\n".join(
        [
            "Traceback (most recent call last):",
            '  File "/x/src/llmtrace/rank/trace.py", line 53, in call',
            "    return function(*args)",
            '  File "/home/ada/train.py", line 9, in train',
            "    step()",
            '  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode',
            "    raise JSONDecodeError",
            "ValueError: no",
        ]
    )
    shown = [part.plain for part in traceback(text, View(now_ns=0))]
    assert shown == [
        "Traceback (most recent call last):",
        "  … 1 frame in llmtrace",
        '  File "/home/ada/train.py", line 9, in train',
        "    step()",
        "  … 1 frame in json",
        "ValueError: no",
    ]
    assert [part.plain for part in traceback(text, View(now_ns=0, whole=True))] == text.split("\n")


RECORD_KEYS = [
    "id",
    "time_ns",
    "kind",
    "name",
    "severity",
    "body",
    "duration_ns",
    "trace_id",
    "span_id",
    "parent_span_id",
    "rank",
    "node",
    "step",
    "attributes",
]


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@given(st.dictionaries(st.text(), st.one_of(ANY_TEXT, st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans())), st.none() | ANY_TEXT)
def test_any_record_is_one_line_of_valid_json(attributes: dict[str, str | int | float | bool], body: str | None) -> None:
    record = Record(id="a-1", time_ns=ONSET, kind="sample", name="llmtrace.metric", identity=Identity(), body=body, attributes=attributes)
    line = encode(record_row(record))
    assert b"\n" not in line
    row = json.loads(line, parse_constant=refuse)
    assert list(row) == RECORD_KEYS
    assert row["time_ns"] == ONSET
    assert [row[key] for key in ("trace_id", "span_id", "parent_span_id", "rank", "node", "step", "duration_ns")] == [None] * 7
    assert len(row["attributes"]) == len(attributes)


def test_numbers_that_json_lacks_are_the_words_that_otlp_has_for_them() -> None:
    record = Record(id="a-1", time_ns=1, kind="sample", name="m", identity=Identity(), attributes={"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.5})
    assert json.loads(encode(record_row(record)))["attributes"] == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 1.5}


def test_severities_have_opentelemetrys_short_names() -> None:
    assert [severity_text(number) for number in (1, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24)] == [
        *("DEBUG", "DEBUG", "DEBUG", "INFO", "INFO", "WARN", "WARN", "ERROR", "ERROR", "FATAL", "FATAL")
    ]


def test_an_incident_row_has_the_interfaces_keys_and_null_for_what_is_absent() -> None:
    incident = Incident(
        id="i", trace_id="t", attempt="a", onset_ns=1, detected_ns=2, category="unknown", role="ambiguous", summary="s", reason="r",
        culprit=Culprit(rank=1), window=Window(0, 3), evidence=["x"], symptoms=[0],
    )  # fmt: skip
    assert json.loads(encode(incident_row(incident))) == {
        "id": "i", "trace_id": "t", "onset_ns": 1, "detected_ns": 2, "category": "unknown", "role": "ambiguous", "summary": "s",
        "culprit": {"rank": 1, "node": None, "gpu": None}, "window": {"start_ns": 0, "end_ns": 3}, "evidence": ["x"],
        "links": {"page": None, "grafana": None, "kibana": None},
    }  # fmt: skip


def test_a_run_row_has_the_interfaces_keys() -> None:
    run = Run(trace_id="t", attempt="a", run=1, job="", state="running", started_ns=1, ended_ns=None, nodes=["n"], ranks=2, last_step=None)
    expected = {"trace_id": "t", "attempt": "a", "run": 1, "job": None, "state": "running", "started_ns": 1, "ended_ns": None, "nodes": ["n"], "ranks": 2}
    assert json.loads(encode([run_row(run)])) == [{**expected, "last_step": None}]


def test_a_lone_surrogate_costs_one_character_of_one_value() -> None:
    record = Record(id="a-1", time_ns=1, kind="log", name="l", identity=Identity(node="n"), body="a\ud800b", attributes={"k": "c"})
    row = msgspec.json.decode(encode(record_row(record)))
    assert (row["body"], row["node"], row["attributes"]) == ("a\ufffdb", "n", {"k": "c"})
