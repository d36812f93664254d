// The page put together: one axis, one log, and what one tells the other.

class App {
  /** @param {Page} page @param {boolean} live */
  constructor(page, live) {
    this.live = live;
    this.data = decoded(page);
    this.axis = new Axis(this.data);
    this.picture = new Picture(this.axis);
    this.log = new LogTable(this.axis);
    this.controls = new Controls(this);
    this.pointer = new Pointer(this.picture, (act) => this.timed(act));
    this.drawnFirst = false;
    /** @type {string | null} what is measured until the next draw, and since when */
    this.measuring = null;
    this.begun = 0;
    this.connect();
    listenToKeys(this);
  }

  connect() {
    const { axis, log, picture, pointer, controls } = this;
    axis.listeners.push((what) => what === "selection" && this.timedFilter());
    log.onRow = (row) => axis.mark(this.data.lines.times[row]);
    log.onShown = () => controls.writeCount();
    picture.onDrawn = () => this.drawn();
    picture.onResized = balanceColumns;
    picture.lanes.onRanks = (ranks) => controls.only(ranks, text("ui.ranks_of_lane", { count: ranks.length }));
    pointer.onClick = (at, row) => this.clicked(at, row);
    matchMedia("print").addEventListener("change", (event) => this.print(event.matches));
    addEventListener("beforeprint", () => this.print(true));
    addEventListener("afterprint", () => this.print(false));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.applyTheme());
  }

  start() {
    this.applyTheme();
    this.write();
    this.log.open();
    if (this.live) follow(this);
  }

  /** Everything that has words, anew. */
  write() {
    for (const node of document.querySelectorAll("[data-text]")) node.textContent = text(/** @type {HTMLElement} */ (node).dataset.text || "");
    for (const node of document.querySelectorAll("[data-label]")) writeLabel(/** @type {HTMLElement} */ (node));
    writeHead(this.data.page);
    writeEvidence(this.data.page, (item) => this.jump(item));
    writeLastWords(this.data, (row) => this.jumpToRow(row));
    element("strips-part").hidden = !this.data.measured.length;
    this.controls.write(this.data.page);
    this.picture.take(this.data);
    this.log.take(this.data);
  }

  /** What a new window of the same job changes; zoom, filter and place stay. @param {Page} page */
  renew(page) {
    const shift_us = (this.data.page.zero_ms - page.zero_ms) * 1000;
    const { axis, log } = this;
    const { kept, view, atEnd } = { kept: this.placeInLog(shift_us), view: axis.view, atEnd: axis.view.to >= axis.fitted.to - 1 };
    this.data = decoded(page);
    axis.take(this.data);
    if (axis.selection) axis.selection = moved(axis.selection, shift_us);
    if (axis.marked !== null) axis.marked += shift_us;
    log.filter.stretch = axis.selection;
    const scroll = window.scrollY;
    this.write();
    const next = atEnd ? view : moved(view, shift_us);
    axis.show(next.from, next.to);
    this.restoreLog(kept);
    window.scrollTo({ top: scroll });
  }

  /** Where the log is, as a moment that a new window has too; null: at its end. @param {number} shift_us */
  placeInLog(shift_us) {
    const { body, heights, items, lines } = this.log;
    if (!lines || !items.length || body.scrollTop + body.clientHeight >= heights.total - LINE_PX) return null;
    const place = heights.rowAt(body.scrollTop);
    const row = items[place] === DIVIDER ? items[place + 1] : items[place];
    return { at: lines.times[row] + shift_us, into: body.scrollTop - heights.top(place) };
  }

  /** @param {{at: number, into: number} | null} kept */
  restoreLog(kept) {
    const { log } = this;
    if (!kept) log.body.scrollTop = log.heights.total;
    else log.body.scrollTop = log.heights.top(log.nearestPlace(placeOf(this.data.lines.times, kept.at - 1))) + kept.into;
    log.render();
  }

  /** To the moment of a record, in the picture and in the log. @param {Evidence} item */
  jump(item) {
    this.axis.mark(item.at_us);
    this.picture.lanes.pointAt(item.lane);
    if (item.row !== null) this.jumpToRow(item.row);
    reveal(element("picture-part"));
  }

  /** @param {number} row */
  jumpToRow(row) {
    if (this.log.placeOfRow(row) < 0) this.controls.clear();
    this.log.jump(row);
    this.axis.mark(this.data.lines.times[row]);
  }

  /** A click in the picture: the nearest line of that rank. @param {number} at @param {LaneRow | null} row */
  clicked(at, row) {
    if (this.axis.selection && (at < this.axis.selection.from || at > this.axis.selection.to)) this.axis.select(null);
    const found = this.log.rowNear(at, row?.track ? row.track.lane.ranks : null);
    this.axis.mark(at);
    if (found >= 0) this.log.jump(found);
  }

  toOnset() {
    this.axis.mark(0);
    this.log.open();
  }

  closeUp() {
    const rhythms = this.data.tracks.map((track) => track.rhythm_us).filter((rhythm) => rhythm > 0);
    this.axis.closeUp(rhythms.length ? rhythms.sort((a, b) => a - b)[rhythms.length >> 1] : 0);
  }

  zoomToSelection() {
    const { selection } = this.axis;
    if (selection) this.axis.show(selection.from, selection.to);
  }

  clear() {
    const help = /** @type {HTMLDialogElement} */ (element("keys"));
    if (help.open) return help.close();
    if (document.activeElement instanceof HTMLInputElement) document.activeElement.blur();
    this.controls.clear();
    this.axis.mark(null);
    this.picture.lanes.pointAt(null);
    this.log.activate(null);
  }

  help() {
    writeKeys(element("key-list"));
    /** @type {HTMLDialogElement} */ (element("keys")).showModal();
  }

  /** @param {boolean} printing */
  print(printing) {
    document.documentElement.classList.toggle("printing", printing);
    this.applyTheme();
    this.log.print(printing);
    this.picture.resize();
    if (!printing) requestAnimationFrame(() => this.log.open());
  }

  switchTheme() {
    const dark = document.documentElement.classList.contains("dark");
    remember("llmtrace.theme", dark ? "light" : "dark");
    this.applyTheme();
  }

  applyTheme() {
    const chosen = remembered("llmtrace.theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    const { classList } = document.documentElement;
    const before = classList.contains("dark");
    classList.toggle("dark", chosen === "dark" && !classList.contains("printing"));
    this.picture.recolour();
    if (before !== classList.contains("dark")) this.log.redraw();
  }

  switchLanguage() {
    const codes = Object.keys(tongue.all);
    speakLanguage(codes[(codes.indexOf(tongue.code) + 1) % codes.length]);
    this.write();
    this.log.open();
  }

  /** Does what changes the view, and measures it until it is drawn. @param {() => void} act */
  timed(act) {
    this.measuring ??= "llmtrace:zoom";
    this.begun = performance.now();
    act();
    this.picture.ask();
  }

  timedFilter() {
    const begun = performance.now();
    this.log.filter.stretch = this.axis.selection;
    this.log.unfit();
    this.log.apply();
    performance.measure("llmtrace:filter", { start: begun, end: performance.now() });
  }

  drawn() {
    if (this.measuring) performance.measure(this.measuring, { start: this.begun, end: performance.now() });
    this.measuring = null;
    if (this.drawnFirst || !this.log.lines) return;
    this.drawnFirst = true;
    requestAnimationFrame(() => setTimeout(() => performance.mark("llmtrace:first-frame")));
  }
}

/** @param {Stretch} stretch @param {number} by_us @returns {Stretch} */
function moved(stretch, by_us) {
  return { from: stretch.from + by_us, to: stretch.to + by_us };
}

/** @param {HTMLElement} node */
function writeLabel(node) {
  const words = text(node.dataset.label || "");
  node.setAttribute("aria-label", words);
  if (node instanceof HTMLInputElement) node.placeholder = words;
  else if (node instanceof HTMLButtonElement) node.title = words;
}

/** @param {HTMLElement} node */
function reveal(node) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  node.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
}

/** @param {string} key @param {string} value */
function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    document.documentElement.dataset.theme = value;
  }
}

/** @param {string} key */
function remembered(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return document.documentElement.dataset.theme || null;
  }
}

function main() {
  const page = /** @type {Page} */ (embedded("page-data"));
  tongue.all = embedded("page-texts");
  chooseLanguage(page.language);
  document.documentElement.classList.remove("waiting");
  new App(page, document.documentElement.hasAttribute("data-live")).start();
}
