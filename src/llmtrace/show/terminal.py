"""`llmtrace context` in a terminal: what one wants to see at 3 in the morning, in the order in which one asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import RenderableType
from rich.text import Text

from ..sources.context import Context
from .advice import advice
from .evidence import evidence, last_lines
from .head import head
from .lanes import lanes
from .log import log
from .numbers import numbers
from .story import Story, tell
from .view import View

__all__ = ["View", "show"]

Section = Callable[[Story, View], Iterator[RenderableType]]


def show(context: Context, view: View) -> Iterator[RenderableType]:
    """The view, part by part; pure: the same context and view give the same text."""
    story = tell(context)
    yield from head(story, view)
    for title, section in _sections(story):
        parts = list(section(story, view))
        if parts:
            yield Text("")
            yield _rule(title, view)
            yield from parts


def _sections(story: Story) -> Iterator[tuple[str, Section]]:
    yield "Evidence", evidence
    yield "Every rank around the onset" if story.incident else "Every rank", lanes
    yield _numbers_title(story), numbers
    if (speaker := story.spokesman) is not None:
        yield f"Last lines of rank {speaker.rank}" + ("" if speaker.culprit else " (no culprit is named yet)"), last_lines
    yield "All ranks together (seconds from the onset)" if story.incident else "All ranks together (seconds before the end)", log
    yield "Next", advice


def _numbers_title(story: Story) -> str:
    speaker = story.spokesman or next(iter(story.standings), None)
    return "Numbers" if speaker is None or speaker.rank is None else f"Numbers of rank {speaker.rank}"


def _rule(title: str, view: View) -> Text:
    rest = max(0, view.width - len(title) - 4)
    return Text(f"{view.glyphs.rule * 2} {title} {view.glyphs.rule * rest}", "bold", no_wrap=True, overflow="crop")
