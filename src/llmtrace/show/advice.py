"""What to look at next: commands that can be copied, the most useful first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from ..names import FAILURE_LINE
from .clean import one_line
from .columns import hanging
from .story import Story
from .strips import step_time_ns
from .times import SECOND_NS
from .view import View
from .words import HINTS

SHORT: Final = 12
"""So much of a trace id is enough for `llmtrace context`."""


def advice(story: Story, view: View) -> Iterator[RenderableType]:
    """First what this category asks for, then the commands."""
    if story.incident is not None and (hint := HINTS.get(story.incident.category)):
        yield Text(hint)
    yield from hanging([(Text(why, "dim"), Text(command, "bold")) for command, why in _commands(story, view)], view)


def _commands(story: Story, view: View) -> Iterator[tuple[str, str]]:
    incident = story.incident
    key = incident.id if incident else story.context.trace_id[:SHORT]
    base = " ".join(part for part in ("llmtrace context", key, view.options) if part)
    if story.culprit is not None:
        if (trouble := story.culprit.trouble) is not None and (line := trouble.attributes.get(FAILURE_LINE)):
            path, _, rest = one_line(str(line)).partition(":")
            number = rest.split(" ")[0]
            yield f"${{EDITOR:-vi}} +{number} {path}" if number.isdigit() else f"${{EDITOR:-vi}} {path}", "the line that failed"
        yield f"{base} --rank {story.culprit.rank} --all | less", "the culprit alone"
    if incident is not None and (step := step_time_ns(story.standings)):
        seconds = max(1, round(20 * step / SECOND_NS))
        if seconds < 15:
            yield f"{base} --before {seconds}s --after 1s", "the last steps"
    yield f"{base} --all | less", "every line"
    yield f"{base} --kind span,sample | less", "steps and numbers"
    if incident is None and any(standing.process.ending == "running" for standing in story.standings):
        yield f"watch -n 5 {base}", "follow it"
    yield f"{base} --json", "for a program"
