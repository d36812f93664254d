// ANSI colours of a line as classes and styles; every other escape sequence is dropped, as it says nothing on a page.

const ESCAPE = /\u001b(?:\[([0-?]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

/**
 * @typedef {{text: string, bold: boolean, dim: boolean, italic: boolean, underline: boolean,
 *   strike: boolean, inverse: boolean, ink: string, ground: string}} Run
 */

/** @param {string} value */
function plain(value) {
  return value.includes("\u001b") ? value.replace(ESCAPE, "") : value;
}

/** @param {string} value @returns {Run[]} */
function runsOf(value) {
  /** @type {Run[]} */
  const runs = [];
  let style = unstyled();
  let from = 0;
  for (const found of value.matchAll(ESCAPE)) {
    if (found.index > from) runs.push({ ...style, text: value.slice(from, found.index) });
    from = found.index + found[0].length;
    if (found[2] === "m") style = styled(style, codesOf(found[1]));
  }
  if (from < value.length) runs.push({ ...style, text: value.slice(from) });
  return runs;
}

/** @returns {Run} */
function unstyled() {
  return { text: "", bold: false, dim: false, italic: false, underline: false, strike: false, inverse: false, ink: "", ground: "" };
}

/** @param {string} parameters */
function codesOf(parameters) {
  return parameters.split(/[;:]/).map((part) => (part === "" ? 0 : Number(part)));
}

/** @param {Run} before @param {number[]} codes @returns {Run} */
function styled(before, codes) {
  let style = { ...before };
  for (let index = 0; index < codes.length; index++) {
    const code = codes[index];
    if (code === 38 || code === 48) {
      const colour = longColour(codes, index + 1);
      style = code === 38 ? { ...style, ink: colour.name } : { ...style, ground: colour.name };
      index += colour.used;
    } else style = { ...style, ...changeOf(code) };
  }
  return style;
}

/** @param {number} code @returns {Partial<Run>} */
function changeOf(code) {
  if (code === 0) return unstyled();
  if (code >= 30 && code <= 37) return { ink: String(code - 30) };
  if (code >= 90 && code <= 97) return { ink: String(code - 82) };
  if (code >= 40 && code <= 47) return { ground: String(code - 40) };
  if (code >= 100 && code <= 107) return { ground: String(code - 92) };
  return ATTRIBUTES[code] || {};
}

/** @type {Record<number, Partial<Run>>} */
const ATTRIBUTES = {
  1: { bold: true },
  2: { dim: true },
  3: { italic: true },
  4: { underline: true },
  7: { inverse: true },
  9: { strike: true },
  22: { bold: false, dim: false },
  23: { italic: false },
  24: { underline: false },
  27: { inverse: false },
  29: { strike: false },
  39: { ink: "" },
  49: { ground: "" },
};

/** What follows 38 or 48: `5;n` or `2;r;g;b`. @param {number[]} codes @param {number} from @returns {{name: string, used: number}} */
function longColour(codes, from) {
  if (codes[from] === 5) return { name: paletteColour(codes[from + 1]), used: 2 };
  if (codes[from] === 2) return { name: hex(codes.slice(from + 1, from + 4)), used: 4 };
  return { name: "", used: 0 };
}

/** The first 16 are the theme's own; then a cube of 6, then greys. @param {number} number */
function paletteColour(number) {
  if (!(number >= 0 && number <= 255)) return "";
  if (number < 16) return String(number);
  if (number >= 232) return hex([0, 0, 0].map(() => 8 + 10 * (number - 232)));
  return hex([36, 6, 1].map((step) => Math.floor((number - 16) / step) % 6).map((level) => (level ? 55 + 40 * level : 0)));
}

/** @param {number[]} parts */
function hex(parts) {
  return `#${[0, 1, 2].map((place) => Math.min(255, Math.max(0, parts[place] || 0)).toString(16).padStart(2, "0")).join("")}`;
}

/** A line with its colours, as elements. @param {HTMLElement} into @param {string} value */
function writeColoured(into, value) {
  if (!value.includes("\u001b")) {
    into.textContent = harmless(value);
    return;
  }
  into.replaceChildren(...runsOf(value).map(runNode));
}

/** @param {Run} run */
function runNode(run) {
  const kinds = /** @type {const} */ (["bold", "dim", "italic", "underline", "strike", "inverse"]);
  const node = made("span", kinds.filter((kind) => run[kind]).map((kind) => `ansi-${kind}`).join(" "), run.text);
  if (run.ink.startsWith("#")) node.style.color = readable(run.ink);
  else if (run.ink) node.classList.add(`ansi-ink-${run.ink}`);
  if (run.ground.startsWith("#")) groundOf(node, run);
  else if (run.ground) node.classList.add(`ansi-ground-${run.ground}`);
  return node;
}

/** A ground of its own needs an ink that can be read on it. @param {HTMLElement} node @param {Run} run */
function groundOf(node, run) {
  node.style.background = run.ground;
  if (!run.ink.startsWith("#")) node.style.color = brightness(run.ground) > 0.35 ? "#000" : "#fff";
  else node.style.color = run.ink;
}

/** Relative luminance, by WCAG 2. @param {string} colour */
function brightness(colour) {
  const parts = partsOf(colour).map((part) => part / 255);
  const [red, green, blue] = parts.map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** The colour, mixed with black or white until it can be read on the page. @param {string} colour */
function readable(colour) {
  const dark = document.documentElement.classList.contains("dark");
  const ground = dark ? 0.012 : 0.95;
  const parts = partsOf(colour);
  for (let share = 0; share <= 1; share += 0.1) {
    const mixed = hex(parts.map((part) => Math.round(part + ((dark ? 255 : 0) - part) * share)));
    const [light, deep] = [Math.max(brightness(mixed), ground), Math.min(brightness(mixed), ground)];
    if ((light + 0.05) / (deep + 0.05) >= 4.5) return mixed;
  }
  return "";
}
