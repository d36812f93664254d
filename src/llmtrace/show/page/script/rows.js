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

/** OpenTelemetry's severity numbers, four a level. @param {number} severity */
function levelWords(severity) {
  return ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"][Math.min(5, Math.max(0, Math.ceil(severity / 4) - 1))];
}

/** @param {number} severity */
function levelKind(severity) {
  return severity >= 17 ? "error" : severity >= 13 ? "warn" : severity >= 9 ? "info" : "debug";
}
