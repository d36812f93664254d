// Heights of many rows, some guessed and some measured: where a row begins and which one is at a height, both in logarithmic time (a Fenwick tree).

class Heights {
  /** @param {Float64Array} heights */
  constructor(heights) {
    this.heights = heights;
    this.tree = new Float64Array(heights.length + 1);
    for (let index = 1; index <= heights.length; index++) {
      this.tree[index] += heights[index - 1];
      const parent = index + (index & -index);
      if (parent <= heights.length) this.tree[parent] += this.tree[index];
    }
  }

  get count() {
    return this.heights.length;
  }

  get total() {
    return this.top(this.count);
  }

  /** Where a row begins. @param {number} row */
  top(row) {
    let sum = 0;
    for (let index = row; index > 0; index -= index & -index) sum += this.tree[index];
    return sum;
  }

  /** @param {number} row @param {number} height */
  set(row, height) {
    const change = height - this.heights[row];
    if (!change) return;
    this.heights[row] = height;
    for (let index = row + 1; index < this.tree.length; index += index & -index) this.tree[index] += change;
  }

  /** The row that is at a height. @param {number} y */
  rowAt(y) {
    let place = 0;
    let left = y;
    for (let step = 2 ** Math.floor(Math.log2(Math.max(1, this.count))); step >= 1; step /= 2) {
      if (place + step <= this.count && this.tree[place + step] <= left) {
        place += step;
        left -= this.tree[place];
      }
    }
    return Math.min(place, this.count - 1);
  }
  /** The first row that begins at this height or below it. @param {number} top */
  firstFrom(top) {
    if (top <= 0) return 0;
    const row = this.rowAt(top);
    return this.top(row) < top - 1 ? Math.min(row + 1, this.count - 1) : row;
  }

  /** The first row that is not wholly above a height. @param {number} bottom */
  hiddenFrom(bottom) {
    if (bottom >= this.total - 1) return this.count;
    const row = this.rowAt(bottom - 1);
    return this.top(row) + this.heights[row] > bottom + 1 ? row : row + 1;
  }
}

/** Where the onset stands when the table opens, of its height. */
const ONSET_SHARE = 0.24;
/** The table is as high as what followed the onset needs, and this high at least. */
const LEAST_PX = 320;

/** @typedef {{top: number, height: number, tail: number}} Fit where a table begins, how high it is, and how much room is below its last row */

/**
 * Room for what followed the onset, whole rows above and below.
 * @param {Heights} heights @param {number} onset its place @param {number} most @returns {Fit}
 */
function fitOnset(heights, onset, most) {
  const at = heights.top(onset);
  const height = Math.min(most, Math.max(LEAST_PX, Math.ceil((heights.total - at) / (1 - ONSET_SHARE))));
  const top = heights.top(heights.firstFrom(at - height * ONSET_SHARE));
  const last = heights.hiddenFrom(top + height);
  if (last < heights.count) return { top, height: heights.top(last) - top, tail: 0 };
  return { top, height, tail: Math.max(0, top + height - heights.total) };
}

/** The last rows that are whole. @param {Heights} heights @param {number} most @returns {Fit} */
function fitEnd(heights, most) {
  const top = heights.top(heights.firstFrom(heights.total - most));
  return { top, height: Math.max(LEAST_PX / 2, heights.total - top), tail: 0 };
}
