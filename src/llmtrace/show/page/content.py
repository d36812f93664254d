"""A context as the data of a page."""

from __future__ import annotations

from collections.abc import Iterator

from ...sources.context import Context
from ..clean import one_line
from ..phrases import say
from ..redacted import redact_context
from ..story import Story, tell
from ..view import View
from .axis import Axis
from .evidence import evidence
from .head import head, not_here
from .lanes import Picture, picture
from .log import lines
from .model import Page, Words
from .strips import Strips, strips


def content(context: Context, *, language: str = "", options: str = "", now_ns: int) -> Page:
    """All that a page shows of a window."""
    story = tell(redact_context(context))
    view = View(now_ns=now_ns, wrap=False, options=options)
    axis = Axis(story.zero_ns, story.window.start_ns, story.window.end_ns)
    drawn, measured = picture(story, axis), strips(story, axis)
    told = lines(story, axis, drawn.places, view)
    incident = story.incident
    return Page(
        title=one_line(next((standing.process.identity.job for standing in story.standings if standing.process.identity.job), "")) or "llmtrace",
        language=language,
        trace_id=one_line(context.trace_id),
        incident_id=incident.id if incident else None,
        zero_ms=story.zero_ns / 1e6,
        zero_is_onset=incident is not None,
        start_us=axis.start_us,
        end_us=axis.end_us,
        detected_us=axis.us(incident.detected_ns) if incident else None,
        follow=any(standing.process.ending == "running" for standing in story.standings),
        head=head(story, view),
        evidence=evidence(story, axis, drawn.places, told.rows, view),
        phases=drawn.phases,
        lanes=drawn.lanes,
        strips=measured.strips,
        log=told.log,
        missing=list(_missing(story, drawn, measured)),
    )


def _missing(story: Story, drawn: Picture, measured: Strips) -> Iterator[Words]:
    """What is not on this page, and what was lost before it."""
    yield from not_here(story)
    if drawn.merged:
        yield say("missing.members", count=drawn.merged)
    if measured.left_out:
        yield say("missing.metrics", count=measured.left_out)
