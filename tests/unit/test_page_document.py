"""The page as a file: its data inert, its policy exact, its words whole, its colours told apart, its types those of the data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import types
from collections.abc import Iterator
from html import unescape
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtrace.show import phrases
from llmtrace.show.page import document as made
from llmtrace.show.page import model
from llmtrace.show.page.document import SCRIPT, data, document
from llmtrace.show.page.model import Page, Phrase
from llmtrace.show.page.texts import TEXTS
from llmtrace.show.page.texts.interface import INTERFACE
from tests.support.pages import HOSTILE, broken

HERE = Path(made.__file__).parent
SCRIPTS = {path.stem: path.read_text() for path in sorted((HERE / "script").glob("*.js"))}
STYLE = (HERE / "style.css").read_text()
TEMPLATE = (HERE / "template.html").read_text()


def inner(html: str, opening: str, closing: str) -> str:
    start = html.index(opening) + len(opening)
    return html[start : html.index(closing, start)]


def test_the_data_is_in_the_page_and_is_the_page() -> None:
    page = broken()
    text = inner(document(page), '<script type="application/json" id="page-data">', "</script>")
    assert msgspec.json.decode(text, type=Page) == page


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(HOSTILE[:4]))
def test_no_text_ends_its_script_element(text: str) -> None:
    page = msgspec.structs.replace(broken(count=0, steps=1), title=text, missing=[text])
    found = data(page)
    assert not re.search("[<>&\u2028\u2029]", found)
    assert msgspec.json.decode(found, type=Page) == page


def test_lone_surrogates_survive_as_escapes() -> None:
    found = data(broken(hostile=True))
    assert "\\ud800" in found
    assert HOSTILE[4] in json.loads(found)["log"]["texts"]
    document(broken(hostile=True)).encode()  # nothing of it is left that UTF-8 has no bytes for


def test_markup_in_texts_is_escaped() -> None:
    html = document(broken(hostile=True))
    assert html.count("<script") == html.count("</script>") == 3
    assert "<img" not in html


def test_the_policy_names_the_style_and_the_script_that_are_there() -> None:
    html = document(broken())
    policy = unescape(inner(html, 'http-equiv="Content-Security-Policy" content="', '">'))
    for name, text in (("script-src", inner(html, "<script>", "</script>")), ("style-src", inner(html, "<style>", "</style>"))):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "style=" not in html and not re.search(r"\son\w+=", TEMPLATE)


def test_no_address_is_in_it() -> None:
    html = document(broken())
    assert set(re.findall(r"\w+://[^\s\"'<)]*", html)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\(|@import|src=", STYLE)


def test_every_script_is_put_together_once() -> None:
    assert sorted(SCRIPT) == sorted(SCRIPTS)
    names = [name for text in SCRIPTS.values() for name in re.findall(r"^(?:function|class|const|let) (\w+)", text, re.MULTILINE)]
    assert len(names) == len(set(names))


def test_every_word_of_the_controls_is_there_and_is_used() -> None:
    used = set(re.findall(r'"(ui\.\w+)"', "\n".join([*SCRIPTS.values(), TEMPLATE, (HERE / "document.py").read_text()])))
    made_up = {f"ui.state_{name}" for name in get_args(model.State)} | {f"ui.mark_{name}" for name in get_args(model.MarkKind)}
    assert used | made_up == set(INTERFACE)


def test_both_languages_say_the_same_things() -> None:
    for key, (english, chinese) in TEXTS.items():
        assert english and chinese, key
        assert sorted(re.findall(r"\{\w+", english)) == sorted(re.findall(r"\{\w+", chinese)), key


def test_words_are_spelled_without_a_script() -> None:
    form = "{a} at {b:clock}, {c:length}, {d:size}, {e:number}, {f:offset}; {g}"
    args = {"a": "one", "b": 0, "c": 62_000_000, "d": 2048, "e": 12345, "f": 300_000_000, "g": Phrase("ui.fit")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phrases, "_texts", lambda _: {"t": form, "ui.fit": "Fit"})
        text = phrases.spelled(Phrase("t", args), "en")  # type: ignore[arg-type]
    assert re.fullmatch(r"one at \d\d:\d\d:00\.000, 62 ms, 2\.0 KiB, 12,345, \+300 ms; Fit", text)


def test_words_for_those_without_a_script_are_harmless() -> None:
    page = msgspec.structs.replace(broken(), trace_id="x\x1b[31my\u202e")
    assert "trace xy\\u202e" in inner(document(page), "<noscript>", "</noscript>")


# The types of the script.


def typescript(kind: Any) -> str:
    """A Python annotation as types.d.ts writes it."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind in (int, float):
        return "number"
    if kind is str:
        return "string"
    if kind is bool:
        return "boolean"
    if kind is type(None):
        return "null"
    if origin is Literal:
        return " | ".join(f'"{part}"' for part in parts)
    if origin is list:
        item = typescript(parts[0])
        return f"({item})[]" if " | " in item else f"{item}[]"
    if origin in (Union, types.UnionType):
        found = list(dict.fromkeys(typescript(part) for part in parts))
        return " | ".join(found)
    assert isinstance(kind, type), kind
    return kind.__name__


ALIASES = {name: typescript(getattr(model, name)) for name in ("State", "MarkKind", "Unit", "Words")}


def declared() -> Iterator[tuple[str, dict[str, str]]]:
    """The interfaces of types.d.ts: name, and the type of each field with the aliases spelled out."""
    text = (HERE / "script" / "types.d.ts").read_text()
    for name, body in re.findall(r"^interface (\w+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields = re.findall(r"^  (\w+)\??: (.+);$", body, re.MULTILINE)
        yield name, dict(fields)


def structs() -> list[type[msgspec.Struct]]:
    return [found for found in vars(model).values() if isinstance(found, type) and issubclass(found, msgspec.Struct) and found.__module__ == model.__name__]


@pytest.mark.parametrize("struct", structs(), ids=lambda struct: struct.__name__)
def test_the_script_knows_the_types_of_the_data(struct: type[msgspec.Struct]) -> None:
    found = dict(declared())[struct.__name__]
    wanted = (
        {name: typescript(kind) for name, kind in get_type_hints(struct).items()}
        if struct is not Phrase
        else {"key": "string", "args": "Record<string, Argument>"}
    )
    assert {name: spelled_out(kind) for name, kind in found.items()} == wanted


def spelled_out(kind: str) -> str:
    for name, whole in ALIASES.items():
        kind = re.sub(rf"\b{name}\[\]", f"({whole})[]", kind)
        kind = re.sub(rf"\b{name}\b", whole, kind)
    return kind


def test_the_aliases_of_the_script_are_those_of_the_data() -> None:
    text = (HERE / "script" / "types.d.ts").read_text()
    for name, whole in ALIASES.items():
        assert f"type {name} = {whole};" in text
    arguments = get_args(get_args(get_type_hints(Phrase)["args"])[1])
    assert "type Argument = string | number | Phrase;" in text
    assert {typescript(part) for part in arguments} == {"string", "number", "Phrase"}


# Colours: that they can be read, and told apart by everybody.

THEMES = {
    "light": dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", inner(STYLE, ":root {", "}"))),
    "dark": dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", inner(STYLE, ":root.dark {", "}"))),
}
PHASES = ("data-wait", "forward", "backward", "gradient-sync-exposed", "optimizer", "checkpoint", "unknown")
VISIONS = {
    # Machado, Oliveira and Fernandes 2009, severity 1.0.
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
}


def linear(colour: str) -> list[float]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, deep = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (deep + 0.05)


def lab(colour: str, vision: str) -> list[float]:
    """CIE L*a*b* of a colour as it is seen (D65)."""
    rgb = linear(colour)
    red, green, blue = (min(1.0, max(0.0, sum(weight * part for weight, part in zip(row, rgb, strict=True)))) for row in VISIONS[vision])
    xyz = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883,
    )
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in xyz)
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISIONS)
def test_phases_are_told_apart(theme: str, vision: str) -> None:
    """CIE76 above 19: about eight times what an eye just sees (2.3)."""
    colours = THEMES[theme]
    for one, other in combinations(PHASES, 2):
        first, second = lab(colours[f"phase-{one}"], vision), lab(colours[f"phase-{other}"], vision)
        apart = sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) ** 0.5
        assert apart > 19, (one, other, round(apart, 1))


def test_phases_that_follow_one_another_differ_in_lightness() -> None:
    for theme in THEMES.values():
        for one, other in zip(PHASES[:5], [*PHASES[1:5], PHASES[0]], strict=True):
            assert contrast(theme[f"phase-{one}"], theme[f"phase-{other}"]) > 1.3, (one, other)


@pytest.mark.parametrize("theme", THEMES)
def test_text_can_be_read(theme: str) -> None:
    """WCAG 2.1 AA: 4.5 for text, 3 for what is drawn."""
    colours = THEMES[theme]
    for ground in ("ground", "surface", "raised", "chosen"):
        for ink in ("ink", "muted", "accent", "bad", "good", "warn"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground, round(contrast(colours[ink], colours[ground]), 2))
    assert contrast(colours["ink"], colours["bad-ground"]) >= 4.5
    assert contrast(colours["muted"], colours["bad-ground"]) >= 4.5
    assert contrast(colours["bad"], colours["bad-ground"]) >= 3
    for ground in ("surface", "raised"):
        assert contrast(colours["idle"], colours[ground]) >= 3, ("idle", ground)


def test_the_script_hides_from_nobody_what_the_terminal_spells_out() -> None:
    """Both sets of signs are the same, but for tabs, which a page shows as they are."""
    from llmtrace.show.clean import _CONTROLS

    pattern = re.search(r"const HIDDEN =\n\s+/(.+)/gu;", SCRIPTS["words"])
    assert pattern
    python = re.sub(r"\\u\{(\w+)\}", lambda match: f"\\U{int(match[1], 16):08x}", pattern[1])
    hidden = re.compile(python)
    differing = [code for code in range(0x110000) if bool(hidden.fullmatch(chr(code))) != bool(_CONTROLS.fullmatch(chr(code)))]
    assert differing == [0x09]
