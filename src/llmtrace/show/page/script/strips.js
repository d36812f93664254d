// Measurements on the same axis: the culprit's curve against the other rank's, or against the band of the others.

const STRIP_PX = 76;
/** Room above and below for half a label: the numbers of two strips do not read as one scale. */
const PAD_PX = 14;
/** So much of its value a strip shows at least: less is noise, not a rise. */
const LEAST_SPAN = 0.05;
/** Units of what is sampled and holds until the next sample; lengths of steps and what the user logs belong to their step. */
const HELD = new Set(["bytes", "bytes_per_second", "ratio", "celsius", "watts", "hertz"]);

class Strips {
  /** @param {Axis} axis */
  constructor(axis) {
    this.axis = axis;
    this.box = element("strips");
    this.legend = element("curves");
    /** @type {{measured: Measured, canvas: HTMLCanvasElement, value: HTMLElement, scale: HTMLElement}[]} */
    this.rows = [];
  }

  /** @param {Scene} data */
  take(data) {
    this.rows = data.measured.map((measured) => stripRow(measured));
    this.box.replaceChildren(...this.rows.map((row) => /** @type {HTMLElement} */ (row.canvas.closest(".strip"))));
    const guilty = data.page.lanes.some((lane) => lane.culprit);
    element("strips-part").classList.toggle("guilty", guilty);
    this.guilty = guilty;
    this.ends = new Map(data.tracks.map((track) => [said(track.lane.label), track.lane.end_us ?? data.page.end_us]));
    this.legend.replaceChildren(...curveEntries(data.page.strips));
  }

  /** @param {Colours} colours */
  draw(colours) {
    const own = this.guilty ? colours.bad : colours.ink;
    for (const row of this.rows) drawStrip(row.measured, row.canvas, row.scale, this.axis, { ...colours, own }, this.ends || new Map());
    this.drawValues();
  }

  /** The values under the pointer, else the last ones. */
  drawValues() {
    for (const row of this.rows) row.value.replaceChildren(...valueWords(row.measured, this.axis.cursor));
  }
}

/** @param {Measured} measured */
function stripRow(measured) {
  const node = made("div", "strip");
  const label = made("div", "strip-name");
  const value = made("div", "strip-value");
  label.append(made("span", "strip-title", said(measured.strip.label)), value);
  const canvas = made("canvas", "plot");
  const scale = made("div", "strip-scale");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${said(measured.strip.label)}, ${said(measured.strip.who)}`);
  node.append(label, canvas, scale);
  return { measured, canvas, value, scale };
}

/** Whose a curve is, of all strips. @param {Strip[]} strips @returns {HTMLElement[]} */
function curveEntries(strips) {
  /** @param {Words[]} words */
  const once = (words) => [...new Set(words.map(said))].join(", ");
  const entries = strips.length ? [legendEntry(once(strips.map((strip) => strip.who)), made("span", "swatch curve own"))] : [];
  const single = strips.filter((strip) => strip.other);
  if (single.length) entries.push(legendEntry(once(single.map((strip) => strip.other_who)), made("span", "swatch curve")));
  if (strips.some((strip) => strip.others)) entries.push(legendEntry(text("ui.legend_band"), made("span", "swatch band")));
  return entries;
}

/** @param {Measured} measured @param {number | null} at @returns {Node[]} */
function valueWords(measured, at) {
  const { own, other, others, strip } = measured;
  const mine = valueAt(own.times, own.values, at);
  if (mine === null) return [];
  const key = at === null ? "ui.last_value" : "ui.value";
  const words = made("span", "own", text(key, { who: strip.who, value: spellValue(mine, strip.unit) }));
  words.classList.toggle("odd", !Number.isFinite(mine));
  const beside = other ? valueAt(other.times, other.values, at) : others ? valueAt(others.times, others.middle, at) : null;
  if (beside === null) return [words];
  const value = spellValue(beside, strip.unit);
  return [words, made("span", "others", other ? text(key, { who: strip.other_who, value }) : text("ui.others_median", { value }))];
}

/**
 * The value nearest to a moment, else the last; null where there is none.
 * @param {Float64Array} times @param {Float64Array} values @param {number | null} at
 */
function valueAt(times, values, at) {
  const index = at === null ? times.length - 1 : nearest(times, at);
  return index < 0 ? null : values[index];
}

/**
 * @param {Measured} measured @param {HTMLCanvasElement} canvas @param {HTMLElement} scale @param {Axis} axis @param {Colours & {own: string}} colours
 * @param {Map<string, number>} ends when each rank ended, by its words
 */
function drawStrip(measured, canvas, scale, axis, colours, ends) {
  const context = sized(canvas, axis.width, STRIP_PX);
  const { own, other, others, strip } = measured;
  const range = rangeOf(measured, axis.view);
  /** @param {number} value */
  const y = (value) => STRIP_PX - PAD_PX - ((value - range.low) / (range.high - range.low)) * (STRIP_PX - 2 * PAD_PX);
  drawGrid(context, [y(range.low), y(range.high)], axis.width, colours);
  if (others) drawBand(context, others, axis, y, colours);
  /** @param {Words} who */
  const until = (who) => (HELD.has(strip.unit) ? ends.get(said(who)) : undefined);
  if (other) drawCurve(context, other, axis, y, colours.muted, until(strip.other_who));
  drawCurve(context, own, axis, y, colours.own, until(strip.who));
  drawOdd(context, own, axis, colours);
  scale.replaceChildren(made("span", "high", spellValue(range.high, strip.unit)), made("span", "low", spellValue(range.low, strip.unit)));
}

/** @param {CanvasRenderingContext2D} context @param {number[]} heights @param {number} width @param {Colours} colours */
function drawGrid(context, heights, width, colours) {
  context.strokeStyle = colours.idle;
  context.lineWidth = 1;
  context.setLineDash([1, 3]);
  context.beginPath();
  for (const height of heights) strokes(context, [[0, Math.round(height) + 0.5, width, Math.round(height) + 0.5]]);
  context.stroke();
  context.setLineDash([]);
}

/**
 * Least and largest of what is in view; from zero where that costs little height, and never so narrow that noise fills it.
 * @param {Measured} measured @param {Stretch} view
 */
function rangeOf(measured, view) {
  const { own, other, others } = measured;
  let [low, high] = [Infinity, -Infinity];
  /** @param {Float64Array} times @param {Float64Array} values */
  const widen = (times, values) => {
    const last = Math.min(values.length, placeOf(times, view.to) + 1);
    for (let index = Math.max(0, placeOf(times, view.from) - 1); index < last; index++) {
      if (values[index] < low) low = values[index];
      if (values[index] > high) high = values[index];
    }
  };
  widen(own.times, own.values);
  if (other) widen(other.times, other.values);
  if (others) widen(others.times, others.low);
  if (others) widen(others.times, others.high);
  if (!(low <= high)) return { low: 0, high: 1 };
  if (low > 0 && low < 0.6 * high) low = 0;
  const short = LEAST_SPAN * Math.max(Math.abs(low), Math.abs(high)) - (high - low);
  if (low === 0 && high === 0) return { low: 0, high: 1 };
  return short > 0 ? { low: low - short / 2, high: high + short / 2 } : { low, high };
}

/** @param {CanvasRenderingContext2D} context @param {Envelope} band @param {Axis} axis @param {(value: number) => number} y @param {Colours} colours */
function drawBand(context, band, axis, y, colours) {
  const first = Math.max(0, placeOf(band.times, axis.view.from) - 1);
  const last = Math.min(band.times.length, placeOf(band.times, axis.view.to) + 1);
  context.beginPath();
  for (let index = first; index < last; index++) if (Number.isFinite(band.high[index])) context.lineTo(axis.x(band.times[index]), y(band.high[index]));
  for (let index = last - 1; index >= first; index--) if (Number.isFinite(band.low[index])) context.lineTo(axis.x(band.times[index]), y(band.low[index]));
  context.closePath();
  context.fillStyle = colours.band;
  context.fill();
  context.strokeStyle = colours.idle;
  context.lineWidth = 1;
  context.stroke();
  context.setLineDash([3, 3]);
  drawCurve(context, { times: band.times, values: band.middle }, axis, y, colours.muted);
  context.setLineDash([]);
}

/**
 * @param {CanvasRenderingContext2D} context @param {Curve} curve @param {Axis} axis @param {(value: number) => number} y @param {string} colour
 * @param {number} [until] to where the last value is held, dotted
 */
function drawCurve(context, curve, axis, y, colour, until) {
  const last = Math.min(curve.times.length, placeOf(curve.times, axis.view.to) + 1);
  context.beginPath();
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.lineJoin = "round";
  let drawing = false;
  for (let index = Math.max(0, placeOf(curve.times, axis.view.from) - 1); index < last; index++) {
    if (Number.isFinite(curve.values[index])) {
      const [x, height] = [axis.x(curve.times[index]), y(curve.values[index])];
      if (drawing) context.lineTo(x, height);
      else context.moveTo(x, height);
    }
    drawing = Number.isFinite(curve.values[index]);
  }
  context.stroke();
  if (drawing && until !== undefined && last === curve.times.length && until > curve.times[last - 1]) {
    context.beginPath();
    context.setLineDash([1, 4]); // nobody measured it any more
    context.moveTo(axis.x(curve.times[last - 1]), y(curve.values[last - 1]));
    context.lineTo(axis.x(until), y(curve.values[last - 1]));
    context.stroke();
    context.setLineDash([]);
  }
  drawPoints(context, curve, axis, y, colour);
}

/**
 * Single values as dots where they are few.
 * @param {CanvasRenderingContext2D} context @param {Curve} curve @param {Axis} axis @param {(value: number) => number} y
 * @param {string} colour
 */
function drawPoints(context, curve, axis, y, colour) {
  const [first, last] = [placeOf(curve.times, axis.view.from), placeOf(curve.times, axis.view.to)];
  if (last - first > axis.width / 12) return;
  context.fillStyle = colour;
  for (let index = first; index < last; index++) {
    if (!Number.isFinite(curve.values[index])) continue;
    context.beginPath();
    context.arc(axis.x(curve.times[index]), y(curve.values[index]), 1.9, 0, 2 * Math.PI);
    context.fill();
  }
}

/**
 * What is no finite number: a red tick with a word, as there is no height for it.
 * @param {CanvasRenderingContext2D} context @param {Curve} curve @param {Axis} axis @param {Colours} colours
 */
function drawOdd(context, curve, axis, colours) {
  let written = -Infinity;
  context.fillStyle = colours.bad;
  context.font = "600 10px sans-serif";
  for (let index = placeOf(curve.times, axis.view.from); index < curve.times.length && curve.times[index] <= axis.view.to; index++) {
    if (Number.isFinite(curve.values[index])) continue;
    const x = axis.x(curve.times[index]);
    context.fillRect(x - 0.75, PAD_PX, 1.5, STRIP_PX - 2 * PAD_PX);
    if (x - written > 40) context.fillText("NaN", x > axis.width - 30 ? x - 27 : x + 4, PAD_PX + 9);
    if (x - written > 40) written = x;
  }
}
