"""A real browser that may reach nobody, and what a page did in it: requests, errors, violations of its policy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, Route, sync_playwright

from llmtrace.show.page.document import document
from llmtrace.show.page.model import Page as Data

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",  # the rings of other tests need that room
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium as `make servers` installs it."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    assert path is not None, f"none of {', '.join(NAMES)} is on PATH: make servers installs chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Opened:
    """A page that is open: `requests` are all addresses that were asked for, `troubles` every error that it had."""

    def __init__(self, page: Page, allowed: str) -> None:
        self.page, self.allowed = page, allowed
        self.requests: list[str] = []
        self.troubles: list[str] = []
        page.on("request", self._asked)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.route("**/*", self._answer)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith("data:"):  # within the file itself
            self.requests.append(request.url)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(message.text)

    def _answer(self, route: Route) -> None:
        if route.request.url.startswith((self.allowed, "data:")):
            route.continue_()
        else:
            route.abort()

    def text(self, name: str) -> str:
        return self.page.locator(f"#{name}").inner_text()

    def find(self, selector: str, text: str | None = None) -> Locator:
        return self.page.locator(selector, has_text=text)

    def ticks(self) -> list[str]:
        """What the axis says, from left to right."""
        return self.page.locator("#ruler-plot .tick").all_inner_texts()

    def span(self) -> float:
        """How much of the window is in view, as a share: the brush says it."""
        box, brush = self.page.locator("#overview-box").bounding_box(), self.page.locator("#brush").bounding_box()
        assert box and brush
        return brush["width"] / box["width"]

    def x_of(self, tick: str) -> float:
        """Where a tick stands, in pixels of the window."""
        found = self.page.locator("#ruler-plot .tick", has_text=tick).first.bounding_box()
        assert found
        return found["x"] + found["width"] / 2

    def rows(self) -> list[str]:
        """The texts of the log's rows that are made of elements, from the top."""
        return self.page.locator("#log-rows .row .said").all_inner_texts()

    def visible(self, selector: str) -> bool:
        """Whether it is within the log's body, not only made."""
        return bool(
            self.page.evaluate(
                """selector => {
                    const nodes = [document.querySelector(selector), document.getElementById("log-body")];
                    const [inner, outer] = nodes.map((node) => node && node.getBoundingClientRect());
                    return Boolean(inner) && inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1;
                }""",
                selector,
            )
        )

    def settle(self) -> None:
        """Until what was asked for is drawn: two frames."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def settle_by_clock(self) -> None:
        """The same where the page's clock is the test's."""
        self.page.clock.run_for(100)


def opened(
    browser: Browser, address: str, *, width: int = 1280, height: int = 900, dark: bool = False, locale: str = "en-US", touch: bool = False, allowed: str = ""
) -> Opened:
    """A page in a context of its own; it may ask for what begins with `allowed` and for nothing else."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", locale=locale, has_touch=touch, timezone_id="UTC"
    )
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    found = Opened(context.new_page(), allowed or address)
    found.page.goto(address)
    found.page.wait_for_function("() => performance.getEntriesByName('llmtrace:first-frame').length === 1")
    return found


def written(folder: Path, page: Data, *, live: bool = False) -> str:
    """The page as a file; its address."""
    path = folder / "page.html"
    path.write_text(document(page, live=live), encoding="utf-8")
    return path.as_uri()
