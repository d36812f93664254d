// Colours come from the style sheet, so that light, dark and print each have theirs; phases also by their place where they are not the usual ones.

const USUAL = ["data_wait", "forward", "backward", "gradient_sync_exposed", "optimizer", "checkpoint"];
const SPARE = 4;
/** WCAG 2.1, 1.4.11: what is drawn, against what is beside it. */
const GRAPHICS_CONTRAST = 3;

/**
 * @typedef {{phases: string[], edges: string[], packed: Uint32Array, ink: string, muted: string, surface: string, bad: string, good: string, band: string,
 *   idle: string}} Colours
 */

/** @param {Page} page @returns {Colours} */
function coloursOf(page) {
  const style = getComputedStyle(document.documentElement);
  /** @param {string} name */
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  const phases = phaseVariables(page).map(value);
  const [ink, surface] = [value("ink"), value("surface")];
  return {
    phases,
    edges: phases.map((colour) => strong(colour, ink, surface)),
    packed: Uint32Array.from(phases, packed),
    ink,
    surface,
    muted: value("muted"),
    bad: value("bad"),
    good: value("good"),
    band: value("band"),
    idle: value("idle"),
  };
}

/** The name of each phase's colour in the style sheet. @param {Page} page */
function phaseVariables(page) {
  let spare = 0;
  return page.phases.map(({ name }) => {
    if (USUAL.includes(name)) return `phase-${name.replaceAll("_", "-")}`;
    return name ? `phase-spare-${(spare++ % SPARE) + 1}` : "phase-unknown";
  });
}

/** A colour as strong as a thin line of it needs to be seen: mixed with the ink. @param {string} colour @param {string} ink @param {string} ground */
function strong(colour, ink, ground) {
  for (let share = 0; share < 1; share += 0.05) {
    const found = mixed(colour, ink, share);
    if (contrast(found, ground) >= GRAPHICS_CONTRAST) return found;
  }
  return ink;
}

/** @param {string} colour @param {string} other @param {number} share of the other */
function mixed(colour, other, share) {
  const [parts, added] = [partsOf(colour), partsOf(other)];
  return hex(parts.map((part, place) => Math.round(part + (added[place] - part) * share)));
}

/** @param {string} one @param {string} other */
function contrast(one, other) {
  const [light, deep] = [brightness(one), brightness(other)].sort((a, b) => b - a);
  return (light + 0.05) / (deep + 0.05);
}

/** Red, green and blue of `#rrggbb`. @param {string} colour */
function partsOf(colour) {
  return [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
}

/** `#rrggbb` as a pixel of ImageData. @param {string} colour */
function packed(colour) {
  const [red, green, blue] = partsOf(colour);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
