"""The parts of one screen do not contradict each other: advice and ending, times, strips and numbers, the order of the log, widths."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from llmtrace import names
from llmtrace.config import resolve
from llmtrace.record import INFO, Identity, Record, Window
from llmtrace.show.advice import advice, reading_options
from llmtrace.show.columns import hung, wrapped
from llmtrace.show.fates import fates
from llmtrace.show.hints import hint, manner
from llmtrace.show.log import log
from llmtrace.show.paths import place
from llmtrace.show.phrases import english
from llmtrace.show.story import Story, tell
from llmtrace.show.strips import Scale, letter, strip
from llmtrace.show.view import View
from llmtrace.show.words import CATEGORIES
from llmtrace.sources.context import Context
from tests.support.contexts import MS, ONSET, S, exception, kill, leave, many, oom
from tests.unit.test_terminal import flat, seen

VIEW = View(now_ns=ONSET + 200 * S)


def ended(context: Context, exit_code: int | None, ending: str) -> Story:
    """The same story, told of a culprit that ended otherwise."""
    incident = context.incident
    assert incident is not None
    processes = [msgspec.structs.replace(p, exit_code=exit_code, ending=ending) if p.identity.rank == incident.culprit.rank else p for p in context.processes]
    return tell(msgspec.structs.replace(context, processes=processes))


@pytest.mark.parametrize(
    ("code", "ending", "how", "said", "unsaid"),
    [
        (7, "exited", "left", r"exit\(7\).*os\._exit\(7\).*stderr", "who sent|dmesg"),
        (-9, "killed", "killed", r"who sent the signal.*dmesg -T", r"exit\(|crashed"),
        (-15, "killed", "asked", r"asked it to end \(SIGTERM\)", r"exit\(|dmesg|crashed"),
        (-11, "killed", "crashed", r"crashed in native code \(SIGSEGV\)", "who sent|dmesg"),
        (None, "unknown", "unseen", "Nobody saw how it ended.*dmesg", r"exit\("),
        (0, "exited", "clean", "ended well while the others had not", "who sent|dmesg"),
    ],
)
def test_advice_fits_how_the_process_ended(code: int | None, ending: str, how: str, said: str, unsaid: str) -> None:
    story = ended(leave(), code, ending)
    assert manner(story.culprit) == how
    text = flat("\n".join(part.plain for part in advice(story, VIEW)))
    assert re.search(said, text)
    assert not re.search(unsaid, text)


@pytest.mark.parametrize("category", sorted(CATEGORIES))
def test_every_category_has_advice_for_every_ending_and_none_asks_who_killed_what_was_not_killed(category: str) -> None:
    for code, ending in ((7, "exited"), (-9, "killed"), (-15, "killed"), (-11, "killed"), (None, "unknown"), (0, "clean"), (None, "running")):
        story = ended(leave(), code, ending)
        assert story.incident is not None
        text = english(hint(msgspec.structs.replace(story.incident, category=category), story.culprit))
        assert text
        assert "{" not in text
        assert "who sent" not in text or code == -9
        assert "exit(" not in text or code == 7


def test_where_the_program_lies_is_where_to_search_for_its_exit() -> None:
    text = seen(leave(), 160)
    assert r"grep -rnE --include='*.py' 'exit\(7\)|SystemExit\(7\)' /home/ada/gpt" in text


def test_each_event_of_the_others_has_its_own_time_from_the_onset() -> None:
    text = flat(seen(kill()))
    assert "ranks 0, 2, 3: got as far as backward of step 340, lost their peer +310 ms, killed by SIGTERM (its launcher's clean-up) +1.21 s" in text
    assert "after the onset" not in text


def test_one_that_fell_much_later_is_not_one_of_those_that_fell_together() -> None:
    context = kill()
    records = [msgspec.structs.replace(r, time_ns=r.time_ns + 3 * S) if r.identity.rank == 0 and r.name == names.FAILURE else r for r in context.records]
    found = fates(tell(msgspec.structs.replace(context, records=records)))
    assert [english(fate.who) for fate in found] == ["ranks 2, 3", "rank 0"]
    assert "lost its peer +3.31 s" in english(found[1].words)


def test_ranks_that_said_the_same_of_other_addresses_share_a_line_without_any() -> None:
    context = exception()
    records = [
        msgspec.structs.replace(
            r, attributes={**r.attributes, names.EXCEPTION_MESSAGE: f"cannot store the shard at [10.0.0.1]:{5000 + (r.identity.rank or 0)}, gave up"}
        )
        if r.name == names.FAILURE and r.identity.rank != 3
        else r
        for r in context.records
    ]
    (fate,) = fates(tell(msgspec.structs.replace(context, records=records)))
    assert "RuntimeError: cannot store the shard at, gave up +310 ms" in english(fate.words)
    assert "[peer]" not in seen(msgspec.structs.replace(context, records=records))


@pytest.mark.parametrize("make", [kill, oom, exception, leave])
def test_a_strip_of_any_scale_shows_what_the_rank_was_in_when_it_ended(make) -> None:
    for standing in tell(make()).standings:
        at = standing.trouble_ns or standing.process.ended_ns
        assert at is not None
        shown = set()
        for before_ns, after_ns, cells in ((300 * MS, 300 * MS, 60), (20 * S, 4 * S, 48), (30 * S, 5 * S, 21)):
            scale = Scale(ONSET - before_ns, ONSET + after_ns + 300 * MS, cells)
            shown.add(letter(strip([standing], scale)[scale.cell(at) - 1]))
        assert len(shown) == 1
        assert shown <= set("FB")


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("stretched", [0.2, 0.5, 1, 1.7, 2.6, 4, 7])
def test_each_axis_has_two_ticks_besides_the_onset(width: int, stretched: float) -> None:
    context = kill()

    def at(time_ns: int) -> int:
        return ONSET + int((time_ns - ONSET) * stretched)

    records = [msgspec.structs.replace(r, time_ns=at(r.time_ns), duration_ns=r.duration_ns and int(r.duration_ns * stretched)) for r in context.records]
    processes = [
        msgspec.structs.replace(p, started_ns=at(p.started_ns), last_ns=at(p.last_ns), ended_ns=p.ended_ns and at(p.ended_ns)) for p in context.processes
    ]
    window = Window(at(context.window.start_ns), at(context.window.end_ns))
    text = seen(msgspec.structs.replace(context, records=records, processes=processes, window=window), width)
    axes = [line for line in text.splitlines() if "▼" in line]
    assert len(axes) == 2
    assert all(axis.count("╷") >= 2 for axis in axes)


def test_the_legend_lists_the_letters_that_occur_and_no_other(contexts_by_name: dict[str, Context]) -> None:
    for context in contexts_by_name.values():
        text = seen(context)
        strips = "".join(re.findall(r"^[ ▶]rank(?:s [-\d, ]+| \d+)[ (\d)]* ([·a-zA-Z!✗ ]+?)(?:  |$| (?:\w+ )+[+-])", text, re.MULTILINE))
        legend = text[text.index("f forward") if "f forward" in text else text.index("F forward") : text.index("── Numbers")]
        letters = set(re.findall(r"(?:^|  )([a-zA-Z]) [a-z]", legend, re.MULTILINE))
        assert letters
        assert {one.lower() for one in letters} == {one.lower() for one in set(strips) & set("dfbogcsxDFBOGCSX")}
        assert all(one in strips for one in letters)
        assert ("CAPITAL: begun, never finished" in legend) is any(one.isupper() for one in strips)


@pytest.fixture(scope="module")
def contexts_by_name() -> dict[str, Context]:
    return {"kill": kill(), "oom": oom(), "exception": exception(), "exit": leave()}


@pytest.mark.parametrize(("age_s", "said"), [(3.2, "; 3.2 s ago"), (200, "; 3 min 20 s ago"), (3600, "")])
def test_how_long_ago_is_said_while_it_is_fresh(age_s: float, said: str) -> None:
    assert f"later at 03:14:07.443{said} others" in flat(seen(kill(), now_ns=ONSET + int(age_s * S)))


def test_evidence_is_what_decides_and_the_first_effect_and_what_else_followed_stands_in_the_log() -> None:
    text = seen(oom())
    shown = text[text.index("── Evidence") : text.index("── Every rank")]
    assert re.findall(r"(rank \d)  (effect)?", shown) == [("rank 2", ""), ("rank 2", ""), ("rank 0", "effect")]
    assert "2 more followed, in the log below" in shown
    assert "Connection closed by peer [127.0.0.1]:30000" in flat(text[text.index("── All ranks") :])


def test_a_raised_exception_and_the_end_of_its_process_do_not_read_as_two_deaths() -> None:
    log_text = seen(exception()).partition("── All ranks together")[2]
    assert "process died" not in log_text
    assert "leaves the program" not in log_text  # said with the exception at the same moment
    assert "process killed by SIGTERM" in log_text
    assert "an exception leaves the program" in seen(exception(), whole=True)
    assert "process gone, exit code 1" in seen(oom())
    assert "process exited with code 7" in seen(leave())


SAYINGS = ("raised", "ends", "gone", "step 5 loss 1.5", "step 6 loss 1.5")


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(SAYINGS), st.integers(0, 400)), min_size=1, max_size=40), st.booleans())
def test_rows_of_several_ranks_keep_the_order_of_what_each_of_them_said(said: list[tuple[int, str, int]], culprit_speaks: bool) -> None:
    base = kill(4, 1)
    who = {p.identity.rank: p.identity for p in base.processes}
    at, records = ONSET - 2 * S, list[Record]()
    for number, (rank, words, gap_ms) in enumerate(said):
        at += gap_ms * MS
        if rank != 1 or culprit_speaks:
            kind = "log" if "loss" in words else "event"
            body = words if kind == "log" else None
            records.append(Record(id=f"r-{number:x}", time_ns=at, kind=kind, name=words, identity=who[rank], severity=INFO, body=body, attributes={}))
    rows = "\n".join(part.plain for part in log(tell(msgspec.structs.replace(base, records=records)), View(now_ns=0, width=160, wrap=False)))
    expected = [(r.identity.rank, r.name) for r in records]
    heard: dict[int, list[str]] = {rank: [] for rank in range(4)}
    sides: list[tuple[str, int]] = []
    side = "before"
    for row in rows.splitlines():
        side = "after" if "onset" in row else side
        if found := re.match(r" +[+-][\d.]+  ranks? ([\d, -]+?)  +(.*)$", row):
            for part in found[1].split(", "):
                first, _, last = part.partition("-")
                for rank in range(int(first), int(last or first) + 1):
                    heard[rank].append(found[2].strip())
                    sides.append((side, rank))
    earlier = re.search(r"(\d+) (?:earlier|later) entr", rows)
    if earlier is None and records:
        assert heard == {rank: [words for who_said, words in expected if who_said == rank] for rank in range(4)}
        assert sum(s == "before" for s, _ in sides) == sum(r.time_ns < ONSET for r in records)


@given(st.text(alphabet=st.sampled_from("ab /漢😀-"), max_size=200), st.integers(4, 60), st.integers(0, 40))
@example("a a漢", 4, 2)
def test_wrapped_text_fits_and_loses_nothing_but_blanks(text: str, width: int, hang: int) -> None:
    lines = [line.plain for line in wrapped(Text(text), width, max(2, width - hang))]
    assert all(cell_len(line) <= (max(2, width - hang) if number else width) for number, line in enumerate(lines))
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_a_word_is_broken_only_where_it_is_longer_than_the_room() -> None:
    assert [line.plain for line in wrapped(Text("one two-three four"), 9)] == ["one", "two-three", "four"]
    assert [line.plain for line in wrapped(Text("abcdefghij kl"), 4)] == ["abcd", "efgh", "ij", "kl"]


def test_the_last_column_hangs_and_goes_below_where_there_is_no_room() -> None:
    rows = [(Text("name"), Text("some words that are long")), (Text("n"), Text("two\nlines"))]
    assert [line.plain for line in hung(rows, 26)] == ["name  some words that are\n      long", "n     two\n      lines"]
    assert next(line.plain for line in hung(rows, None)) == "name  some words that are long"
    assert [line.plain for line in hung([(Text("a very long name"), Text("words"))], 22)] == ["a very long name", "    words"]


@pytest.mark.parametrize("wrap", [True, False])
def test_the_head_hangs_on_a_terminal_and_in_a_pipe(wrap: bool) -> None:
    head = seen(many(), wrap=wrap).partition("── Evidence")[0].splitlines()
    assert max(map(cell_len, head)) <= 80
    labels = {line[:8].strip() for line in head[2:] if line}
    assert labels <= {"", "what", "why", "who", "since", "others", "job"}
    assert head[1].startswith("  ")


@pytest.mark.parametrize(
    ("here", "shown"),
    [("/home/ada", "gpt/train.py:88 in main"), ("/srv", "gpt/train.py:88 in main"), ("/home/ada/gpt", "train.py:88 in main"), ("", "gpt/train.py:88 in main")],
)
def test_paths_are_short_on_a_terminal_and_whole_elsewhere(here: str, shown: str) -> None:
    line = "/home/ada/gpt/train.py:88 in main"
    assert place(line, View(now_ns=0, here=here)) == shown
    assert place(line, View(now_ns=0, here=here, wrap=False)) == line
    assert place(line, View(now_ns=0, here=here, whole=True)) == line
    assert place("/train.py:3 in f", View(now_ns=0, here=here)) == "/train.py:3 in f"


@pytest.mark.parametrize("width", [40, 80, 120])
def test_commands_stay_whole_for_the_shell_that_they_are_copied_to(width: int) -> None:
    options = "--dir '/var/tmp/a folder with blanks/and a long name'"
    story = tell(kill())
    whole = [part.plain for part in advice(story, View(now_ns=0, width=999, options=options))]
    narrow = [part.plain for part in advice(story, View(now_ns=0, width=width, options=options))]
    for one, other in zip(whole[1:], narrow[1:], strict=True):
        assert shlex.split(one.replace("\\\n", "")) == shlex.split(other.replace("\\\n", ""))


def test_a_command_names_the_directory_where_the_default_lookup_would_not_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = tmp_path / "night run"
    journal.mkdir()
    (journal / "journal.1.sqlite").touch()
    monkeypatch.chdir(tmp_path)
    default, elsewhere = resolve(environ={}), resolve(environ={"LLMTRACE_DIR": str(journal)})
    assert reading_options((), default) == ""
    assert reading_options((), elsewhere) == f"--dir '{journal}'"
    assert reading_options(["night run"], default) == f"--dir '{journal}'"
    assert reading_options([os.fspath(journal), "b"], elsewhere) == f"--dir '{journal}' --dir {tmp_path}/b"


def test_the_nodes_free_memory_stands_with_the_culprits_where_it_was_measured() -> None:
    context = kill()
    node = context.processes[0].identity.node
    who = Identity(node=node, role="agent", span_id="f" * 16)
    free = [
        Record(
            id=f"n-{number}",
            time_ns=ONSET - (9 - number) * S,
            kind="sample",
            name="llmtrace.node.host",
            identity=identity,
            attributes={"llmtrace.node.memory.available_bytes": left << 30},
        )
        for identity, lefts in ((who, (9, 4, 1)), (msgspec.structs.replace(who, node="elsewhere"), (70, 71, 72)))
        for number, left in enumerate(lefts)
    ]
    assert "free memory" not in seen(context)
    text = seen(msgspec.structs.replace(context, records=sorted([*context.records, *free], key=lambda record: record.time_ns)))
    assert re.search(r"node's free memory +█.▁ +9\.0 GiB → 1\.0 GiB, max 9\.0 GiB", text)
