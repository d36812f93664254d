// The top of the page: what broke, how sure that is, the facts, what to do next, and the records that say so.

const STATE_SIGNS = { broke: "sign-broke", running: "sign-running", clean: "sign-clean", ended: "sign-ended", empty: "sign-empty" };

/** @param {Page} page */
function writeHead(page) {
  document.title = harmless(page.title);
  element("job").textContent = harmless(page.title);
  const verdict = element("verdict");
  verdict.className = `verdict ${page.head.state}`;
  element("state").replaceChildren(sign(STATE_SIGNS[page.head.state]), made("span", "away", text(`ui.state_${page.head.state}`)));
  element("sentence").textContent = harmless(said(page.head.sentence));
  element("confidence").replaceChildren(...confidenceOf(page));
  element("ids").replaceChildren(...idsOf(page));
  element("facts").replaceChildren(...page.head.facts.flatMap((fact) => factNodes(fact)));
  writeNext(page);
  writeMissing(page);
}

/** @param {Page} page @returns {Node[]} */
function confidenceOf(page) {
  return page.head.confidence ? [made("span", "", said(page.head.confidence))] : [];
}

/** @param {Page} page */
function idsOf(page) {
  const ids = [idNode(text("ui.trace"), page.trace_id)];
  return page.incident_id ? [...ids, idNode(text("ui.incident"), page.incident_id)] : ids;
}

/** @param {string} label @param {string} value */
function idNode(label, value) {
  const node = made("span", "id");
  node.append(made("span", "label", label), made("code", "", value), copyButton(value, text("ui.copy_id", { what: label })));
  return node;
}

/** @param {Fact} fact */
function factNodes(fact) {
  const lines = made("dd");
  for (const line of fact.lines) lines.append(made("p", "", said(line)));
  return [made("dt", "", said(fact.label)), lines];
}

/** So many are shown at once. */
const COMMANDS = 3;

/** @param {Page} page */
function writeNext(page) {
  element("next").hidden = !page.head.advice.length && !page.head.commands.length;
  element("advice").replaceChildren(...page.head.advice.map((line) => made("p", "", said(line))));
  const commands = page.head.commands.map((command) => commandNode(command));
  const first = commands.length > COMMANDS + 1 ? COMMANDS : commands.length;
  element("commands").replaceChildren(...commands.slice(0, first));
  element("other-commands").replaceChildren(...commands.slice(first));
  element("more-commands").hidden = first === commands.length;
}

/** @param {Command} command */
function commandNode(command) {
  const node = made("li");
  const line = made("div", "command");
  line.append(made("code", "", command.command), copyButton(command.command, text("ui.copy_command")));
  node.append(made("span", "why", said(command.why)), line);
  return node;
}

/** @param {Page} page */
function writeMissing(page) {
  const found = page.missing.map((line) => made("p", "", said(line)));
  if (page.log.left_out) found.push(made("p", "", text("ui.left_out", { count: page.log.left_out })));
  element("missing").replaceChildren(made("strong", "", text("ui.missing")), ...found);
  element("missing").hidden = !found.length;
}

/** @param {Page} page @param {(item: Evidence) => void} jump */
function writeEvidence(page, jump) {
  element("evidence-part").hidden = !page.evidence.length;
  const items = page.evidence.map((item) => {
    const node = made("li");
    node.append(evidenceButton(item, jump));
    return node;
  });
  element("evidence").replaceChildren(...items);
}

/** @param {Evidence} item @param {(item: Evidence) => void} jump */
function evidenceButton(item, jump) {
  const node = button("evidence-item", "", () => jump(item));
  const when = made("span", "when", `${spellOffset(item.at_us)} s`);
  node.append(when, made("span", "who", said(item.who)), made("span", "what", said(item.text)), sign("sign-jump", "jump"));
  node.title = text("ui.jump");
  return node;
}

/** What the culprit said last: the same rows as in the log, each a jump to its own. @param {Scene} data @param {(row: number) => void} jump */
function writeLastWords(data, jump) {
  const { lines } = data;
  const culprit = lines.speakers.findIndex((speaker) => speaker.culprit && speaker.rank !== null);
  const rows = culprit < 0 ? [] : lastRows(lines);
  element("last-part").hidden = !rows.length;
  if (!rows.length) return;
  element("last-title").textContent = text("ui.last_words", { who: lines.speakers[culprit].words });
  element("last").replaceChildren(...rows.map((row) => lastNode(lines, row, jump)));
}

const LAST_ROWS = 8;
const LAST_LINES = 10;

/** The culprit's last lines; of its events only those that hold a traceback. @param {Lines} lines */
function lastRows(lines) {
  /** @type {number[]} */
  const found = [];
  for (let row = lines.count - 1; row >= 0 && found.length < LAST_ROWS; row--) {
    if (!lines.speakers[lines.speaker[row]].culprit) continue;
    if (!lines.event[row] || said(lines.texts[row]).trim().includes("\n")) found.unshift(row);
  }
  return found;
}

/** @param {Lines} lines @param {number} row @param {(row: number) => void} jump */
function lastNode(lines, row, jump) {
  const node = made("li", levelKind(lines.severity[row]));
  const line = button("last-line", "", () => jump(row));
  const words = made("span", "said");
  writeColoured(words, tailOf(said(lines.texts[row])));
  line.append(made("span", "when", `${spellOffset(lines.times[row])} s`), words);
  node.append(line);
  return node;
}

/** Of a long text the end, from a frame on where there is one: an exception says there what it is. @param {string} words */
function tailOf(words) {
  const lines = words.replace(/\n+$/, "").split("\n");
  if (lines.length <= LAST_LINES) return lines.join("\n");
  const late = lines.slice(2 - LAST_LINES);
  const frame = late.findIndex((line) => /^\s*File "/.test(line));
  return [lines[0], "  \u2026", ...late.slice(Math.max(0, frame))].join("\n");
}
