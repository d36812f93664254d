"""The top of the view: what happened, who, since when, and what the others did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from .clean import cut, one_line
from .columns import hung, hung_text
from .facts import Line, calm, culprit_name, facts
from .phrases import english
from .story import Story, plainly
from .times import SECOND_NS, ago, day_and_clock
from .view import View
from .words import category_words

FRESH_NS: Final = 300 * SECOND_NS
"""How long ago an incident was is said while that is what one wants to know."""
CALM_STYLES: Final = {"sentence.runs": "bold green", "sentence.clean": "bold green"}


def head(story: Story, view: View) -> Iterator[RenderableType]:
    """One sentence, then the facts by name; broken in a pipe too: this part is for people alone."""
    yield hung_text(_sentence(story, view), view.width, 2)
    yield Text("")
    yield from hung([(Text(name, "dim"), value) for name, value in _facts(story, view)], view.width)


def _sentence(story: Story, view: View) -> Text:
    if story.incident is None:
        words = calm(story)
        return Text(english(words), CALM_STYLES.get("" if isinstance(words, str) else words.key, "bold yellow"))
    text = plainly(one_line(story.incident.summary)) or f"{english(category_words(story.incident.category))} on {english(culprit_name(story))}"
    return Text(f"{view.glyphs.died} {cut(text, 600)}", "bold red")


def _facts(story: Story, view: View) -> Iterator[tuple[str, Text]]:
    for name, lines in facts(story, view, lambda start_ns: f"started {day_and_clock(start_ns)}"):
        for number, line in enumerate(lines):
            text = _text(line, "yellow" if name == "missing" else "")
            yield "" if number else name, text.append(_age(story, view), "not bold") if name == "since" else text


def _text(line: Line, style: str) -> Text:
    name, words = english(line.name), english(line.words)
    return Text(name, "bold").append(words[len(name) :], "not bold") if name else Text(words, style)


def _age(story: Story, view: View) -> str:
    age_ns = view.now_ns - story.zero_ns
    return f"; {ago(story.zero_ns, view.now_ns)}" if age_ns < FRESH_NS else ""
