"""The report: it answers what a reader asks, is short whatever came in, and what a job printed is text in it and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from llmtrace import names
from llmtrace.record import Record, Value
from llmtrace.show import markdown
from llmtrace.show.commonmark import Block, Section, cell, code, fence, inline, words
from llmtrace.show.markdown import WORDS_MAX, report
from llmtrace.sources.context import Context
from tests.support.contexts import CONTEXTS, MS, ONSET, TRACE, S, exception, finished, hostile, kill, leave, many, oom, running

NOW = ONSET + 200 * S
PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
PLAIN = {"text", "code_inline", "inline", "fence", "em_open", "em_close", "strong_open", "strong_close"}
PLAIN |= {f"{name}_{end}" for name in ("heading", "paragraph", "bullet_list", "ordered_list", "list_item") for end in ("open", "close")}
PLAIN |= {f"{name}_{end}" for name in ("table", "thead", "tbody", "tr", "th", "td") for end in ("open", "close")}
HEADING = re.compile(
    r"Evidence|Every rank( around the onset)?|(Numbers|Last lines|Traceback) of rank .{1,8}|What the other ranks said( \(seconds from the onset\))?|Next"
)
LIVE = re.compile(r"[@#<>$`\[\]{}|\\~^*_&]|://|www\.|\b[0-9a-f]{7,64}\b|\b[A-Z]+-\d|\w\.[a-z]{2}|:(?:[a-z+-]\w*|100|1234):|!\[", re.ASCII)
"""What Markdown, GitHub, GitLab or a tracker make something of, outside code. Two letters after a point may be a host."""


def tokens(text: str) -> Iterator[Token]:
    for token in PARSER.parse(text):
        yield token
        yield from token.children or ()


def check(text: str) -> None:
    """Only what this report is made of: no link, image, HTML, mention or reference, whatever the job printed."""
    assert len(text.split()) <= WORDS_MAX
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028\u2029\ud800-\udfff]", text)
    parsed = PARSER.parse(text)
    found = list(tokens(text))
    assert {token.type for token in found} <= PLAIN
    assert {token.info for token in found if token.type == "fence"} <= {"text", "sh"}
    titles = [after.content for before, after in pairwise(parsed) if before.type == "heading_open"]
    assert len(titles) > 0
    assert [title for title in titles[1:] if not HEADING.fullmatch(title)] == []
    prose = [token.content for token in found if token.type == "text"]
    assert [part for part in prose if LIVE.search(part)] == []
    emphasis = [after.content for before, after in pairwise(found) if before.type == "em_open"]
    assert [part for part in emphasis if not re.match(r"[\d,]+ lines are left out here\.$|Written ", part)] == []


def visible(text: str) -> str:
    """What a reader sees."""
    return "\n".join(token.content for token in tokens(text) if token.type in ("text", "code_inline", "fence"))


def written(context: Context, **more: str) -> str:
    return report(context, now_ns=NOW, **more)


@pytest.mark.parametrize("name", sorted(CONTEXTS))
def test_every_context_is_a_report_of_its_own_parts_alone(name: str) -> None:
    text = written(CONTEXTS[name]())
    check(text)
    assert len(text.split()) < 1200
    assert max(map(len, text.splitlines())) < 600


def test_it_answers_what_who_since_when_what_the_others_did_and_what_next() -> None:
    context = oom()
    assert context.incident is not None
    text = written(context, options="--dir /var/tmp/x")
    head = text[: text.index("## Evidence")]
    assert head.startswith("# At 03:14:07.412 rank 2 on node-a asked for 256.0 TiB of host memory at once in forward of step 340 and was refused")
    for part in (
        "ranks 0, 1, 3 then lost their peer",
        "`host_oom`",
        "detected 62 ms later",
        TRACE,
        f"`{context.incident.id}`",
        "**confidence**: high",
        "256.0 TiB",
    ):
        assert part in head
    evidence = text[text.index("## Evidence") : text.index("## Every rank")]
    assert re.search(r"^1\. 03:14:07\.412 \(\+0\.000 s\), \*\*rank 2\*\*: memory refused on cpu: asked for 256\.0 TiB", evidence, re.MULTILINE)
    assert "2 more records followed from these." in evidence
    after = text[text.index("## Next") :]
    assert "One request was too large by itself" in after
    assert f"\nllmtrace context {context.incident.id} --dir /var/tmp/x --rank 2 --all | less\n" in after
    assert "Written 2026-11-30 03:17:27" in after
    assert "3 min 20 s after the onset" in after


def test_the_parts_come_in_the_order_in_which_they_are_asked_for() -> None:
    titles = re.findall(r"^## (.*)$", written(oom()), re.MULTILINE)
    expected = ["Evidence", "Every rank around the onset", "Numbers of rank 2", "Last lines of rank 2", "Traceback of rank 2"]
    assert titles == [*expected, "What the other ranks said (seconds from the onset)", "Next"]


def test_lanes_are_text_of_at_most_a_hundred_columns() -> None:
    text = written(many())
    block = text[text.index("## Every rank") : text.index("## Numbers")]
    assert re.search(r"^▶rank 37 .*F!.*failed \+0 ms, step 180$", block, re.MULTILINE)
    assert max(map(len, block.splitlines())) <= 100


def test_numbers_are_a_table_with_the_others_beside() -> None:
    context = exception()
    who = context.processes[0].identity
    logged: list[Value] = [4.0, 9.0, float("nan"), 2.5]
    records = [
        Record(
            id=f"m-{n}",
            time_ns=ONSET - 9 * MS + n,
            kind="sample",
            name=names.METRIC,
            identity=who,
            attributes={names.METRIC_NAME: "a|b", names.METRIC_VALUE: v},
        )
        for n, v in enumerate(logged)
    ]
    text = written(msgspec.structs.replace(context, records=[*context.records, *records]))
    rows = re.findall(r"^\| (?!meas|---)(.*) \|$", text, re.MULTILINE)
    table = {cells[0]: cells[1:] for cells in (row.split(" | ") for row in rows)}
    assert table["`a¦b`"] == ["4", "2.5", "9", "4", ""]
    assert [part.endswith(" ms") for part in table["step time"]] == [True] * 5
    assert [part.endswith(" GiB") for part in table["process memory (RSS)"]] == [True] * 5
    assert [token.type for token in tokens(text)].count("tr_open") == len(rows) + 1


def test_the_culprits_last_lines_and_its_traceback_are_there_with_libraries_folded() -> None:
    text = written(oom())
    last = text[text.index("## Last lines") : text.index("## Traceback")]
    assert "325 earlier lines of this rank" in last
    assert [line.split()[1] for line in last.rstrip().splitlines()[-4:-1]] == ["step", "memory", "raised"]
    trace = text[text.index("## Traceback") : text.index("## What")]
    assert "… 3 frames in lightning, torch" in trace
    assert 'File "/home/ada/gpt/tiny_gpt.py", line 27, in attention' in trace
    assert "site-packages" not in text


def test_what_the_others_said_is_there_once_and_around_the_onset() -> None:
    text = written(kill())
    others = text[text.index("## What the other ranks said") : text.index("## Next")]
    assert "rank 1 " not in others
    assert "onset 03:14:07.412" in others
    assert re.search(r"ranks 0, 2, 3 +process killed by SIGTERM", others)


def test_without_an_incident_it_says_how_the_job_is() -> None:
    assert written(running()).startswith("# The job runs at step 640")
    text = written(finished())
    assert text.startswith("# The job finished cleanly at 03:13:59.293 after 17.9 s: 200 steps")
    assert "Evidence" not in text
    assert "onset" not in text


def test_a_window_with_nobody_in_it_is_a_report_too() -> None:
    context = finished()
    text = written(msgspec.structs.replace(context, processes=[], records=[]))
    check(text)
    assert "No rank of this trace was there" in text


def test_what_was_lost_is_said() -> None:
    context = leave()
    processes = [msgspec.structs.replace(process, lost=17) for process in context.processes]
    text = written(msgspec.structs.replace(context, processes=processes, drops={"journal_size": 40}))
    assert re.search(r"\*\*missing\*\*: 34 records were overwritten", text)
    assert re.search(r"\*\*missing\*\*: 40 ", text)


def test_secrets_do_not_leave() -> None:
    context = exception()
    assert context.incident is not None
    who = context.processes[0].identity
    line = Record(id="z-1", time_ns=ONSET - MS, kind="log", name=names.LOG, identity=who, body="db password=hunter2")
    incident = msgspec.structs.replace(context.incident, reason="url postgres://ada:" + "hunter2" + "@db/x")
    text = written(msgspec.structs.replace(context, incident=incident, records=[*context.records, line]))
    assert "hunter2" not in text
    assert "db password=[redacted:password]" in text
    assert "postgres://ada:[redacted:url-password]@db/x" in text


INJECTIONS = [
    "@team look at #123 and GH-12",
    "![](http://evil.example/x.png)",
    "[click](javascript:alert(1))",
    "<script>alert(1)</script>",
    "<!-- comment",
    "```\n# Owned\n",
    "````\n```` `` ` \n~~~",
    "\n\n# Heading\n\n- item\n\n| a | b |\n| - | - |\n| 1 | 2 |",
    "https://evil.example www.evil.example a@b.example org/repo#1 1d2c3b4a5f6e7d8c9b0a1f2e3d4c5b6a7f8e9d0c",
    "**bold** _em_ ~~s~~ $x$ &lt; &#35; \\*not\\* :smile: [^1] [x]: http://e.example",
    "a | b \\| c ` | d",
    "    indented\n> quote\n---\n===\n1. one\n+ plus",
    "\x1b[31mred\x1b[0m \x00 \u202e \u2028 \ud800 \r over",
    "`` ` ``` ",
    "trailing backslash \\",
    "\uff5cfullwidth \uff20team \u27e8b\u27e9",
    "1:100:2 and :+1:",
]


@cache
def small() -> Context:
    """The last second before the fault, and what followed."""
    context = exception()
    return msgspec.structs.replace(context, records=[record for record in context.records if record.time_ns > ONSET - S])


def infected(text: str, number: float = 1.0) -> Context:
    """A context in which everything that a job can name is this text."""
    context = small()
    assert context.incident is not None
    identities = {process.identity.span_id: msgspec.structs.replace(process.identity, node=text, job=text, trace_id=text) for process in context.processes}
    facts: dict[str, Value] = {names.EXCEPTION_TYPE: text, names.EXCEPTION_MESSAGE: text, names.EXCEPTION_STACKTRACE: f"Traceback:\n  {text}\n{text}"}
    facts |= {names.FAILURE_LINE: text, names.FAILURE_PHASE: text}
    records: list[Record] = []
    for record in context.records:
        body = text if record.kind == "log" and record.step is not None and record.step % 7 == 0 else record.body
        attributes = {**record.attributes, **facts} if record.name == names.FAILURE else record.attributes
        records.append(msgspec.structs.replace(record, body=body, attributes=attributes, identity=identities[record.identity.span_id]))
    who = records[-1].identity
    records.append(Record(id="m-1", time_ns=ONSET - 2, kind="sample", name=names.METRIC, identity=identities[context.processes[0].identity.span_id]))
    records[-1] = msgspec.structs.replace(records[-1], attributes={names.METRIC_NAME: text, names.METRIC_VALUE: number})
    records.append(Record(id="e-1", time_ns=ONSET + 1, kind="event", name=text, identity=who, attributes={text: text}))
    culprit = msgspec.structs.replace(context.incident.culprit, node=text, gpu=text)
    incident = msgspec.structs.replace(
        context.incident,
        summary=text,
        reason=text,
        category=text,
        role=text,
        culprit=culprit,
        links={"page": text},
        evidence=[*context.incident.evidence, "e-1"],
    )
    processes = [msgspec.structs.replace(process, identity=identities[process.identity.span_id], phase=text) for process in context.processes]
    return msgspec.structs.replace(context, incident=incident, processes=processes, records=records, drops={text: 3})


@pytest.mark.parametrize("text", INJECTIONS)
def test_what_a_job_printed_is_text(text: str) -> None:
    found = written(infected(text))
    check(found)
    assert "\ud800" not in found
    found.encode("utf-8")


@pytest.mark.parametrize("text", [text for text in INJECTIONS if text.isprintable()])
def test_a_line_is_seen_as_it_was_printed(text: str) -> None:
    seen = visible(written(infected(text)))
    assert seen.count(text) >= 3


MARKUP = st.text(st.sampled_from("`*_[]()<>!#@|\\~$&:/.- \n\tab1é"), max_size=60)


@settings(max_examples=60, deadline=None)
@given(st.one_of(MARKUP, st.text(max_size=80), st.lists(st.sampled_from(INJECTIONS), min_size=1, max_size=3).map(" ".join)))
def test_whatever_a_job_printed_is_text(text: str) -> None:
    check(written(infected(text)))


@settings(max_examples=400, deadline=None)
@given(st.one_of(MARKUP, st.text(max_size=60), st.sampled_from(INJECTIONS)))
@example("a` b")
@example("x \\")
def test_prose_of_any_text_is_words_and_code(text: str) -> None:
    for line in (f"# {inline(text)}", f"- **a**: {inline(text)}", f"1. b {inline(text)} c", f"| a | b |\n| --- | --- |\n| {cell(text)} | x |"):
        found = list(tokens(line))
        assert {token.type for token in found} <= PLAIN
        assert [token.content for token in found if token.type == "text" and LIVE.search(token.content)] == []
        assert [token.type for token in found].count("td_open") in (0, 2)


@given(MARKUP)
def test_code_is_the_text_itself(text: str) -> None:
    text = " ".join(text.split())
    (found,) = [token for token in PARSER.parse(f"x {code(text)} y") if token.type == "inline"]
    assert [child.content for child in found.children or () if child.type == "code_inline"] == ([text] if text else [])


@given(st.lists(st.one_of(MARKUP, st.text("`~ a", max_size=12)).map(lambda text: text.replace("\n", " ")), max_size=8))
def test_a_fence_holds_its_lines_as_they_are(lines: list[str]) -> None:
    found = PARSER.parse("\n".join(fence(lines)))
    assert [token.type for token in found] == ["fence"]
    assert found[0].content == "".join(f"{line}\n" for line in lines)


def test_plain_words_stay_plain() -> None:
    text = "rank 2 on node-a ran out of host memory in forward of step 340 (asked for 256.0 TiB, 12.3 GiB free); ranks 0, 1-3 then lost their peer (+0.3 s)."
    assert inline(text) == text
    assert inline(
        "an exception (program_error); at /a/b.py:3 in f, it's 41.3 %"
    ) == "an exception (`program_error`); at `/a/b.py:3` in f, it's `41.3 %`".replace("`41.3 %`", "41.3 `%`")


def long(text: str) -> Context:
    """Everything as long as a record may be, and much of it."""
    context = infected(text)
    who = [process.identity for process in context.processes]
    lines = [
        Record(
            id=f"l-{n:x}", time_ns=ONSET + (n - 1500) * MS, kind="log", name=names.LOG, identity=who[n % len(who)], body=text if n % 50 == 0 else f"{n} " * 200
        )
        for n in range(3000)
    ]
    metrics = [
        Record(
            id=f"q-{n}",
            time_ns=ONSET - n,
            kind="sample",
            name=names.METRIC,
            identity=who[0],
            attributes={names.METRIC_NAME: f"{n} " * 40, names.METRIC_VALUE: n},
        )
        for n in range(300)
    ]
    records = sorted([*context.records, *lines, *metrics], key=lambda record: record.time_ns)
    return msgspec.structs.replace(context, records=records, drops={f"{n} " * 40: 1 for n in range(300)})


@pytest.mark.parametrize("text", ["a " * 32_000, "a\n" * 32_000, "` | @" * 8000, "é\u202e " * 9000, "x" * 64_000, 'File "a", line 1\n' * 4000])
def test_it_is_never_longer_than_six_thousand_words(text: str) -> None:
    found = written(long(text))
    check(found)
    assert len(found) < 120_000
    assert "lines are left out here" in found
    assert "more characters]" in found


def test_the_parts_together_cannot_be_more_than_the_whole() -> None:
    parts = ("TITLE", "FACTS", "EVIDENCE", "LANES", "NUMBERS", "LINES", "TRACEBACK", "OTHERS", "NEXT", "CLOSING")
    assert sum(getattr(markdown, part) for part in parts) <= WORDS_MAX


BLOCKS = st.builds(
    Block,
    st.lists(st.text("a b`", max_size=30), max_size=30),
    info=st.sampled_from(["", "text"]),
    head=st.lists(st.just("| a |"), max_size=2),
    centre=st.integers(0, 30),
)


@given(st.lists(BLOCKS, max_size=4), st.integers(0, 120))
def test_a_section_takes_no_more_words_than_it_may(blocks: list[Block], most: int) -> None:
    assert words(Section(title="A title", blocks=blocks, most=most).fitted()) <= most


def test_what_is_left_out_is_what_is_farthest_from_the_centre() -> None:
    lines = [f"line {n}" for n in range(40)]
    found = Block(lines, info="text", centre=20).fitted(30)
    kept = [line for line in found if line.startswith("line")]
    assert kept == [f"line {n}" for n in range(15, 25)]
    assert found[-1] == "*30 lines are left out here.*"
    assert Block(lines, centre=40).fitted(30)[:-2] == [f"line {n}" for n in range(29, 40)]


def test_hostile_lines_of_the_terminal_are_harmless_here_too() -> None:
    text = written(hostile())
    check(text)
    assert "\x1b" not in text
    assert "訓練損失" in text
    assert "[link=https://example.org]link[/link]" in visible(text)
