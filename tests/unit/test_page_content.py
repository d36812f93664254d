"""What a page says of a window: the sentence, how sure it is, the facts, the evidence with its places, the log."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llmtrace import names
from llmtrace.record import Culprit, Identity, Process, Record, Window
from llmtrace.show.facts import facts
from llmtrace.show.page import log as page_log
from llmtrace.show.page.content import content
from llmtrace.show.page.log import nearest
from llmtrace.show.page.model import Page, Words
from llmtrace.show.phrases import english, spelled
from llmtrace.show.story import tell
from llmtrace.show.view import View
from llmtrace.sources.context import Context
from tests.support.cases import FAULTS, failure, lost_peer, process, who, window_of
from tests.support.contexts import CONTEXTS, HOSTILE, ONSET, S, exception, hostile, kill, many, oom, running

SENTENCES = {
    "exception": "rank 1 on a raised ValueError: bad batch 7f3a in forward of step 40; rank 0 then lost its peer (+100 ms).",
    "killed": "rank 1 on a was killed by SIGKILL in forward of step 40; rank 0 then lost its peer (+100 ms).",
    "killed for memory": "rank 1 on a was killed by SIGKILL in forward of step 40 (out of host memory); rank 0 then lost its peer (+100 ms).",
    "host memory": "rank 1 on a ran out of host memory in forward of step 40 (asked for 1.0 PiB); rank 0 then lost its peer (+200 ms).",
    "gpu memory": "rank 1 on a ran out of GPU memory in forward of step 40 (asked for 20.0 MiB); rank 0 still runs.",
    "memory error": "rank 1 on a ran out of host memory in forward of step 40 (MemoryError); rank 0 still runs.",
    "left": "rank 1 on a exited with code 7 in forward of step 40; rank 0 then lost its peer (+100 ms).",
    "felt first": "rank 1 on a exited with code 7 in forward of step 40, recorded at +3 ms; rank 0 lost its peer (+0 ms), so rank 1 was gone by then.",
    "crash": "rank 1 on a crashed in native code in forward of step 40: Fatal Python error: Segmentation fault; rank 0 then lost its peer (+100 ms).",
    "segmentation fault": "rank 1 on a died of SIGSEGV in forward of step 40; rank 0 still runs.",
    "unseen": "rank 1 on a is gone, last seen in forward of step 40, and nobody saw how it ended; rank 0 then lost its peer (+100 ms).",
    "raised, not recorded": "rank 1 on a ended by an exception in forward of step 40 that is not on record; rank 0 still runs.",
    "all gone": "ranks 0, 1 on a are gone, all of them, and nobody saw how.",
    "all killed": "ranks 0, 1 on a were killed by SIGKILL, all of them together.",
    "hardware": "rank 1 on a raised RuntimeError: CUDA error: uncorrectable ECC error encountered in forward of step 40; "
    "rank 0 failed as well: ValueError: x (-1 ms).",
    "hardware, a line": "rank 1 on a: a GPU's hardware failed (NVRM: Xid (PCI:0000:07:00): 79, pid=1001, GPU has fallen off the bus.); "
    "rank 0 then lost its peer (+200 ms).",
    "worker killed": "a worker process of rank 1 on a was killed by SIGKILL; rank 0 still runs.",
    "timeout": "rank 1 on a stayed at step 39 while others had come to step 40; ranks 0, 2, 3 were killed by SIGABRT (+20.53 s).",
    "silent": "rank 2 on a said nothing while the others failed; ranks 0, 1, 3 lost their peer (+0 ms).",
    "ended well": "rank 1 on a ended well at step 39 while the others went on; ranks 0, 2 lost their peer (+800 ms).",
    "behind": "rank 1 on a stayed at step 39 while others had come to step 40; rank 0 waited in vain in a collective (+31.50 s).",
    "stopped earlier": "rank 1 on a made its last progress 9.0 s before any other rank; ranks 0, 2 lost their peer (+0 ms).",
    "not here": "rank 1 was not seen here; rank 0 lost its peer (+0 ms).",
    "nobody": "a peer was lost, and the rank that caused it cannot be named yet; ranks 0, 1 lost their peer (+0 ms).",
    "two nodes": "rank 2 on b raised KeyError: 'x' in forward of step 40; rank 0 then lost its peer (+20 ms); ranks 1, 3 were killed by SIGTERM (+1.00 s).",
    "many": "rank 77 on a raised ValueError: x in forward of step 40; ranks 0-76, 78-255 then lost their peer (+100 ms).",
}
"""What each fault reads like, without the moment in front."""

CONFIDENCE = {
    "high": {"exception", "killed for memory", "host memory", "gpu memory", "memory error", "crash", "two nodes", "many"},
    "medium": {
        *(
            "killed",
            "left",
            "felt first",
            "segmentation fault",
            "raised, not recorded",
            "hardware",
            "hardware, a line",
            "worker killed",
            "timeout",
            "ended well",
            "behind",
        ),
    },
    "low": {"unseen", "all gone", "all killed", "silent", "stopped earlier", "not here", "nobody"},
}


def paged(context: Context, language: str = "") -> Page:
    return content(context, language=language, now_ns=context.window.end_ns + 10 * S)


def fact(page: Page, label: str) -> list[str]:
    return [english(line) for fact in page.head.facts if english(fact.label) == label for line in fact.lines]


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    return {name: paged(make()) for name, make in {**CONTEXTS, **FAULTS, "many": many}.items()}


# The head.


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_the_sentence_says_what_broke_where_when_and_what_the_others_did(name: str) -> None:
    context = FAULTS[name]()
    at = "16:01:39.900" if name == "hardware, a line" else r"\d\d:\d\d:\d\d\.\d{3}"
    said = english(paged(context).head.sentence)
    assert re.match(f"At {at} ", said)
    assert said[len("At 16:01:40.000 ") :] == SENTENCES[name]


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_how_sure_it_is_follows_from_what_is_on_record(name: str) -> None:
    found = paged(FAULTS[name]()).head.confidence
    assert found is not None
    assert name in CONFIDENCE[found.key.removeprefix("confidence.")], english(found)


def test_every_fault_has_its_sentence_and_its_confidence() -> None:
    assert set(SENTENCES) == set(FAULTS) == set().union(*CONFIDENCE.values())


@pytest.mark.parametrize(("harm", "said"), [("lost", "12 records were lost"), ("absent", "nothing is here of ranks 2, 3")])
def test_what_is_not_here_lowers_the_confidence(harm: str, said: str) -> None:
    context = FAULTS["exception"]()
    whole = paged(context)
    if harm == "lost":
        context = msgspec.structs.replace(context, processes=[msgspec.structs.replace(p, lost=6) for p in context.processes])
    else:
        processes = [msgspec.structs.replace(p, identity=msgspec.structs.replace(p.identity, world_size=4)) for p in context.processes]
        context = msgspec.structs.replace(context, processes=processes)
    page = paged(context)
    assert whole.head.confidence is not None and page.head.confidence is not None
    assert (whole.head.confidence.key, page.head.confidence.key) == ("confidence.high", "confidence.medium")
    assert said in english(page.head.confidence)
    assert not whole.missing
    assert len(page.missing) == 1


def test_another_nodes_own_failure_at_the_same_time_is_a_doubt_and_a_lost_peer_there_is_none() -> None:
    def of(other: Record) -> str:
        records = [failure(who(1, "b"), 100, "KeyError", "'x'"), other]
        found = paged(window_of(records, [process(0, "raised", 1, 101, node="a"), process(1, "raised", 1, 101, node="b")])).head.confidence
        assert found is not None
        return english(found)

    assert "as far as the clocks tell" not in of(lost_peer(0, 100.02, node="a"))
    assert "as far as the clocks tell" in of(failure(who(0, "a"), 100.02, "ValueError", "y"))
    assert "as far as the clocks tell" not in of(failure(who(0, "a"), 100.2, "ValueError", "y"))


@pytest.mark.parametrize("name", sorted({**CONTEXTS, **FAULTS}))
def test_the_facts_are_those_of_the_terminal(name: str) -> None:
    context = {**CONTEXTS, **FAULTS}[name]()
    page, story = paged(context), tell(context)
    terminal = dict(facts(story, View(now_ns=0, wrap=False), lambda start_ns: f"started {start_ns}"))
    assert [english(fact.label) for fact in page.head.facts] == [label for label in terminal if label != "missing"]
    for label in set(terminal) - {"job", "missing"}:
        assert fact(page, label) == [english(line.words) for line in terminal[label]]


def test_the_facts_of_an_incident_name_what_who_since_and_the_others(pages: dict[str, Page]) -> None:
    page = pages["oom"]
    assert fact(page, "what") == ["one request for host memory was too large (host_oom); this is the root cause"]
    assert fact(page, "who")[0].startswith("rank 2 on node-a, pid 4102, in forward of step 340, at /home/ada/gpt/tiny_gpt.py:27 in attention; ended by")
    assert fact(page, "since")[0].startswith("03:14:07.412 (2026-11-30")
    assert fact(page, "others") == ["ranks 0, 1, 3: got as far as backward of step 340, lost their peer +310 ms"]
    assert fact(page, "job")[0].startswith("gpt-demo, 4 ranks on node-a, started 03:13:43.412 (2026-11-30")


def test_the_commands_show_the_same_in_a_terminal_and_keep_their_options() -> None:
    context = oom()
    assert context.incident is not None
    page = content(context, options="--dir '/a b'", now_ns=ONSET)
    first = page.head.commands[0]
    assert (english(first.why), first.command) == ("this view in a terminal", f"llmtrace context {context.incident.id} --dir '/a b'")
    assert any("--rank 2 --all | less" in command.command for command in page.head.commands)
    assert english(page.head.advice[0]).startswith("One request was too large by itself")


@pytest.mark.parametrize(
    ("name", "state", "said"),
    [
        ("running", "running", "The job runs at step 640, 57 ms a step; no incident so far."),
        ("finished", "clean", "The job finished cleanly at 03:13:59.293 after 17.9 s: 200 steps (0-199), every exit code 0; nothing broke."),
    ],
)
def test_without_an_incident_the_page_is_calm(pages: dict[str, Page], name: str, state: str, said: str) -> None:
    page = pages[name]
    assert (page.head.state, english(page.head.sentence)) == (state, said)
    assert (page.incident_id, page.detected_us, page.evidence) == (None, None, [])
    assert [english(line) for line in page.head.advice] == (["Nothing to do."] if state == "clean" else [])
    assert (page.head.confidence and english(page.head.confidence)) == (
        "confidence high: all ranks ended, and every exit code is 0" if state == "clean" else None
    )
    assert not page.zero_is_onset
    assert page.follow is (state == "running")


def test_a_job_that_ended_without_an_incident_and_one_that_never_was() -> None:
    page = paged(window_of([], [process(0, "killed", -15, 100), process(1, "killed", -15, 100.1)]))
    assert (page.head.state, english(page.head.sentence)) == ("ended", "The job has ended at step 40, without an incident.")
    empty = paged(Context(trace_id="4bf9" * 8, incident=None, window=Window(ONSET - 30 * S, ONSET), processes=[], records=[], drops={}))
    assert empty.head.state == "empty"
    assert (empty.lanes, empty.strips, empty.log.texts, empty.phases, empty.follow) == ([], [], [], [], False)
    assert english(empty.head.sentence).startswith("No rank of this trace was there")
    assert empty.head.commands[0].command == "llmtrace context 4bf94bf94bf9"


def test_what_was_lost_on_the_way_is_said() -> None:
    context = kill()
    processes = [msgspec.structs.replace(p, lost=1234) if p.identity.rank == 2 else p for p in context.processes]
    page = paged(msgspec.structs.replace(context, processes=processes, drops={"journal_size": 7, "of a kind of its own": 3, "undecodable": 0}))
    assert [english(words) for words in page.missing] == [
        "1,234 records were overwritten before they were read (rank 2)",
        "7 journal size",
        "3 of a kind of its own",
    ]
    assert "因 journal 大小上限删除的记录：7" in [spelled(words, "zh") for words in page.missing]


def test_times_are_counted_from_the_onset(pages: dict[str, Page]) -> None:
    page = pages["kill"]
    assert (page.zero_ms, page.zero_is_onset, page.start_us, page.detected_us) == (ONSET / 1e6, True, -30_000_000, 31_000)
    assert page.end_us == 5_031_000
    assert (page.trace_id, page.title) == ("4bf92f3577b34da6a3ce929d0e0e4736", "gpt-demo")


# Evidence, and where it leads.


@pytest.mark.parametrize("name", ["oom", "kill", "exception", "exit", "many", "two nodes", "worker killed", "hardware, a line"])
def test_evidence_leads_to_its_lane_and_to_its_row(pages: dict[str, Page], name: str) -> None:
    page = pages[name]
    assert page.evidence
    times = [sum(page.log.times_us[: row + 1]) for row in range(len(page.log.times_us))]
    for item in page.evidence:
        assert item.row is not None and times[item.row] == item.at_us
        assert item.lane is not None
        speaker = page.log.speakers[page.log.speaker[item.row]]
        assert speaker.lane == item.lane
        assert speaker.rank in page.lanes[item.lane].ranks
        words = page.log.texts[item.row]
        assert english(words).startswith(english(item.text).removeprefix("effect: "))
        assert item.effect is english(item.text).startswith("effect: ")


def test_of_what_only_followed_the_first_is_shown_and_called_an_effect(pages: dict[str, Page]) -> None:
    assert [(english(item.who), item.effect) for item in pages["oom"].evidence] == [("rank 2", False), ("rank 2", False), ("rank 0", True)]


def test_evidence_outside_the_window_leads_nowhere() -> None:
    context = kill()
    page = paged(msgspec.structs.replace(context, records=[r for r in context.records if r.kind != "event"]))
    assert page.evidence == []


# The log.


def test_the_log_holds_every_line_of_every_rank_and_the_events(pages: dict[str, Page]) -> None:
    context = kill()
    page = pages["kill"]
    lines = [record for record in context.records if record.kind == "log"]
    said = [page.log.texts[row] for row in range(len(page.log.texts)) if row not in set(page.log.events)]
    assert said == [record.body for record in lines]
    assert page.log.left_out == 0
    assert len(page.log.events) == 7  # one death, three failures, three deaths; who raised says once that it raised
    assert [page.log.severity[row] for row in page.log.events if english(page.log.texts[row]).startswith("raised")] == [17, 17, 17]


def test_a_failures_row_holds_its_whole_traceback(pages: dict[str, Page]) -> None:
    text = next(english(pages["oom"].log.texts[item.row]) for item in pages["oom"].evidence if item.row and "raised" in english(item.text))
    first, _, rest = text.partition("\n")
    assert first.startswith("raised RuntimeError: DefaultCPUAllocator")
    assert rest.startswith("Traceback (most recent call last):\n")
    assert "site-packages/lightning/pytorch/trainer/call.py" in rest
    assert rest.rstrip().endswith("Error code 12 (Cannot allocate memory)")


def test_speakers_know_their_rank_node_and_lane() -> None:
    page = paged(FAULTS["worker killed"]())
    by_words = {english(speaker.words): speaker for speaker in page.log.speakers}
    assert set(by_words) == {"worker of 1", "rank 1"}
    assert by_words["rank 1"].culprit and not by_words["worker of 1"].culprit
    assert by_words["worker of 1"].lane == by_words["rank 1"].lane == 0
    launcher = Identity(trace_id="t", span_id="c" * 16, node="a", role="launcher")
    context = FAULTS["exception"]()
    line = Record(id="l-1", time_ns=context.window.start_ns + S, kind="log", name=names.LOG, identity=launcher, body="starting")
    page = paged(msgspec.structs.replace(context, records=[line, *context.records]))
    assert (english(page.log.speakers[0].words), page.log.speakers[0].rank, page.log.speakers[0].lane) == ("launcher", None, None)


def test_of_too_many_lines_the_nearest_to_the_onset_stay_and_the_others_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    context = kill()
    monkeypatch.setattr(page_log, "ROWS_MAX", 100)
    page = paged(context)
    assert len(page.log.texts) == 100
    assert page.log.left_out == len(paged_rows(context)) - 100
    assert all(item.row is not None for item in page.evidence)


def paged_rows(context: Context) -> list[str]:
    """Ids of what a page's log would hold without a bound: who says that an exception ends it right after that exception says it once."""
    echo = {names.PROCESS_ENDING: "raised", names.PROCESS_ACTION: "finished"}
    return [r.id for r in context.records if r.kind in ("log", "event") and r.attributes != echo]


@given(st.lists(st.integers(-1000, 1000), max_size=20), st.integers(0, 10), st.integers(0, 60))
@example([-1, 1000], 1, 60)
@example([-1000, 1], 2, 5)
def test_what_is_kept_is_the_nearest(offsets: list[int], rows: int, text: int) -> None:
    records = [Record(id=f"r-{n}", time_ns=ONSET + at, kind="log", name=names.LOG, identity=Identity(), body="abc") for n, at in enumerate(sorted(offsets))]
    kept = nearest(records, ONSET, rows, text)
    assert len(kept) == min(len(records), rows, text // 3)
    away = [abs(record.time_ns - ONSET) for record in kept]
    left = [abs(record.time_ns - ONSET) for record in records if record not in kept]
    assert not away or not left or max(away) <= min(left)
    assert list(kept) == sorted(kept, key=lambda record: record.time_ns)


# What is hostile, and what is not UTF-8.


def test_hostile_lines_stay_as_they_are_but_for_what_utf8_cannot_hold() -> None:
    page = paged(hostile())
    said = [text for text in page.log.texts if isinstance(text, str)]
    for line in HOSTILE:
        assert line.replace("\ud800", "\ufffd") in said
    msgspec.json.encode(page).decode()


NAMES = st.text(alphabet=st.characters(), max_size=40)


@settings(max_examples=60, deadline=None)
@given(body=st.text(alphabet=st.characters(), max_size=300), name=NAMES, phase=NAMES, unit=NAMES)
def test_whatever_a_job_says_the_page_is_valid_json_and_every_word_is_spelled(body: str, name: str, phase: str, unit: str) -> None:
    context = msgspec.structs.replace(SMALL, incident=SMALL.incident and msgspec.structs.replace(SMALL.incident, summary=body, reason=body, category=name))
    who_said = context.processes[1].identity
    more = [
        Record(id="x-1", time_ns=ONSET - S, kind="log", name=names.LOG, identity=who_said, body=body),
        Record(id="x-2", time_ns=ONSET - S, kind="event", name=name, identity=who_said, attributes={name: body}),
        Record(id="x-3", time_ns=ONSET - S, kind="sample", name=names.METRIC, identity=who_said, attributes={names.METRIC_NAME: unit, names.METRIC_VALUE: 1.5}),
        Record(id="x-4", time_ns=ONSET - S, kind="sample", name=f"llmtrace.node.{name}", identity=who_said, attributes={unit: 2}),
    ]
    raised = {names.EXCEPTION_TYPE: name, names.EXCEPTION_MESSAGE: body, names.EXCEPTION_STACKTRACE: body, names.FAILURE_LINE: body, names.FAILURE_PHASE: phase}
    records = [msgspec.structs.replace(r, attributes={**r.attributes, **raised}) if r.name == names.FAILURE else r for r in context.records]
    processes = [msgspec.structs.replace(p, identity=msgspec.structs.replace(p.identity, job=name, node=body), phase=phase) for p in context.processes]
    context = msgspec.structs.replace(context, records=sorted([*records, *more], key=lambda r: r.time_ns), processes=processes)
    page = content(context, options=name, now_ns=ONSET)
    assert msgspec.json.decode(msgspec.json.encode(page), type=Page) == page
    for words in words_of(page):
        for language in ("en", "zh"):
            spelled(words, language).encode()


SMALL = exception(2, 1, slow=True)


def words_of(page: Page) -> list[Words]:
    """Every word of a page that stands on its own."""
    lanes = [*page.lanes, *(member for lane in page.lanes for member in lane.members)]
    return [
        page.head.sentence,
        *([page.head.confidence] if page.head.confidence else []),
        *(words for fact in page.head.facts for words in (fact.label, *fact.lines)),
        *page.head.advice,
        *(command.why for command in page.head.commands),
        *(words for item in page.evidence for words in (item.who, item.text)),
        *(phase.words for phase in page.phases),
        *(words for lane in lanes for words in (lane.label, *lane.notes, *(mark.words for mark in lane.marks))),
        *(words for strip in page.strips for words in (strip.label, strip.who)),
        *page.log.texts,
        *(speaker.words for speaker in page.log.speakers),
        *page.missing,
    ]


# Restarts, and culprits of whom little is known.


def test_after_a_restart_both_processes_have_their_lane_and_the_one_that_was_there_is_the_culprit() -> None:
    context = exception()
    old = next(p for p in context.processes if p.identity.rank == 3)
    identity = msgspec.structs.replace(old.identity, span_id="b" * 16, restart=1)
    again = Process(identity=identity, started_ns=ONSET + 2 * S, last_ns=ONSET + 3 * S, last_step=0)
    page = paged(msgspec.structs.replace(context, processes=[*context.processes, again]))
    lanes = {english(lane.label): lane for lane in page.lanes}
    assert lanes["rank 3 (0)"].culprit and page.lanes[0] is lanes["rank 3 (0)"]
    assert not lanes["rank 3 (1)"].culprit
    assert (lanes["rank 3 (1)"].start_us, lanes["rank 3 (1)"].end_us) == (2_000_000, None)
    assert [mark.kind for mark in lanes["rank 3 (1)"].marks] == ["started"]
    assert page.evidence[0].lane == 0
    assert page.follow


def test_a_culprit_whose_node_alone_is_known() -> None:
    context = FAULTS["silent"]()
    assert context.incident is not None
    incident = msgspec.structs.replace(context.incident, culprit=Culprit(node="a"), category="node_loss", reason="a node went away", role="root_cause")
    page = paged(msgspec.structs.replace(context, incident=incident))
    assert "a node was lost, and the rank that caused it cannot be named yet" in english(page.head.sentence)
    assert fact(page, "who") == ["on a"]
    assert not any(lane.culprit for lane in page.lanes)


def test_an_incident_that_is_still_judged_names_nobody() -> None:
    context = exception()
    assert context.incident is not None
    incident = msgspec.structs.replace(context.incident, culprit=Culprit(), category="unknown", role="ambiguous", evidence=[])
    page = paged(msgspec.structs.replace(context, incident=incident))
    assert page.head.state == "broke"
    assert page.evidence == []
    assert "cannot be named yet" in english(page.head.sentence)


def test_a_running_job_has_no_ends_and_its_current_phase_goes_on_to_the_end_of_the_window() -> None:
    page = paged(running())
    for lane in page.lanes:
        assert (lane.end_us, lane.marks, lane.bad) == (None, [], False)
        assert lane.start_us + sum(gap + length for gap, length in zip(lane.segments[::3], lane.segments[1::3], strict=True)) == page.end_us
        assert min(lane.segments[2::3]) >= 0


def test_the_language_that_was_asked_for_is_passed_on() -> None:
    assert (paged(kill(), "zh").language, paged(kill()).language) == ("zh", "")
    assert spelled(paged(kill()).head.sentence, "zh") == (
        "03:14:07.412，node-a 上的 rank 1 在第 340 步的前向传播中被 SIGKILL 终止；随后 rank 0, 2, 3 失去与对端的连接（+310 ms）。"
    )
