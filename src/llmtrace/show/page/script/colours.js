// Colours come from the style sheet, so that light, dark and print each have theirs; phases also by their place where they are not the usual ones.

const USUAL = ["data_wait", "forward", "backward", "gradient_sync_exposed", "optimizer", "checkpoint"];
const SPARE = 4;

/**
 * @typedef {{phases: string[], packed: Uint32Array, muted: string, faint: string, surface: string,
 *   bad: string, good: string, accent: string, band: string, idle: string}} Colours
 */

/** @param {Page} page @returns {Colours} */
function coloursOf(page) {
  const style = getComputedStyle(document.documentElement);
  /** @param {string} name */
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  const phases = phaseVariables(page).map(value);
  return {
    phases,
    packed: Uint32Array.from(phases, packed),
    muted: value("muted"),
    faint: value("faint"),
    surface: value("surface"),
    bad: value("bad"),
    good: value("good"),
    accent: value("accent"),
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

/** `#rrggbb` as a pixel of ImageData. @param {string} colour */
function packed(colour) {
  const [red, green, blue] = [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
