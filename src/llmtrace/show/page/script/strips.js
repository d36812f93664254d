// Measurements on the same axis: the culprit's curve against the band of the others.

const STRIP_PX = 64;
const PAD_PX = 7;

class Strips {
  /** @param {Axis} axis */
  constructor(axis) {
    this.axis = axis;
    this.box = element("strips");
    /** @type {{measured: Measured, canvas: HTMLCanvasElement, value: HTMLElement, scale: HTMLElement}[]} */
    this.rows = [];
  }

  /** @param {Scene} data */
  take(data) {
    this.rows = data.measured.map((measured) => stripRow(measured));
    this.box.replaceChildren(...this.rows.map((row) => /** @type {HTMLElement} */ (row.canvas.closest(".strip"))));
  }

  /** @param {Colours} colours */
  draw(colours) {
    for (const row of this.rows) drawStrip(row.measured, row.canvas, row.scale, this.axis, colours);
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

/** @param {Measured} measured @param {number | null} at @returns {Node[]} */
function valueWords(measured, at) {
  const { own, others, strip } = measured;
  const index = at === null ? own.times.length - 1 : nearest(own.times, at);
  if (index < 0) return [];
  const mine = made("span", "own", `${said(strip.who)}: ${spellValue(own.values[index], strip.unit)}`);
  mine.classList.toggle("odd", !Number.isFinite(own.values[index]));
  const beside = others ? nearest(others.times, own.times[index]) : -1;
  if (!others || beside < 0) return [mine];
  return [mine, made("span", "others", text("ui.others_median", { value: spellValue(others.middle[beside], strip.unit) }))];
}

/** @param {Measured} measured @param {HTMLCanvasElement} canvas @param {HTMLElement} scale @param {Axis} axis @param {Colours} colours */
function drawStrip(measured, canvas, scale, axis, colours) {
  const context = sized(canvas, axis.width, STRIP_PX);
  const range = rangeOf(measured, axis.view);
  /** @param {number} value */
  const y = (value) => STRIP_PX - PAD_PX - ((value - range.low) / (range.high - range.low)) * (STRIP_PX - 2 * PAD_PX);
  context.fillStyle = colours.faint;
  for (const level of [range.low, range.high]) context.fillRect(0, Math.round(y(level)), axis.width, 1);
  if (measured.others) drawBand(context, measured.others, axis, y, colours);
  drawCurve(context, measured.own, axis, y, colours.accent);
  drawOdd(context, measured.own, axis, colours);
  scale.replaceChildren(made("span", "high", spellValue(range.high, measured.strip.unit)), made("span", "low", spellValue(range.low, measured.strip.unit)));
}

/** Least and largest of what is in view; from zero where that costs little height. @param {Measured} measured @param {Stretch} view */
function rangeOf(measured, view) {
  const columns = measured.others ? [measured.others.low, measured.others.high] : [];
  const times = measured.others ? [measured.others.times, measured.others.times] : [];
  let [low, high] = [Infinity, -Infinity];
  [measured.own.values, ...columns].forEach((values, number) => {
    const at = number ? times[number - 1] : measured.own.times;
    const last = Math.min(values.length, placeOf(at, view.to) + 1);
    for (let index = Math.max(0, placeOf(at, view.from) - 1); index < last; index++) {
      if (values[index] < low) low = values[index];
      if (values[index] > high) high = values[index];
    }
  });
  if (!(low <= high)) return { low: 0, high: 1 };
  if (low > 0 && low < 0.6 * high) low = 0;
  return low === high ? { low: low - Math.abs(low || 1) / 10, high: high + Math.abs(high || 1) / 10 } : { low, high };
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
  context.setLineDash([3, 3]);
  drawCurve(context, { times: band.times, values: band.middle }, axis, y, colours.muted);
  context.setLineDash([]);
}

/** @param {CanvasRenderingContext2D} context @param {Curve} curve @param {Axis} axis @param {(value: number) => number} y @param {string} colour */
function drawCurve(context, curve, axis, y, colour) {
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
