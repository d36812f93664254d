// Buttons, filters and switches around the picture and the log.

/** Least severity of each choice of level. */
const LEVELS = /** @type {const} */ ([
  [0, "ui.level_all"],
  [9, "ui.level_info"],
  [13, "ui.level_warn"],
  [17, "ui.level_error"],
]);

class Controls {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.words = /** @type {HTMLInputElement} */ (element("filter-text"));
    this.ranks = /** @type {HTMLSelectElement} */ (element("filter-rank"));
    this.level = /** @type {HTMLSelectElement} */ (element("filter-level"));
    this.listen();
  }

  listen() {
    const { app } = this;
    this.words.addEventListener("input", () => this.filter());
    this.ranks.addEventListener("change", () => this.filter());
    this.level.addEventListener("change", () => this.filter());
    /** @type {Record<string, () => void>} */
    const acts = {
      "zoom-in": () => app.timed(() => app.axis.zoom(CLOSER)),
      "zoom-out": () => app.timed(() => app.axis.zoom(1 / CLOSER)),
      fit: () => app.timed(() => app.axis.fit()),
      whole: () => app.timed(() => app.axis.whole()),
      close: () => app.timed(() => app.closeUp()),
      "zoom-selection": () => app.timed(() => app.zoomToSelection()),
      "clear-selection": () => app.axis.select(null),
      "select-view": () => app.axis.select({ ...app.axis.view }),
      "clear-filters": () => this.clear(),
      "to-onset": () => app.toOnset(),
      help: () => app.help(),
      theme: () => app.switchTheme(),
      language: () => app.switchLanguage(),
    };
    for (const [id, act] of Object.entries(acts)) element(id).addEventListener("click", act);
  }

  focusFilter() {
    this.words.focus();
    this.words.select();
  }

  filter() {
    const { filter } = this.app.log;
    filter.words = this.words.value;
    filter.level = Number(this.level.value);
    filter.ranks = this.chosenRanks();
    this.words.classList.toggle("wrong", searched(filter.words)?.wrong === true);
    this.app.timedFilter();
  }

  /** @returns {Set<number | null> | null} */
  chosenRanks() {
    return this.ranks.value === "" ? null : new Set(JSON.parse(this.ranks.value));
  }

  /** Only these ranks; the same again: every one. @param {(number | null)[]} ranks @param {string} label */
  only(ranks, label) {
    const value = JSON.stringify(ranks);
    const again = this.ranks.value === value;
    if (![...this.ranks.options].some((option) => option.value === value)) this.ranks.append(new Option(label, value));
    this.ranks.value = again ? "" : value;
    this.filter();
  }

  clear() {
    this.words.value = "";
    this.ranks.value = "";
    this.level.value = "0";
    this.app.axis.select(null);
    this.filter();
  }

  /** Choices of the page; what is chosen stays chosen. @param {Page} page */
  write(page) {
    const [ranks, level] = [this.ranks.value, this.level.value];
    this.ranks.replaceChildren(new Option(text("ui.rank_all"), ""), ...rankOptions(page));
    this.level.replaceChildren(...LEVELS.map(([value, key]) => new Option(text(key), String(value))));
    element("to-onset").textContent = text(page.zero_is_onset ? "ui.to_onset" : page.follow ? "ui.to_now" : "ui.to_end");
    this.ranks.value = ranks;
    this.level.value = level || "0";
    if (this.ranks.selectedIndex < 0) this.ranks.value = "";
  }

  /** How many lines are shown, and by which stretch of time. */
  writeCount() {
    const { log, axis } = this.app;
    const all = log.lines ? log.lines.count : 0;
    element("log-count").textContent = text(log.matches === all ? "ui.count_all" : "ui.count", { count: log.matches, all });
    element("selection-chip").hidden = axis.selection === null;
    if (axis.selection) element("selection-words").textContent = `${spellAfter(axis.selection.from)} \u2026 ${spellAfter(axis.selection.to)}`;
    element("clear-filters").hidden = log.matches === all && !log.filter.words;
    element("log-empty").hidden = log.matches > 0;
  }
}

/** @param {Page} page */
function rankOptions(page) {
  /** @type {Map<number, string>} */
  const ranks = new Map();
  for (const speaker of page.log.speakers) {
    if (speaker.rank === null) continue;
    if (!ranks.has(speaker.rank) || speaker.culprit) ranks.set(speaker.rank, text(speaker.culprit ? "ui.rank_culprit" : "ui.rank", { rank: speaker.rank }));
  }
  const culprits = new Set(page.log.speakers.filter((speaker) => speaker.culprit).map((speaker) => speaker.rank));
  const order = [...ranks.keys()].sort((a, b) => Number(culprits.has(b)) - Number(culprits.has(a)) || a - b);
  return order.map((rank) => new Option(ranks.get(rank), JSON.stringify([rank])));
}
