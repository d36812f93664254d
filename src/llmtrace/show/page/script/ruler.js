// What is written above the picture: the zero, the detection, and as many ticks as there is room for, on both sides of the zero where it can be.

/** Pixels between ticks, at least; the first that leaves none of the sides without one is taken. */
const APARTS_PX = [84, 64, 48];
/** So many numbers make a scale. */
const LEAST_TICKS = 2;
/** Between the words of two ticks. */
const BETWEEN_PX = 8;
/** So far words may reach beyond the plot. */
const BESIDE_PX = 6;
/** A side that is narrower than this needs no tick. */
const SIDE_PX = 50;

/** @typedef {{at: number, kind: string, words: string, left: number, right: number}} Tick */

class Ruler {
  /** @param {Axis} axis */
  constructor(axis) {
    this.axis = axis;
    this.box = element("ruler-plot");
    this.room = BESIDE_PX;
    this.font = "12px sans-serif";
  }

  /** The font, and how far the detection's words may reach to the right, over the notes. */
  measure() {
    this.font = `600 12px ${getComputedStyle(this.box).fontFamily}`;
    const [row, plot] = [element("ruler").getBoundingClientRect(), this.box.getBoundingClientRect()];
    this.room = Math.max(BESIDE_PX, row.right - plot.right);
  }

  /** @param {Page} page */
  draw(page) {
    const zero = this.isSeen(0) ? [this.tick(0, `zero ${page.zero_is_onset ? "onset" : ""}`, zeroWords(page), 14)] : [];
    const fixed = [...zero, ...this.detection(page, zero)];
    const numbers = this.numbers(fixed);
    const ticks = numbers.length >= LEAST_TICKS ? [...numbers, ...fixed] : [...this.numbers(zero), ...zero];
    this.box.replaceChildren(...ticks.map((tick) => this.node(tick)));
  }

  /**
   * When it was detected, beside the zero that it is told apart from; where that leaves no room for numbers, the legend alone says it.
   * @param {Page} page @param {Tick[]} zero @returns {Tick[]}
   */
  detection(page, [zero]) {
    if (page.detected_us === null || !this.isSeen(page.detected_us)) return [];
    const detected = this.tick(page.detected_us, "detected", text("ui.detected"), 2);
    if (zero && detected.left < zero.right + BETWEEN_PX) shift(detected, zero.right + BETWEEN_PX - detected.left);
    return detected.right > this.axis.width + this.room ? [] : [detected];
  }

  /** @param {Tick[]} fixed */
  numbers(fixed) {
    /** @type {Tick[]} */
    let found = [];
    for (const apart of APARTS_PX) {
      found = this.fitting(ticks(this.axis, apart), fixed);
      if (this.isBalanced(found, fixed)) return found;
    }
    return [...found, ...this.missing(found, fixed)];
  }

  /** One more on each side that has room and none, as round as there is one. @param {Tick[]} found @param {Tick[]} fixed @returns {Tick[]} */
  missing(found, fixed) {
    const bounds = this.sides(fixed).filter((side) => !isServed(side, found));
    return bounds.flatMap(([left, right]) => {
      for (let apart = APARTS_PX[APARTS_PX.length - 1]; apart >= 3; apart /= 2) {
        const inside = this.fitting(ticks(this.axis, apart), fixed).filter((tick) => tick.left >= left && tick.right <= right);
        if (inside.length) return [inside[inside.length >> 1]];
      }
      return [];
    });
  }

  /** Where numbers may be written: left and right of what is fixed. @param {Tick[]} fixed @returns {[number, number][]} */
  sides(fixed) {
    const [from, to] = [-BESIDE_PX, this.axis.width + BESIDE_PX];
    if (!fixed.length) return [[from, this.axis.width / 2], [this.axis.width / 2, to]];
    return [[from, Math.min(...fixed.map((tick) => tick.left)) - BETWEEN_PX], [Math.max(...fixed.map((tick) => tick.right)) + BETWEEN_PX, to]];
  }

  /** @param {Tick[]} found @param {Tick[]} fixed */
  isBalanced(found, fixed) {
    return found.length >= LEAST_TICKS && this.sides(fixed).every((side) => isServed(side, found));
  }

  /** Those that hide neither what is fixed nor one another. @param {number[]} moments @param {Tick[]} fixed */
  fitting(moments, fixed) {
    /** @type {Tick[]} */
    const found = [];
    for (const at of moments.filter((moment) => moment !== 0)) {
      const tick = this.tick(at, "", tickWords(at), 0);
      const beside = [...fixed, ...found.slice(-1)];
      if (beside.every((other) => tick.left > other.right + BETWEEN_PX || tick.right < other.left - BETWEEN_PX)) found.push(tick);
    }
    return found;
  }

  /**
   * Centred on its moment, as far as the plot reaches.
   * @param {number} at @param {string} kind @param {string} words @param {number} padding @returns {Tick}
   */
  tick(at, kind, words, padding) {
    const width = widthOf(words, this.font) + padding;
    const left = Math.max(-BESIDE_PX, Math.min(this.axis.x(at) - width / 2, this.axis.width + BESIDE_PX - width));
    return { at, kind, words, left, right: left + width };
  }

  /** @param {number} at */
  isSeen(at) {
    return this.axis.x(at) >= -1 && this.axis.x(at) <= this.axis.width + 1;
  }

  /** @param {Tick} tick */
  node({ at, kind, words, left, right }) {
    const node = made("span", `tick ${kind}`, words);
    node.style.left = `${(left + right) / 2}px`;
    node.style.setProperty("--off", `${this.axis.x(at) - (left + right) / 2}px`);
    return node;
  }
}

/** Whether a side has a number, or no room for one. @param {[number, number]} side @param {Tick[]} found */
function isServed([left, right], found) {
  return right - left < SIDE_PX || found.some((tick) => tick.left >= left && tick.right <= right);
}

/** @param {Tick} tick @param {number} by */
function shift(tick, by) {
  tick.left += by;
  tick.right += by;
}

/** What the zero is: the onset, else now or the end. @param {Page} page */
function zeroWords(page) {
  return text(page.zero_is_onset ? "ui.onset" : page.follow ? "ui.now" : "ui.end");
}
