"""The page as one file: markup, style, script, texts and data together, which asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from ..clean import clean, one_line
from ..phrases import spelled
from ..times import offset
from .model import Log, Page, Words
from .texts import LANGUAGES, table

_HERE: Final = Path(__file__).parent
SCRIPT: Final = (
    "dom", "words", "data", "axis", "colours", "paint", "marks", "lanes", "legend", "strips", "ruler", "picture", "pointer",
    "ansi", "filter", "heights", "rows", "log", "head", "controls", "keys", "follow", "main",
)  # fmt: skip
"""The script's files in the order in which they are put together; types.d.ts is for the compiler alone."""

_INERT: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_RISKY: Final = re.compile("[<>&\u2028\u2029]")


def document(page: Page, *, live: bool = False) -> str:
    """The page as HTML; `live` is one that is served: it may ask its own server for newer data, and nobody else."""
    style, script = (_HERE / "style.css").read_text(encoding="utf-8"), _script()
    language = page.language or LANGUAGES[0]
    return _template().render(
        page=page,
        live=live,
        language="zh-CN" if language == "zh" else language,
        title=one_line(page.title),
        policy=_policy(style, script, live),
        style=Markup(style),
        script=Markup(script),
        data=Markup(data(page)),
        texts=Markup(_inert(json.dumps({name: table(name) for name in LANGUAGES}, ensure_ascii=False))),
        say=partial(_harmless, language=language),
        offset=offset_us,
        last=list(_last_lines(page.log)),
    )


def data(page: Page) -> str:
    """The page's data as JSON that may stand in a <script> element: what a served page answers as data.json, too."""
    try:
        text = msgspec.json.encode(page).decode()
    except UnicodeEncodeError:  # a lone surrogate: JSON has an escape for it, UTF-8 has no bytes
        text = json.dumps(msgspec.to_builtins(page), ensure_ascii=True)
    return _inert(text)


def offset_us(at_us: int) -> str:
    """`-12.034`, as show/times.offset, of microseconds."""
    return offset(at_us * 1000)


def _harmless(words: Words, language: str) -> str:
    """Words for those who read without a script."""
    return clean(spelled(words, language))


def _last_lines(log: Log) -> Iterator[tuple[int, Words]]:
    """When and what the culprit said last, and how it ended, oldest first."""
    times_us = list(accumulate(log.times_us))
    yield from ((times_us[row], log.texts[row]) for row in log.last)


def _inert(text: str) -> str:
    return _RISKY.sub(lambda match: _INERT[match[0]], text)


@lru_cache(maxsize=1)
def _template() -> Template:
    environment = Environment(loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("template.html")


@lru_cache(maxsize=1)
def _script() -> str:
    """The files as one function: nothing of theirs is visible to a browser's console or extension by accident."""
    parts = "\n".join((_HERE / "script" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPT)
    return f'(function () {{\n"use strict";\n{parts}\nmain();\n}})();\n'


def _policy(style: str, script: str, live: bool) -> str:
    """Content-Security-Policy: this style, this script, pictures in the file, and nothing from anywhere."""
    rules = ["default-src 'none'", f"script-src {_hash(script)}", f"style-src {_hash(style)}", "img-src data:", "base-uri 'none'", "form-action 'none'"]
    return "; ".join([*rules, "connect-src 'self'"] if live else rules)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
