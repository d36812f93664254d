"""Outliers: a rank that is slower in its own work, or waits longer for data, is not folded away with those that only wait for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.big_window import big_window
from llmtrace.names import STEP, phase_attribute
from llmtrace.record import Identity, Record
from llmtrace.show.outliers import FEWEST, MOST, outliers
from llmtrace.show.page.content import content

MS = 1_000_000


def steps(span: str, *, work_ms: float, data_ms: float = 1, count: int = 20) -> list[Record]:
    names = {"forward": work_ms / 2, "backward": work_ms / 2, "data_wait": data_ms, "gradient_sync_exposed": 100 - work_ms - data_ms}
    facts = {phase_attribute(name): int(ms * MS) for name, ms in names.items()}
    who = Identity(span_id=span)
    return [
        Record(id=f"{span}-{n}", time_ns=n * 100 * MS, kind="span", name=STEP, identity=who, duration_ns=100 * MS, step=n, attributes=dict(facts))
        for n in range(count)
    ]


def test_the_rank_for_which_the_others_wait_stands_out_though_all_steps_are_as_long() -> None:
    found = outliers({f"{n}": steps(f"{n}", work_ms=95 if n == 5 else 60) for n in range(16)})
    assert {span: (o.waits, o.own_ns, o.usual_ns) for span, o in found.items()} == {"5": (False, 95 * MS, 60 * MS)}


def test_a_rank_that_waits_for_data_stands_out() -> None:
    found = outliers({f"{n}": steps(f"{n}", work_ms=40, data_ms=50 if n == 2 else 1) for n in range(16)})
    assert [(span, o.waits) for span, o in found.items()] == [("2", True)]


def test_of_few_ranks_or_few_steps_nothing_is_usual() -> None:
    assert outliers({f"{n}": steps(f"{n}", work_ms=95 if n else 40) for n in range(FEWEST - 1)}) == {}
    assert outliers({f"{n}": steps(f"{n}", work_ms=95 if n else 40, count=FEWEST - 1) for n in range(16)}) == {}


@given(st.lists(st.floats(1, 90), max_size=40))
def test_never_more_than_a_few_and_never_the_middle_one(works: list[float]) -> None:
    found = outliers({f"{n}": steps(f"{n}", work_ms=work, count=6) for n, work in enumerate(works)})
    assert len(found) <= MOST
    assert all(abs(o.own_ns - o.usual_ns) > 20 * MS for o in found.values())


def test_on_the_page_it_has_a_lane_of_its_own_that_says_so() -> None:
    page = content(big_window(ranks=32, seconds=10, lines=200), now_ns=0)
    (lane,) = [lane for lane in page.lanes if any("note.work" in getattr(note, "key", "") for note in lane.notes)]
    assert lane.ranks == [32 * 13 // 64]  # the one that big_window makes slow
