"""What came first on record, the culprit's own end or what another rank said of it: blame may rest on an inference, and then that is said."""

from __future__ import annotations

from typing import Final

import msgspec

from ..names import FAILURE, OOM, PROCESS, PROCESS_ACTION, PROCESS_UNSEEN
from ..record import Record
from .fates import cleaned_up, happenings
from .story import LATER_NS, Standing, Story

ENDS: Final = frozenset({FAILURE, OOM, PROCESS})
"""Records that may tell of the end of a process."""


class Order(msgspec.Struct, frozen=True):
    """The first trouble of another rank (`witness`), and by how much the culprit's own first record came before it: negative where it came after.

    `own_ns` is when that first record was made. `inferred`: the culprit said nothing itself, and that another on its node lost its
    peer is on record before its end.
    """

    witness: Standing
    own_ns: int
    lead_ns: int
    inferred: bool


def order(story: Story) -> Order | None:
    """None where there is no culprit, no record of its own, or no trouble of another rank to compare with."""
    others = [standing for standing in story.others if standing.bad and standing.trouble_ns is not None]
    own_ns = _first_own_ns(story)
    if own_ns is None or not others or story.culprit is None:
        return None
    witness = min(others, key=_trouble_ns)
    lead_ns = _trouble_ns(witness) - own_ns
    one_clock = witness.process.identity.node == story.culprit.process.identity.node
    return Order(witness, own_ns, lead_ns, lead_ns <= 0 and one_clock and story.culprit.trouble is None and _symptom(witness) == "peer_loss")


def effect(story: Story) -> Record | None:
    """The first record of what the culprit's end did to another rank, None where there is none."""
    if story.culprit is None:
        return None
    found = [standing for standing in story.others if _symptom(standing)]
    return min(found, key=_trouble_ns).trouble if found else None


def followers(story: Story) -> set[str]:
    """The spans of the ranks that failed for want of the culprit, or that their launcher cleaned up after it."""
    if story.culprit is None:
        return set()
    return {standing.process.identity.span_id for standing in story.others if _symptom(standing) or cleaned_up(standing, story)}


def _symptom(standing: Standing) -> str:
    found = happenings(standing)
    return found[0].symptom if found else ""


def _trouble_ns(standing: Standing) -> int:
    return standing.trouble_ns or 0


def _first_own_ns(story: Story) -> int | None:
    """When the culprit's end is on record first: by its own word, by a line that decides, or as seen from outside."""
    if story.culprit is None or story.incident is None:
        return None
    span, decides = story.culprit.process.identity.span_id, story.incident.evidence[:1]
    own = [record.time_ns for record in story.context.records if record.name in ENDS and record.identity.span_id == span and _ends(record, story.zero_ns)]
    first = [story.records[name] for name in decides if name in story.records]
    return min([*own, *(record.time_ns for record in first if record.identity.rank == story.incident.culprit.rank)], default=None)


def _ends(record: Record, zero_ns: int) -> bool:
    """Whether it is the end of a process or leads to it; an earlier run's does not count, nor one that nobody saw: it came later."""
    if record.time_ns < zero_ns - LATER_NS or PROCESS_UNSEEN in record.attributes:
        return False
    return record.name != PROCESS or record.attributes.get(PROCESS_ACTION) in ("finished", "died")
