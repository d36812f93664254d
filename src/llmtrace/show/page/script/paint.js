// The closed phases of a lane as pixels: every column of the screen is one colour where steps can be told apart, and shares of the time where they cannot.

/** Below this many pixels a step, a lane shows shares instead of single phases. */
const APART_PX = 4;

/** Whether steps are too narrow to be told apart. @param {Track} track @param {Axis} axis */
function inShares(track, axis) {
  return track.rhythm_us > 0 && (track.rhythm_us / axis.span) * axis.width < APART_PX;
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
 * Each column averaged over `reach` columns around it; where a column is empty it stays so: gaps and ends are as sharp as they are.
 * @param {Float32Array} shares @param {number} columns @param {number} phases @param {number} reach
 */
function smoothed(shares, columns, phases, reach) {
  const result = new Float32Array(shares.length);
  const sums = new Float64Array(columns + 1);
  for (let phase = 0; phase < phases; phase++) {
    for (let column = 0; column < columns; column++) sums[column + 1] = sums[column] + shares[column * phases + phase];
    for (let column = 0; column < columns; column++) {
      const [from, to] = [Math.max(0, column + 0.5 - reach / 2), Math.min(columns, column + 0.5 + reach / 2)];
      result[column * phases + phase] = (between(sums, to) - between(sums, from)) / (to - from);
    }
  }
  for (let column = 0; column < columns; column++) refill(result, shares, column * phases, phases);
  return result;
}

/** A sum up to a place between two columns. @param {Float64Array} sums @param {number} at */
function between(sums, at) {
  const before = Math.floor(at);
  return before >= sums.length - 1 ? sums[sums.length - 1] : sums[before] + (at - before) * (sums[before + 1] - sums[before]);
}

/**
 * Makes an averaged column as full as it was; one that was at least half full, as full as its neighbours.
 * @param {Float32Array} averaged @param {Float32Array} shares @param {number} from @param {number} phases
 */
function refill(averaged, shares, from, phases) {
  let [now, was] = [0, 0];
  for (let phase = from; phase < from + phases; phase++) [now, was] = [now + averaged[phase], was + shares[phase]];
  const factor = now > 0 ? (was >= 0.5 ? Math.min(1, Math.max(was, now)) : was) / now : 0;
  for (let phase = from; phase < from + phases; phase++) averaged[phase] *= factor;
}

/**
 * One line of pixels: the phase that most of a column went to, as dense as the column is full.
 * @param {Float32Array} shares @param {Uint32Array} colours @param {Uint32Array} line
 */
function paintLine(shares, colours, line) {
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
  }
}

/** @param {number} colour @param {number} share */
function faded(colour, share) {
  return share >= 0.98 ? colour : ((Math.round(255 * Math.max(0.25, share)) << 24) | (colour & 0xffffff)) >>> 0;
}

/** A lane's picture. @param {Track} track @param {Axis} axis @param {Uint32Array} colours @param {number} columns @param {number} rows in device pixels */
function lanePixels(track, axis, colours, columns, rows) {
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const shares = columnShares(track, axis, columns, colours.length);
  const step = (track.rhythm_us / axis.span) * columns;
  if (inShares(track, axis)) paintStacks(smoothed(shares, columns, colours.length, Math.max(2, 2 * step)), colours, pixels, columns, rows);
  else {
    paintLine(shares, colours, pixels.subarray(0, columns));
    for (let row = 1; row < rows; row++) pixels.copyWithin(row * columns, 0, columns);
  }
  return image;
}

/**
 * Every column as a stack: each phase as high as its share.
 * @param {Float32Array} shares @param {Uint32Array} colours @param {Uint32Array} pixels @param {number} columns @param {number} rows
 */
function paintStacks(shares, colours, pixels, columns, rows) {
  for (let column = 0; column < columns; column++) {
    let below = 0;
    for (let phase = 0; phase < colours.length; phase++) {
      const next = below + shares[column * colours.length + phase];
      const [top, bottom] = [Math.round((1 - Math.min(1, next)) * rows), Math.round((1 - Math.min(1, below)) * rows)];
      for (let row = top; row < bottom; row++) pixels[row * columns + column] = colours[phase];
      below = next;
    }
  }
}
