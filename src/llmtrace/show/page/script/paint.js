// The closed phases of a lane as pixels: every column of the screen is one colour where steps can be told apart, and where they cannot, as many steps as
// are wide enough together are a stack of their phases' shares.

/** Below this many pixels a step, lanes show shares instead of single phases. */
const APART_PX = 4;
/** So wide is a stack of shares, at least. */
const STACK_PX = 4;

/** Whether steps are too narrow to be told apart: the same for all lanes, by the middle one. @param {Track[]} tracks @param {Axis} axis */
function inShares(tracks, axis) {
  const rhythm_us = middleOf(tracks.map((track) => track.rhythm_us).filter((length_us) => length_us > 0));
  return rhythm_us > 0 && axis.pixels(rhythm_us) < APART_PX;
}

/**
 * How much of each column went to each phase, `phases` numbers a column.
 * @param {Track} track @param {Axis} axis @param {number} columns @param {number} phases
 */
function columnShares(track, axis, columns, phases) {
  const shares = new Float32Array(columns * phases);
  const scale = columns / axis.span;
  const { starts, ends } = track;
  for (let index = placeOf(ends, axis.view.from); index < starts.length && starts[index] < axis.view.to; index++) {
    const phase = track.phases[index];
    if (phase >= 0) addShare(shares, (starts[index] - axis.view.from) * scale, (ends[index] - axis.view.from) * scale, columns, phases, phase);
  }
  return shares;
}

/** @param {Float32Array} shares @param {number} left @param {number} right @param {number} columns @param {number} phases @param {number} phase */
function addShare(shares, left, right, columns, phases, phase) {
  const from = Math.max(0, left);
  const to = Math.min(columns, right);
  const first = Math.floor(from);
  const last = Math.min(Math.floor(to), columns - 1);
  if (to <= from || first >= columns) return;
  if (first === last) {
    shares[first * phases + phase] += to - from;
    return;
  }
  shares[first * phases + phase] += first + 1 - from;
  shares[last * phases + phase] += to - last;
  for (let column = first + 1; column < last; column++) shares[column * phases + phase] += 1;
}

/**
 * One line of pixels: the phase that most of a column went to, as dense as the column is full.
 * @param {Float32Array} shares @param {Uint32Array} colours @param {Uint32Array} line @param {Set<number>} drawn
 */
function paintLine(shares, colours, line, drawn) {
  const phases = colours.length;
  for (let column = 0; column < line.length; column++) {
    let best = -1;
    let most = 0;
    let full = 0;
    for (let phase = 0; phase < phases; phase++) {
      const share = shares[column * phases + phase];
      full += share;
      if (share > most) [most, best] = [share, phase];
    }
    line[column] = best < 0 ? 0 : faded(colours[best], full);
    if (best >= 0) drawn.add(best);
  }
}

/** @param {number} colour @param {number} share */
function faded(colour, share) {
  return share >= 0.98 ? colour : ((Math.round(255 * Math.max(0.25, share)) << 24) | (colour & 0xffffff)) >>> 0;
}

/**
 * A lane's picture; `drawn` learns which phases are in it.
 * @param {Track} track @param {Axis} axis @param {Uint32Array} colours @param {number} columns @param {number} rows in device pixels
 * @param {boolean} stacked @param {Set<number>} drawn
 */
function lanePixels(track, axis, colours, columns, rows, stacked, drawn) {
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  if (stacked) {
    const scale = columns / axis.span;
    for (const stack of stacksOf(track, axis, colours.length)) paintStack(stack, (at) => (at - axis.view.from) * scale, colours, pixels, columns, rows, drawn);
  } else {
    paintLine(columnShares(track, axis, columns, colours.length), colours, pixels.subarray(0, columns), drawn);
    for (let row = 1; row < rows; row++) pixels.copyWithin(row * columns, 0, columns);
  }
  return image;
}

/** @typedef {{from: number, to: number, spent: Float64Array}} Stack steps that are drawn as one, and how long each phase took in them */

/**
 * The steps in view, so many together as are wide enough. Which ones are together depends on their number alone: panning does not regroup them.
 * @param {Track} track @param {Axis} axis @param {number} phases
 */
function* stacksOf(track, axis, phases) {
  const { begins, starts, ends, rhythm_us } = track;
  const together = Math.max(1, Math.ceil(STACK_PX / Math.max(1e-9, axis.pixels(rhythm_us))));
  const first = placeOf(begins, placeOf(ends, axis.view.from) + 1) - 1;
  for (let step = Math.max(0, first - (first % together)); step < begins.length && starts[begins[step]] < axis.view.to; step += together) {
    const last = step + together < begins.length ? begins[step + together] : starts.length;
    yield* stacksBetween(track, begins[step], last, axis.span / axis.width, phases);
  }
}

/**
 * One stack, or several where for more than a pixel nothing closed is there.
 * @param {Track} track @param {number} first @param {number} last @param {number} pixel_us @param {number} phases
 */
function* stacksBetween(track, first, last, pixel_us, phases) {
  /** @type {Stack | null} */
  let stack = null;
  for (let index = first; index < last; index++) {
    if (track.phases[index] < 0) continue;
    if (stack && track.starts[index] - stack.to > pixel_us) {
      yield stack;
      stack = null;
    }
    stack ??= { from: track.starts[index], to: 0, spent: new Float64Array(phases) };
    stack.to = track.ends[index];
    stack.spent[track.phases[index]] += track.ends[index] - track.starts[index];
  }
  if (stack) yield stack;
}

/**
 * Each phase as high as its share of the stack's time.
 * @param {Stack} stack @param {(at: number) => number} column @param {Uint32Array} colours @param {Uint32Array} pixels
 * @param {number} columns @param {number} rows @param {Set<number>} drawn
 */
function paintStack(stack, column, colours, pixels, columns, rows, drawn) {
  const left = Math.max(0, Math.round(column(stack.from)));
  const right = Math.min(columns, Math.max(Math.round(column(stack.to)), Math.round(column(stack.from)) + 1));
  let below = 0;
  for (let phase = 0; phase < colours.length; phase++) {
    const next = below + stack.spent[phase] / (stack.to - stack.from);
    const [top, bottom] = [Math.round((1 - Math.min(1, next)) * rows), Math.round((1 - Math.min(1, below)) * rows)];
    for (let row = top; row < bottom; row++) pixels.fill(colours[phase], row * columns + left, row * columns + Math.max(left, right));
    if (bottom > top && right > left) drawn.add(phase);
    below = next;
  }
}
