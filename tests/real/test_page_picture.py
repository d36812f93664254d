"""The picture in a real browser: what is drawn is explained, can be seen, and stands where its time is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, expect

from llmtrace.show.page.model import Command, Mark, Page, Phrase, Words
from llmtrace.show.times import after
from tests.support.chromium import Opened, chromium, opened, written
from tests.support.pages import CULPRIT, S, broken, lines

SHARES, BEGINS = "several steps as one: height is the share of time", "a step begins"
GREEN, RED = "#0b7350", "#b3261e"

PIXELS = """([id, colour]) => {
    const canvas = document.getElementById(id);
    const { width, height } = canvas;
    const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const data = copy.getImageData(0, 0, width, height).data;
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    const found = [];
    for (let at = 0; at < data.length; at += 4) {
        if (data[at] !== red || data[at + 1] !== green || data[at + 2] !== blue || data[at + 3] !== 255) continue;
        found.push([(at / 4) % width, Math.floor(at / 4 / width)]);
    }
    return found;
}"""
"""Where pixels of exactly this colour are on a canvas."""

CONTRASTS = """([id, left, top, width, height]) => {
    const canvas = document.getElementById(id);
    const surface = getComputedStyle(document.documentElement).getPropertyValue("--surface").trim();
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
    copy.fillStyle = surface;
    copy.fillRect(0, 0, canvas.width, canvas.height);
    copy.drawImage(canvas, 0, 0);
    const data = copy.getImageData(left, top, width || canvas.width, height || canvas.height).data;
    const light = (parts) => parts.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4))
        .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
    const ground = light([1, 3, 5].map((at) => parseInt(surface.slice(at, at + 2), 16)));
    const found = [];
    for (let at = 0; at < data.length; at += 4) {
        const own = light([data[at], data[at + 1], data[at + 2]]);
        found.push((Math.max(own, ground) + 0.05) / (Math.min(own, ground) + 0.05));
    }
    return found;
}"""
"""How much the pixels of a part of a canvas differ from the surface, by WCAG 2."""

IN_VIEW = """() => {
    const body = document.getElementById("log-body").getBoundingClientRect();
    const rows = [...document.querySelectorAll("#log-rows > *")].map((node) => [node.getBoundingClientRect(), node.className]);
    const seen = rows.filter(([box]) => box.bottom > body.top + 1 && box.top < body.bottom - 1);
    const divider = document.querySelector("#log-rows .divider").getBoundingClientRect();
    const cut = seen.filter(([box]) => box.top < body.top - 1 || box.bottom > body.bottom + 1);
    return { share: (divider.top - body.top) / body.height, cut: cut.length, seen: seen.length };
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def legend(shown: Opened) -> list[str]:
    return shown.find("#legend li").all_inner_texts()


def show(browser: Browser, folder: Path, page: Page, **how: object) -> Opened:
    shown = opened(browser, written(folder, page), **how)  # type: ignore[arg-type]
    shown.settle()
    return shown


def done(shown: Opened) -> None:
    assert shown.troubles == []
    shown.page.context.close()


def ended(at_us: int) -> Page:
    """A job that ended cleanly, rank 2 at this moment; the window ends at zero."""
    page = broken()
    first = msgspec.structs.replace(page.lanes[0], culprit=False, bad=False, end_us=at_us, marks=[Mark(at_us=at_us, kind="clean", words="done")])
    lanes = [msgspec.structs.replace(lane, culprit=False, end_us=-2 * S, marks=[]) for lane in page.lanes[1:]]
    return msgspec.structs.replace(page, lanes=[first, *lanes], zero_is_onset=False, detected_us=None, end_us=0, evidence=[])


def test_the_legend_names_what_is_drawn_and_nothing_else(browser: Browser, tmp_path: Path) -> None:
    shown = show(browser, tmp_path, broken())
    whole = legend(shown)
    assert whole[:5] == ["data wait", "forward", "backward", "gradient sync exposed", "optimizer"]
    for wanted in (SHARES, "onset", "detected +62 ms", "exception", "process ended", "the culprit", "backward: begun, never finished"):
        assert wanted in whole
    assert BEGINS not in whole
    assert "ended cleanly" not in whole
    assert "bars above: lines of the log, errors in red" in whole
    shown.find("#close").click()
    shown.settle()
    close = legend(shown)
    assert BEGINS in close
    assert SHARES not in close
    assert "process started" not in close
    assert "alive, no step" in close
    for _ in range(12):
        shown.page.keyboard.press("ArrowLeft")
    shown.settle()
    before = legend(shown)
    assert set(before).isdisjoint({"onset", "detected +62 ms", "exception", "process ended", "backward: begun, never finished"})
    assert shown.find("#curves li").all_inner_texts() == ["rank 2", "rank 0", "the others: least to most, median dashed"]
    done(shown)


def test_the_phases_of_the_legend_are_those_on_the_canvas(browser: Browser, tmp_path: Path) -> None:
    """A phase too short for a pixel is not in the legend."""
    page = broken()
    lanes = [msgspec.structs.replace(lane, segments=thin(lane.segments)) for lane in page.lanes]
    shown = show(browser, tmp_path, msgspec.structs.replace(page, lanes=lanes))
    found = legend(shown)
    for name, colour in (("forward", "#8ecaf0"), ("backward", "#1f6fb0"), ("data wait", "#dc8f00")):
        assert (name in found) == bool(shown.page.evaluate(PIXELS, ["lane-canvas", colour])), name
    assert "forward" in found
    assert "data wait" not in found
    done(shown)


def thin(segments: list[int]) -> list[int]:
    """The first phase 10 us long; the second takes its place."""
    found = list(segments)
    for at in range(0, len(found) - 3, 3):
        if found[at + 2] == 0:
            found[at + 1], found[at + 4] = 10, found[at + 4] + found[at + 1] - 10
    return found


@pytest.mark.parametrize("width", [390, 900, 1280])
def test_all_lanes_are_drawn_in_one_mode(browser: Browser, tmp_path: Path, width: int) -> None:
    """Ranks of another pace: at no zoom do some lanes show shares and others single steps."""
    page = broken()
    slow = [msgspec.structs.replace(lane, segments=[part * 2 if at % 3 == 1 else part for at, part in enumerate(lane.segments)]) for lane in page.lanes[2:]]
    shown = show(browser, tmp_path, msgspec.structs.replace(page, lanes=[*page.lanes[:2], *slow]), width=width)
    modes = set[bool]()
    shown.find("#whole").click()
    shown.settle()
    for _ in range(10):
        found = legend(shown)
        assert not (SHARES in found and BEGINS in found)
        modes.add(SHARES in found)
        shown.page.keyboard.press("+")
        shown.settle()
    assert modes == {True, False}
    done(shown)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("late_us", [30_000, 800_000, 4_900_000])
def test_a_narrow_axis_has_ticks_on_both_sides(browser: Browser, tmp_path: Path, language: str, late_us: int) -> None:
    page = msgspec.structs.replace(broken(language=language), detected_us=late_us)
    shown = show(browser, tmp_path, page, width=390, height=844, touch=True)
    for button in ("#close", "#fit", "#whole"):
        shown.find(button).tap()
        shown.settle()
        boxes = sorted(
            shown.page.evaluate(
                """() => [...document.querySelectorAll("#ruler-plot .tick")].map((node) => node.getBoundingClientRect()).map((box) => [box.left, box.right])"""
            )
        )
        words = shown.ticks()
        numbers = [word for word in words if word[0] in "\u2212+"]
        assert len(numbers) >= 2, words
        assert all(first[1] <= second[0] for first, second in pairwise(boxes)), words
        plot = shown.find("#ruler-plot").bounding_box()
        assert plot and boxes[0][0] >= plot["x"] - 7 and boxes[-1][1] <= plot["x"] + plot["width"] + 7
        onset = shown.x_of("onset" if language == "en" else "故障发生")
        assert any(word[0] == "\u2212" for word in numbers), words
        assert plot["x"] + plot["width"] - onset < 110 or any(word[0] == "+" for word in numbers), words
    done(shown)


@pytest.mark.parametrize(("width", "count"), [(1280, 400), (1280, 20_000), (390, 400), (390, 20_000), (2560, 0)])
def test_the_log_opens_with_the_onset_in_its_upper_third_and_whole_rows(browser: Browser, tmp_path: Path, width: int, count: int) -> None:
    page = broken(count=count)
    shown = show(browser, tmp_path, page, width=width)
    found = shown.page.evaluate(IN_VIEW)
    assert found["share"] < 1 / 3
    assert found["cut"] == 0
    assert found["seen"] >= 5
    if count == 20_000:
        expect(shown.find("#log-more")).to_contain_text("more lines")
        shown.find("#log-more").click()
        shown.settle()
        assert not shown.visible("#log-rows .divider")
    done(shown)


def test_a_log_that_goes_on_says_how_far_and_one_that_ends_where(browser: Browser, tmp_path: Path) -> None:
    extra: list[tuple[int, int, int, Words]] = [(number * 1000, CULPRIT, 9, f"after {number}") for number in range(300)]
    shown = show(browser, tmp_path, msgspec.structs.replace(broken(), log=lines(4, 100, extra), evidence=[]))
    found = shown.page.evaluate(IN_VIEW)
    assert found["cut"] == 0
    below = int(shown.text("log-more").removesuffix(" more lines"))
    seen = shown.page.evaluate("() => Number(document.querySelector('#log-rows .row:last-child').dataset.row)")
    assert 0 < below < 300
    assert seen < 400
    shown.page.evaluate("() => { const body = document.getElementById('log-body'); body.scrollTop = body.scrollHeight; }")
    shown.settle()
    expect(shown.find("#log-more")).to_have_css("visibility", "hidden")
    done(shown)
    shown = show(browser, tmp_path, broken(count=0))
    expect(shown.find("#log-end")).to_have_text("nothing more until the end of the window, +5.00 s")
    done(shown)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_what_is_drawn_can_be_seen(browser: Browser, tmp_path: Path, dark: bool) -> None:
    """WCAG 2.1, 1.4.11: a contrast of 3 for what is not text: the hatch, the line of a living process, the overview's bars, the grid."""
    page = broken()
    lanes = [msgspec.structs.replace(page.lanes[0], segments=[*page.lanes[0].segments[:3], 0, 25 * S, -1])]
    phases = [msgspec.structs.replace(page.phases[0], name="", words="step, phase not known"), *page.phases[1:]]
    shown = show(browser, tmp_path, msgspec.structs.replace(page, lanes=lanes, phases=phases), dark=dark)
    shown.find("#whole").click()
    shown.settle()
    width = shown.page.evaluate("() => document.getElementById('lane-canvas').width")
    hatched = shown.page.evaluate(CONTRASTS, ["lane-canvas", width // 2, 8, 60, 20])
    assert max(hatched) >= 3
    assert sum(value >= 3 for value in hatched) >= 60 * 20 // 6, "of each stroke, which are 6 pixels apart, one pixel in each row"
    alive = shown.page.evaluate(CONTRASTS, ["lane-canvas", width // 30 * 25, 17, 20, 1])
    overview = shown.page.evaluate(CONTRASTS, ["overview", 0, 0, 0, 0])
    assert max(alive) >= 2.99
    assert max(overview) >= 3
    grid = "() => { const canvas = document.querySelector('#strips canvas'); canvas.id = 'grid'; return canvas.width; }"
    shown.page.evaluate(grid)
    assert max(shown.page.evaluate(CONTRASTS, ["grid", 0, 12, 200, 5])) >= 3
    done(shown)


def middle(points: list[list[int]]) -> tuple[float, float]:
    """The middle of what they cover, across and down."""
    assert points
    across, down = [x for x, _ in points], [y for _, y in points]
    return (min(across) + max(across) + 1) / 2, (min(down) + max(down) + 1) / 2


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("at_us", [0, -16_000, -3 * S])
def test_a_mark_is_centred_on_its_time(browser: Browser, tmp_path: Path, width: int, at_us: int) -> None:
    """At the very end of the window, too: nothing pushes it inwards, nothing cuts it."""
    shown = show(browser, tmp_path, ended(at_us), width=width)
    shown.find("#whole").click()
    shown.settle()
    pixels = shown.page.evaluate(PIXELS, ["mark-canvas", GREEN])
    canvas, zero = shown.find("#mark-canvas").bounding_box(), shown.find("#line-zero").bounding_box()
    assert canvas and zero
    expected = zero["x"] - canvas["x"] + at_us / (30 * S) * (canvas["width"] - 16)
    assert middle(pixels)[0] == pytest.approx(expected, abs=1.5)
    assert max(x for x, _ in pixels) - min(x for x, _ in pixels) >= 10, "whole"
    clip = shown.find("#lanes").bounding_box()
    assert clip and canvas["x"] + canvas["width"] <= clip["x"] + clip["width"] + 0.5
    done(shown)


def test_marks_at_one_moment_hide_neither(browser: Browser, tmp_path: Path) -> None:
    page = broken()
    near = [Mark(at_us=0, kind="failed", words="raised"), Mark(at_us=20_000, kind="died", words="gone")]
    lanes = [msgspec.structs.replace(lane, marks=near if place == 0 else []) for place, lane in enumerate(page.lanes)]
    shown = show(browser, tmp_path, msgspec.structs.replace(page, lanes=lanes))
    pixels = shown.page.evaluate(PIXELS, ["mark-canvas", RED])
    lane = 24 + 36 // 2  # below the node's caption
    assert sum(y < lane - 2 for _, y in pixels) > 30
    assert sum(y > lane + 2 for _, y in pixels) > 30
    above = shown.page.evaluate(
        """() => [document.getElementById("over"), document.getElementById("mark-canvas")].map((node) => Number(getComputedStyle(node).zIndex))"""
    )
    assert above[0] < above[1], "lines run under marks"
    done(shown)


@pytest.mark.parametrize("width", [390, 1280])
def test_commands_are_broken_between_words_only(browser: Browser, tmp_path: Path, width: int) -> None:
    shell = "llmtrace context 1f0c9a52d1b0 --dir /mnt/shared/home/ada/experiments/gpt-70b/journals --rank 1 | grep -iE 'killed process|out of memory'"
    page = broken()
    head = msgspec.structs.replace(page.head, commands=[Command(why=Phrase("ui.log"), command=shell)])
    shown = show(browser, tmp_path, msgspec.structs.replace(page, head=head), width=width)
    words = shown.page.evaluate("() => [...document.querySelectorAll('#commands .word')].map((node) => [node.textContent, node.getClientRects().length])")
    assert [word for word, _ in words if "'" in word] == ["'killed process|out of memory'"]
    assert {count for _, count in words} == {1}
    assert shown.find("#commands code").first.inner_text().split() == shell.split()
    assert shown.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    done(shown)


def test_a_strip_does_not_make_a_mountain_of_noise(browser: Browser, tmp_path: Path) -> None:
    shown = show(browser, tmp_path, broken())
    high, low = shown.find(".strip").nth(2).locator(".strip-scale span").all_inner_texts()
    assert high.endswith(" MiB")
    assert float(high.split()[0]) - float(low.split()[0]) == pytest.approx(0.05 * 807, rel=0.05)
    assert shown.find(".strip").nth(1).locator(".strip-scale .low").inner_text() == "0"
    assert shown.find(".strip-value").nth(2).inner_text().split("\n") == ["rank 2: last 807.2 MiB", "rank 0: last 808.0 MiB"]
    labels = shown.page.evaluate("() => [...document.querySelectorAll('.strip-scale span')].map((node) => node.getBoundingClientRect().top)")
    assert labels[2] - labels[1] >= 28, "the numbers of two strips are not one scale"
    done(shown)


def test_the_culprit_is_red_in_numbers_and_followers_are_not_in_the_log(browser: Browser, tmp_path: Path) -> None:
    shown = show(browser, tmp_path, broken())
    red = "rgb(179, 38, 30)"
    assert shown.find(".strip-value .own").first.evaluate("node => getComputedStyle(node).color") == red
    assert shown.find("#log-rows .row.culprit.event .level").first.evaluate("node => getComputedStyle(node).color") == red
    effect = shown.find("#log-rows .row.effect .level").first
    assert effect.evaluate("node => getComputedStyle(node).color") != red
    done(shown)


def test_the_frame_that_failed_stands_out_and_lines_hang(browser: Browser, tmp_path: Path) -> None:
    shown = show(browser, tmp_path, broken(), width=390)
    shown.find("#log-rows .row", "Traceback").first.locator(".unfold").click()
    failing = shown.find("#log-rows .failing")
    assert failing.all_inner_texts() == ['  File "/home/ada/gpt/train.py", line 61, in step', '    raise ValueError("no such token")']
    indent = failing.first.evaluate("node => [parseFloat(getComputedStyle(node).paddingLeft), parseFloat(getComputedStyle(node).textIndent)]")
    assert indent[0] > 20
    assert indent[0] == -indent[1]
    done(shown)


@pytest.mark.parametrize("touch", [False, True])
def test_hints_are_those_of_the_hand_that_is_there(browser: Browser, tmp_path: Path, touch: bool) -> None:
    shown = show(browser, tmp_path, broken(), width=390, touch=touch)
    (expect(shown.find(".for-touch")).to_be_visible if touch else expect(shown.find(".for-touch")).to_be_hidden)()
    (expect(shown.find(".for-mouse")).to_be_hidden if touch else expect(shown.find(".for-mouse")).to_be_visible)()
    (expect(shown.find("#help")).to_be_hidden if touch else expect(shown.find("#help")).to_be_visible)()
    done(shown)


def test_every_lane_has_its_note_at_every_width(browser: Browser, tmp_path: Path) -> None:
    for width in (390, 800, 1280):
        shown = show(browser, tmp_path, broken(), width=width)
        notes = shown.page.evaluate(
            """() => [...document.querySelectorAll(".lane-note")]
                .map((node) => [node.textContent, node.scrollHeight <= node.clientHeight + 1 && node.offsetWidth > 0])"""
        )
        assert [whole for _, whole in notes] == [True] * 4, (width, notes)
        done(shown)


@pytest.mark.parametrize("late_us", [0, 400, 62_499, 999_600, 2_848_000, 61_000_000])
def test_times_are_spelled_as_in_the_terminal(browser: Browser, tmp_path: Path, late_us: int) -> None:
    page = msgspec.structs.replace(broken(), detected_us=late_us, end_us=max(5 * S, late_us + S))
    shown = show(browser, tmp_path, page)
    shown.find("#whole").click()
    shown.settle()
    assert f"detected {after(late_us * 1000)}" in legend(shown)
    done(shown)
