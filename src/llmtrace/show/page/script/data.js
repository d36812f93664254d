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
    measured: page.strips.map((strip) => ({ strip, own: curveOf(strip.own), others: strip.others && envelopeOf(strip.others) })),
    lines: linesOf(page.log),
  };
}

/** @param {Lane} lane @returns {Track} */
function trackOf(lane) {
  const count = Math.floor(lane.segments.length / 3);
  const track = { lane, starts: new Float64Array(count), ends: new Float64Array(count), phases: new Int16Array(count), rhythm_us: 0 };
  let at = lane.start_us;
  for (let index = 0; index < count; index++) {
    at += lane.segments[3 * index];
    track.starts[index] = at;
    at += lane.segments[3 * index + 1];
    track.ends[index] = at;
    track.phases[index] = lane.segments[3 * index + 2];
  }
  track.rhythm_us = rhythmOf(track);
  return track;
}

/** The median time from a phase to the next of the same name: how long a step takes. @param {Track} track */
function rhythmOf(track) {
  /** @type {Map<number, number>} */
  const latest = new Map();
  /** @type {number[]} */
  const gaps = [];
  for (let index = 0; index < track.phases.length; index++) {
    const before = latest.get(track.phases[index]);
    if (before !== undefined) gaps.push(track.starts[index] - before);
    latest.set(track.phases[index], track.starts[index]);
  }
  return gaps.length ? gaps.sort((a, b) => a - b)[gaps.length >> 1] : 0;
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
  const event = new Uint8Array(log.texts.length);
  for (const row of log.events) event[row] = 1;
  const { speaker, severity, texts, speakers } = log;
  return { times: summed(log.times_us), speaker, severity, texts, event, speakers, count: texts.length };
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
