"""When the agent has a page written, again, or not: its clock and its child are the test's."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec
import pytest

from llmtrace.agent import pages as module
from llmtrace.agent.page_child import environment
from llmtrace.agent.pages import AGAIN_NS, KEPT, KEPT_BYTES, LASTS_NS, LATE_NS, MISSING, RETRY_NS, Pages
from llmtrace.config import resolve
from llmtrace.directory import Directory
from llmtrace.incidents import AFTER_NS, incident_window
from llmtrace.journal import JournalReader
from llmtrace.record import Incident
from tests.support.cases import process
from tests.support.journals import write
from tests.support.small_job import RECORDS, incident

S = 1_000_000_000
ONE, TWO = "0000000000a1", "0000000000b2"


class Child:
    """A child whose end the test decides."""

    def __init__(self, incident_id: str, begun_ns: int) -> None:
        self.incident_id, self.begun_ns, self.pid = incident_id, begun_ns, 7
        self.code: int | None = None
        self.killed = False

    def over(self) -> bool:
        return self.code is not None

    def kill(self) -> None:
        self.killed, self.code = True, -9

    def wait(self) -> None:
        pass


class World:
    """Pages, their clock and the children that were started."""

    def __init__(self, folder: Path) -> None:
        self.mono_ns, self.wall_ns = 10**6 * S, 1_800_000_000 * S
        self.directory = Directory(folder, folder / "rings", folder / "registry")
        self.children: list[Child] = []
        self.pages = self.fresh()

    def fresh(self, **settings: object) -> Pages:
        return Pages(self.directory, resolve(settings, {}, ""), self._begin)  # type: ignore[arg-type]

    def _begin(self, _: object, __: object, incident_id: str) -> Child:
        self.children.append(Child(incident_id, self.mono_ns))
        return self.children[-1]

    def incident(self, name: str = ONE, **facts: object) -> Incident:
        """One that is detected now, and began a second ago."""
        return incident(name, onset_ns=self.wall_ns - S, detected_ns=self.wall_ns, window=incident_window(self.wall_ns - S, self.wall_ns), **facts)

    def note(self, told: Incident) -> Incident:
        self.pages.note(told, self.wall_ns)
        return told

    def go(self, ns: int, *, alone: bool = False) -> None:
        self.mono_ns += ns
        self.wall_ns += ns
        self.pages.turn(alone)

    def finish(self, code: int = 0) -> None:
        """The newest child ends, and the agent sees it; a page is there."""
        if code == 0:
            self.put(self.children[-1].incident_id)
        self.children[-1].code = code
        self.pages.turn(alone=False)

    def put(self, name: str, *, size: int = 10, age_ns: int = 0) -> Path:
        path = self.directory.pages / f"{name}.html"
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as stream:
            stream.truncate(size)
        os.utime(path, ns=(self.wall_ns - age_ns, self.wall_ns - age_ns))
        return path

    def begun(self) -> list[str]:
        return [child.incident_id for child in self.children]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(module, "monotonic_ns", lambda: made.mono_ns)
    monkeypatch.setattr(time, "time_ns", lambda: made.wall_ns)
    return made


def test_a_page_is_begun_when_its_window_is_closed_and_the_journal_has_all_of_it(world: World) -> None:
    world.note(world.incident())
    world.go(0)
    world.go(AFTER_NS + LATE_NS - 1)
    assert world.begun() == []
    assert world.pages.pending()
    assert not world.pages.idle()
    world.go(1)
    assert world.begun() == [ONE]
    world.finish()
    world.go(3600 * S)
    assert world.begun() == [ONE]
    assert world.pages.idle()
    assert not world.pages.pending()


def test_where_no_rank_is_left_it_is_begun_at_once(world: World) -> None:
    world.note(world.incident())
    world.go(0, alone=True)
    assert world.begun() == [ONE]
    assert not world.pages.idle()
    world.finish()
    assert world.pages.idle()


def test_one_at_a_time_and_the_newest_first(world: World) -> None:
    world.note(world.incident(ONE))
    world.go(S)
    world.note(world.incident(TWO))
    world.go(S, alone=True)
    world.go(S, alone=True)
    assert world.begun() == [TWO]
    world.finish()
    world.go(S, alone=True)
    assert world.begun() == [TWO, ONE]


def test_a_refined_incident_is_written_again_but_not_at_every_word(world: World) -> None:
    told = world.note(world.incident())
    world.go(AFTER_NS + LATE_NS)
    for number in range(5):  # while the child is at work, and after
        world.note(msgspec.structs.replace(told, summary=f"rank 1 failed, {number} others followed"))
        world.go(S)
    world.finish()
    world.go(AGAIN_NS - 5 * S - 1)
    assert world.begun() == [ONE]
    world.go(1)
    assert world.begun() == [ONE, ONE]
    world.finish()
    world.go(3600 * S)
    assert world.begun() == [ONE, ONE]


def test_a_refined_incident_is_written_again_at_once_by_an_agent_that_would_leave(world: World) -> None:
    told = world.note(world.incident())
    world.go(AFTER_NS + LATE_NS)
    world.finish()
    world.note(msgspec.structs.replace(told, category="host_oom"))
    assert not world.pages.idle()
    world.go(S, alone=True)
    assert world.begun() == [ONE, ONE]


def test_what_was_written_early_is_written_again_only_if_somebody_came_before_the_window_was_closed(world: World) -> None:
    world.note(world.incident())
    world.go(0, alone=True)
    world.finish()
    world.go(S)
    assert world.begun() == [ONE]  # a new rank, and the window is open
    world.go(AFTER_NS)
    world.go(LATE_NS)
    assert world.begun() == [ONE, ONE]
    world.finish()
    world.note(world.incident(TWO))
    world.go(0, alone=True)
    world.finish()
    world.go(AFTER_NS + LATE_NS, alone=True)
    world.go(3600 * S)
    assert world.begun() == [ONE, ONE, TWO]


def test_a_child_that_fails_is_tried_once_more_and_counted(world: World) -> None:
    told = world.note(world.incident())
    world.go(0, alone=True)
    world.finish(1)
    assert world.pages.failures == 1
    world.go(RETRY_NS - 1, alone=True)
    assert world.begun() == [ONE]
    assert not world.pages.idle()
    world.go(1, alone=True)
    assert world.begun() == [ONE, ONE]
    world.finish(-11)
    world.go(3600 * S, alone=True)
    assert world.begun() == [ONE, ONE]
    assert world.pages.failures == 2
    assert world.pages.idle()
    world.note(msgspec.structs.replace(told, category="host_oom"))  # what is new about it is worth one more try
    world.go(0, alone=True)
    world.finish(1)
    world.go(3600 * S, alone=True)
    assert world.begun() == [ONE] * 3


def test_a_child_that_takes_too_long_is_killed_and_counts_as_failed(world: World) -> None:
    world.note(world.incident())
    world.go(0, alone=True)
    world.go(LASTS_NS)
    assert not world.children[0].killed
    world.go(1)
    world.go(0)
    assert world.children[0].killed
    assert world.pages.failures == 1


def test_a_folder_that_cannot_be_used_starts_no_child(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    (world.directory.pages).write_text("a file")
    world.note(world.incident())
    world.go(0, alone=True)
    world.go(RETRY_NS, alone=True)
    assert world.begun() == []
    assert world.pages.failures == 2
    assert world.pages.idle()
    assert "is not a folder" in capsys.readouterr().err


def test_a_defect_in_starting_is_met_twice_and_not_at_every_turn(world: World) -> None:
    begun = list[str]()

    def start(_: object, __: object, name: str) -> Child:
        begun.append(name)
        raise TypeError("a defect of ours")

    world.pages = Pages(world.directory, resolve({}, {}, ""), start)  # type: ignore[arg-type]
    world.note(world.incident())
    for _ in range(100):
        with contextlib.suppress(TypeError):
            world.go(S, alone=True)
    assert begun == [ONE, ONE]
    assert world.pages.idle()


def test_a_wall_clock_that_is_set_back_delays_no_page(world: World) -> None:
    told = world.incident()
    world.wall_ns -= 3600 * S
    world.note(told)
    world.go(AFTER_NS + LATE_NS)
    assert world.begun() == [ONE]


@pytest.mark.parametrize(("age_ns", "begun"), [(0, []), (2 * S, [ONE])])
def test_the_next_agent_writes_what_is_missing_or_older_than_the_last_word(world: World, age_ns: int, begun: list[str]) -> None:
    told = world.incident()
    world.put(ONE, age_ns=age_ns)
    world.pages.note(told, world.wall_ns - S)
    world.go(AFTER_NS + LATE_NS)
    assert world.begun() == begun


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "x" * 12, "0000000000a1\n", "0000000000a1/", "0000000000A1"])
def test_what_is_no_id_names_no_file(world: World, name: str) -> None:
    world.note(world.incident(name))
    world.go(0, alone=True)
    assert world.begun() == []
    assert world.pages.idle()


def journal_with(world: World, number: int) -> tuple[JournalReader, list[object]]:
    told = [world.incident(f"{n:012x}") for n in range(number)]
    told = [msgspec.structs.replace(i, detected_ns=i.detected_ns - (number - n) * 3600 * S) for n, i in enumerate(told)]
    path = write(world.directory.path, RECORDS, [process(0), process(1)], told)
    reader = JournalReader(path / "journal.1.sqlite")
    return reader, reader.rings()  # type: ignore[return-value]


def test_of_incidents_of_former_agents_the_newest_pages_that_are_missing_are_made_up_for(world: World) -> None:
    reader, rows = journal_with(world, MISSING + 3)
    with reader:
        world.pages.recall(reader, rows)  # type: ignore[arg-type]
    for _ in range(MISSING + 5):
        world.go(S, alone=True)
        if world.children and world.children[-1].code is None:
            world.finish()
    assert world.begun() == [f"{n:012x}" for n in range(MISSING + 2, 2, -1)]
    world.pages = world.fresh()
    with JournalReader(world.directory.journal) as again:
        world.pages.recall(again, again.rings())
    assert world.pages.idle()  # they are there


def test_none_is_made_up_for_that_is_too_old_or_has_no_room(world: World) -> None:
    reader, rows = journal_with(world, 3)
    with reader:
        world.pages = world.fresh(journal_age_s="90m")
        world.pages.recall(reader, rows)  # type: ignore[arg-type]
        assert not world.pages.idle()
        world.go(S, alone=True)
        world.finish()
        assert world.begun() == [f"{2:012x}"]
        world.put("f" * 12, size=KEPT_BYTES // 2)
        world.pages = world.fresh()
        world.pages.recall(reader, rows)  # type: ignore[arg-type]
        assert world.pages.idle()


def test_pages_that_are_too_old_go_and_the_newest_stays_whatever_its_age(world: World) -> None:
    old, newest = world.put(ONE, age_ns=15 * 86400 * S), world.put(TWO, age_ns=15 * 86400 * S - 1)
    fresh = world.put("c" * 12)
    world.pages.prune()
    assert (old.exists(), newest.exists(), fresh.exists()) == (False, False, True)
    os.utime(fresh, ns=(0, 0))
    world.pages.prune()
    assert fresh.exists()


def test_pages_are_bounded_in_number_and_bytes_and_the_oldest_go_first(world: World) -> None:
    for number in range(KEPT + 5):
        world.put(f"{number:012x}", age_ns=(KEPT + 5 - number) * S)
    world.pages.prune()
    assert sorted(path.name for path in world.directory.pages.iterdir())[0] == f"{5:012x}.html"
    for number in range(10):
        world.put(f"{number:012x}", size=KEPT_BYTES // 4, age_ns=10 * S - number)
    world.pages.prune()
    assert sum(path.stat().st_size for path in world.directory.pages.iterdir()) <= KEPT_BYTES
    assert (world.directory.pages / f"{9:012x}.html").exists()


def test_what_is_not_ours_in_the_folder_stays_but_for_what_a_killed_child_left(world: World) -> None:
    page = world.put(ONE)
    kept = [page.with_name(name) for name in ("notes.html", "0000000000a1.html.bak", ".llmtrace-8.part")]
    left = page.with_name(".llmtrace-7.part")
    for path in (*kept, left):
        path.write_text("x")
        os.utime(path, ns=(0, 0))
    os.utime(kept[-1], ns=(world.wall_ns, world.wall_ns))  # of a child that may be at work
    world.pages.prune()
    assert [path.exists() for path in kept] == [True] * 3
    assert not left.exists()


def test_the_child_s_environment_has_what_it_needs_and_nothing_of_a_job(world: World) -> None:
    config = resolve({}, {"LLMTRACE_PAGE_URL": "https://ops.example"}, "")
    given = {
        "PATH": "/bin",
        "LC_ALL": "C.UTF-8",
        "TZ": "Asia/Shanghai",
        "RANK": "3",
        "LLMTRACE": "1",
        "LD_PRELOAD": "x.so",
        "PYTHONSTARTUP": "x",
        "AWS_SECRET": "s",
    }
    found = environment(world.directory, config, given)
    wanted = {"PATH": "/bin", "LC_ALL": "C.UTF-8", "TZ": "Asia/Shanghai", "LLMTRACE": "0", "LLMTRACE_PAGE_URL": "https://ops.example"}
    assert found == wanted | {"LLMTRACE_DIR": str(world.directory.path)}
