// What a row of the log is made of.

/** @param {string} kind @param {string} words */
function cell(kind, words) {
  const node = made("span", kind, words);
  node.setAttribute("role", "cell");
  return node;
}

/** @param {Page} page */
function dividerNode(page) {
  const node = made("div", "divider");
  const words = made("span", "", text("ui.onset_at", { clock: page.zero_ms }));
  words.setAttribute("role", "cell");
  node.append(words);
  return node;
}

/** A folded text in a line: of a traceback the end says what happened. @param {string[]} lines */
function summary(lines) {
  if (lines.length === 1) return lines[0];
  return /^Traceback/.test(plain(lines[0])) ? `${lines[0]} \u2026 ${lines[lines.length - 1].trim()}` : lines[0];
}

/**
 * What was said, folded where it is long.
 * @param {string} words @param {boolean} event @param {boolean} open @param {number} most signs that are shown of a folded one @param {() => void} toggle
 */
function saidCell(words, event, open, most, toggle) {
  const node = cell("said", "");
  const lines = words.replace(/\n+$/, "").split("\n");
  const long = lines.length > 1 || words.length > most;
  const body = made("span", open || !long ? "whole" : "clamped");
  if (open) writeLines(body, lines);
  else writeColoured(body, summary(lines));
  if (event) signEvent(body);
  node.append(body);
  if (long) node.append(foldButton(lines, open, toggle));
  return node;
}

/** @param {string[]} lines @param {boolean} open @param {() => void} toggle */
function foldButton(lines, open, toggle) {
  const node = button("unfold", open ? text("ui.fold_lines") : foldWords(lines), toggle);
  node.prepend(sign("sign-chevron", "chevron"));
  node.setAttribute("aria-expanded", String(open));
  return node;
}

/** So many lines a text takes in so many columns, about. @param {string} words @param {number} columns */
function wholeLines(words, columns) {
  return words.split("\n").reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / columns)), 0);
}

/** @param {Lines} lines @param {Int32Array} items @param {number} at @param {(number | null)[] | null} ranks */
function nearestRow({ times, speakers, speaker }, items, at, ranks) {
  let best = -1;
  for (const row of items) {
    if (row === DIVIDER || (ranks && !ranks.includes(speakers[speaker[row]].rank))) continue;
    if (best < 0 || Math.abs(times[row] - at) < Math.abs(times[best] - at)) best = row;
  }
  return best;
}

/** What a folded text holds. @param {string[]} lines */
function foldWords(lines) {
  if (lines.length === 1) return text("ui.more");
  return text(lines.some((line) => TRACEBACK.test(line)) ? "ui.traceback" : "ui.lines", { count: lines.length });
}

const TRACEBACK = /^\s*Traceback \(most recent call last\)/;
const FRAME = /^\s*File "/;
/** Frames of others: packages, and Python's own. */
const FOREIGN = /[\\/](?:site-packages|dist-packages|lib[\\/]python[\d.]+)[\\/]|File "</;
/** A text of more lines than this is written as it is. */
const MARKED_LINES = 2000;

/** A text of several lines, each with a hanging indent; in a traceback the frame that failed stands out. @param {HTMLElement} into @param {string[]} lines */
function writeLines(into, lines) {
  if (lines.length === 1 || lines.length > MARKED_LINES || lines.some((line) => line.includes("\u001b"))) {
    writeColoured(into, lines.join("\n"));
    return;
  }
  const failing = failingFrame(lines);
  into.replaceChildren(...lines.map((line, place) => lineOf(line, place >= failing.from && place < failing.to)));
}

/** Says that a text is an event's, in its first line. @param {HTMLElement} node */
function signEvent(node) {
  (node.querySelector(".text-line") || node).prepend(sign("sign-event"));
}

/** @param {string} line @param {boolean} failing */
function lineOf(line, failing) {
  const node = made("span", failing ? "text-line failing" : "text-line", line);
  node.style.setProperty("--indent", `${indentOf(line) + 2}ch`);
  return node;
}

/** The last frame of the job's own code in the last traceback, else its last frame: from its first line to the next frame. @param {string[]} lines */
function failingFrame(lines) {
  const start = lines.findLastIndex((line) => TRACEBACK.test(line));
  const own = start < 0 ? -1 : lines.findLastIndex((line, place) => place > start && FRAME.test(line) && !FOREIGN.test(line));
  const from = own < 0 && start >= 0 ? lines.findLastIndex((line, place) => place > start && FRAME.test(line)) : own;
  if (from < 0) return { from: 0, to: 0 };
  const indent = indentOf(lines[from]);
  const next = lines.findIndex((line, place) => place > from && (FRAME.test(line) || indentOf(line) < indent));
  return { from, to: next < 0 ? lines.length : next };
}

/** @param {string} line */
function indentOf(line) {
  return line.length - line.trimStart().length;
}

/** OpenTelemetry's severity numbers, four a level. @param {number} severity */
function levelWords(severity) {
  return ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"][Math.min(5, Math.max(0, Math.ceil(severity / 4) - 1))];
}

/** @param {number} severity */
function levelKind(severity) {
  return severity >= 17 ? "error" : severity >= 13 ? "warn" : severity >= 9 ? "info" : "debug";
}
