"""The page of 64 ranks x 30 s x 10 steps/s with 20,000 lines in real headless Chromium: its size, its first frame, a zoom and a filter.

Times are taken from outside of the page: from the navigation's start, or the time stamp of the wheel's or the key's event, to the end of the first frame
after the page's own measure is over. The quietest of the rounds counts: a frame takes what a busy neighbour leaves it. Each round has a browser of its own
for each page, and an empty page as its control; Bokeh's page of the same lanes and lines is the peer where bokeh is installed, which our lock does not do.
"""

from __future__ import annotations

import importlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from benchmarks.big_window import big_window
from benchmarks.table import Row
from llmtrace.show.page.content import content
from llmtrace.show.page.document import document
from llmtrace.show.page.model import Page as Model
from llmtrace.sources.context import Context

WHAT: Final = "page, 64 ranks x 30 s x 10 steps/s, 20,000 lines"
ROUNDS: Final = 5
WHEELS: Final = (-120, -120, -120, -120, -120, 120, 120, 120, 120, 120)
WORD: Final = "grad norm"
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_MS: Final = 120_000
ARGUMENTS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WATCH: Final = """
const bench = window.bench = { ends: [], input: 0 };
const after = new MessageChannel();
after.port1.onmessage = () => bench.ends.push(performance.now());
const turn = () => { after.port2.postMessage(0); requestAnimationFrame(turn); };
requestAnimationFrame(turn);
for (const kind of ["wheel", "input"]) addEventListener(kind, (event) => { bench.input = event.timeStamp; }, { capture: true, passive: true });
"""
"""Notes when each frame ended (a message that was posted within it arrives after it was drawn), and when the last event came."""
DONE: Final = """(name) => {
  const entries = performance.getEntriesByName(name).filter((entry) => entry.startTime >= bench.input);
  const over = name === "" ? bench.input : entries.map((entry) => entry.startTime + entry.duration).pop();
  const end = over && bench.input ? bench.ends.find((end) => end >= over) : undefined;
  return end === undefined ? 0 : end - bench.input;
}"""
"""Milliseconds from the event to the end of the frame in which what is measured under `name` was done; 0 while that is to come.

Without a name it is the next frame.
"""
EMPTY: Final = "<!doctype html><title>empty</title><p>empty</p><input id=filter-text>"
COLOURS: Final = ("#e69f00", "#56b4e9", "#0072b2", "#cc79a7", "#009e73", "#999999", "#f0e442")
BOKEH_IS_IDLE: Final = "() => window.Bokeh && Bokeh.documents.length && Bokeh.documents[0].is_idle && performance.now()"


class Seen(msgspec.Struct):
    """Milliseconds, one value a round: of a round's zooms and letters the median."""

    first: list[float] = []
    zoom: list[float] = []
    filter: list[float] = []


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        yield from _rows(Path(folder))


def _rows(folder: Path) -> Iterator[Row]:
    window = big_window()
    generation_s = [_written(window, folder / "page.html") for _ in range(3)]
    _written(big_window(ranks=1024), folder / "many.html")
    (folder / "empty.html").write_text(EMPTY)
    size_mb = (folder / "page.html").stat().st_size / 1e6
    peer_mb = _bokeh_page(_model(window), folder / "peer.html") if find_spec("bokeh") else None
    seen = _measured(folder, ["empty", "page", "many", *(["peer"] if peer_mb else [])])
    found, empty, many = seen["page"], seen["empty"], seen["many"]
    peer = f", Bokeh {min(seen['peer'].first):,.0f} ms" if peer_mb else ""
    yield Row(what=f"{WHAT}: first frame", measured=min(found.first), unit="ms", budget=2000, control=_beside(empty.first) + peer)
    yield Row(what=f"{WHAT}: size", measured=size_mb, unit="MB", budget=8, control=f"Bokeh {peer_mb:.1f} MB" if peer_mb else "")
    yield Row(what=f"{WHAT}: a step of zoom", measured=min(found.zoom), unit="ms", budget=100, control=_beside(empty.zoom))
    yield Row(what=f"{WHAT}: a letter in the filter", measured=min(found.filter), unit="ms", budget=100, control=_beside(empty.filter))
    yield Row(what=f"{WHAT}: made by Python", measured=min(generation_s), unit="s", budget=None, why="no budget")
    yield Row(what="page, 1,024 ranks: first frame", measured=min(many.first), unit="ms", budget=None, control=_beside(empty.first), why="it opens")


def _beside(times_ms: Sequence[float]) -> str:
    return f"empty page {min(times_ms):,.0f} ms"


def _model(window: Context) -> Model:
    return content(window, now_ns=window.window.end_ns)


def _written(window: Context, path: Path) -> float:
    """Seconds from the records to the file."""
    begun = time.perf_counter()
    path.write_text(document(_model(window)), encoding="utf-8")
    return time.perf_counter() - begun


def _measured(folder: Path, names: Iterable[str]) -> dict[str, Seen]:
    seen = {name: Seen() for name in names}
    with sync_playwright() as playwright:
        for _ in range(ROUNDS):
            for name, found in seen.items():
                with _launched(playwright) as browser:
                    _look(browser, folder / f"{name}.html", name, found)
    return seen


def _launched(playwright: Playwright) -> Browser:
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        raise FileNotFoundError(f"none of {', '.join(NAMES)} is on PATH")
    return playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))


def _look(browser: Browser, path: Path, name: str, found: Seen) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(TIMEOUT_MS)
    page.add_init_script(WATCH)
    page.goto(path.as_uri())
    if name == "peer":
        found.first.append(page.wait_for_function(BOKEH_IS_IDLE).json_value())
        return
    own = name != "empty"
    found.first.append(_first_frame(page, own))
    found.zoom.append(statistics.median(_wheel(page, by, "llmtrace:zoom" if own else "") for by in WHEELS))
    page.locator("#filter-text").click()
    keys = (*WORD, *["Backspace"] * len(WORD))
    found.filter.append(statistics.median(_press(page, key, "llmtrace:filter" if own else "") for key in keys))


def _first_frame(page: Page, own: bool) -> float:
    """Milliseconds from the navigation's start: by the page's own mark, which it sets after the frame; of the empty page its first paint."""
    name = "llmtrace:first-frame" if own else "first-paint"
    return page.wait_for_function("(name) => performance.getEntriesByName(name)[0]?.startTime", arg=name).json_value()


def _wheel(page: Page, by: int, measure: str) -> float:
    picture = page.locator("#lanes" if measure else "body")
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    if box is None:
        raise LookupError("the page has no lanes")
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + min(box["height"] / 2, 200))
    page.evaluate("bench.input = 0; bench.ends = []")
    page.keyboard.down("Control")
    page.mouse.wheel(0, by)
    page.keyboard.up("Control")
    return page.wait_for_function(DONE, arg=measure).json_value()


def _press(page: Page, key: str, measure: str) -> float:
    page.evaluate("bench.input = 0; bench.ends = []")
    page.keyboard.press(key)
    return page.wait_for_function(DONE, arg=measure).json_value()


def _bokeh(module: str) -> Any:
    return importlib.import_module(f"bokeh.{module}")


def _bokeh_page(model: Model, path: Path) -> float:
    """The same lanes and lines as Bokeh draws them best: a quad a phase (without a GPU its canvas beats its WebGL) and its DataTable. Megabytes of the file."""
    models, tall = _bokeh("models"), {"height": 900, "sizing_mode": "stretch_width"}
    lane, left, right, phase = _quads(model)
    picture = _bokeh("plotting").figure(tools="xpan,xwheel_zoom,hover", **tall)
    for place, colour in enumerate(COLOURS):
        chosen = phase == place
        columns = {"left": left[chosen], "right": right[chosen], "top": lane[chosen] - 0.4, "bottom": lane[chosen] + 0.4}
        data = models.ColumnDataSource({name: values.astype(np.float32) for name, values in columns.items()})
        picture.quad(**{name: name for name in columns}, source=data, fill_color=colour, line_color=None)
    lines = models.ColumnDataSource({"time": np.cumsum(model.log.times_us) / 1e6, "text": [str(text) for text in model.log.texts]})
    table = models.DataTable(source=lines, columns=[models.TableColumn(field=name, title=name) for name in ("time", "text")], **tall)
    page = _bokeh("layouts").column(picture, table, sizing_mode="stretch_width")
    path.write_text(_bokeh("embed").file_html(page, _bokeh("resources").INLINE, "peer"), encoding="utf-8")
    return path.stat().st_size / 1e6


def _quads(model: Model) -> Sequence[NDArray[np.float64]]:
    """Every phase of every rank: its lane's number, when it began and ended in seconds, and its place in the model's phases."""
    lanes = [member for lane in model.lanes for member in (lane.members or [lane])]
    triples = [np.array(lane.segments, dtype=np.float64).reshape(-1, 3) for lane in lanes]
    right = np.concatenate([lane.start_us + np.cumsum(found[:, 0] + found[:, 1]) for lane, found in zip(lanes, triples, strict=True)])
    length, phase = (np.concatenate([found[:, part] for found in triples]) for part in (1, 2))
    number = np.repeat(np.arange(len(lanes), dtype=np.float64), [len(found) for found in triples])
    return number, (right - length) / 1e6, right / 1e6, phase
