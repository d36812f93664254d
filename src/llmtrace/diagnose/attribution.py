"""Who caused it: the earliest root cause wins, symptoms never do while there is one, and absence is evidence.

Rules 1, 2, 3, 4 and 6 of the design, over all ranks and nodes given. Everything here is a function of its arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from ..record import Culprit, Process, Record
from .absence import Absent, find_absent
from .clocks import SAME_NODE_NS, Clocks, compare
from .evidence import LATE_NS, SIGABRT, SIGKILL, Evidence, collect, ended_well
from .summary import Story, name_ranks, summarise

PRIORITY: Final = {
    **dict.fromkeys(("gpu_hardware", "nvlink", "node_loss", "device_unavailable"), 0),
    **dict.fromkeys(("program_error", "gpu_program_error", "collective_mismatch", "numerics", "data_pipeline", "storage"), 1),
    **dict.fromkeys(("gpu_oom", "host_oom", "host_shm"), 2),
    **dict.fromkeys(("interconnect", "peer_loss", "rendezvous"), 3),
    **dict.fromkeys(("collective_stall", "straggler"), 4),
}
"""Rule 2, among causes within clock error: hardware > program > memory > network > stall; what is none of them comes last."""

OUTSIDE: Final = frozenset({"gpu_hardware", "nvlink", "interconnect", "node_loss", "eviction", "scheduler", "host_shm"})
"""What a line can say that no exception does: these may be the cause though only a line tells."""
HEARSAY_NS: Final = 60_000_000_000
"""How long before the first failure such a line may stand."""
CONFIRMED_NS: Final = 10_000_000_000
"""How near a death the kernel's or the scheduler's word on it lies."""
TOGETHER_NS: Final = 200_000_000
"""Ranks that are killed within this time were killed as one: whose death is seen first says nothing."""
EVIDENCE: Final = 20


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What broke (`category`), what the evidence for the culprit is worth (`role`), who (`culprit`) and since when.

    `onset_ns` is wall clock. `evidence` are record ids, the one that decided first. `symptoms` are the ranks that failed
    because of it. `candidate` says that there is a cause, not symptoms alone: whoever has none waits a little for another's.
    """

    category: str
    role: str
    culprit: Culprit
    onset_ns: int
    evidence: list[str]
    symptoms: list[int]
    reason: str
    summary: str
    candidate: bool


def diagnose(records: Sequence[Record], processes: Sequence[Process], now_ns: int) -> Verdict | None:
    """The verdict over all ranks and nodes given, or None where nothing is wrong.

    Nothing is wrong after a clean end of all ranks (whatever was printed), and where somebody stopped the job: Ctrl-C, or
    SIGTERM to all of it.
    """
    ranks = [process for process in processes if process.identity.role == "rank"]
    if ranks and all(process.ending != "running" and ended_well(process) for process in ranks):
        return None
    evidence = collect(records, processes)
    breaks = [e for e in evidence if e.breaks]
    if all(e.sort == "stop" for e in breaks):
        return None
    clocks = compare(records, (process.identity.node for process in processes))
    case = Case(evidence, ranks, clocks, now_ns)
    if case.all_gone():
        return case.verdict_on_all()
    cause = case.cause()
    return case.verdict(cause) if cause is not None else case.without_cause()


class Case:
    """One cascade under judgement: the evidence, and the questions that the rules put to it."""

    def __init__(self, evidence: Sequence[Evidence], ranks: Sequence[Process], clocks: Clocks, now_ns: int) -> None:
        self.evidence = [_confirmed(e, evidence) for e in evidence]
        self.ranks, self.clocks, self.now_ns = ranks, clocks, now_ns
        self.breaks = [e for e in self.evidence if e.breaks]
        self.first_ns = min(self._when(e) for e in self.breaks)

    def _when(self, e: Evidence) -> int:
        return self.clocks.common_ns(e.node, e.time_ns)

    def cause(self) -> Evidence | None:
        """The earliest that may be the cause (rule 1); among those within clock error the kind that causes the others (rule 2)."""
        causes = [e for e in self._causes() if not self._follows(e)]
        causes = [e for e in causes if not e.unseen] or causes  # of a death that nobody saw only the earliest moment is known
        if not causes:
            return self._stopped_alone()
        first = min(causes, key=self._when)
        near = [e for e in causes if self._when(e) - self._when(first) <= self._error_ns(first, e)]
        return min(near, key=lambda e: (PRIORITY.get(e.category, 5), self._when(e), e.rank or 0))

    def _error_ns(self, one: Evidence, other: Evidence) -> int:
        return SAME_NODE_NS if one.node == other.node else self.clocks.residual_ns

    def _causes(self) -> Iterable[Evidence]:
        for e in self.evidence:
            if e.is_cause or (e.identity.role == "worker" and e.sort == "death" and self._missed(e)):
                yield e
            elif e.sort == "line" and e.category in OUTSIDE and e.role in ("root_cause", "cause_confirmation"):
                if self.first_ns - HEARSAY_NS <= self._when(e) <= self.first_ns + CONFIRMED_NS:
                    yield e

    def _missed(self, death: Evidence) -> bool:
        """A worker's death counts where its rank then failed for want of it."""
        return any(e.rank == death.rank and "DataLoader worker" in e.says and 0 <= e.time_ns - death.time_ns <= HEARSAY_NS for e in self.breaks)

    def _follows(self, e: Evidence) -> bool:
        """An end that a failure elsewhere brings about: the watchdog's abort after a timeout, a worker's loss told by its rank."""
        if e.code != SIGABRT:
            return False
        symptoms = [s for s in self.evidence if s is not e and s.role == "symptom" and s.sort != "stop"]
        return any(self._when(s) <= self._when(e) - (0 if s.span_id == e.span_id or s.category == "collective_stall" else LATE_NS) for s in symptoms)

    def _stopped_alone(self) -> Evidence | None:
        """A rank that somebody ended by SIGTERM while the others were left to fail: its end began it."""
        symptoms = [e for e in self.breaks if e.sort != "stop"]
        ends = [e for e in self.breaks if e.sort == "stop" and e.code is not None and not e.unseen]
        first = min(ends, key=self._when, default=None)
        if first is None or not symptoms or not self._began(first, min(map(self._when, symptoms))):
            return None
        return msgspec.structs.replace(first, category="process_death", role="ambiguous", reason="it was told to end while the other ranks were not")

    def _began(self, end: Evidence, first_ns: int) -> bool:
        """Whether an end came before the first symptom, or may have: a launcher ends the others only once one has ended."""
        earlier = [p for p in self.ranks if p.ended_ns is not None and self.clocks.common_ns(p.identity.node, p.ended_ns) < self._when(end)]
        return self._when(end) <= first_ns or (self._when(end) <= first_ns + LATE_NS and not earlier)

    def all_gone(self) -> bool:
        """Several ranks, and of each nothing is known but that it is gone, or killed: the node, the allocation or everything was ended at once."""
        gone = {e.span_id for e in self.breaks if e.sort == "death" and e.code in (None, SIGKILL) and e.category == "process_death"}
        killed = [self._when(e) for e in self.breaks if e.code == SIGKILL and not e.unseen]
        together = not killed or max(killed) - min(killed) <= TOGETHER_NS
        return together and len(self.ranks) > 1 and gone == {p.identity.span_id for p in self.ranks} == {e.span_id for e in self.breaks}

    def verdict_on_all(self) -> Verdict:
        """Nobody is singled out: whose death was seen, or whose last sign of life came, first says nothing."""
        killed = all(e.code == SIGKILL and not e.unseen for e in self.breaks)
        last = min(self.breaks, key=self._when) if killed else max(self.breaks, key=self._when)
        how = "were killed (SIGKILL) together" if killed else "are gone, nobody saw how; the onset is the last sign of life"
        nodes = sorted({e.node for e in self.breaks if e.node})
        return Verdict(
            category="process_death",
            role="ambiguous",
            culprit=Culprit(node=nodes[0] if len(nodes) == 1 else None),
            onset_ns=last.time_ns,
            evidence=self._ids(last),
            symptoms=self._others(None),
            reason=last.reason if killed else "all ranks are gone without a word, and nobody was there to see it",
            summary=f"{name_ranks(self._others(None))} on {', '.join(nodes) or 'one node'} {how}",
            candidate=True,
        )

    def verdict(self, cause: Evidence) -> Verdict:
        symptoms = self._others(cause.rank)
        notes = [cause.reason, self.clocks.note if len(self.clocks.ahead_ns) > 1 else ""]
        return Verdict(
            category=cause.category,
            role=cause.role,
            culprit=Culprit(rank=cause.rank, node=cause.node or None, gpu=None),
            onset_ns=self._onset_ns(cause),
            evidence=self._ids(cause),
            symptoms=symptoms,
            reason="; ".join(note for note in notes if note),
            summary=summarise(self._story(cause, symptoms)),
            candidate=True,
        )

    def _onset_ns(self, cause: Evidence) -> int:
        """Of a death seen from outside not later than what its peers on the node said of it."""
        said = [e.time_ns for e in self.breaks if e.role == "symptom" and e.sort == "failure" and e.node == cause.node]
        near = [ns for ns in said if cause.time_ns - LATE_NS <= ns] if cause.code is not None and (cause.code < 0 or cause.sort == "death") else []
        return min([cause.time_ns - cause.ran_ns, *near])

    def without_cause(self) -> Verdict | None:
        """Symptoms alone: no cause is known, but who was missing may be (rule 3)."""
        symptoms = [e for e in self.breaks if e.sort != "stop"]
        if any(e.sort == "stop" and e.code is None and self._when(e) <= min(map(self._when, symptoms)) for e in self.breaks):
            return None
        stalled = [e for e in self.evidence if e.category == "collective_stall"]
        first = min(stalled or symptoms, key=lambda e: self._when(e) - e.ran_ns)
        absent = find_absent(symptoms, self.ranks)
        onset_ns = first.time_ns - first.ran_ns
        if stalled and absent and absent.process and absent.process.progress_ns:
            onset_ns = min(onset_ns, absent.process.progress_ns)
        if absent and absent.since_ns is not None:
            onset_ns = min(onset_ns, absent.since_ns)
        others = self._others(absent.identity.rank if absent else None)
        return Verdict(
            category=first.category,
            role="ambiguous" if absent else "symptom",
            culprit=Culprit(rank=absent.identity.rank, node=absent.identity.node or None) if absent else Culprit(),
            onset_ns=onset_ns,
            evidence=self._ids(first),
            symptoms=others,
            reason=_joined(
                absent.reason if absent else "only symptoms were seen, no cause", first.reason, self.clocks.note if len(self.clocks.ahead_ns) > 1 else ""
            ),
            summary=summarise(self._story(first, others, absent)),
            candidate=False,
        )

    def _others(self, culprit: int | None) -> list[int]:
        return sorted({e.rank for e in self.breaks if e.rank is not None and e.rank != culprit})

    def _ids(self, cause: Evidence) -> list[str]:
        """The deciding records first, then the culprit's others, then what it did to the rest; in order of time."""
        nearest = sorted(
            (e for e in self.evidence if e is not cause and (e.breaks or e.category != "program_error")),
            key=lambda e: (e.rank != cause.rank, not e.breaks, self._when(e)),
        )
        ids = [name for e in (cause, *nearest) for name in (e.record_id, *e.others) if name]
        return list(dict.fromkeys(ids))[:EVIDENCE]

    def _story(self, cause: Evidence, symptoms: Sequence[int], absent: Absent | None = None) -> Story:
        nodes = {process.identity.node for process in self.ranks if process.identity.node}
        process = next((p for p in self.ranks if p.identity.span_id == cause.span_id), None)
        others = [self._in_one_clock(e) for e in self.breaks if e.rank in symptoms and (absent is not None or e.rank != cause.rank)]
        return Story(cause=self._in_one_clock(cause), process=process, absent=absent, others=others, many_nodes=len(nodes) > 1)

    def _in_one_clock(self, e: Evidence) -> Evidence:
        return msgspec.structs.replace(e, time_ns=self._when(e))


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _confirmed(death: Evidence, evidence: Sequence[Evidence]) -> Evidence:
    """A death that nobody claimed (rule 4), once the kernel or the scheduler has named its cause, or its own last line has."""
    if death.sort != "death" or death.role != "ambiguous":
        return death
    for e in evidence:
        if e.sort != "line" or e.node != death.node or abs(e.time_ns - death.time_ns) > CONFIRMED_NS:
            continue
        if e.role == "cause_confirmation" or (e.span_id == death.span_id and e.role == "root_cause"):
            found = msgspec.structs.replace(death, category=e.category, role="root_cause", reason=f"{death.says}, and {e.reason}")
            return msgspec.structs.replace(found, others=(*death.others, e.record_id))
    return death
