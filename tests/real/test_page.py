"""The page in a real browser: the head, the picture, and what leads from one to the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.chromium import Opened, chromium, opened, written
from tests.support.pages import broken


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def shown(browser: Browser, tmp_path: Path) -> Iterator[Opened]:
    """A page of 4 ranks; whatever a test does to it, nothing is asked for and nothing fails."""
    address = written(tmp_path, broken())
    found = opened(browser, address)
    yield found
    assert found.requests == [address]
    assert found.troubles == []
    found.page.context.close()


def test_the_head_says_what_broke(shown: Opened) -> None:
    assert shown.text("sentence").startswith("rank 2 raised ValueError in step 240")
    assert shown.find("#verdict").get_attribute("class") == "verdict broke"
    assert shown.text("state").strip() == "Broken"
    assert shown.find("#facts dt").all_inner_texts() == ["who", "trace"]
    assert shown.find("#facts dd").nth(1).locator("p").all_inner_texts() == ["one", "two"]
    assert shown.find("#last-title").inner_text() == "Last lines of rank 2"
    assert "ValueError: no such token" in shown.text("last")


def test_ids_and_commands_are_copied(shown: Opened) -> None:
    for button, wanted in (("#ids .copy", "4bf92f3577b34da6a3ce929d0e0e4736"), ("#commands .copy", "llmtrace context 1f0c9a52d1b0 --all | less")):
        shown.find(button).first.click()
        expect(shown.find("#announcement")).to_have_text("Copied")
        assert shown.page.evaluate("() => navigator.clipboard.readText()") == wanted


def test_the_picture_opens_on_what_matters_and_the_whole_window_is_a_key_away(shown: Opened) -> None:
    assert "onset" in shown.ticks()
    assert 0.4 < shown.span() < 0.7
    shown.page.keyboard.press("w")
    shown.settle()
    assert shown.span() == pytest.approx(1, abs=0.01)
    shown.page.keyboard.press("0")
    shown.settle()
    assert shown.span() < 0.7


def test_zoom_by_wheel_keys_buttons_and_double_click(shown: Opened) -> None:
    at = shown.x_of("onset")
    shown.find("#picture-part").scroll_into_view_if_needed()
    shown.page.mouse.move(at, shown.find("#lanes").bounding_box()["y"] + 40)  # type: ignore[index]
    before = shown.span()
    shown.page.keyboard.down("Control")
    shown.page.mouse.wheel(0, -240)
    shown.page.keyboard.up("Control")
    shown.settle()
    closer = shown.span()
    assert closer < before * 0.7
    assert shown.x_of("onset") == pytest.approx(at, abs=3), "what is under the pointer stays there"
    for act in (lambda: shown.page.keyboard.press("+"), lambda: shown.find("#zoom-in").click()):
        act()
        shown.settle()
        assert shown.span() < closer
        closer = shown.span()
    shown.find("#fit").click()
    shown.page.mouse.dblclick(at, shown.find("#lanes").bounding_box()["y"] + 40)  # type: ignore[index]
    shown.settle()
    assert shown.span() == pytest.approx(before / 3, rel=0.05)


def test_wheel_alone_scrolls_the_page(shown: Opened) -> None:
    before = shown.span()
    box = shown.find("#strips").bounding_box()
    assert box
    shown.find("#strips").scroll_into_view_if_needed()
    shown.find("#strips").hover()
    shown.page.mouse.wheel(0, 200)
    shown.page.wait_for_function("() => scrollY > 0")
    assert shown.span() == before


def test_arrows_pan_and_the_ruler_drags(shown: Opened) -> None:
    shown.find("#close").click()
    shown.settle()
    at = shown.x_of("onset")
    shown.find("#picture").focus()
    shown.page.keyboard.press("ArrowLeft")
    shown.settle()
    assert shown.x_of("onset") > at + 50
    ruler = shown.find("#ruler-plot").bounding_box()
    assert ruler
    now = shown.x_of("onset")
    shown.page.mouse.move(ruler["x"] + 300, ruler["y"] + 10)
    shown.page.mouse.down()
    shown.page.mouse.move(ruler["x"] + 180, ruler["y"] + 10, steps=4)
    shown.page.mouse.up()
    shown.settle()
    assert shown.x_of("onset") == pytest.approx(now - 120, abs=3)


def test_evidence_leads_to_its_moment_and_its_row(shown: Opened) -> None:
    shown.find("#whole").click()
    shown.find("#filter-text").fill("no line has this")
    expect(shown.find("#log-count")).to_have_text("0 of 405 lines")
    shown.find(".evidence-item").click()
    expect(shown.find("#log-rows .row.active .said")).to_have_text("raised ValueError: no such token")
    assert shown.visible("#log-rows .row.active")
    expect(shown.find("#line-mark")).to_be_visible()
    mark, zero = shown.find("#line-mark").bounding_box(), shown.find("#line-zero").bounding_box()
    assert mark and zero and mark["x"] == pytest.approx(zero["x"], abs=2)
    expect(shown.find(".lane-name.pointed")).to_have_text("rank 2")


def test_a_row_marks_its_time_and_a_click_in_the_picture_its_row(shown: Opened) -> None:
    shown.find("#log-rows .row", "Connection closed by peer").first.click()
    expect(shown.find("#line-mark")).to_be_visible()
    mark, zero = shown.find("#line-mark").bounding_box(), shown.find("#line-zero").bounding_box()
    assert mark and zero and mark["x"] > zero["x"] + 10
    shown.find("#close").click()
    shown.settle()
    lane = shown.find("#lanes").bounding_box()
    assert lane
    shown.page.mouse.click(shown.x_of("onset") - 2, lane["y"] + 40)
    active = shown.find("#log-rows .row.active")
    expect(active.locator(".who")).to_have_text("rank 2")
    expect(active.locator(".said")).to_contain_text("Traceback")


def test_a_drag_selects_time_and_the_log_follows(shown: Opened) -> None:
    lanes = shown.find("#lanes")
    lanes.scroll_into_view_if_needed()
    box = lanes.bounding_box()
    assert box
    shown.find("#fit").click()
    shown.settle()
    at = shown.x_of("onset")
    shown.page.mouse.move(at - 20, box["y"] + 40)
    shown.page.mouse.down()
    shown.page.mouse.move(at + 6, box["y"] + 40, steps=5)
    shown.page.mouse.up()
    shown.settle()
    expect(shown.find("#selection-chip")).to_be_visible()
    times = [float(text.replace("\u2212", "-")) for text in shown.find("#log-rows .row .when").all_inner_texts()]
    assert times and min(times) > -1 and max(times) < 0.4
    shown.find("#zoom-selection").click()
    shown.settle()
    assert shown.span() < 0.05
    shown.page.keyboard.press("Escape")
    expect(shown.find("#selection-chip")).to_be_hidden()
    expect(shown.find("#log-count")).to_have_text("405 lines")


def test_hover_says_rank_phase_length_and_time(shown: Opened) -> None:
    shown.find("#close").click()
    shown.settle()
    box = shown.find("#lanes").bounding_box()
    assert box
    shown.page.mouse.move(shown.x_of("onset") + 60, box["y"] + 70)  # rank 3, after the onset
    tip = shown.text("tip")
    assert "rank 3" in tip
    assert "gradient sync exposed, never finished: 800 ms" in tip
    assert "03:14:07." in tip
    assert "rank 2: NaN" in shown.find(".strip").nth(1).inner_text()


def test_lanes_are_pixels_of_their_phases(shown: Opened) -> None:
    """The culprit's lane shows forward's blue and backward's, and after its end nothing."""
    shown.find("#close").click()
    shown.settle()
    colours = shown.page.evaluate(
        """() => {
            const canvas = document.getElementById("lane-canvas");
            const line = canvas.getContext("2d").getImageData(0, 38, canvas.width, 1).data;
            const found = {};
            for (let at = 0; at < line.length; at += 4) {
                const name = line[at + 3] ? [line[at], line[at + 1], line[at + 2]].join() : "nothing";
                found[name] = (found[name] || 0) + 1;
            }
            return found;
        }"""
    )
    assert colours.get("142,202,240", 0) > 50, "forward"
    assert colours.get("31,111,176", 0) > 50, "backward"


def test_a_folded_lane_unfolds_its_members(browser: Browser, tmp_path: Path) -> None:
    shown = opened(browser, written(tmp_path, broken(folded=60)))
    height = "() => document.getElementById('lanes-space').offsetHeight"
    before = shown.page.evaluate(height)
    assert shown.find(".lane-name.member").count() == 0
    shown.find(".lane-name", "60 ranks").locator(".fold").click()
    expect(shown.find(".lane-name.member").first).to_be_visible()
    assert shown.page.evaluate(height) == before + 60 * 16
    assert shown.find(".fold[aria-expanded=true]").count() == 1
    assert shown.troubles == []
    shown.page.context.close()


def test_a_lane_chooses_the_ranks_of_the_log(shown: Opened) -> None:
    shown.find(".lane-name .name", "rank 3").click()
    expect(shown.find("#log-count")).to_have_text("101 of 405 lines")
    assert set(shown.find("#log-rows .row .who").all_inner_texts()) == {"rank 3"}
    shown.find(".lane-name .name", "rank 3").click()
    expect(shown.find("#log-count")).to_have_text("405 lines")
