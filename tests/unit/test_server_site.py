"""What the server answers over real journals, asked without a socket."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from llmtrace.incidents import incident_window
from llmtrace.show.server import routes
from llmtrace.show.server.answers import Answer, RefusedError, asked
from llmtrace.show.server.fields import LONGEST_NS
from llmtrace.show.server.recent import KEPT, LASTS_S, Recent
from llmtrace.show.server.routes import Site
from llmtrace.show.server.security import Access
from llmtrace.sources.base import Source
from llmtrace.sources.open import open_source
from tests.support.cases import TRACE, line, ns, process, who
from tests.support.journals import write
from tests.support.small_job import OTHER, PROCESSES, RECORDS, incident, two_journals

NAME = "1nc1dent0001"
Ask = Callable[[str], Answer]


def site(opened: Callable[[], Source]) -> Site:
    return Site(opened, Access(None, check_host=False), "--dir /somewhere")


def answer(of: Site, target: str) -> Answer:
    """As the wire asks: a refusal is an answer too."""
    try:
        request = asked(target, {})
    except RefusedError as refused:
        return of.refuse(refused, None)
    try:
        return of.reply(request)
    except RefusedError as refused:
        return of.refuse(refused, request)


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    write(tmp_path / "all", RECORDS, PROCESSES, [incident()])
    served = site(lambda: open_source([str(tmp_path / "all")]))
    return lambda target: answer(served, target)


def embedded(page: Answer) -> dict[str, object]:
    """The data that a page holds."""
    assert page.status == 200
    match = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page.body.decode(), re.DOTALL)
    assert match is not None
    return json.loads(match[1])


def seconds(data: dict[str, object], name: str) -> float:
    return round(float(str(data[name])) / 1e6, 3)


def test_the_front_page_names_the_incident_and_both_traces(ask: Ask) -> None:
    html = ask("/").body.decode()
    assert f'href="incident/{NAME}"' in html
    assert f'href="trace/{TRACE}"' in html and f'href="trace/{OTHER}"' in html
    assert f'href="trace/{OTHER}"' not in ask("/?q=rank").body.decode()


def test_an_incident_s_page_and_its_data_are_the_same(ask: Ask) -> None:
    page, data = ask(f"/incident/{NAME}"), ask(f"/incident/{NAME}/data.json")
    assert data.kind == "application/json"
    assert embedded(page) == json.loads(data.body)
    assert json.loads(data.body)["incident_id"] == NAME
    assert "data-live" in page.body.decode()
    assert "--dir /somewhere" in page.body.decode()


def test_as_much_of_it_as_is_asked_for(ask: Ask) -> None:
    data = json.loads(ask(f"/incident/{NAME}/data.json?before=10s&after=1s").body)
    assert seconds(data, "start_us") == -10
    assert seconds(data, "end_us") == 1.1
    assert json.loads(ask(f"/incident/{NAME}/data.json?lang=zh").body)["language"] == "zh"


def test_a_trace_is_shown_around_a_moment_or_to_its_end(ask: Ask) -> None:
    at = ns(70) // 10**6
    data = json.loads(ask(f"/trace/{TRACE}/data.json?at={at}&before=5s&after=5s").body)
    assert data["incident_id"] is None
    assert seconds(data, "end_us") - seconds(data, "start_us") == 10
    assert json.loads(ask(f"/trace/{TRACE[:12]}/data.json").body)["trace_id"] == TRACE
    assert "another job" in ask(f"/trace/{OTHER}").body.decode()


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/nowhere", 404),
        ("/incident/", 404),
        ("/incident/../../etc/passwd", 404),
        (f"/incident/{NAME}/", 404),
        (f"/incident/{NAME}/data.json/more", 404),
        (f"/incident/{NAME}/secrets", 404),
        (f"/incident/{NAME}%00", 404),
        ("/incident/ffffffffffff", 404),
        ("/trace/ffffffffffff", 404),
        (f"/trace/{TRACE}?at=tomorrow", 400),
        (f"/trace/{TRACE}?before=11m", 400),
        (f"/incident/{NAME}?after=9999999s", 400),
        (f"/incident/{NAME}?lang=tlh", 400),
        (f"/incident/{NAME}?before=1s&before=2s", 400),
    ],
)
def test_what_cannot_be_answered_is_a_page_that_says_so(ask: Ask, target: str, status: int) -> None:
    found = ask(target)
    assert found.status == status
    assert "<h1>" in found.body.decode()
    assert "Traceback" not in found.body.decode()


def test_an_unknown_id_is_told_what_there_is(ask: Ask) -> None:
    assert NAME in ask("/incident/ffffffffffff").body.decode()
    told = json.loads(ask("/trace/ffffffffffff/data.json").body)
    assert TRACE in told["error"]


def test_an_alert_s_link_shows_its_time_where_its_incident_is_not_known(ask: Ask) -> None:
    start, end = ns(66) // 10**6, ns(76) // 10**6
    data = json.loads(ask(f"/incident/ffffffffffff/data.json?trace={TRACE}&from={start}&to={end}").body)
    assert data["incident_id"] is None
    assert seconds(data, "end_us") - seconds(data, "start_us") == 10
    known = json.loads(ask(f"/incident/{NAME}/data.json?trace={TRACE}&from={start}&to={end}").body)
    assert known["incident_id"] == NAME


def test_an_incident_that_was_found_days_later_is_shown_around_its_onset(tmp_path: Path) -> None:
    late = incident(detected_ns=ns(100) + 48 * 3600 * 10**9, window=incident_window(ns(100), ns(100) + 48 * 3600 * 10**9))
    write(tmp_path / "all", RECORDS, PROCESSES, [late])
    data = json.loads(answer(site(lambda: open_source([str(tmp_path / "all")])), f"/incident/{NAME}/data.json").body)
    assert seconds(data, "start_us") == -30
    assert seconds(data, "end_us") == LONGEST_NS / 1e9 - 30


def test_several_journals_are_read_as_one_and_every_id_leads_to_the_page(tmp_path: Path) -> None:
    write(tmp_path / "a", [], [], [])
    two_journals(tmp_path).close()
    other = incident("aaaa00000002", 100.05)
    write(tmp_path / "d", [line(who(3, "d", world=2), 99, "of the fourth node")], [process(3, node="d")], [other])
    served = site(lambda: open_source([str(tmp_path / name) for name in "abcd"]))
    assert json.loads(answer(served, f"/incident/{NAME}/data.json").body)["incident_id"] == NAME
    assert json.loads(answer(served, "/incident/aaaa00000002/data.json").body)["incident_id"] == NAME
    assert "of the fourth node" in answer(served, f"/incident/{NAME}").body.decode()


def test_a_job_that_runs_is_followed(tmp_path: Path) -> None:
    path = write(tmp_path / "all", [line(who(0), 100, "hello", severity=9)], [process(0)])
    (path / "agent.lock").touch()
    served = site(lambda: open_source([str(path)]))
    assert "data-live" in answer(served, f"/trace/{TRACE}").body.decode()


def test_without_a_journal_there_is_nothing_yet_and_that_is_no_error(tmp_path: Path) -> None:
    served = site(lambda: open_source([str(tmp_path)]))
    assert answer(served, "/").status == 200
    assert "No runs yet" in answer(served, "/").body.decode()
    assert answer(served, "/incident/abcd").status == 404
    write(tmp_path, RECORDS, PROCESSES, [incident()])  # it is looked for anew each time
    assert answer(served, f"/incident/{NAME}").status == 200


@pytest.mark.parametrize("target", ["/", f"/incident/{NAME}", f"/trace/{TRACE}/data.json"])
def test_a_damaged_journal_is_said_not_thrown(tmp_path: Path, target: str) -> None:
    path = write(tmp_path / "all", RECORDS, PROCESSES, [incident()])
    (path / "journal.1.sqlite").write_bytes(b"no journal at all, but many bytes of something else " * 1000)
    found = answer(site(lambda: open_source([str(path)])), target)
    assert found.status == 503
    assert b"The journal cannot be read" in found.body


def test_damage_in_the_middle_of_a_journal_is_said_too(tmp_path: Path) -> None:
    path = write(tmp_path / "all", RECORDS, PROCESSES, [incident()])
    served = site(lambda: open_source([str(path)]))
    file = path / "journal.1.sqlite"
    whole = file.read_bytes()
    for start in range(8192, len(whole), 8192):
        file.write_bytes(whole[:start] + bytes(8192) + whole[start + 8192 :])
        for target in ("/", f"/incident/{NAME}", f"/trace/{TRACE}/data.json"):
            assert answer(served, target).status in (200, 404, 503)


class Gated:
    """A site whose journals open when the gate does; counts who is inside."""

    def __init__(self, folder: Path) -> None:
        write(folder / "all", RECORDS, PROCESSES, [incident()])
        self._folder = folder
        self.gate, self.inside, self.opened = threading.Event(), threading.Semaphore(0), 0
        self.site = site(self._open)
        self.found: list[int] = []

    def _open(self) -> Source:
        self.opened += 1
        self.inside.release()
        self.gate.wait(20)
        return open_source([str(self._folder / "all")])

    def ask(self, target: str) -> threading.Thread:
        thread = threading.Thread(target=lambda: self.found.append(answer(self.site, target).status))
        thread.start()
        return thread


def test_only_so_many_pages_are_made_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "PATIENCE_S", 0.05)
    world = Gated(tmp_path)
    threads = [world.ask(f"/incident/{NAME}?after={n}s") for n in range(routes.RENDERS)]
    for _ in threads:
        world.inside.acquire(timeout=20)
    busy = answer(world.site, f"/incident/{NAME}")
    assert (busy.status, busy.headers["Retry-After"]) == (503, "5")
    assert answer(world.site, "/healthz").status == 200
    world.gate.set()
    for thread in threads:
        thread.join(20)
    assert world.found == [200] * routes.RENDERS
    assert answer(world.site, f"/incident/{NAME}").status == 200


def test_a_page_that_many_ask_for_at_once_is_made_once(tmp_path: Path) -> None:
    world = Gated(tmp_path)
    threads = [world.ask(f"/incident/{NAME}") for _ in range(12)]
    world.inside.acquire(timeout=20)
    world.gate.set()
    for thread in threads:
        thread.join(20)
    assert (world.found, world.opened) == ([200] * 12, 1)
    answer(world.site, f"/incident/{NAME}?lang=zh")
    assert world.opened == 2


def test_an_answer_is_given_again_for_seconds_only_and_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = [100.0], list[str]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    recent = Recent(1)

    def get(key: str) -> bytes:
        return recent.get(key, lambda: (made.append(key), Answer(body=key.encode()))[1]).body

    assert [get("a"), get("a"), get("b")] == [b"a", b"a", b"b"]
    assert made == ["a", "b"]
    now[0] += LASTS_S + 0.1
    get("a")
    assert made == ["a", "b", "a"]
    for key in "cdef"[:KEPT]:
        get(key)
    get("a")
    assert made[-1] == "a"
    with pytest.raises(RefusedError):
        recent.get("bad", lambda: (_ for _ in ()).throw(RefusedError(404, "no")))
    assert get("bad") == b"bad"


def test_hostile_lines_come_as_text(tmp_path: Path) -> None:
    nasty = "</script><script>alert(1)</script> <img src=x onerror=alert(1)> \u2028 ${alert(1)}"
    path = write(tmp_path / "all", [*RECORDS, line(who(0), 99, nasty)], PROCESSES, [incident(summary=nasty)])
    served = site(lambda: open_source([str(path)]))
    page = answer(served, f"/incident/{NAME}")
    html = page.body.decode()
    assert "<script>alert" not in html and "<img src=x" not in html
    assert embedded(page) == json.loads(answer(served, f"/incident/{NAME}/data.json").body)
    assert "<script>alert" not in answer(served, "/").body.decode()


def test_a_secret_is_neither_shown_nor_found(tmp_path: Path) -> None:
    secret = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9cD1fG3h"
    path = write(tmp_path / "all", [*RECORDS, line(who(0), 99, f"token {secret}")], PROCESSES, [incident(summary=f"rank 1 failed: {secret}")])
    served = site(lambda: open_source([str(path)]))
    for target in ("/", f"/incident/{NAME}", f"/incident/{NAME}/data.json", f"/incident/{NAME}/report.md", f"/incident/{NAME}/perfetto.json"):
        assert secret not in answer(served, target).body.decode()
    assert NAME in answer(served, "/?q=failed").body.decode()
    assert f"incident/{NAME}" not in answer(served, "/?q=hf_aB3").body.decode()
