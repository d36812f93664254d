"""The page for everybody: hostile text, dark, print, narrow, Chinese, without a script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.chromium import Opened, chromium, opened, written
from tests.support.pages import broken

GROUND = "() => getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def hostile(browser: Browser, tmp_path: Path) -> Iterator[Opened]:
    address = written(tmp_path, broken(hostile=True))
    found = opened(browser, address)
    yield found
    assert found.requests == [address]
    assert found.troubles == []
    found.page.context.close()


def test_hostile_text_stays_text(hostile: Opened) -> None:
    hostile.find("#filter-rank").select_option(label="rank 2, the culprit")
    hostile.find("#filter-level").select_option(label="warnings and errors")
    said = hostile.rows()
    assert "</script><script>window.hacked=1</script>" in said
    assert "<img src=x onerror=window.hacked=2>" in said
    assert "turned \\u202egnol\\u202c, hidden \\u200b\\ufeff, bell \\x07, null \\x00" in said
    assert "half a sign \\ud800 and \\udfff" in said
    assert "\\u2028 and \\u2029 end lines in old scripts" in said
    assert hostile.page.evaluate("() => window.hacked") is None
    assert hostile.page.title() == "</script><script>window.hacked=1</script>"
    assert hostile.find("img").count() == 0


def test_ansi_colours_are_kept_and_the_rest_of_it_dropped(hostile: Opened) -> None:
    hostile.find("#filter-text").fill("amber")
    line = hostile.find("#log-rows .row .said > span")
    assert line.inner_text() == "red amber ground plain end"
    assert line.locator(".ansi-ink-1").inner_text() == "red"
    amber = line.locator(".ansi-bold")
    assert amber.inner_text() == "amber"
    assert amber.evaluate("node => node.style.color").startswith("rgb(")
    assert line.locator("span", has_text="ground").evaluate("node => node.style.background") == "rgb(10, 20, 30)"


def test_the_policy_lets_no_script_of_the_text_run(hostile: Opened) -> None:
    """Even markup that got in would do nothing: inline handlers and other scripts are refused."""
    hostile.page.evaluate(
        """() => {
            const box = document.createElement("div");
            box.innerHTML = "<details open ontoggle='window.hacked=3'>";
            document.body.append(box);
            const script = document.createElement("script");
            script.textContent = "window.hacked=4";
            document.body.append(script);
        }"""
    )
    hostile.settle()
    assert hostile.page.evaluate("() => window.hacked") is None
    assert any("Content Security Policy" in trouble for trouble in hostile.troubles)
    hostile.troubles.clear()


def test_dark_by_the_system_and_by_the_switch(browser: Browser, tmp_path: Path) -> None:
    address = written(tmp_path, broken())
    light, dark = opened(browser, address), opened(browser, address, dark=True)
    bright, deep = light.page.evaluate(GROUND), dark.page.evaluate(GROUND)
    assert bright != deep
    light.find("#theme").click()
    assert light.page.evaluate(GROUND) == deep
    light.page.reload()
    light.settle()
    assert light.page.evaluate(GROUND) == deep, "it is remembered"
    dark.page.emulate_media(color_scheme="light")
    dark.settle()
    assert dark.page.evaluate(GROUND) == bright
    for found in (light, dark):
        assert found.troubles == []
        found.page.context.close()


@pytest.mark.parametrize("width", [390, 640, 1000, 2560])
def test_no_width_scrolls_sideways(browser: Browser, tmp_path: Path, width: int) -> None:
    shown = opened(browser, written(tmp_path, broken(hostile=True, folded=4)), width=width, touch=width < 500)
    assert shown.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    plot = shown.find("#lane-canvas").bounding_box()
    assert plot and plot["x"] + plot["width"] <= width
    assert plot["width"] > width * 0.4
    assert shown.troubles == []
    shown.page.context.close()


def test_a_finger_pans(browser: Browser, tmp_path: Path) -> None:
    shown = opened(browser, written(tmp_path, broken()), width=390, height=844, touch=True)
    shown.find("#close").tap()
    shown.settle()
    lanes = shown.find("#lanes")
    lanes.scroll_into_view_if_needed()
    before = shown.x_of("onset")
    client = shown.page.context.new_cdp_session(shown.page)
    box = lanes.bounding_box()
    assert box
    x, y = box["x"] + 220, box["y"] + 60
    client.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for moved in (10, 30, 50, 60):
        client.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": x - moved, "y": y}]})
    client.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    shown.settle()
    assert shown.x_of("onset") < before - 30
    shown.page.context.close()


def test_chinese_by_force_by_the_browser_and_by_the_switch(browser: Browser, tmp_path: Path) -> None:
    forced = opened(browser, written(tmp_path, broken(language="zh")))
    expect(forced.find("#evidence-part h2")).to_have_text("证据")
    assert forced.page.evaluate("() => document.documentElement.lang") == "zh-CN"
    address = written(tmp_path, broken())
    chosen = opened(browser, address, locale="zh-CN")
    expect(chosen.find("#log-count")).to_have_text("405 行")
    assert "故障发生" in chosen.ticks()
    chosen.find("#language").click()
    expect(chosen.find("#log-count")).to_have_text("405 lines")
    other = opened(browser, address, locale="fr-FR")
    expect(other.find("#evidence-part h2")).to_have_text("Evidence")
    for found in (forced, chosen, other):
        assert found.troubles == []
        found.page.context.close()


def test_print_holds_head_evidence_picture_and_the_rows_around_the_onset(browser: Browser, tmp_path: Path) -> None:
    shown = opened(browser, written(tmp_path, broken(count=2000)), dark=True)
    shown.page.emulate_media(media="print")
    shown.settle()
    assert shown.page.evaluate("() => document.documentElement.className") == "printing"
    rows = shown.find("#log-rows > *").count()
    assert rows == 120
    assert shown.page.evaluate("() => document.getElementById('log-body').scrollHeight <= document.getElementById('log-body').clientHeight + 1")
    assert shown.find("#log-rows .divider").count() == 1
    for hidden in ("#filter-text", "#help", "#zoom-in"):
        expect(shown.find(hidden)).to_be_hidden()
    for kept in ("#sentence", "#facts", "#evidence", "#lane-canvas", "#strips", "#commands"):
        expect(shown.find(kept)).to_be_visible()
    assert shown.page.evaluate("() => getComputedStyle(document.body).color") == "rgb(23, 32, 43)", "ink is dark on paper"
    shown.page.emulate_media(media="screen")
    shown.settle()
    shown.settle()
    assert shown.visible("#log-rows .divider")
    assert shown.troubles == []
    shown.page.context.close()


def test_a_printer_gets_what_the_print_view_shows(browser: Browser, tmp_path: Path) -> None:
    """A print has no frames in which something could still be drawn: what is there when the media change is what is on paper."""
    shown = opened(browser, written(tmp_path, broken(count=2000)))
    shown.page.evaluate(
        """() => matchMedia("print").addEventListener("change", (event) => {
            if (event.matches) window.printed = [document.querySelectorAll("#log-rows > *").length, document.getElementById("lane-canvas").offsetWidth];
        })"""
    )
    shown.page.evaluate(
        """() => {
            const pen = CanvasRenderingContext2D.prototype, clear = pen.clearRect;
            window.cleared = [];
            pen.clearRect = function (...area) { window.cleared.push(document.documentElement.className); return clear.apply(this, area); };
        }"""
    )
    shown.page.pdf(format="A4")
    assert "printing" not in shown.page.evaluate("() => window.cleared"), "on paper a clear takes away what lies below the canvas, too"
    rows, width = shown.page.evaluate("() => window.printed")
    assert rows == 120
    assert 300 < width < 700
    shown.settle()
    assert shown.troubles == []
    shown.page.context.close()


def test_without_a_script_the_verdict_is_there(browser: Browser, tmp_path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(written(tmp_path, broken(hostile=True)))
    text = page.locator("body").inner_text()
    for wanted in (
        "rank 2 raised ValueError in step 240",
        "pid 4102",
        "+0.000 rank 2: raised ValueError",
        "ValueError: no such token",
        "llmtrace context 1f0c9a52d1b0",
    ):
        assert wanted in text
    context.close()


def test_a_window_without_anything(browser: Browser, tmp_path: Path) -> None:
    import msgspec

    from llmtrace.show.page.model import Head, Log

    page = broken()
    nothing = msgspec.structs.replace(
        page,
        head=Head(state="empty", sentence="No rank was there.", confidence=None, facts=[], advice=[], commands=[]),
        zero_is_onset=False,
        detected_us=None,
        incident_id=None,
        evidence=[],
        lanes=[],
        strips=[],
        phases=[],
        log=Log(times_us=[], speaker=[], severity=[], texts=[], events=[], effects=[], last=[], speakers=[]),
        start_us=0,
        end_us=0,
    )
    shown = opened(browser, written(tmp_path, nothing))
    expect(shown.find("#sentence")).to_have_text("No rank was there.")
    expect(shown.find("#log-count")).to_have_text("0 lines")
    for key in "wc0+-soz":
        shown.page.keyboard.press(key)
    shown.settle()
    assert shown.troubles == []
    shown.page.context.close()
