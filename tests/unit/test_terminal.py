"""The terminal view: whoever sees only this answers what broke, on which rank, since when, what the others did, what next."""

from __future__ import annotations

import io
import re
import unicodedata

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from llmtrace import names
from llmtrace.record import Culprit, Window
from llmtrace.show.terminal import View, show
from llmtrace.sources.context import Context
from tests.support.contexts import CONTEXTS, MS, ONSET, S, exception, hostile, kill, many, oom, running

NOW = ONSET + 200 * S
BROKEN = {"oom": 2, "kill": 1, "exception": 3, "exit": 1, "slow": 3, "many": 37}
"""Context -> the rank to blame."""


def seen(context: Context, width: int = 80, *, color: bool = False, **more: object) -> str:
    """What is on the screen."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=color, color_system="truecolor" if color else None, markup=False, emoji=False, highlight=False)
    view = View(**{"now_ns": NOW, "width": width, **more})  # type: ignore[arg-type]
    for part in show(context, view):
        console.print(part, soft_wrap=not view.wrap)
    return out.getvalue()


def flat(text: str) -> str:
    """The text as if the screen were wide."""
    return re.sub(r"\s+", " ", text)


@pytest.fixture(scope="module")
def contexts() -> dict[str, Context]:
    return {name: make() for name, make in CONTEXTS.items()}


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("name", sorted(BROKEN))
def test_each_fault_answers_what_who_since_when_and_what_next(contexts: dict[str, Context], name: str, width: int) -> None:
    context = contexts[name]
    incident = context.incident
    assert incident is not None
    text = flat(seen(context, width))
    head = text[: text.index("Evidence")]
    assert incident.category in head
    assert f"rank {BROKEN[name]} on node" in head
    assert "03:14:07.412" in head
    assert f"detected {(incident.detected_ns - ONSET) // MS} ms later" in head
    assert "3 min 20 s ago" in head
    assert "ranks 0" in head or "rank 0" in head
    assert re.search(r"ranks? 0.*lost (its|their) peer \+310 ms", head)
    assert "Connection closed by peer [127.0.0.1]:3000" in text
    assert f"llmtrace context {incident.id} --rank {BROKEN[name]} --all | less" in text


@pytest.mark.parametrize("name", sorted(CONTEXTS))
@pytest.mark.parametrize("width", [40, 80, 160])
def test_no_line_is_wider_than_the_terminal(contexts: dict[str, Context], name: str, width: int) -> None:
    text = seen(contexts[name], width)
    assert max(map(cell_len, text.splitlines())) <= width


@pytest.mark.parametrize("name", sorted(CONTEXTS))
def test_without_colour_there_is_no_escape_and_with_colour_the_text_is_the_same(contexts: dict[str, Context], name: str) -> None:
    plain = seen(contexts[name])
    assert "\x1b" not in plain
    colored = seen(contexts[name], color=True)
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain


@pytest.mark.parametrize("name", sorted(set(CONTEXTS) - {"hostile"}))
def test_a_terminal_without_unicode_gets_ascii_alone(contexts: dict[str, Context], name: str) -> None:
    assert seen(contexts[name], ascii_only=True).isascii()


def test_sixty_four_ranks_fit_on_a_page(contexts: dict[str, Context]) -> None:
    text = seen(contexts["many"])
    assert len(text.splitlines()) < 120
    lanes = text[text.index("Every rank") : text.index("Numbers")]
    assert re.search(r"▶rank 37 +.*failed \+0 ms, step 180", lanes)
    assert re.search(r"ranks 0-36, 38-63 .*lost their peer \+310 ms", lanes)
    assert len(lanes.splitlines()) < 16
    assert "63 ranks ~  step 180 loss" in text


def test_a_rank_that_did_something_else_is_not_folded_away() -> None:
    context = many()
    processes = [msgspec.structs.replace(p, phase="data_wait", last_step=177) if p.identity.rank == 11 else p for p in context.processes]
    text = seen(msgspec.structs.replace(context, processes=processes))
    assert re.search(r"\n rank 11 .*step 177", text)
    assert "ranks 0-10, 12-36, 38-63: got as far as backward of step 180" in flat(text)


def test_the_culprits_last_line_and_traceback_are_there_with_libraries_folded(contexts: dict[str, Context]) -> None:
    text = seen(contexts["oom"])
    last = text[text.index("Last lines of rank 2") :]
    assert "step 340 loss" in last
    assert "… 3 frames in lightning, torch" in last
    assert 'File "/home/ada/gpt/tiny_gpt.py", line 27, in attention' in last
    assert "site-packages" not in text
    assert "site-packages" in seen(contexts["oom"], whole=True)


def test_what_was_begun_and_never_finished_is_a_capital(contexts: dict[str, Context]) -> None:
    closer = seen(contexts["kill"]).partition("closer:")[2].splitlines()
    culprit = next(line for line in closer if "rank 1" in line)
    other = next(line for line in closer if "rank 0" in line)
    assert re.search(r"F✗ *$", culprit)
    assert re.search(r"B{10,}!", other)
    assert "F" not in other.partition("rank")[2]


def test_a_step_whose_phase_was_cleared_on_the_way_out_still_shows_as_unfinished() -> None:
    context = exception()
    processes = [p if p.identity.rank == 3 else msgspec.structs.replace(p, phase="", progress_ns=ONSET + 310 * MS) for p in context.processes]
    records = [msgspec.structs.replace(r, attributes={**r.attributes, names.FAILURE_PHASE: ""}) if r.name == names.FAILURE else r for r in context.records]
    closer = seen(msgspec.structs.replace(context, processes=processes, records=records)).partition("closer:")[2]
    assert re.search(r"rank 0 .*S{10,}!", closer)
    assert "S step, phase not known" in closer


def test_the_record_of_the_step_that_failed_tells_the_phase_where_nothing_else_does() -> None:
    context = exception()
    first = next(r for r in context.records if r.name == names.STEP and r.identity.rank == 0)
    took = 400 * MS
    broken = {names.phase_attribute("forward"): 5 * MS, names.phase_attribute("backward"): 390 * MS}
    last = msgspec.structs.replace(first, id="x-1", step=340, time_ns=ONSET + 309 * MS, duration_ns=took, attributes=broken)
    processes = [p if p.identity.rank == 3 else msgspec.structs.replace(p, phase="") for p in context.processes]
    records = [msgspec.structs.replace(r, attributes={**r.attributes, names.FAILURE_PHASE: ""}) if r.name == names.FAILURE else r for r in context.records]
    text = seen(msgspec.structs.replace(context, processes=processes, records=[*records, last]))
    assert "rank 0: got as far as backward of step 340" in flat(text)
    assert re.search(r"rank 0 .*B{8,}!", text.partition("closer:")[2])


def test_a_gap_shows_as_a_gap() -> None:
    context = exception()
    spans = [r for r in context.records if r.name == names.STEP and r.identity.rank == 0]
    hole = {r.id for r in spans if ONSET - 12 * S < r.time_ns < ONSET - 6 * S}
    text = seen(msgspec.structs.replace(context, records=[r for r in context.records if r.id not in hole]))
    lane = next(line for line in text.splitlines() if line.startswith(" rank 0"))
    assert re.search(r"b·{8,16}b", lane)


def test_all_shows_every_line_of_every_rank(contexts: dict[str, Context]) -> None:
    context = contexts["kill"]
    text = seen(context, 160, whole=True)
    shown = text[text.index("All ranks together") : text.index("Next ──") if "Next ──" in text else None]
    logs = [record for record in context.records if record.kind == "log"]
    assert len(re.findall(r"rank \d  step \d+ loss", shown)) == len(logs)
    assert "earlier entries" not in shown


def test_rank_and_kinds_choose_lines_and_leave_the_lanes_alone(contexts: dict[str, Context]) -> None:
    text = seen(contexts["kill"], rank=3, kinds=frozenset({"span"}))
    log = text[text.index("All ranks together") : text.index("── Next")]
    assert set(re.findall(r" rank (\d)  ", log)) == {"3"}
    assert "llmtrace.step duration" in log or "llmtrace.step data_wait" in log
    lanes = text[text.index("Every rank") : text.index("Numbers")]
    assert all(re.search(rf"rank {rank} .*b{{20}}", lanes) for rank in range(4))


def test_in_a_pipe_a_line_stays_one_line(contexts: dict[str, Context]) -> None:
    text = seen(contexts["hostile"], wrap=False)
    assert re.search(r"^ +-0\.005  rank 0  x{500} \[4,500 more characters\]$", text, re.MULTILINE)
    assert re.search(r"^ +\+0\.000  rank 1  raised .* at /home/ada/gpt/train\.py:61 in training_step, in forward, step 340$", text, re.MULTILINE)


def test_a_healthy_job_is_a_snapshot_without_alarm(contexts: dict[str, Context]) -> None:
    text = seen(contexts["running"])
    assert "The job runs at step 640, 57 ms a step; no incident so far." in text
    assert "watch -n 5 llmtrace context 4bf92f3577b3" in text
    assert not re.search(r"✗|Evidence|onset", text)
    assert "now" in text
    assert "200 steps (0-199), every exit code 0; nothing broke." in flat(seen(contexts["finished"]))


def test_without_any_record_or_process_the_view_says_so() -> None:
    empty = Context(trace_id="4bf9" * 8, incident=None, window=Window(ONSET - 30 * S, ONSET), processes=[], records=[], drops={})
    text = seen(empty)
    assert "No rank of this trace was there" in text
    assert "There are no such records in this window." in text


def test_while_no_culprit_is_named_the_first_evidence_speaks() -> None:
    context = exception()
    assert context.incident is not None
    incident = msgspec.structs.replace(context.incident, culprit=Culprit(), category="unknown", role="ambiguous")
    text = seen(msgspec.structs.replace(context, incident=incident))
    assert "no rank can be named yet" in text
    assert "Last lines of rank 3 (no culprit is named yet)" in text


def test_after_a_restart_the_culprit_is_the_process_that_was_there() -> None:
    context = exception()
    old = next(p for p in context.processes if p.identity.rank == 3)
    again = msgspec.structs.replace(old, identity=msgspec.structs.replace(old.identity, span_id="b" * 16, restart=1), started_ns=ONSET + 2 * S)
    again = msgspec.structs.replace(again, ending="running", ended_ns=None, exit_code=None, last_step=0, last_ns=ONSET + 3 * S)
    text = seen(msgspec.structs.replace(context, processes=[*context.processes, again]))
    assert re.search(r"▶rank 3 \(0\) .*failed \+0 ms", text)
    assert re.search(r"\n rank 3 \(1\) .*runs", text)


def test_what_was_lost_on_the_way_is_said() -> None:
    context = kill()
    processes = [msgspec.structs.replace(p, lost=1234) if p.identity.rank == 2 else p for p in context.processes]
    text = flat(seen(msgspec.structs.replace(context, processes=processes, drops={"journal_full": 7})))
    assert "missing 1,234 records were overwritten before they were read (rank 2); 7 journal full" in text


def test_two_nodes_are_told_apart() -> None:
    text = flat(seen(oom(4, 2, nodes=2), 160))
    assert "4 ranks on node-a, node-b" in text
    assert re.search(r"lost its peer \+310 ms · step 340 backward · node-a · median \d+ ms/step", text)


def test_hostile_text_is_spelled_out() -> None:
    text = flat(seen(hostile(), 160))
    for harmless in (
        r"nul \x00 bell \x07",
        "[red]markup[/red] [link=https://example.org]link[/link] [/] :smile:",
        r"lone \ud800 surrogate",
        r"\u202e txt.exe",
        "訓練損失",
    ):
        assert harmless in text


CALM = running(2, steps=20)


def is_harmless(character: str) -> bool:
    return character == "\n" or unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")


@settings(max_examples=60, deadline=None)
@given(body=st.text(alphabet=st.characters(), max_size=300), name=st.text(alphabet=st.characters(), max_size=40))
def test_whatever_a_job_says_the_terminal_gets_printable_characters(body: str, name: str) -> None:
    context = CALM
    first = context.records[-1]
    said = msgspec.structs.replace(first, kind="log", name=names.LOG, body=body, attributes={name: body})
    named = msgspec.structs.replace(said, kind="event", name=name, body=None)
    processes = [msgspec.structs.replace(p, identity=msgspec.structs.replace(p.identity, job=name, node=body), phase=name) for p in context.processes]
    text = seen(msgspec.structs.replace(context, records=[*context.records, said, named], processes=processes))
    assert [character for character in text if not is_harmless(character)] == []
