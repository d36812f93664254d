// The picture as a whole: ruler, overview, lines through lanes and strips, and a draw at most once a frame.

const OVERVIEW_PX = 26;

class Picture {
  /** @param {Axis} axis */
  constructor(axis) {
    this.axis = axis;
    this.box = element("picture");
    this.lanes = new Lanes(axis);
    this.strips = new Strips(axis);
    this.over = element("over");
    this.ruler = new Ruler(axis);
    this.legend = new Legend();
    this.overview = canvasById("overview");
    this.brush = element("brush");
    this.measure = element("overview-box");
    this.pending = false;
    /** @type {() => void} after a complete draw */
    this.onDrawn = () => {};
    /** @type {() => void} */
    this.onResized = () => {};
    this.lanes.onLayout = () => this.ask();
    axis.listeners.push((what) => (what === "cursor" ? this.drawCursor() : this.ask()));
    new ResizeObserver(() => this.measure.clientWidth !== this.axis.width && this.resize()).observe(this.box);
  }

  /** @param {Scene} data */
  take(data) {
    this.data = data;
    this.colours = coloursOf(data.page);
    this.lanes.take(data);
    this.strips.take(data);
    this.box.classList.toggle("no-notes", !data.page.lanes.some((lane) => lane.notes.length));
    this.legend.forget();
    this.resize();
  }

  recolour() {
    if (this.data) this.colours = coloursOf(this.data.page);
    this.legend.forget();
    this.ask();
  }

  resize() {
    const plot = Math.max(60, this.measure.clientWidth);
    this.box.style.setProperty("--plot", `${plot}px`);
    this.axis.width = plot;
    this.lanes.layOut();
    this.ruler.measure();
    this.onResized();
    this.draw();
  }

  /** A draw with the next frame. */
  ask() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.pending = false;
    if (!this.data || !this.colours) return;
    this.ruler.draw(this.data.page);
    const bad = this.drawOverview();
    this.lanes.draw(this.colours);
    this.strips.draw(this.colours);
    this.drawLines();
    this.drawCursor();
    this.legend.draw(this.data.page, this.lanes.drawn, this.colours, this.axis, bad);
    this.onDrawn();
  }

  /** Every line of the window, the bad ones in red; the brush is what is in view. Tells whether there are lines, and bad ones. */
  drawOverview() {
    if (!this.data || !this.colours) return { lines: false, bad: false };
    const { width } = this.axis;
    const context = sized(this.overview, width, OVERVIEW_PX);
    const { from, to } = this.axis.window;
    const counts = this.density(Math.ceil(width / 3), from, to);
    const most = Math.log1p(Math.max(1, ...counts.all));
    /** @param {Uint32Array} column_counts @param {string} colour */
    const bars = (column_counts, colour) => {
      context.fillStyle = colour;
      column_counts.forEach((count, column) => {
        const height = count ? Math.max(2, (Math.log1p(count) / most) * (OVERVIEW_PX - 6)) : 0;
        context.fillRect(column * 3, OVERVIEW_PX - 1 - height, 2.2, height);
      });
    };
    bars(counts.all, this.colours.idle);
    bars(counts.bad, this.colours.bad);
    const scale = width / (to - from);
    this.brush.style.left = `${(this.axis.view.from - from) * scale}px`;
    this.brush.style.width = `${Math.max(4, this.axis.span * scale)}px`;
    return { lines: this.data.lines.count > 0, bad: counts.bad.some((count) => count > 0) };
  }

  /** @param {number} columns @param {number} from @param {number} to */
  density(columns, from, to) {
    const [all, bad] = [new Uint32Array(columns), new Uint32Array(columns)];
    const { times, severity, count } = /** @type {Scene} */ (this.data).lines;
    for (let row = 0; row < count; row++) {
      const column = Math.min(columns - 1, Math.max(0, Math.floor(((times[row] - from) / (to - from)) * columns)));
      all[column]++;
      if (severity[row] >= 17) bad[column]++;
    }
    return { all, bad };
  }

  drawLines() {
    if (!this.data) return;
    const { page } = this.data;
    const { axis } = this;
    placeLine("line-zero", 0, axis);
    element("line-zero").classList.toggle("onset", page.zero_is_onset);
    placeLine("line-detected", page.detected_us, axis);
    placeLine("line-mark", axis.marked, axis);
    const box = element("box-selection");
    box.hidden = axis.selection === null;
    if (!axis.selection) return;
    const [left, right] = [Math.max(-2, axis.x(axis.selection.from)), Math.min(axis.width + 2, axis.x(axis.selection.to))];
    box.style.left = `${left}px`;
    box.style.width = `${Math.max(1, right - left)}px`;
    box.hidden = right < 0 || left > axis.width;
  }

  drawCursor() {
    placeLine("line-cursor", this.axis.cursor, this.axis);
    this.strips.drawValues();
    const at = this.axis.cursor;
    const node = element("cursor-time");
    node.hidden = at === null;
    if (at === null) return;
    node.textContent = `${spellOffset(at)} s \u00b7 ${spellClock(this.axis.zero_ms + at / 1000)}`;
    node.style.left = `${Math.min(Math.max(this.axis.x(at), 76), this.axis.width - 76)}px`;
  }
}

/** @param {string} id @param {number | null} at @param {Axis} axis */
function placeLine(id, at, axis) {
  const node = element(id);
  const x = at === null ? -1 : axis.x(at);
  node.hidden = x < -0.5 || x > axis.width + 0.5;
  if (node.hidden) return;
  node.style.transform = `translateX(${x}px)`;
}
