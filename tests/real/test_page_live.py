"""A served page follows its job: it asks its own server for newer data and keeps what the reader has chosen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest
from playwright.sync_api import Browser, expect

from llmtrace.show.page.document import data, document
from llmtrace.show.page.model import Page
from tests.support.chromium import chromium, opened
from tests.support.pages import S, broken, lines

EVERY_MS = 5000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


class Served:
    """One page at /trace/ID and its data below it; `page` may be changed, `answers` counts what was asked for."""

    def __init__(self, page: Page) -> None:
        self.page, self.broken = page, False
        self.asked: list[str] = []

    def answer(self, path: str) -> tuple[int, str, str]:
        self.asked.append(path)
        where = path.partition("?")[0]
        if where == "/trace/abc":
            return 200, "text/html; charset=utf-8", document(self.page, live=True)
        if where == "/trace/abc/data.json" and not self.broken:
            return 200, "application/json", data(self.page)
        return 503, "text/plain", ""


@contextmanager
def serving(page: Page) -> Iterator[tuple[Served, str]]:
    served = Served(page)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, text = served.answer(self.path)
            body = text.encode(errors="replace")
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield served, f"http://127.0.0.1:{server.server_port}/trace/abc"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def running(count: int = 400, later_us: int = 0) -> Page:
    """A job that runs, seen now: zero is the window's end; `later_us` after the first look there are more lines."""
    log = lines(4, 0, [(number * 60_000 - count * 60_000, number % 4, 9, f"said {number}") for number in range(count)])
    page = broken(follow=True)
    return msgspec.structs.replace(
        page,
        log=log,
        zero_is_onset=False,
        zero_ms=page.zero_ms + later_us / 1000,
        detected_us=None,
        end_us=0,
        evidence=[],
        head=msgspec.structs.replace(page.head, state="running", sentence=f"The job runs; {count} lines so far."),
    )


def test_it_follows_and_keeps_zoom_filter_and_place(browser: Browser) -> None:
    with serving(running()) as (served, address):
        shown = opened(browser, f"{address}?before=30s", allowed=address)
        assert shown.find("#report").evaluate("node => node.href") == f"{address}/report.md?before=30s"
        assert shown.find("#perfetto").evaluate("node => node.href") == f"{address}/perfetto.json?before=30s"
        assert shown.find("a.brand").evaluate("node => node.href") == address.removesuffix("trace/abc")
        shown.page.clock.install()
        shown.page.reload()
        shown.find("#filter-text").fill("/said \\d*7$/")
        expect(shown.find("#log-count")).to_have_text("40 of 400 lines")
        shown.find("#close").click()
        shown.page.evaluate("() => { document.getElementById('log-body').scrollTop = 120; }")
        shown.settle_by_clock()
        span, top = shown.span(), shown.page.evaluate("() => document.querySelector('#log-rows .row .said').textContent")
        served.page = running(500, later_us=6 * S)
        shown.page.clock.run_for(EVERY_MS + 200)
        expect(shown.find("#sentence")).to_have_text("The job runs; 500 lines so far.")
        expect(shown.find("#log-count")).to_have_text("50 of 500 lines")
        shown.page.clock.run_for(200)
        assert shown.span() == pytest.approx(span, rel=0.02)
        assert shown.page.evaluate("() => document.querySelector('#log-rows .row .said').textContent") == top
        assert shown.find("#filter-text").input_value() == "/said \\d*7$/"
        assert served.asked[-1] == "/trace/abc/data.json?before=30s"
        assert shown.troubles == []
        shown.page.context.close()


def test_the_switch_and_the_end_stop_it(browser: Browser) -> None:
    with serving(running()) as (served, address):
        shown = opened(browser, address, allowed=address)
        shown.page.clock.install()
        shown.page.reload()
        shown.find("label", "Follow").click()
        asked = len(served.asked)
        shown.page.clock.run_for(4 * EVERY_MS)
        assert len(served.asked) == asked
        shown.find("label", "Follow").click()
        served.page = msgspec.structs.replace(running(450), follow=False)
        shown.page.clock.run_for(EVERY_MS + 200)
        expect(shown.find("#sentence")).to_have_text("The job runs; 450 lines so far.")
        shown.page.clock.run_for(EVERY_MS + 200)
        expect(shown.find("#follow-part")).to_be_hidden()
        asked = len(served.asked)
        shown.page.clock.run_for(4 * EVERY_MS)
        assert len(served.asked) == asked
        shown.page.context.close()


def test_a_server_that_is_gone_is_said_and_tried_again(browser: Browser) -> None:
    with serving(running()) as (served, address):
        shown = opened(browser, address, allowed=address)
        shown.page.clock.install()
        shown.page.reload()
        served.broken = True
        shown.page.clock.run_for(EVERY_MS + 200)
        expect(shown.find("#follow-trouble")).to_be_visible()
        served.broken, served.page = False, running(420)
        shown.page.clock.run_for(EVERY_MS + 200)
        expect(shown.find("#sentence")).to_have_text("The job runs; 420 lines so far.")
        expect(shown.find("#follow-trouble")).to_be_hidden()
        shown.page.context.close()


def test_a_file_may_ask_nobody_even_while_the_job_runs() -> None:
    assert "connect-src" not in document(running())
    assert "connect-src 'self'" in unescape(document(running(), live=True))
