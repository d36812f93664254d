// Which lines are shown: by text, rank, level and time.

/** @typedef {{words: string, ranks: Set<number | null> | null, level: number, stretch: Stretch | null}} Filter */

/**
 * What a search box means: `/re/i` is a regular expression, anything else a text in any case.
 * @param {string} words @returns {{pattern: RegExp | null, wrong: boolean} | null}
 */
function searched(words) {
  const wanted = words.trim();
  if (!wanted) return null;
  const form = /^\/(.+)\/([imsu]*)$/.exec(wanted);
  try {
    return { pattern: form ? new RegExp(form[1], form[2]) : new RegExp(wanted.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"), "i"), wrong: false };
  } catch {
    return { pattern: null, wrong: true };
  }
}

/** The rows that are wanted, in order. @param {Lines} lines @param {Filter} filter @param {(row: number) => string} textOf @returns {Int32Array} */
function matching(lines, filter, textOf) {
  const pattern = searched(filter.words)?.pattern;
  const speakers = lines.speakers.map((speaker) => filter.ranks === null || filter.ranks.has(speaker.rank));
  const first = filter.stretch ? placeOf(lines.times, filter.stretch.from) : 0;
  const last = filter.stretch ? placeOf(lines.times, filter.stretch.to + 1) : lines.count;
  const found = new Int32Array(Math.max(0, last - first));
  let count = 0;
  for (let row = first; row < last; row++) {
    if (lines.severity[row] < filter.level || !speakers[lines.speaker[row]]) continue;
    if (!pattern || pattern.test(textOf(row))) found[count++] = row;
  }
  return found.subarray(0, count);
}
