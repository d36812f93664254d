"""The page's log in a real browser: filters, folds, places, keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, expect

from tests.support.chromium import Opened, chromium, opened, written
from tests.support.pages import S, broken, lines


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def shown(browser: Browser, tmp_path: Path) -> Iterator[Opened]:
    found = opened(browser, written(tmp_path, broken()))
    yield found
    assert found.troubles == []
    found.page.context.close()


def test_it_opens_at_the_onset_with_what_the_culprit_said_before(shown: Opened) -> None:
    assert shown.visible("#log-rows .divider")
    assert shown.visible("#log-rows .row.culprit.error")
    expect(shown.find("#log-rows .divider")).to_have_text("onset, 03:14:07.412")
    above = shown.page.evaluate(
        """() => {
            const [body, divider] = ["#log-body", "#log-rows .divider"].map((name) => document.querySelector(name).getBoundingClientRect());
            return (divider.top - body.top) / body.height;
        }"""
    )
    assert 0.15 < above < 1 / 3


def test_filter_by_text_and_by_pattern(shown: Opened) -> None:
    box = shown.find("#filter-text")
    box.fill("LOSS 3.05")
    expect(shown.find("#log-count")).to_have_text("4 of 405 lines")
    box.fill(r"/loss 3\.05[0-4]\d$/")
    expect(shown.find("#log-count")).to_have_text("2 of 405 lines")
    assert all("loss 3.05" in row for row in shown.rows())
    box.fill("/loss (/")
    expect(box).to_have_class("wrong")
    expect(shown.find("#log-count")).to_have_text("405 lines")
    box.fill("step 9 (")
    expect(shown.find("#log-count")).to_have_text("0 of 405 lines")
    expect(shown.find("#log-empty")).to_have_text("No line matches.")
    shown.find("#clear-filters").click()
    expect(shown.find("#log-count")).to_have_text("405 lines")


def test_filter_by_rank_and_level(shown: Opened) -> None:
    options = shown.find("#filter-rank option").all_inner_texts()
    assert options == ["All ranks", "rank 2, the culprit", "rank 0", "rank 1", "rank 3"]
    shown.find("#filter-rank").select_option(label="rank 2, the culprit")
    expect(shown.find("#log-count")).to_have_text("102 of 405 lines")
    shown.find("#filter-level").select_option(label="errors")
    expect(shown.find("#log-count")).to_have_text("2 of 405 lines")
    assert shown.find("#log-rows .row .level").all_inner_texts() == ["ERROR", "ERROR"]
    shown.find("#filter-rank").select_option(label="All ranks")
    expect(shown.find("#log-count")).to_have_text("5 of 405 lines")


def test_a_traceback_is_folded_and_unfolds(shown: Opened) -> None:
    row = shown.find("#log-rows .row", "Traceback").first
    assert row.locator(".said > span").inner_text() == "Traceback (most recent call last): \u2026 ValueError: no such token"
    fold = row.locator(".unfold")
    assert fold.inner_text() == "traceback, 6 lines"
    below = "() => document.querySelector('#log-rows .divider').offsetTop - document.querySelector('#log-rows .row:has(.unfold)').offsetTop"
    before = shown.page.evaluate(below)
    fold.click()
    expect(row.locator(".said > span")).to_contain_text('raise ValueError("no such token")')
    assert shown.page.evaluate(below) == before + 5 * 20, "six lines for one, and the button"
    row.locator(".unfold").click()
    expect(row.locator(".said > span")).not_to_contain_text("raise ValueError")


def test_only_what_is_in_view_is_made_and_every_row_is_reached(browser: Browser, tmp_path: Path) -> None:
    """20,000 rows of many heights: scrolling to any place shows what belongs there, without gap or overlap."""
    texts = [f"line {number} " + "word " * (number % 7 * 30) + "\n more" * (number % 3) for number in range(20_000)]
    page = broken(count=0)
    log = lines(4, 0, [(number * 1000 - 20 * S, number % 4, 9, text) for number, text in enumerate(texts)])
    shown = opened(browser, written(tmp_path, msgspec.structs.replace(page, log=log, evidence=[])))
    assert shown.find("#log").get_attribute("aria-rowcount") == "20002"
    assert shown.find("#log-rows > *").count() < 120
    for share in (0.0, 0.25, 0.5, 0.9, 1.0):
        shown.page.evaluate("share => { const body = document.getElementById('log-body'); body.scrollTop = body.scrollHeight * share; }", share)
        for _ in range(4):
            shown.settle()
        found = shown.page.evaluate(
            """() => {
                const body = document.getElementById("log-body").getBoundingClientRect();
                const end = document.getElementById("log-end");
                const floor = end.hidden ? body.bottom : Math.min(body.bottom, end.getBoundingClientRect().top);
                const nodes = [...document.querySelectorAll("#log-rows > *")];
                const rows = nodes.map((node) => [node.getBoundingClientRect(), Number(node.getAttribute("aria-rowindex"))]);
                const gaps = rows.slice(1).filter(([box, index], at) => Math.abs(box.top - rows[at][0].bottom) > 1 || index !== rows[at][1] + 1).length;
                return { gaps, covers: rows[0][0].top <= body.top + 1 && rows.at(-1)[0].bottom >= floor - 1, first: rows[0][1], last: rows.at(-1)[1] };
            }"""
        )
        assert found["gaps"] == 0
        assert found["covers"], f"no empty room at {share}"
    assert found["last"] == 20_002
    assert found["first"] > 19_000
    assert shown.troubles == []
    shown.page.context.close()


def test_rows_above_do_not_move_what_is_read(browser: Browser, tmp_path: Path) -> None:
    """Rows that turn out higher than guessed while one scrolls up do not push the text away."""
    log = lines(4, 0, [(number * 1000 - 20 * S, 0, 9, f"line {number}\n" + "m" * (number % 9 * 90)) for number in range(3000)])
    shown = opened(browser, written(tmp_path, msgspec.structs.replace(broken(count=0), log=log, evidence=[])))
    top = """() => {
        const edge = document.getElementById("log-body").getBoundingClientRect().top;
        const node = [...document.querySelectorAll("#log-rows .row")].find((row) => row.getBoundingClientRect().bottom > edge);
        return [Number(node.dataset.row), node.getBoundingClientRect().top - edge];
    }"""
    shown.find("#log-body").hover()
    row, at = shown.page.evaluate(top)
    for _ in range(12):
        shown.page.mouse.wheel(0, -60)
        shown.settle()
        shown.settle()
        now, offset = shown.page.evaluate(top)
        assert row - 6 <= now <= row, f"from row {row} at {at} to {now} at {offset}"
        row, at = now, offset
    shown.page.context.close()


def test_the_keyboard_alone(shown: Opened) -> None:
    """From nothing in focus: filter, into the table, row by row, unfold, clear, help."""
    keys = shown.page.keyboard
    keys.press("/")
    expect(shown.find("#filter-text")).to_be_focused()
    keys.type("ValueError")
    expect(shown.find("#log-count")).to_have_text("2 of 405 lines")
    keys.press("Escape")
    expect(shown.find("#log-count")).to_have_text("405 lines")
    shown.find("#log-body").focus()
    keys.press("ArrowUp")
    active = shown.find("#log-rows .row.active")
    expect(active.locator(".said")).to_contain_text("Traceback")
    assert shown.find("#log-body").get_attribute("aria-activedescendant") == active.get_attribute("id")
    keys.press("Enter")
    expect(active.locator(".said")).to_contain_text("train.py")
    keys.press("ArrowDown")
    expect(shown.find("#log-rows .row.active .said")).to_have_text("raised ValueError: no such token")
    keys.press("End")
    expect(shown.find("#log-rows .row.active .when")).to_have_text("+0.935")
    assert shown.visible("#log-rows .row.active")
    keys.press("Home")
    expect(shown.find("#log-rows .row.active .when")).to_have_text("\u221225.000")
    keys.press("o")
    assert shown.visible("#log-rows .divider")
    keys.press("?")
    expect(shown.find("#keys")).to_be_visible()
    keys.press("Escape")
    expect(shown.find("#keys")).to_be_hidden()


def test_tab_reaches_evidence_picture_and_log(shown: Opened) -> None:
    seen = list[str]()
    for _ in range(60):
        shown.page.keyboard.press("Tab")
        seen.append(shown.page.evaluate("() => document.activeElement.id || document.activeElement.className"))
    for wanted in ("theme", "copy", "evidence-item", "picture", "zoom-in", "filter-text", "filter-rank", "log-body"):
        assert wanted in seen


def test_table_roles(shown: Opened) -> None:
    assert shown.page.get_by_role("table", name="Log of all ranks").count() == 1
    row = shown.page.get_by_role("row").nth(3)
    assert row.get_by_role("cell").count() == 4
    assert shown.page.get_by_role("columnheader").all_inner_texts() == ["seconds", "who", "level", "text"]
