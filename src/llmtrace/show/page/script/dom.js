// Elements: found by id, made with text that can never be markup.

/** @param {string} id @returns {HTMLElement} */
function element(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return found;
}

/** @param {string} id @returns {HTMLCanvasElement} */
function canvasById(id) {
  return /** @type {HTMLCanvasElement} */ (element(id));
}

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {string} [kind] its class
 * @param {string} [words] its text
 * @returns {HTMLElementTagNameMap[Tag]}
 */
function made(tag, kind, words) {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  if (words !== undefined) node.textContent = harmless(words);
  return node;
}

/** @param {string} kind @param {string} label @param {() => void} act @returns {HTMLButtonElement} */
function button(kind, label, act) {
  const node = made("button", kind, label);
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}

/** @param {string} id of a <symbol> in the template @param {string} [kind] @returns {SVGElement} */
function sign(id, kind) {
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("class", kind ? `sign ${kind}` : "sign");
  picture.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#${id}`);
  picture.append(use);
  return picture;
}

/** A button that copies, and says so. @param {string} value @param {string} label */
function copyButton(value, label) {
  const node = button("copy", "", () => void copied(value, node));
  node.append(sign("sign-copy"));
  node.title = label;
  node.setAttribute("aria-label", label);
  return node;
}

/** @param {string} value @param {HTMLElement} node */
async function copied(value, node) {
  try {
    await navigator.clipboard.writeText(value);
  } catch {
    copyByHand(value);
  }
  node.classList.add("done");
  announce(text("ui.copied"));
  setTimeout(() => node.classList.remove("done"), 1200);
}

/** Where a page may not use the clipboard: served without TLS by another machine. @param {string} value */
function copyByHand(value) {
  const area = made("textarea", "away");
  area.value = value;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** For those who listen instead of looking. @param {string} words */
function announce(words) {
  element("announcement").textContent = words;
}

/** A canvas as sharp as the screen; its context is in CSS pixels. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [across, down] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  const renewed = canvas.width !== across || canvas.height !== down || document.documentElement.classList.contains("printing");
  if (renewed) {
    canvas.width = across;
    canvas.height = down;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  if (!renewed) context.clearRect(0, 0, width, height); // on paper a clear takes away what lies below the canvas, too
  return context;
}

/** @type {OffscreenCanvasRenderingContext2D | null} */
let pen = null;

/** How wide a text is, in pixels. @param {string} words @param {string} font as in CSS */
function widthOf(words, font) {
  pen ??= new OffscreenCanvas(1, 1).getContext("2d");
  if (!pen) return words.length * 7;
  if (pen.font !== font) pen.font = font;
  return pen.measureText(words).width;
}
