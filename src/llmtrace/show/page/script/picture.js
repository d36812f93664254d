// The picture as a whole: ruler, overview, lines through lanes and strips, and a draw at most once a frame.

const OVERVIEW_PX = 26;
const RULER_PX = 22;
/** So near to the zero no other tick is written. */
const ZERO_ROOM_PX = 46;

class Picture {
  /** @param {Axis} axis */
  constructor(axis) {
    this.axis = axis;
    this.box = element("picture");
    this.lanes = new Lanes(axis);
    this.strips = new Strips(axis);
    this.over = element("over");
    this.ruler = element("ruler-plot");
    this.overview = canvasById("overview");
    this.brush = element("brush");
    this.measure = element("overview-box");
    this.pending = false;
    /** @type {() => void} after a complete draw */
    this.onDrawn = () => {};
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
    drawLegend(data);
    this.resize();
  }

  recolour() {
    if (this.data) this.colours = coloursOf(this.data.page);
    this.ask();
  }

  resize() {
    const plot = Math.max(60, this.measure.clientWidth);
    this.box.style.setProperty("--plot", `${plot}px`);
    this.axis.width = plot;
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
    this.drawRuler();
    this.drawOverview();
    this.lanes.draw(this.colours);
    this.strips.draw(this.colours);
    this.drawLines();
    this.drawCursor();
    element("legend-share").hidden = !this.data.tracks.some((track) => inShares(track, this.axis));
    this.onDrawn();
  }

  drawRuler() {
    if (!this.data) return;
    const zero = made("span", `tick zero ${this.data.page.zero_is_onset ? "onset" : ""}`, zeroWords(this.data.page));
    zero.style.left = `${this.axis.x(0)}px`;
    const away = ticks(this.axis, 84).filter((at) => Math.abs(this.axis.x(at) - this.axis.x(0)) > ZERO_ROOM_PX);
    const nodes = away.map((at) => {
      const node = made("span", "tick", tickWords(at));
      node.style.left = `${this.axis.x(at)}px`;
      return node;
    });
    const inside = this.axis.x(0) >= -1 && this.axis.x(0) <= this.axis.width + 1;
    this.ruler.replaceChildren(...nodes, ...(inside ? [zero] : []));
  }

  /** Every line of the window, the bad ones in red; the brush is what is in view. */
  drawOverview() {
    if (!this.data || !this.colours) return;
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
  node.classList.toggle("late", x > axis.width - 64);
}

/** Only what occurs. @param {Scene} data */
function drawLegend(data) {
  const found = occurring(data.tracks);
  const variables = phaseVariables(data.page);
  const entries = data.page.phases.flatMap((phase, index) => (found.phases.has(index) ? [legendEntry(said(phase.words), swatch(variables[index]))] : []));
  if (found.open) entries.push(legendEntry(text("ui.legend_open"), made("span", "swatch open")));
  const marks = ["started", "failed", "died", "clean"].filter((kind) => found.marks.has(kind));
  entries.push(...marks.map((kind) => legendEntry(text(`ui.mark_${kind}`), sign(`mark-${kind}`, kind))));
  entries.push(legendEntry(text("ui.legend_idle"), made("span", "swatch idle")));
  if (data.page.strips.some((strip) => strip.others)) entries.push(legendEntry(text("ui.legend_band"), made("span", "swatch band")));
  const shares = legendEntry(text("ui.legend_share"), made("span", "swatch shares"));
  shares.id = "legend-share";
  element("legend").replaceChildren(...entries, shares);
}

/** @param {string} words @param {Element} picture */
function legendEntry(words, picture) {
  const node = made("li");
  node.append(picture, made("span", "", words));
  return node;
}

/** @param {string} variable */
function swatch(variable) {
  const node = made("span", "swatch");
  node.style.background = `var(--${variable})`;
  return node;
}

/** @param {Track[]} tracks */
function occurring(tracks) {
  const phases = new Set();
  const marks = new Set();
  let open = false;
  for (const track of tracks) {
    for (const phase of track.phases) {
      phases.add(phase < 0 ? -1 - phase : phase);
      if (phase < 0) open = true;
    }
    for (const mark of track.lane.marks) marks.add(mark.kind);
  }
  return { phases, marks, open };
}
