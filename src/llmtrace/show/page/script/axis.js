// The one axis of time: what of the window is in view, what is selected, where the pointer is. All in microseconds from the page's zero.

const NARROWEST_US = 200;
/** What a key or a button leaves of the view. */
const CLOSER = 0.6;

class Axis {
  /** @param {Scene} data */
  constructor(data) {
    /** @type {Stretch} the whole window */
    this.window = { from: 0, to: 1 };
    /** @type {Stretch} */
    this.fitted = { from: 0, to: 1 };
    /** @type {Stretch} what is in view */
    this.view = { from: 0, to: 1 };
    /** @type {Stretch | null} */
    this.selection = null;
    /** @type {number | null} under the pointer */
    this.cursor = null;
    /** @type {number | null} of the marked row or evidence */
    this.marked = null;
    this.width = 100;
    this.zero_ms = 0;
    /** @type {((what: "view" | "selection" | "cursor" | "mark") => void)[]} */
    this.listeners = [];
    this.take(data);
    this.view = { ...this.fitted };
  }

  /** @param {Scene} data */
  take(data) {
    const { start_us, end_us } = data.page;
    this.window = { from: start_us, to: Math.max(end_us, start_us + NARROWEST_US) };
    this.fitted = fittedTo(data, this.window);
    this.zero_ms = data.page.zero_ms;
  }

  /** @param {"view" | "selection" | "cursor" | "mark"} what */
  tell(what) {
    for (const listener of this.listeners) listener(what);
  }

  get span() {
    return this.view.to - this.view.from;
  }

  /** @param {number} at */
  x(at) {
    return ((at - this.view.from) / this.span) * this.width;
  }

  /** How wide a length of time is. @param {number} length_us */
  pixels(length_us) {
    return (length_us / this.span) * this.width;
  }

  /** @param {number} x */
  at(x) {
    return this.view.from + (x / this.width) * this.span;
  }

  /** @param {number} from @param {number} to */
  show(from, to) {
    const whole = this.window.to - this.window.from;
    const span = Math.min(whole, Math.max(NARROWEST_US, to - from));
    const middle = (from + to) / 2;
    const start = Math.min(Math.max(middle - span / 2, this.window.from), this.window.to - span);
    this.view = { from: start, to: start + span };
    this.tell("view");
  }

  /** @param {number} factor below 1 goes closer @param {number} [at] what stays where it is */
  zoom(factor, at) {
    const fixed = at ?? this.cursor ?? (this.view.from + this.view.to) / 2;
    this.show(fixed - (fixed - this.view.from) * factor, fixed + (this.view.to - fixed) * factor);
  }

  /** @param {number} share of what is in view */
  pan(share) {
    this.show(this.view.from + share * this.span, this.view.to + share * this.span);
  }

  fit() {
    this.show(this.fitted.from, this.fitted.to);
  }

  whole() {
    this.show(this.window.from, this.window.to);
  }

  /** The last steps before the zero, and as long after it. @param {number} rhythm_us how long a step takes */
  closeUp(rhythm_us) {
    const half = rhythm_us ? 6 * rhythm_us : (this.fitted.to - this.fitted.from) / 20;
    this.show(-half, half);
  }

  /** @param {Stretch | null} stretch */
  select(stretch) {
    this.selection = stretch && { from: Math.max(stretch.from, this.window.from), to: Math.min(stretch.to, this.window.to) };
    this.tell("selection");
  }

  /** @param {number | null} at */
  point(at) {
    if (at === this.cursor) return;
    this.cursor = at;
    this.tell("cursor");
  }

  /** Marks a moment; brings it into view. @param {number | null} at */
  mark(at) {
    this.marked = at;
    if (at !== null && (at < this.view.from || at > this.view.to)) this.show(at - this.span / 2, at + this.span / 2);
    this.tell("mark");
  }
}

/**
 * The window less the time after the last word, before the first process, and most of the time before the first step.
 * @param {Scene} data @param {Stretch} whole
 */
function fittedTo(data, whole) {
  const { tracks, page } = data;
  if (!tracks.length) return { ...whole };
  const ends = tracks.map((track) => (track.lane.end_us === null ? whole.to : track.lane.end_us));
  const last = Math.min(whole.to, Math.max(...ends, page.detected_us ?? -Infinity));
  const steps = tracks.filter((track) => track.starts.length).map((track) => track.starts[0]);
  let from = Math.max(whole.from, Math.min(...tracks.map((track) => track.lane.start_us)));
  if (steps.length) from = Math.max(from, Math.min(...steps) - (last - Math.min(...steps)) / 4);
  const room = Math.max(SECOND_US / 10, (last - from) / 40);
  return last > from ? { from, to: Math.min(whole.to, last + room) } : { ...whole };
}

/** A round length of time, not shorter. @param {number} least_us */
function nice(least_us) {
  const tens = 10 ** Math.floor(Math.log10(least_us));
  const round = [1, 2, 5, 10].map((number) => number * tens).find((length_us) => length_us >= least_us) || 10 * tens;
  const minutes = [60, 120, 300, 600, 1800, 3600].map((seconds) => seconds * SECOND_US);
  return round > 30 * SECOND_US ? minutes.find((length_us) => length_us >= least_us) || Math.ceil(least_us / 3.6e9) * 3.6e9 : round;
}

/** Where the axis has its ticks. @param {Axis} axis @param {number} apart in pixels, at least @returns {number[]} */
function ticks(axis, apart) {
  const every = nice((axis.span / axis.width) * apart);
  const found = [];
  for (let number = Math.ceil(axis.view.from / every); number * every <= axis.view.to; number++) found.push(number * every);
  return found;
}

/** `-0.5 s`, `+12 s`, `-2 min`. @param {number} at */
function tickWords(at) {
  const [size, before] = [Math.abs(at), signed(at)];
  if (size >= 60 * SECOND_US && size % (60 * SECOND_US) === 0) return `${before}${size / SECOND_US / 60} min`;
  if (size < SECOND_US / 10) return `${before}${Number((size / 1000).toFixed(3))} ms`;
  return `${before}${Number((size / SECOND_US).toFixed(6))} s`;
}
