"""The texts of a page: each exists in both languages with the same arguments, each is used, and what diagnosis says is recognised."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import llmtrace.show
from llmtrace.diagnose import absence, attribution, evidence, exceptions
from llmtrace.diagnose.clocks import Clocks
from llmtrace.diagnose.summary import SYMPTOMS
from llmtrace.diagnose.wordings import WORDINGS
from llmtrace.record import Culprit
from llmtrace.show.hints import HINTS, hint
from llmtrace.show.page.content import content
from llmtrace.show.page.model import Page, Phrase
from llmtrace.show.page.reasons import recognised
from llmtrace.show.page.texts import TEXTS
from llmtrace.show.page.texts.verdict import VERDICT
from llmtrace.show.phrases import FIELD, SPELLINGS, english, spelled
from llmtrace.show.story import tell
from llmtrace.show.words import CATEGORIES, ROLES
from llmtrace.sources.context import Context
from tests.support.cases import FAULTS
from tests.support.contexts import CONTEXTS, leave
from tests.unit.test_page_content import paged

SHOW = Path(llmtrace.show.__file__).parent
SOURCES = [path for path in SHOW.rglob("*.py") if path.parent.name != "texts"]
CJK = re.compile("[\u4e00-\u9fff]")
SAME_IN_BOTH = {"who.ranks"}
"""Keys whose Chinese is another text and has no ideograph."""


def literals(path: Path) -> Iterator[str]:
    """Strings of a file, an f-string as an expression with `.+` for what is put in."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.escape(node.value)
        elif isinstance(node, ast.JoinedStr):
            yield "".join(re.escape(part.value) if isinstance(part, ast.Constant) else ".+" for part in node.values)


def test_every_text_of_the_verdict_is_used() -> None:
    told = {literal for path in SOURCES for literal in literals(path) if re.match(r"[a-z]+\\\.", literal)}
    told = {literal for literal in told if not literal.startswith("reason")}
    unused = [key for key in VERDICT if not key.startswith("reason.") and not any(re.fullmatch(literal, key) for literal in told)]
    assert unused == []


def test_no_text_is_asked_for_that_there_is_none_of() -> None:
    asked = {node.args[0].value for path in SOURCES for node in ast.walk(ast.parse(path.read_text())) if is_say(node)}
    assert asked
    assert sorted(asked - set(VERDICT)) == []


def is_say(node: ast.AST) -> bool:
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "say"
    return named and bool(node.args) and isinstance(node.args[0], ast.Constant)  # type: ignore[attr-defined]


def test_both_languages_take_the_same_arguments_in_the_same_spelling() -> None:
    for key, (en, zh) in VERDICT.items():
        assert sorted(FIELD.findall(en)) == sorted(FIELD.findall(zh)), key
        assert {how for _, how in FIELD.findall(en)} <= {"", *SPELLINGS}, key
        assert en.count("{") == en.count("}") == len(FIELD.findall(en)), key


def test_what_has_english_words_of_our_own_has_chinese_ones() -> None:
    for key, texts in VERDICT.items():
        en, zh = (FIELD.sub("", text) for text in texts)
        assert en == zh or key in SAME_IN_BOTH or CJK.search(zh) or not re.search("[a-z]{3}", en), key
        assert not CJK.search(en), key
        assert "  " not in texts[1], key


def test_no_key_stands_in_two_tables() -> None:
    from llmtrace.show.page.texts.interface import INTERFACE

    assert set(VERDICT) & set(INTERFACE) == set()
    assert set(VERDICT) | set(INTERFACE) == set(TEXTS)


def phrases(value: object) -> Iterator[Phrase]:
    """Every phrase of a page, however deep."""
    if isinstance(value, Phrase):
        yield value
        yield from phrases(value.args)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from phrases(getattr(value, name))
    elif isinstance(value, dict):
        for item in value.values():
            yield from phrases(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from phrases(item)


def altered() -> Iterator[tuple[str, Context]]:
    """The same cascade under every category, role and ending: whatever diagnosis may say, the page has words for it."""
    context = FAULTS["left"]()
    assert context.incident is not None
    for category in sorted(CATEGORIES | {"of a new kind"}):
        for role in sorted(ROLES | {"new_role"}):
            incident = msgspec.structs.replace(context.incident, category=category, role=role)
            yield f"{category} {role}", msgspec.structs.replace(context, incident=incident)
    for category in ("process_death", "host_oom", "gpu_hardware"):
        for code, ending in ((7, "exited"), (0, "exited"), (-9, "killed"), (-11, "killed"), (-15, "killed"), (None, "killed"), (None, "unknown"), (0, "clean")):
            processes = [msgspec.structs.replace(p, exit_code=code, ending=ending) if p.identity.rank == 1 else p for p in context.processes]
            incident = msgspec.structs.replace(context.incident, category=category, evidence=[])
            yield f"{category} {code} {ending}", msgspec.structs.replace(context, incident=incident, processes=processes)
            nobody = msgspec.structs.replace(incident, culprit=Culprit(gpu="GPU-1", node="a"))
            alike = [msgspec.structs.replace(p, exit_code=code, ending=ending) for p in context.processes]
            quiet = [r for r in context.records if r.kind != "event"]
            yield f"all {code} {ending}", msgspec.structs.replace(context, incident=nobody, processes=alike, records=quiet)


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    made = {name: make() for name, make in {**CONTEXTS, **FAULTS}.items()}
    return {name: paged(context) for name, context in {**made, **dict(altered())}.items()}


def test_every_phrase_of_every_page_exists_and_has_what_its_text_asks_for(pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        for phrase in phrases(page):
            assert phrase.key in VERDICT, (name, phrase)
            for argument, how in FIELD.findall(VERDICT[phrase.key][0]):
                assert argument in phrase.args, (name, phrase)
                if how:
                    assert isinstance(phrase.args[argument], int | float), (name, phrase)


def test_every_phrase_can_be_said_in_both_languages(pages: dict[str, Page]) -> None:
    for page in pages.values():
        for phrase in phrases(page):
            for language in ("en", "zh"):
                assert spelled(phrase, language).strip()


def test_nothing_of_ours_on_a_page_is_english_alone(pages: dict[str, Page]) -> None:
    """Plain texts are names, commands, lines and exceptions: none is a sentence of llmtrace's."""
    ours = {en for en, _ in VERDICT.values() if " " in en and "{" not in en}
    for name, page in pages.items():
        if name not in CONTEXTS:  # their reasons are not diagnosis's
            for phrase in phrases(page):
                assert not {value for value in phrase.args.values() if isinstance(value, str)} & ours, (name, phrase)


def test_large_numbers_survive_javascript(pages: dict[str, Page]) -> None:
    for page in pages.values():
        for phrase in phrases(page):
            assert all(abs(value) < 2**53 for value in phrase.args.values() if isinstance(value, int))


# What diagnosis says.


def reasons() -> Iterator[str]:
    """Every reason that diagnosis can give, by its sources."""
    yield from {wording.reason for wording in WORDINGS}
    for module in (exceptions, evidence):
        yield from (value.reason for value in vars(module).values() if hasattr(value, "reason") and isinstance(getattr(value, "reason", None), str))
    for module, maker, place in ((evidence, "Classification", 2), (absence, "Absent", 1)):
        for node in ast.walk(ast.parse(Path(module.__file__ or "").read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == maker and not names_a_variable(node.args[place]):
                yield written(node.args[place])
    for node in ast.walk(ast.parse(Path(attribution.__file__ or "").read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match("it was told|all ranks are gone|only symptoms", node.value):
            yield node.value


def names_a_variable(node: ast.expr) -> bool:
    """Whether it is made elsewhere: `it {says}`."""
    return any(isinstance(part, ast.Name) and part.id in ("says", "reason") for part in ast.walk(node))


def written(node: ast.expr) -> str:
    """A text of the source, with a signal where one is put in."""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "SIGFPE" for part in getattr(node, "values", [node]))


@pytest.mark.parametrize("reason", sorted(set(reasons())))
def test_every_reason_of_diagnosis_is_recognised(reason: str) -> None:
    words = recognised(reason)
    assert isinstance(words, Phrase)
    assert english(words) == reason
    assert CJK.search(spelled(words, "zh"))


@pytest.mark.parametrize(
    "reason",
    [
        "a request of 20.0 MiB was refused by the allocator of cuda:3; the nodes' clocks are taken to agree within 50 ms",
        "one request of 1.0 PiB could not be met: 19.7 GiB was free",
        "one request of 512 B could not be met: the limit is 100 B",
        "a request of 20.0 MiB could not be met though 300.0 MiB was free: fragments, or a limit",
        "a request of 1.0 PiB was refused by the allocator of the host",
        "the allocator of the host refused a request",
        "the allocator of cuda:1 refused a request",
        "said while a process ends; nothing failed by it; only symptoms were seen, no cause",
        "was killed (SIGKILL), and the kernel, the scheduler or the kubelet says that memory ran out",
        "died of SIGBUS after its run had ended well, and shared memory (/dev/shm) was used up",
        "it stayed at step 39 while others had come to step 40; a collective did not end in time: the rank that did not come is the cause",
        "it made its last progress 9.0 s before any other rank; a peer's connection ended: the peer is the cause",
        "it ended well at step 39 while the others went on; a peer's connection ended: the peer is the cause",
        "all ranks are gone without a word, and nobody was there to see it",
        "diagnosis failed, this is what failed first",
        Clocks({"a": 0, "b": 0}, 50_000_000).note,
        Clocks({"a": 0, "b": 12_000_000}, 2_000_000, 40).note,
        Clocks({"a": 0, "b": 0}, 2_000_000, 40).note,
    ],
)
def test_reasons_with_their_numbers_are_recognised_and_read_the_same(reason: str) -> None:
    words = recognised(reason)
    assert english(words) == reason
    assert all(phrase.key.startswith(("reason.", "and.")) for phrase in phrases(words))
    strings = [value for phrase in phrases(words) for value in phrase.args.values() if isinstance(value, str)]
    assert not any(len(value) > 30 for value in strings), strings
    assert CJK.search(spelled(words, "zh"))


def test_a_reason_that_nobody_knows_stays_as_it_is() -> None:
    assert recognised("of a later version; an exception of the program's own code") == Phrase(
        "and.semicolon", {"a": "of a later version", "b": Phrase("reason.program")}
    )
    assert recognised("exited with code 3, and of a later version") == "exited with code 3, and of a later version"
    assert recognised("") == ""


def test_symptoms_are_told_as_in_a_summary() -> None:
    assert {key.removeprefix("symptom."): en for key, (en, _) in VERDICT.items() if key.startswith("symptom.")} == SYMPTOMS
    for key, (en, _) in VERDICT.items():
        if key.startswith("symptoms."):
            assert en == SYMPTOMS[key.removeprefix("symptoms.")].replace("its", "their")


def test_every_category_has_a_hint_in_both_languages() -> None:
    story = tell(leave())
    assert story.incident is not None
    assert {category for category, _ in HINTS} == CATEGORIES
    for category in CATEGORIES:
        words = hint(msgspec.structs.replace(story.incident, category=category), story.culprit)
        assert CJK.search(spelled(words, "zh"))
    assert content(leave(), now_ns=0).head.advice
