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
}
