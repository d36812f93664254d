"""The records that decide and the first effect on another rank, each with its places in the picture and in the log."""

from __future__ import annotations

from collections.abc import Mapping

from ..evidence import rank_of, witnessed, witnesses
from ..story import Story
from ..view import View
from .axis import Axis
from .lanes import Places
from .model import Evidence


def evidence(story: Story, axis: Axis, places: Places, rows: Mapping[str, int], view: View) -> list[Evidence]:
    """In order of time."""
    return [
        Evidence(
            at_us=axis.us(record.time_ns),
            who=rank_of(record),
            text=witnessed(record, is_effect, view),
            lane=places.of(record.identity),
            row=rows.get(record.id),
            effect=is_effect,
        )
        for record, is_effect in witnesses(story)
    ]
