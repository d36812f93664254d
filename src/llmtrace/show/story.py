"""A context sorted by who did what: one standing a rank, the culprit apart. Every section of the view tells from this."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from ..names import EXCEPTION_MESSAGE, EXCEPTION_TYPE, FAILURE, FAILURE_PHASE, MEMORY, OOM, STEP, phase_attribute
from ..record import Incident, Process, Record, Window
from ..sources.context import Context
from .clean import one_line
from .outliers import Outlier, outliers
from .page.model import Phrase, Words
from .phrases import say, shortened
from .words import phase_words

_SOURCE_LINE: Final = re.compile(r"(?:\[[^\]\n]{0,200}\.(?:cpp|cc|cu|h|hpp):\d+\.?\]\s*)+(?:err == 0\.\s*)?")
"""Where in libtorch or gloo it was thrown: whole in the traceback, in the way everywhere else."""

_SENTENCE_END: Final = re.compile(r"\.\s+(?=[A-Z])")
ENOUGH: Final = 24
RESIDENT: Final = "llmtrace.memory.rss_bytes"
"""Of a sample of memory: the process's resident memory on the host."""

ORDER: Final = ("data_wait", "forward", "backward", "gradient_sync_exposed", "optimizer", "checkpoint")
"""How phases follow one another within a step: the record holds how long each took, not when."""

LATER_NS: Final = 50_000_000
"""Two ends closer together than this are not said to follow one another."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the job in the window: how far it came, and how it ended."""

    process: Process
    failure: Record | None
    oom: Record | None
    steps: Sequence[Record]
    culprit: bool = False
    outlier: Outlier | None = None

    @property
    def rank(self) -> int | None:
        return self.process.identity.rank

    @property
    def bad(self) -> bool:
        """It failed, or ended other than cleanly."""
        return self.failure is not None or self.oom is not None or self.process.ending not in ("running", "clean")

    @property
    def trouble(self) -> Record | None:
        """What it said itself about its end: the out-of-memory event before the exception that followed."""
        return self.failure or self.oom

    @property
    def trouble_ns(self) -> int | None:
        """When it went wrong: by its own word, else its end as seen from outside."""
        said = [record.time_ns for record in (self.oom, self.failure) if record is not None]
        if said:
            return min(said)
        return self.process.ended_ns if self.bad else None

    @property
    def phase(self) -> str:
        """The phase it was in last: by its progress word, else by what failed there, else by the record of the step that failed."""
        if self.process.phase or self.trouble is None:
            return self.process.phase
        said = str(self.trouble.attributes.get(FAILURE_PHASE, ""))
        last = self.steps[-1] if self.steps else None
        return said or (_last_phase(last) if last is not None and last.step == self.process.last_step else "")

    @property
    def last_step(self) -> int | None:
        if self.process.last_step is not None:
            return self.process.last_step
        return self.steps[-1].step if self.steps else None


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """`window` is the context's; `zero_ns` is what offsets count from: the onset, else the window's end; `records` are found by id.

    `resident` is when each process's host memory was measured last, and its bytes, by span; `again` are the ranks of which there are several processes.
    """

    context: Context
    incident: Incident | None
    window: Window
    zero_ns: int
    standings: Sequence[Standing]
    culprit: Standing | None
    others: Sequence[Standing]
    workers: Sequence[Process]
    records: dict[str, Record]

    resident: dict[str, tuple[int, float]]
    again: frozenset[int | None]

    @property
    def nodes(self) -> int:
        return len({standing.process.identity.node for standing in self.standings})

    @property
    def spokesman(self) -> Standing | None:
        """Whose last lines to show: the culprit's; while none is named, of whoever the first evidence is."""
        if self.culprit is not None or self.incident is None:
            return self.culprit
        spans = [self.records[name].identity.span_id for name in self.incident.evidence if name in self.records]
        found = [standing for span in spans for standing in self.standings if standing.process.identity.span_id == span]
        return next(iter(found), None)


def tell(context: Context) -> Story:
    """The context, sorted."""
    incident = context.incident
    there = [process for process in context.processes if _in_window(process, context)]
    ranks = [process for process in there if process.identity.role == "rank"]
    by_span: dict[str, list[Record]] = {}
    resident: dict[str, tuple[int, float]] = {}
    for record in context.records:
        by_span.setdefault(record.identity.span_id, []).append(record)
        if record.name == MEMORY and isinstance(size := record.attributes.get(RESIDENT), (int, float)):
            resident[record.identity.span_id] = record.time_ns, float(size)
    guilty = _culprit(incident, ranks)
    standings = _compared([_standing(process, by_span.get(process.identity.span_id, ()), process is guilty) for process in sorted(ranks, key=_order)])
    culprit = next((standing for standing in standings if standing.culprit), None)
    return Story(
        context=context,
        incident=incident,
        window=context.window,
        zero_ns=incident.onset_ns if incident else context.window.end_ns,
        standings=standings,
        culprit=culprit,
        others=[standing for standing in standings if not standing.culprit],
        workers=[process for process in there if process.identity.role == "worker"],
        records={record.id: record for record in context.records},
        resident=resident,
        again=frozenset(rank for rank, count in Counter(process.identity.rank for process in ranks).items() if count > 1),
    )


def _compared(standings: list[Standing]) -> list[Standing]:
    """The same, with those marked who differ from the others in their steps."""
    found = outliers({standing.process.identity.span_id: standing.steps for standing in standings})
    return [msgspec.structs.replace(s, outlier=found[span]) if (span := s.process.identity.span_id) in found else s for s in standings]


def _in_window(process: Process, context: Context) -> bool:
    if process.started_ns >= context.window.end_ns:
        return False
    end_ns = process.ended_ns if process.ended_ns is not None else max(process.last_ns, process.progress_ns or 0)
    if process.ending != "running" and end_ns < context.window.start_ns:
        return False
    attempt = context.incident.attempt if context.incident else ""
    return not attempt or process.identity.attempt in ("", attempt)


def _culprit(incident: Incident | None, ranks: Sequence[Process]) -> Process | None:
    """The culprit's last process that was there before the onset: after a restart its successor has the same rank."""
    if incident is None or incident.culprit.rank is None:
        return None
    named = [process for process in ranks if process.identity.rank == incident.culprit.rank]
    near = [process for process in named if incident.culprit.node in (None, process.identity.node)] or named
    before = [process for process in near if process.started_ns <= incident.onset_ns] or near
    return max(before, key=lambda process: process.started_ns, default=None)


def _order(process: Process) -> tuple[int, str, int]:
    rank = process.identity.rank
    return (1 << 30 if rank is None else rank), process.identity.node, process.started_ns


def _standing(process: Process, records: Iterable[Record], culprit: bool) -> Standing:
    failure: Record | None = None
    oom: Record | None = None
    steps: list[Record] = []
    for record in records:
        if record.name == STEP:
            steps.append(record)
        elif record.name == FAILURE:
            failure = failure or record
        elif record.name == OOM:
            oom = oom or record
    return Standing(process=process, failure=failure, oom=oom, steps=steps, culprit=culprit)


def _last_phase(step: Record) -> str:
    """The phase that a step ended in, where its phases make up nearly all of it."""
    found = [(phase, int(step.attributes.get(phase_attribute(phase), 0))) for phase in ORDER]
    if sum(ns for _, ns in found) * 5 < 4 * (step.duration_ns or 0):
        return ""
    return next((phase for phase, ns in reversed(found) if ns > 0), "")


def rank_list(ranks: Iterable[int | None]) -> str:
    """`0, 1, 3-5`: sorted, three and more in a row folded; `?` where no rank is known."""
    runs: list[list[int]] = []
    for rank in sorted({rank for rank in ranks if rank is not None}):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(parts) or "?"


def who(ranks: Sequence[int | None]) -> Phrase:
    """`rank 3`, or `ranks 0, 2-5`."""
    return say("who.rank" if len(set(ranks)) == 1 else "who.ranks", ranks=rank_list(ranks))


def where(standing: Standing) -> Words:
    """`backward of step 40`, as far as it is known."""
    step, phase = standing.last_step, standing.phase
    if step is None:
        return phase_words(phase) if phase else ""
    return say("where.phase", phase=phase_words(phase), step=step) if phase else say("where.step", step=step)


def ending(process: Process) -> Phrase:
    """How a process ended, in words."""
    code = process.exit_code
    if process.ending == "running":
        return say("ending.running")
    if code is not None and code < 0:
        return say("ending.signal", signal=signal_name(-code))
    if process.ending == "clean":
        return say("ending.clean")
    if process.ending == "raised":
        return say("ending.raised_code", code=code) if code else say("ending.raised")
    if process.ending == "exited" and code is not None:
        return say("ending.code", code=code)
    return say("ending.killed") if process.ending == "killed" else say("ending.unseen")


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def said(record: Record) -> str:
    """An exception in one line, as Python would print it last, less the C++ source lines in front; else the record's own body."""
    kind = str(record.attributes.get(EXCEPTION_TYPE, "")).rpartition(".")[2]
    message = plainly(one_line(str(record.attributes.get(EXCEPTION_MESSAGE, ""))))
    if kind:
        return one_line(f"{kind}: {message}" if message else kind)
    return plainly(one_line(record.body or record.name))


def plainly(text: str) -> str:
    """The text without the lines of C++ sources in brackets, and the like."""
    return _SOURCE_LINE.sub("", text)


def briefly(text: str, most: int = 120) -> Words:
    """The first sentence of a message, where that says enough; at most `most` characters."""
    first = _SENTENCE_END.split(text, maxsplit=1)[0]
    return shortened(first if len(first) >= ENOUGH else text, most)
