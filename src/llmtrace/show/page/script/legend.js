// What is in the picture, and nothing else: its signs are drawn by what draws the picture.

const SIGN_PX = 18;
const SIGN_HIGH_PX = 14;

class Legend {
  constructor() {
    this.box = element("legend");
    this.shown = "";
  }

  /** Words or colours are others now. */
  forget() {
    this.shown = "";
  }

  /**
   * @param {Page} page @param {Drawn} drawn @param {Colours} colours @param {Axis} axis
   * @param {{lines: boolean, bad: boolean}} overview
   */
  draw(page, drawn, colours, axis, overview) {
    const entries = [...phaseEntries(page, drawn, colours), ...markEntries(page, drawn, colours), ...lineEntries(page, axis), ...overviewEntries(overview)];
    const shown = entries.map(([name]) => name).join();
    if (shown === this.shown) return;
    this.shown = shown;
    this.box.replaceChildren(...entries.map(([, words, picture]) => legendEntry(words, picture())));
  }
}

/** @typedef {[name: string, words: string, picture: () => Element]} Entry */

/** @param {Page} page @param {Drawn} drawn @param {Colours} colours @returns {Entry[]} */
function phaseEntries(page, drawn, colours) {
  const variables = phaseVariables(page);
  /** @type {Entry[]} */
  const found = page.phases.flatMap((phase, place) => (drawn.phases.has(place) ? [[`phase-${place}`, said(phase.words), () => swatch(variables[place])]] : []));
  for (const place of drawn.open) {
    const words = text("ui.legend_open", { phase: page.phases[place].words });
    found.push([`open-${place}`, words, () => painted((pen) => hatch(pen, colours.phases[place], colours.edges[place], 0, 0, SIGN_PX, SIGN_HIGH_PX))]);
  }
  if (drawn.shares) found.push(["shares", text("ui.legend_share"), () => made("span", "swatch shares")]);
  if (drawn.begins) found.push(["begins", text("ui.legend_begins"), () => made("span", "swatch begin")]);
  if (drawn.idle) found.push(["idle", text("ui.legend_idle"), () => made("span", "swatch idle")]);
  return found;
}

/** @param {Page} page @param {Drawn} drawn @param {Colours} colours @returns {Entry[]} */
function markEntries(page, drawn, colours) {
  /** @param {MarkKind} kind */
  const picture = (kind) => painted((pen) => drawMark(pen, kind, SIGN_PX / 2, SIGN_HIGH_PX / 2, MARK_PX - 1, colours));
  /** @type {Entry[]} */
  const found = MARK_ORDER.filter((kind) => drawn.marks.has(kind)).map((kind) => [kind, text(`ui.mark_${kind}`), () => picture(kind)]);
  if (page.lanes.some((lane) => lane.culprit)) found.unshift(["culprit", text("ui.legend_culprit"), () => sign("sign-culprit", "culprit")]);
  return found;
}

/** @param {Page} page @param {Axis} axis @returns {Entry[]} */
function lineEntries(page, axis) {
  /** @param {number} at */
  const seen = (at) => axis.x(at) >= -0.5 && axis.x(at) <= axis.width + 0.5;
  /** @type {Entry[]} */
  const found = [];
  if (seen(0)) found.push(["zero", zeroWords(page), () => made("span", `swatch line-sign ${page.zero_is_onset ? "onset" : "zero"}`)]);
  if (page.detected_us === null || !seen(page.detected_us)) return found;
  return [...found, ["detected", text("ui.legend_detected", { after: spellAfter(page.detected_us) }), () => made("span", "swatch line-sign detected")]];
}

/** @param {{lines: boolean, bad: boolean}} overview @returns {Entry[]} */
function overviewEntries({ lines, bad }) {
  if (!lines) return [];
  return [[`overview-${bad}`, text(bad ? "ui.legend_overview_bad" : "ui.legend_overview"), () => made("span", `swatch bars ${bad ? "bad" : ""}`)]];
}

/** @param {string} words @param {Element} picture */
function legendEntry(words, picture) {
  const node = made("li");
  node.append(picture, made("span", "", words));
  return node;
}

/** @param {string} variable */
function swatch(variable) {
  const node = made("span", "swatch");
  node.style.background = `var(--${variable})`;
  return node;
}

/** @param {(context: CanvasRenderingContext2D) => void} draw */
function painted(draw) {
  const canvas = made("canvas", "sign-canvas");
  draw(sized(canvas, SIGN_PX, SIGN_HIGH_PX));
  return canvas;
}
