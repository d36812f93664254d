// Every rank's lines in one table, of which only what is in view is made of elements.

/** The place of the divider among the rows. */
const DIVIDER = -1;
const LINE_PX = 20;
const ROW_PAD_PX = 4;
const AROUND_PX = 400;
const CLAMPED_LINES = 3;
/** So many rows before and after the zero are printed. */
const PRINTED = 60;

class LogTable {
  /** @param {Axis} axis */
  constructor(axis) {
    this.axis = axis;
    this.body = element("log-body");
    this.space = element("log-space");
    this.box = element("log-rows");
    /** @type {Filter} */
    this.filter = { words: "", ranks: null, level: 0, stretch: null };
    /** @type {Int32Array} rows that are shown, the divider among them */
    this.items = new Int32Array(0);
    this.heights = new Heights(new Float64Array(0));
    /** @type {Set<number>} */
    this.unfolded = new Set();
    /** @type {number | null} the row that is marked */
    this.active = null;
    /** @type {Map<number, HTMLElement>} by place among the items */
    this.nodes = new Map();
    /** @type {(string | undefined)[]} */
    this.plains = [];
    /** @type {number | null} the row that filters keep in view until the reader scrolls */
    this.held = null;
    this.matches = 0;
    this.printing = false;
    this.pending = false;
    this.columns = 100;
    /** @type {(row: number) => void} */
    this.onRow = () => {};
    /** @type {() => void} */
    this.onShown = () => {};
    this.body.addEventListener("scroll", () => this.ask());
    for (const kind of ["wheel", "touchmove", "keydown", "pointerdown"]) this.body.addEventListener(kind, () => (this.held = null), { passive: true });
    this.box.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.resized()).observe(this.body);
  }

  /** @param {Scene} data */
  take(data) {
    this.data = data;
    this.lines = data.lines;
    this.plains = new Array(data.lines.count);
    this.unfolded.clear();
    this.active = this.held = null;
    this.apply();
  }

  /** A row's text without colours, made when it is first searched. @param {number} row */
  textOf(row) {
    if (!this.lines) return "";
    return (this.plains[row] ??= plain(said(this.lines.texts[row])));
  }

  /** Filters anew; what was marked or in the middle stays in view. */
  apply() {
    if (!this.lines) return;
    this.held ??= this.anchorRow();
    const found = matching(this.lines, this.filter, (row) => this.textOf(row));
    this.matches = found.length;
    this.items = this.divided(found);
    this.layOut();
    if (this.held !== null) this.bringIn(this.held, 0.4);
    this.render();
    this.onShown();
  }

  /** With the divider before the first row after the onset. @param {Int32Array} found */
  divided(found) {
    const lines = /** @type {Lines} */ (this.lines);
    if (!this.data?.page.zero_is_onset || !found.length) return found;
    let place = 0;
    while (place < found.length && lines.times[found[place]] < 0) place++;
    const items = new Int32Array(found.length + 1);
    items.set(found.subarray(0, place));
    items[place] = DIVIDER;
    items.set(found.subarray(place), place + 1);
    return items;
  }

  layOut() {
    this.nodes.clear();
    this.box.replaceChildren();
    this.measureColumns();
    this.heights = new Heights(Float64Array.from(this.items, (row) => this.guess(row)));
  }

  /** How many signs fit in a line. */
  measureColumns() {
    const probe = element("log-probe");
    const sign_px = probe.getBoundingClientRect().width / 20 || 7.5;
    const style = getComputedStyle(this.body);
    this.narrow = style.getPropertyValue("--stacked").trim() === "1";
    this.columns = Math.max(20, Math.floor((this.body.clientWidth - parseFloat(style.getPropertyValue("--beside"))) / sign_px));
  }

  /** @param {number} row */
  guess(row) {
    if (row === DIVIDER) return LINE_PX + 2 * ROW_PAD_PX;
    const words = this.textOf(row);
    const lines = this.unfolded.has(row) ? this.wholeLines(words) + 1 : Math.min(CLAMPED_LINES, Math.ceil(Math.max(1, words.length) / this.columns));
    return (lines + (this.narrow ? 1 : 0)) * LINE_PX + ROW_PAD_PX;
  }

  /** @param {string} words */
  wholeLines(words) {
    return words.split("\n").reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / this.columns)), 0);
  }

  resized() {
    if (!this.lines || this.printing) return;
    const [kept, columns] = [this.anchorRow(), this.columns];
    this.measureColumns();
    if (columns !== this.columns) {
      this.layOut();
      if (kept !== null) this.bringIn(kept, 0.4);
    }
    this.ask();
  }

  ask() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => this.render());
  }

  /** The marked row where it is shown, else the one in the middle; null before there are any. */
  anchorRow() {
    if (!this.items.length) return null;
    if (this.active !== null && this.placeOfRow(this.active) >= 0) return this.active;
    return this.items[this.heights.rowAt(this.body.scrollTop + this.body.clientHeight * 0.4)];
  }

  /** @param {number} row */
  placeOfRow(row) {
    return this.items.indexOf(row);
  }

  /** Scrolls so that a row, or the nearest one in time, is at this share of the height. @param {number} row @param {number} share */
  bringIn(row, share) {
    const place = this.nearestPlace(row);
    if (place < 0) return;
    this.space.style.height = `${this.heights.total}px`;
    this.body.scrollTop = this.heights.top(place) - this.body.clientHeight * share;
  }

  /** @param {number} row */
  nearestPlace(row) {
    const exact = this.placeOfRow(row);
    if (exact >= 0 || !this.items.length) return exact;
    const { times } = /** @type {Lines} */ (this.lines);
    const wanted = row === DIVIDER ? 0 : times[row];
    return this.items.findIndex((item, index) => index === this.items.length - 1 || (item !== DIVIDER && times[item] >= wanted));
  }

  render() {
    this.pending = false;
    if (!this.lines) return;
    if (this.printing) return this.renderAll();
    const top = this.body.scrollTop;
    const first = this.items.length ? this.heights.rowAt(Math.max(0, top - AROUND_PX)) : 0;
    const anchor = this.items.length ? this.heights.rowAt(top) : 0;
    const into = top - this.heights.top(anchor);
    this.fill(first, this.lastFrom(first, top + this.body.clientHeight + AROUND_PX));
    this.measure();
    this.space.style.height = `${this.heights.total}px`;
    this.box.style.transform = `translateY(${this.heights.top(first)}px)`;
    const settled = this.heights.top(anchor) + into;
    if (Math.abs(settled - top) > 1) this.body.scrollTop = settled;
  }

  /** @param {number} first @param {number} bottom */
  lastFrom(first, bottom) {
    let last = first;
    for (let y = this.heights.top(first); last < this.items.length && y < bottom; last++) y += this.heights.heights[last];
    return last;
  }

  /** Makes the rows of these places; those that stay are not taken out, so that what has the focus keeps it. @param {number} first @param {number} last */
  fill(first, last) {
    for (const [place, node] of this.nodes) if (place < first || place >= last) this.drop(place, node);
    let next = this.box.firstElementChild;
    for (let place = first; place < last; place++) {
      const node = this.nodes.get(place) || this.rowNode(place);
      this.nodes.set(place, node);
      if (node === next) next = next.nextElementSibling;
      else this.box.insertBefore(node, next);
    }
    element("log").setAttribute("aria-rowcount", String(this.items.length + 1));
  }

  /** @param {number} place @param {HTMLElement | undefined} node */
  drop(place, node) {
    this.nodes.delete(place);
    node?.remove();
  }

  /** What is in view is no longer guessed. */
  measure() {
    const measured = [...this.nodes].map(([place, node]) => /** @type {const} */ ([place, node.offsetHeight]));
    for (const [place, height] of measured) if (height) this.heights.set(place, height);
  }

  /** The rows around the zero, as they are printed. */
  renderAll() {
    const zero = Math.max(0, this.nearestPlace(DIVIDER));
    this.fill(Math.max(0, zero - PRINTED), Math.min(this.items.length, zero + PRINTED));
    this.space.style.height = "auto";
    this.box.style.transform = "none";
  }

  /** @param {boolean} printing */
  print(printing) {
    if (printing === this.printing) return;
    this.printing = printing;
    this.redraw();
  }

  /** Every row anew, in the colours of now. */
  redraw() {
    if (!this.lines) return;
    this.layOut();
    this.render();
  }

  /** Where the table opens: the onset, with what was said before it. */
  open() {
    const page = this.data?.page;
    if (!page) return;
    this.held = null;
    if (page.zero_is_onset) this.bringIn(DIVIDER, 0.62);
    else this.body.scrollTop = this.heights.total;
    this.render();
    if (page.zero_is_onset) this.bringIn(DIVIDER, 0.62);
    else this.body.scrollTop = this.heights.total;
  }

  /** @param {number} place */
  rowNode(place) {
    const row = this.items[place];
    const node = row === DIVIDER ? dividerNode(/** @type {Scene} */ (this.data).page) : this.lineNode(row);
    node.setAttribute("role", "row");
    node.setAttribute("aria-rowindex", String(place + 2));
    return node;
  }

  /** @param {number} row */
  lineNode(row) {
    const { times, severity, speakers, speaker, texts, event } = /** @type {Lines} */ (this.lines);
    const who = speakers[speaker[row]];
    const node = made("div", `row ${levelKind(severity[row])}`);
    node.id = `row-${row}`;
    node.dataset.row = String(row);
    node.classList.toggle("culprit", who.culprit);
    node.classList.toggle("event", event[row] === 1);
    this.markActive(node, row);
    const when = cell("when", spellOffset(times[row]));
    when.title = spellClock(this.axis.zero_ms + times[row] / 1000);
    const name = cell("who", said(who.words));
    name.title = who.node ? `${said(who.words)}, ${who.node}` : said(who.words);
    node.append(when, name, cell("level", levelWords(severity[row])), this.saidCell(row, said(texts[row]), event[row] === 1));
    return node;
  }

  /** @param {HTMLElement} node @param {number} row */
  markActive(node, row) {
    node.classList.toggle("active", row === this.active);
    node.setAttribute("aria-selected", String(row === this.active));
  }

  /** @param {number} row @param {string} words @param {boolean} event */
  saidCell(row, words, event) {
    const node = cell("said", "");
    const lines = words.replace(/\n+$/, "").split("\n");
    const open = this.unfolded.has(row);
    const long = lines.length > 1 || words.length > CLAMPED_LINES * this.columns;
    const body = made("span", open || !long ? "whole" : "clamped");
    writeColoured(body, open ? lines.join("\n") : summary(lines));
    if (event) body.prepend(sign("sign-event"));
    node.append(body);
    if (long) node.append(this.foldButton(row, lines.length, open));
    return node;
  }

  /** @param {number} row @param {number} lines @param {boolean} open */
  foldButton(row, lines, open) {
    const words = open ? text("ui.fold_lines") : lines > 1 ? text("ui.lines", { count: lines }) : text("ui.more");
    const node = button("unfold", words, () => this.toggle(row));
    node.prepend(sign(open ? "sign-fold" : "sign-unfold"));
    node.setAttribute("aria-expanded", String(open));
    return node;
  }

  /** @param {number} row */
  toggle(row) {
    if (!this.unfolded.delete(row)) this.unfolded.add(row);
    const place = this.placeOfRow(row);
    const focused = this.nodes.get(place)?.contains(document.activeElement);
    this.drop(place, this.nodes.get(place));
    if (place >= 0) this.heights.set(place, this.guess(row));
    this.render();
    if (focused) /** @type {HTMLElement | null | undefined} */ (this.nodes.get(place)?.querySelector(".unfold"))?.focus({ preventScroll: true });
  }

  /** @param {MouseEvent} event */
  click(event) {
    if (isControl(event) || !(event.target instanceof Element) || String(getSelection())) return;
    const node = event.target.closest(".row");
    if (node instanceof HTMLElement && node.dataset.row) this.choose(Number(node.dataset.row));
  }

  /** Marks a row, here and in the picture. @param {number} row */
  choose(row) {
    this.activate(row);
    this.onRow(row);
  }

  /** @param {number | null} row */
  activate(row) {
    this.active = row;
    for (const node of this.nodes.values()) if (node.dataset.row) this.markActive(node, Number(node.dataset.row));
    if (row === null) this.body.removeAttribute("aria-activedescendant");
    else this.body.setAttribute("aria-activedescendant", `row-${row}`);
  }

  /** Marks a row and brings it into view, wherever it is. @param {number} row */
  jump(row) {
    this.held = row;
    this.activate(row);
    this.bringIn(row, 0.4);
    this.render();
    this.bringIn(row, 0.4);
  }

  /** The next row by so many; the divider is passed over. @param {number} by */
  step(by) {
    if (!this.items.length) return;
    const from = this.active === null ? this.nearestPlace(DIVIDER) : this.nearestPlace(this.active);
    let place = Math.min(Math.max(from + by, 0), this.items.length - 1);
    if (this.items[place] === DIVIDER) place += place + Math.sign(by) in this.items ? Math.sign(by) : -Math.sign(by);
    const row = this.items[place];
    if (row === undefined || row === DIVIDER) return;
    this.choose(row);
    this.keepInView(place);
  }

  /** @param {number} place */
  keepInView(place) {
    const [top, height] = [this.heights.top(place), this.heights.heights[place]];
    if (top < this.body.scrollTop) this.body.scrollTop = top;
    else if (top + height > this.body.scrollTop + this.body.clientHeight) this.body.scrollTop = top + height - this.body.clientHeight;
    this.render();
  }

  /** The shown row that is nearest to a moment, of one of these ranks where there are any. @param {number} at @param {(number | null)[] | null} ranks */
  rowNear(at, ranks) {
    const { times, speakers, speaker } = /** @type {Lines} */ (this.lines);
    let best = -1;
    for (const row of this.items) {
      if (row === DIVIDER || (ranks && !ranks.includes(speakers[speaker[row]].rank))) continue;
      if (best < 0 || Math.abs(times[row] - at) < Math.abs(times[best] - at)) best = row;
    }
    return best;
  }
}
