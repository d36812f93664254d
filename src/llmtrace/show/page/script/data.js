// Columns as they are sent become typed arrays of absolute times.

/** @param {string} id @returns {any} */
function embedded(id) {
  return JSON.parse(element(id).textContent || "null");
}

/** @param {Page} page @returns {Scene} */
function decoded(page) {
  return {
    page,
    tracks: page.lanes.map(trackOf),
    measured: page.strips.map(measuredOf),
    lines: linesOf(page.log),
  };
}

/** @param {Lane} lane @returns {Track} */
function trackOf(lane) {
  const count = Math.floor(lane.segments.length / 3);
  const [starts, ends] = [new Float64Array(count), new Float64Array(count)];
  const track = { lane, starts, ends, phases: new Int16Array(count), begins: new Int32Array(0), rhythm_us: 0 };
  let at = lane.start_us;
  for (let index = 0; index < count; index++) {
    at += lane.segments[3 * index];
    track.starts[index] = at;
    at += lane.segments[3 * index + 1];
    track.ends[index] = at;
    track.phases[index] = lane.segments[3 * index + 2];
  }
  track.begins = beginsOf(track);
  track.rhythm_us = rhythmOf(track);
  return track;
}

/** A step begins where time was left out, or where the phases begin anew: within a step they come in their order. @param {Track} track */
function beginsOf({ starts, ends, phases }) {
  /** @type {number[]} */
  const found = [];
  for (let index = 0; index < phases.length; index++) {
    const follows = index > 0 && starts[index] === ends[index - 1];
    if (!follows || (phases[index - 1] >= 0 && placeOfPhase(phases[index]) <= phases[index - 1])) found.push(index);
  }
  return Int32Array.from(found);
}

/** @param {number} phase as in Track.phases */
function placeOfPhase(phase) {
  return phase < 0 ? -1 - phase : phase;
}

/** The median time from a step's begin to the next one's. @param {Track} track */
function rhythmOf({ begins, starts }) {
  return middleOf(Array.from(begins.subarray(1), (index, step) => starts[index] - starts[begins[step]]));
}

/** @param {number[]} values */
function middleOf(values) {
  return values.length ? values.sort((a, b) => a - b)[values.length >> 1] : 0;
}

/** @param {Strip} strip @returns {Measured} */
function measuredOf(strip) {
  return { strip, own: curveOf(strip.own), other: strip.other && curveOf(strip.other), others: strip.others && envelopeOf(strip.others) };
}

/** Times of a column, each but the first counted from the one before. @param {number[]} steps */
function summed(steps) {
  const times = new Float64Array(steps.length);
  let at = 0;
  for (let index = 0; index < steps.length; index++) times[index] = at += steps[index];
  return times;
}

/** @param {(number | null)[]} values */
function numbers(values) {
  return Float64Array.from(values, (value) => (value === null ? NaN : value));
}

/** @param {Series} series @returns {Curve} */
function curveOf(series) {
  return { times: summed(series.times_us), values: numbers(series.values) };
}

/** @param {Band} band @returns {Envelope} */
function envelopeOf(band) {
  return { times: summed(band.times_us), low: numbers(band.low), middle: numbers(band.middle), high: numbers(band.high) };
}

/** @param {Log} log @returns {Lines} */
function linesOf(log) {
  const { speaker, severity, texts, speakers } = log;
  const [event, effect] = [flags(log.events, texts.length), flags(log.effects, texts.length)];
  return { times: summed(log.times_us), speaker, severity, texts, event, effect, speakers, count: texts.length };
}

/** @param {number[]} places @param {number} count */
function flags(places, count) {
  const found = new Uint8Array(count);
  for (const place of places) found[place] = 1;
  return found;
}

/** The first place whose value is not below. @param {ArrayLike<number>} sorted @param {number} value */
function placeOf(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The place whose value is nearest; -1 where there is none. @param {ArrayLike<number>} sorted @param {number} value */
function nearest(sorted, value) {
  const after = placeOf(sorted, value);
  if (after === 0 || after === sorted.length) return sorted.length ? Math.min(after, sorted.length - 1) : -1;
  return value - sorted[after - 1] < sorted[after] - value ? after - 1 : after;
}
