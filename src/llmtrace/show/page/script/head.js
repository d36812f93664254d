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
  element("confidence").textContent = page.head.confidence ? harmless(said(page.head.confidence)) : "";
  element("ids").replaceChildren(...idsOf(page));
  element("facts").replaceChildren(...page.head.facts.flatMap((fact) => factNodes(fact)));
  writeNext(page);
  writeMissing(page);
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
  line.append(codeOf(command.command), copyButton(command.command, text("ui.copy_command")));
  node.append(made("span", "why", said(command.why)), line);
  return node;
}

/** A command that is broken between its words only: never inside a path, an option or a quoted text. @param {string} command */
function codeOf(command) {
  const node = made("code");
  for (const word of command.match(/(?:'[^']*'|"[^"]*"|[^\s'"]|['"])+|\s+/g) || []) node.append(made("span", word.trim() ? "word" : "", word));
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
  const node = button(item.effect ? "evidence-item effect" : "evidence-item", "", () => jump(item));
  const when = made("span", "when", `${spellOffset(item.at_us)} s`);
  node.append(when, made("span", "who", said(item.who)), made("span", "what", said(item.text)), sign("sign-jump", "jump"));
  node.title = text("ui.jump");
  return node;
}

/** What the culprit said last and how it ended: the same rows as in the log, each a jump to its own. @param {Scene} data @param {(row: number) => void} jump */
function writeLastWords({ page, lines }, jump) {
  const rows = page.log.last;
  element("last-part").hidden = !rows.length;
  if (!rows.length) return;
  element("last-title").textContent = harmless(text("ui.last_words", { who: lines.speakers[lines.speaker[rows[0]]].words }));
  element("last").replaceChildren(...rows.map((row) => lastNode(lines, row, jump)));
}

/** So much of a column may stay blank. */
const BLANK_PX = 120;

/** The last lines stand where they leave least of a column blank: in either one, or, where they are long, below both. */
function balanceColumns() {
  const [first, second, below] = [element("first-column"), element("second-column"), element("last-column")];
  const last = element("last-part");
  below.append(last);
  const { offsetTop, offsetHeight: left } = first;
  const right = second.offsetHeight;
  second.append(last);
  if (last.hidden || second.offsetTop !== offsetTop) return;
  const long = second.offsetHeight - right;
  const [inFirst, inSecond] = [Math.abs(left + long - right), Math.abs(right + long - left)];
  if (Math.min(inFirst, inSecond) > Math.max(BLANK_PX, Math.abs(left - right))) below.append(last);
  else if (inFirst < inSecond) first.append(last);
}

const LAST_LINES = 10;

/** @param {Lines} lines @param {number} row @param {(row: number) => void} jump */
function lastNode(lines, row, jump) {
  const node = made("li", levelKind(lines.severity[row]));
  const line = button("last-line", "", () => jump(row));
  const words = made("span", "said");
  writeLines(words, tailOf(said(lines.texts[row])));
  if (lines.event[row]) signEvent(words);
  line.classList.toggle("long", words.children.length > 1);
  line.append(made("span", "when", `${spellOffset(lines.times[row])} s`), words);
  node.append(line);
  return node;
}

/** Of a long text the end, from a frame on where there is one: an exception says there what it is. @param {string} words @returns {string[]} */
function tailOf(words) {
  const lines = words.replace(/\n+$/, "").split("\n");
  if (lines.length <= LAST_LINES) return lines;
  const late = lines.slice(2 - LAST_LINES);
  const frame = late.findIndex((line) => FRAME.test(line));
  return [lines[0], "  \u2026", ...late.slice(Math.max(0, frame))];
}
