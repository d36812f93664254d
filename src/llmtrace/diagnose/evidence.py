"""Evidence: what single records and endings say, before anybody is blamed."""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from ..names import (
    FAILURE,
    FAILURE_PHASE,
    FAILURE_SEEN_BY,
    LOG,
    OOM,
    OOM_DEVICE,
    PROCESS,
    PROCESS_ACTION,
    PROCESS_ENDING,
    PROCESS_TEARDOWN_NS,
    PROCESS_UNSEEN,
    STEP,
)
from ..record import FATAL, WARN, Identity, Process, Record
from .catalogue import Classification, classify
from .exceptions import chain_of, is_stop, judge
from .shortage import HOST, reason, sizes, too_large

Sort = Literal["failure", "oom", "death", "stop", "line"]
"""`failure` an exception that ends a process (or may), `oom` an allocator's word, `death` an end seen from outside, `stop` an end
that somebody asked for (Ctrl-C, SIGTERM), `line` something printed."""

SIGHUP, SIGINT, SIGABRT, SIGBUS, SIGKILL, SIGTERM = -1, -2, -6, -7, -9, -15
ASKED: Final = frozenset({SIGHUP, SIGINT, SIGTERM})
FATAL_SIGNALS: Final = {"Segmentation fault": -11, "Aborted": SIGABRT, "Bus error": SIGBUS, "Illegal instruction": -4, "Floating": -8}
"""As faulthandler calls them (cpython Modules/faulthandler.c)."""
ASKED_TO_END: Final = Classification("scheduler", "symptom", "somebody asked the process to end")
ABORTED: Final = Classification("process_death", "ambiguous", "SIGABRT: native code gave up, over a fault of its own or over a peer's")
LATE_NS: Final = 1_000_000_000
"""How late a death may be seen from outside, on a busy machine: what its peers say at once can lie this far before it."""
LONGEST_TEARDOWN_NS: Final = 10_000_000_000
"""A process that is gone longer than this after it said that it ends has done something else in between."""
SHELL_BASE: Final = 128
"""A shell, and sys.exit in a signal handler, say 128 + N for signal N."""

_RAN_FOR = re.compile(r"ran for (\d+) milliseconds|[Tt]imed out waiting (\d+) ?ms")


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One sign that something is wrong with one process. `time_ns` is wall clock of its node.

    `says` is the text itself, for people. `breaks`: it ends training, it is not only talk. `ran_ns`: how long a timed-out
    operation had been waiting. `unseen`: nobody saw it, so it came at `time_ns` or any time later. `others` are further records that say the same.
    `too_large`: memory was refused to one request that no state of it could have met.
    """

    sort: Sort
    time_ns: int
    identity: Identity
    category: str
    role: str
    reason: str
    says: str = ""
    record_id: str = ""
    others: tuple[str, ...] = ()
    step: int | None = None
    phase: str = ""
    code: int | None = None
    device: str = ""
    too_large: bool = False
    breaks: bool = True
    ran_ns: int = 0
    unseen: bool = False

    @property
    def rank(self) -> int | None:
        return self.identity.rank

    @property
    def node(self) -> str:
        return self.identity.node

    @property
    def span_id(self) -> str:
        return self.identity.span_id

    @property
    def is_cause(self) -> bool:
        """Whether it may be what began it all."""
        return self.breaks and self.sort != "stop" and self.role in ("root_cause", "ambiguous", "cause_confirmation")


def normal_code(code: int | None) -> int | None:
    """An exit code with a shell's way of naming a signal undone: 137 is -9."""
    known = {SHELL_BASE - number for number in (SIGHUP, SIGINT, SIGABRT, SIGBUS, SIGKILL, SIGTERM, -11)}
    return SHELL_BASE - code if code in known else code


def signal_name(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def collect(records: Sequence[Record], processes: Sequence[Process]) -> list[Evidence]:
    """All evidence about ranks and their workers, in order of time; an exception and its out-of-memory event are one."""
    known = {process.identity.span_id: process for process in processes}
    steps = _last_steps(records)
    told = [e for record in records if (e := _told(record)) is not None and not _outlived(e, known.get(e.span_id), steps)]
    told = _joined(told)
    spoken = {e.span_id for e in told if e.breaks}
    events = _events(records)
    deaths = [e for process in processes if process.identity.span_id not in spoken and (e := _death(process, events)) is not None]
    return sorted([*told, *deaths], key=lambda e: (e.time_ns, e.span_id))


def _told(record: Record) -> Evidence | None:
    if record.name == FAILURE:
        return _failure(record)
    if record.name == OOM:
        return _shortage(record)
    return _line(record) if record.name == LOG else None


def _failure(record: Record) -> Evidence:
    chain = chain_of(record)
    stopped = is_stop(chain[-1].type) or record.severity <= WARN or (chain[-1].type == "SystemExit" and _asks(chain[-1].message))
    code = _fatal_code(chain[-1].message) if record.attributes.get(FAILURE_SEEN_BY) == "faulthandler" else None
    found = ASKED_TO_END if stopped else ABORTED if code == SIGABRT else judge(chain)
    text = next((raised.text for raised in chain if classify(raised.text).category == found.category), chain[-1].text)
    return Evidence(
        sort="stop" if stopped else "failure",
        time_ns=record.time_ns,
        identity=record.identity,
        category=found.category,
        role=found.role,
        reason=found.reason,
        says=chain[-1].message if code is not None else _told_by_worker(text),
        code=code,
        record_id=record.id,
        step=record.step,
        phase=str(record.attributes.get(FAILURE_PHASE, "")),
        breaks=record.attributes.get(FAILURE_SEEN_BY) != "thread" and record.identity.role != "worker",
        ran_ns=ran_ns(text),
    )


def _fatal_code(message: str) -> int | None:
    """The signal behind faulthandler's `Fatal Python error: Segmentation fault`."""
    return next((code for name, code in FATAL_SIGNALS.items() if name in message), None)


def _told_by_worker(text: str) -> str:
    """An exception that a DataLoader passed on from its worker: its head and, of the worker's traceback, the last line."""
    head, found, rest = text.partition("Original Traceback")
    return f"{head.strip()} {rest.strip().rpartition(chr(10))[2].strip()}" if found else text


def _asks(status: str) -> bool:
    """Whether an exit status says that a signal asked for the end: sys.exit(143) in a handler of SIGTERM."""
    return status.isdecimal() and normal_code(int(status)) in ASKED


def _shortage(record: Record) -> Evidence:
    """The allocator's word. It ends a process only where an exception goes with it (FATAL): programs catch the others and go on."""
    device = str(record.attributes.get(OOM_DEVICE, "cpu"))
    on_host = device in HOST
    return Evidence(
        sort="oom",
        time_ns=record.time_ns,
        identity=record.identity,
        category="host_oom" if on_host else "gpu_oom",
        role="root_cause",
        reason=reason(record),
        says=sizes(record) or record.body or "",
        record_id=record.id,
        step=record.step,
        device=device,
        too_large=too_large(record),
        breaks=record.severity >= FATAL and record.identity.role != "worker",
    )


def _line(record: Record) -> Evidence | None:
    if not record.body or record.severity < WARN:
        return None
    found = classify(record.body)
    if found.role == "benign" or found.category in ("unknown", "program_error"):
        return None
    return Evidence(
        sort="line",
        time_ns=record.time_ns,
        identity=record.identity,
        category=found.category,
        role=found.role,
        reason=found.reason,
        says=record.body,
        record_id=record.id,
        step=record.step,
        breaks=False,
        ran_ns=ran_ns(record.body),
    )


def ran_ns(text: str) -> int:
    """How long a timed-out operation had been waiting when it was given up."""
    found = _RAN_FOR.search(text)
    return int(next(filter(None, found.groups()))) * 1_000_000 if found else 0


def _last_steps(records: Iterable[Record]) -> Mapping[str, Record]:
    return {record.identity.span_id: record for record in sorted(records, key=lambda r: r.time_ns) if record.name == STEP}


def _outlived(evidence: Evidence, process: Process | None, steps: Mapping[str, Record]) -> bool:
    """The process went on after it, with another step or another run: what ends training is something else."""
    later = steps.get(evidence.span_id)
    if later is not None and later.time_ns > evidence.time_ns and later.step != evidence.step:
        return True
    if process is None or evidence.sort == "line":
        return False
    if process.identity.run > evidence.identity.run > 0:
        return True
    moved_ns = process.progress_ns or 0
    return None not in (process.last_step, evidence.step) and moved_ns > evidence.time_ns and (process.last_step or 0) > (evidence.step or 0)


def _joined(told: list[Evidence]) -> list[Evidence]:
    """An out-of-memory event and the exception that it became are one piece of evidence: who, where and how much."""
    found: list[Evidence] = []
    shortages: defaultdict[str, list[Evidence]] = defaultdict(list)
    for e in told:
        if e.sort == "oom" and e.breaks:
            shortages[e.span_id].append(e)
        else:
            found.append(e)
    for position, e in enumerate(found):
        if e.sort == "failure" and (mine := shortages.pop(e.span_id, None)):
            first = mine[0]
            found[position] = msgspec.structs.replace(
                first,
                phase=e.phase,
                time_ns=min(first.time_ns, e.time_ns),
                step=first.step if e.step is None else e.step,
                others=(e.record_id, *(s.record_id for s in mine[1:])),
            )
    return [*found, *(e for rest in shortages.values() for e in rest)]


def _death(process: Process, events: Mapping[str, list[Record]]) -> Evidence | None:
    """A bad end seen from outside, of a process that said nothing itself."""
    code = normal_code(process.exit_code)
    if process.identity.role not in ("rank", "worker") or ended_well(process):
        return None
    if process.identity.role == "worker" and code in (None, *ASKED):
        return None
    found, says = _end(process, code)
    mine = events.get(process.identity.span_id, [])
    return Evidence(
        sort="stop" if code in ASKED else "death",
        time_ns=_gone_ns(process) - (_teardown_ns(mine) if code is not None and code > 0 else 0),
        identity=process.identity,
        category=found.category,
        role=found.role,
        reason=found.reason,
        says=f"{says} after its run had ended well" if _finished_well(mine) else says,
        record_id=next((r.id for r in mine if r.attributes.get(PROCESS_ACTION) == "died"), ""),
        step=process.last_step,
        phase=process.phase,
        code=code,
        breaks=process.identity.role == "rank",
        unseen=any(PROCESS_UNSEEN in r.attributes for r in mine),
    )


def _gone_ns(process: Process) -> int:
    return process.ended_ns if process.ended_ns is not None else process.last_ns


def _teardown_ns(events: Sequence[Record]) -> int:
    """How long the process was on its way out: who calls sys.exit(1) has decided before it. Not of one that went on without llmtrace."""
    return next((ns for r in events if isinstance(ns := r.attributes.get(PROCESS_TEARDOWN_NS), int) and ns <= LONGEST_TEARDOWN_NS), 0)


def ended_well(process: Process) -> bool:
    """It still runs, or it ended by its own clean word, or with exit code 0."""
    return process.ending == "running" or (process.ending in ("clean", "exited") and process.exit_code in (0, None))


def _end(process: Process, code: int | None) -> tuple[Classification, str]:
    """What an ending says (rule 4: an unmarked death is process_death, and who sent a SIGKILL is not in it)."""
    if code in ASKED:
        return ASKED_TO_END, f"was ended by {signal_name(code or 0)}"
    if code is not None and code < 0:
        name = signal_name(code)
        if code == SIGBUS:
            return Classification("host_shm", "ambiguous", "SIGBUS: a mapped file, or shared memory, that is not there"), f"died of {name}"
        if code == SIGKILL:
            return Classification(
                "process_death", "ambiguous", "who sent SIGKILL is on no record: the kernel (memory), the scheduler, a person, or the process itself"
            ), f"was killed ({name})"
        return Classification("process_death", "ambiguous", f"{name}: the process crashed or aborted in native code"), f"died of {name}"
    if process.ending == "raised":
        return Classification("program_error", "root_cause", "the process ended by an exception whose record did not arrive"), "ended by an exception"
    if code is not None:
        return Classification(
            "process_death", "root_cause", "the process exited with an error code, and raised no exception"
        ), f"exited with code {code}, without an exception"
    return Classification("process_death", "ambiguous", "the process is gone without a word, and nobody saw how"), "is gone, nobody saw how"


def _events(records: Iterable[Record]) -> Mapping[str, list[Record]]:
    """What is told of each process's beginning and end, by span."""
    found: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.name == PROCESS:
            found[record.identity.span_id].append(record)
    return found


def _finished_well(events: Sequence[Record]) -> bool:
    """Whether the last word of its run was a clean end."""
    own = [record.attributes for record in events if record.attributes.get(PROCESS_ACTION) != "died"]
    return bool(own) and own[-1].get(PROCESS_ENDING) == "clean"
