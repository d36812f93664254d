// Every rank's lines in one table, of which only what is in view is made of elements.

/** The place of the divider among the rows. */
const DIVIDER = -1;
const LINE_PX = 20;
const ROW_PAD_PX = 4;
const AROUND_PX = 400;
const CLAMPED_LINES = 3;
/** So many rows before and after the zero are printed. */
const PRINTED = 60;
/** Where a row stands that is jumped to. */
const JUMP_SHARE = 0.4;
/** What is said below the last row needs so much room. */
const END_PX = 40;

class LogTable {
  /** @param {Axis} axis */
  constructor(axis) {
    this.axis = axis;
    this.body = element("log-body");
    this.space = element("log-space");
    this.box = element("log-rows");
    this.more = element("log-more");
    this.end = element("log-end");
    /** Room below the last row, so that the onset can stand where it does when the table opens. */
    this.tail = 0;
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
    this.more.addEventListener("click", () => this.page());
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
    if (this.held !== null) this.bringIn(this.held, JUMP_SHARE);
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
    const lines = this.unfolded.has(row) ? wholeLines(words, this.columns) + 1 : Math.min(CLAMPED_LINES, Math.ceil(Math.max(1, words.length) / this.columns));
    return (lines + (this.narrow ? 1 : 0)) * LINE_PX + ROW_PAD_PX;
  }

  resized() {
    if (!this.lines || this.printing) return;
    const [kept, columns] = [this.anchorRow(), this.columns];
    this.measureColumns();
    if (columns !== this.columns) {
      this.layOut();
      if (kept !== null) this.bringIn(kept, JUMP_SHARE);
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
    return this.items[this.heights.rowAt(this.body.scrollTop + this.body.clientHeight * JUMP_SHARE)];
  }

  /** @param {number} row */
  placeOfRow(row) {
    return this.items.indexOf(row);
  }

  /**
   * Scrolls so that a row, or the nearest one in time, is at this share of the height, and the first row is whole.
   * @param {number} row @param {number} share
   */
  bringIn(row, share) {
    const place = this.nearestPlace(row);
    if (place < 0) return;
    this.spread();
    const top = this.heights.top(place) - this.body.clientHeight * share;
    this.body.scrollTop = this.heights.top(this.heights.firstFrom(top));
  }

  /** Gives the rows their room. */
  spread() {
    this.space.style.height = `${this.heights.total + this.tail}px`;
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
    this.spread();
    this.box.style.transform = `translateY(${this.heights.top(first)}px)`;
    const settled = this.heights.top(anchor) + into;
    if (Math.abs(settled - top) > 1) this.body.scrollTop = settled;
    this.writeMore();
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

  /** Where the table opens: the onset with a few rows before it and as many after it as there is room for, else the end; every row is whole. */
  open() {
    const page = this.data?.page;
    if (!page) return;
    this.held = null;
    this.unfit();
    const row = page.zero_is_onset ? DIVIDER : this.items[this.items.length - 1];
    for (let turn = 0; turn < 2; turn++) {
      this.bringIn(row, page.zero_is_onset ? ONSET_SHARE : 1);
      this.render();
    }
    if (!this.items.length) return;
    const most = this.body.clientHeight;
    const fit = page.zero_is_onset ? fitOnset(this.heights, Math.max(0, this.nearestPlace(DIVIDER)), most) : fitEnd(this.heights, most);
    this.body.style.setProperty("--log", `${fit.height}px`);
    this.tail = fit.tail;
    this.spread();
    this.body.scrollTop = fit.top;
    this.render();
  }

  /** As high as the style sheet says. */
  unfit() {
    this.tail = 0;
    this.body.style.removeProperty("--log");
  }

  /** How many rows are below what is in view; where the last one is cut, it fades. */
  writeMore() {
    const bottom = this.body.scrollTop + this.body.clientHeight;
    const below = this.heights.hiddenFrom(bottom);
    const count = this.items.length - below - (this.items.indexOf(DIVIDER, below) < 0 ? 0 : 1);
    this.more.classList.toggle("none", count <= 0);
    this.more.textContent = text(count === 1 ? "ui.one_below" : "ui.below", { count });
    element("log").classList.toggle("cut", below < this.items.length && this.heights.top(below) < bottom - 1);
    this.end.hidden = this.tail < END_PX;
    this.end.style.top = `${this.heights.total}px`;
    this.end.textContent = text("ui.nothing_after", { after: spellAfter(this.data ? this.data.page.end_us : 0) });
  }

  /** Goes on below. */
  page() {
    this.held = null;
    this.body.scrollTop = this.heights.top(Math.min(this.items.length - 1, this.heights.hiddenFrom(this.body.scrollTop + this.body.clientHeight)));
    this.render();
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
    const { times, severity, speakers, speaker, texts, event, effect } = /** @type {Lines} */ (this.lines);
    const who = speakers[speaker[row]];
    const node = made("div", `row ${levelKind(severity[row])}`);
    node.id = `row-${row}`;
    node.dataset.row = String(row);
    node.classList.toggle("culprit", who.culprit);
    node.classList.toggle("event", event[row] === 1);
    node.classList.toggle("effect", effect[row] === 1);
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
    return saidCell(words, event, this.unfolded.has(row), CLAMPED_LINES * this.columns, () => this.toggle(row));
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
    this.bringIn(row, JUMP_SHARE);
    this.render();
    this.bringIn(row, JUMP_SHARE);
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
    return nearestRow(/** @type {Lines} */ (this.lines), this.items, at, ranks);
  }
}
