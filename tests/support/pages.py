"""Pages as data, made without a job: one broken job of several ranks, for what draws it."""

from __future__ import annotations

import random

import msgspec

from llmtrace.show.page.model import Band, Command, Evidence, Fact, Head, Lane, Log, Mark, Page, PhaseName, Phrase, Series, Speaker, Strip, Words

S = 1_000_000
STEP_US = 60_000
ZERO_MS = 1_796_008_447_412.0
PHASES = ("data_wait", "forward", "backward", "gradient_sync_exposed", "optimizer")
SHARES = (0.08, 0.3, 0.42, 0.1, 0.1)
CULPRIT = 2
LAST = 8
TRACEBACK = (
    'Traceback (most recent call last):\n  File "/home/ada/gpt/train.py", line 88, in main\n    loss = step(batch)\n'
    '  File "/home/ada/gpt/train.py", line 61, in step\n    raise ValueError("no such token")\nValueError: no such token'
)
HOSTILE = (
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=2>",
    "\x1b[31mred\x1b[0m \x1b[1;38;5;208mamber\x1b[0m \x1b[48;2;10;20;30mground\x1b[0m plain \x1b]0;title\x07\x1b[2J\x1b[999;mend",
    "turned \u202egnol\u202c, hidden \u200b\ufeff, bell \x07, null \x00",
    "half a sign \ud800 and \udfff",
    "\u2028 and \u2029 end lines in old scripts",
)


def columns(times_us: list[int]) -> list[int]:
    return [time_us - before for before, time_us in zip([0, *times_us], times_us, strict=False)]


def lane(rank: int, steps: int, *, culprit: int = CULPRIT, node: str = "", random_: random.Random) -> Lane:
    """A rank that steps up to the onset; its last phase never ends."""
    start_us = -steps * STEP_US - 2 * S
    segments: list[int] = []
    for step in range(steps):
        for phase, share in enumerate(SHARES):
            gap = 2 * S if not step and not phase else 0
            segments += [gap, int(STEP_US * share), phase]
    guilty = rank == culprit
    end_us = 0 if guilty else S
    segments += [0, 800_000 if not guilty else 15_000, -1 - (3 if not guilty else 2)]
    marks = [Mark(at_us=start_us, kind="started", words="process started")] if start_us > -30 * S else []
    if guilty:
        marks += [Mark(at_us=end_us, kind="failed", words="ValueError"), Mark(at_us=end_us + 400_000, kind="died", words="exit code 1")]
        end_us += 400_000
    else:
        marks += [Mark(at_us=800_000 + random_.randrange(9000), kind="failed", words="lost its peer"), Mark(at_us=end_us, kind="died", words="exit code 1")]
    return Lane(
        label=f"rank {rank}",
        node=node or f"node-{'ab'[rank // 2 % 2]}",
        ranks=[rank],
        culprit=guilty,
        bad=True,
        start_us=start_us,
        end_us=end_us,
        notes=[f"failed {'+0.0' if guilty else '+0.8'} s", f"step {steps}", "60 ms/step"],
        marks=marks,
        segments=segments,
    )


def lines(ranks: int, count: int, extra: list[tuple[int, int, int, Words]]) -> Log:
    """`count` lines evenly over the window, and these besides: (time, rank, severity, text)."""
    found: list[tuple[int, int, int, Words]] = [
        (-25 * S + number * 26 * S // max(1, count), number % ranks, 9, f"step {number // ranks} loss {4 - number / max(1, count):.4f}")
        for number in range(count)
    ]
    found = sorted([*found, *extra], key=lambda line: line[0])
    events = [place for place, line in enumerate(found) if str(line[3]).startswith("raised")]
    speakers = [Speaker(words=f"rank {rank}", rank=rank, node="node-a", culprit=rank == CULPRIT, lane=rank) for rank in range(ranks)]
    return Log(
        times_us=columns([line[0] for line in found]),
        speaker=[line[1] for line in found],
        severity=[line[2] for line in found],
        texts=[line[3] for line in found],
        events=events,
        effects=[place for place in events if found[place][1] != CULPRIT],
        last=[place for place, line in enumerate(found) if line[1] == CULPRIT and line[0] <= 0][-LAST:],
        speakers=speakers,
    )


def broken(*, ranks: int = 4, steps: int = 240, count: int = 400, hostile: bool = False, folded: int = 0, language: str = "", follow: bool = False) -> Page:
    """Rank 2 raised; the others lost their peer. `hostile` adds texts that must stay texts, `folded` a lane of so many ranks with its members."""
    random_ = random.Random(5)
    extra: list[tuple[int, int, int, Words]] = [(-1000, CULPRIT, 17, TRACEBACK), (0, CULPRIT, 17, "raised ValueError: no such token")]
    extra += [(800_000 + rank, rank, 17, "raised RuntimeError: Connection closed by peer") for rank in range(ranks) if rank != CULPRIT]
    extra += [(-500_000 + number, CULPRIT, 13, text) for number, text in enumerate(HOSTILE if hostile else ())]
    log = lines(ranks, count, extra)
    lanes = [lane(rank, steps, random_=random_) for rank in (CULPRIT, *(rank for rank in range(ranks) if rank != CULPRIT))]
    if folded:
        members = [lane(ranks + number, steps, node="node-z", random_=random_) for number in range(folded)]
        whole = msgspec.structs.replace(members[0], label=f"{folded} ranks", ranks=[ranks + number for number in range(folded)], members=members)
        lanes.append(whole)
    return Page(
        title=HOSTILE[0] if hostile else "gpt-demo",
        language=language,
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
        incident_id="1f0c9a52d1b0",
        zero_ms=ZERO_MS,
        zero_is_onset=True,
        start_us=-30 * S,
        end_us=5 * S,
        detected_us=62_000,
        follow=follow,
        head=head(hostile),
        evidence=[Evidence(at_us=0, who="rank 2", text="raised ValueError: no such token", lane=0, row=row_of(log, "raised ValueError: no such token"))],
        phases=[PhaseName(name=name, words=name.replace("_", " ")) for name in PHASES],
        lanes=lanes,
        strips=strips(steps),
        log=log,
        missing=[],
    )


def row_of(log: Log, text: str) -> int:
    return log.texts.index(text)


def head(hostile: bool) -> Head:
    return Head(
        state="broke",
        sentence=f"rank 2 raised ValueError in step 240 (backward); ranks 0, 1, 3 then lost their peer {HOSTILE[1] if hostile else ''}".strip(),
        confidence=Phrase("ui.incident"),
        facts=[
            Fact(label=Phrase("ui.who"), lines=["rank 2 on node-b, pid 4102, in backward of step 240"]),
            Fact(label=Phrase("ui.trace"), lines=["one", "two"]),
        ],
        advice=["Look at the line that raised it."],
        commands=[Command(why=Phrase("ui.log"), command="llmtrace context 1f0c9a52d1b0 --all | less")],
    )


def strips(steps: int) -> list[Strip]:
    random_ = random.Random(3)
    times = [(number - steps) * STEP_US for number in range(steps)]
    own: list[float | None] = [6e7 * (1 + random_.random() / 5) for _ in times]
    loss: list[float | None] = [4 - number / 80 for number in range(steps)]
    loss[-3:] = [None, None, None]
    memory: list[float | None] = [8.456e8 + number * 4e3 for number in range(0, steps, 40)]
    sampled = columns(times[::40])
    band = Band(times_us=columns(times), low=[5.8e7] * steps, middle=[6.1e7] * steps, high=[6.7e7] * steps)
    return [
        Strip(label="step time", unit="ns", who="rank 2", own=Series(times_us=columns(times), values=own), others=band),
        Strip(label="loss", unit="", who="rank 2", own=Series(times_us=columns(times), values=loss), others=None),
        Strip(
            label="process memory (RSS)",
            unit="bytes",
            who="rank 2",
            own=Series(times_us=sampled, values=memory),
            others=None,
            other=Series(times_us=sampled, values=[value and value * 1.001 for value in memory]),
            other_who="rank 0",
        ),
    ]
