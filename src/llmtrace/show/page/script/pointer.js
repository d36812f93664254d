// Pointer and wheel over the picture: hover says what is there, a drag selects, the ruler and a finger pan, two fingers and Ctrl with the wheel zoom.

const CLICK_PX = 4;

class Pointer {
  /** @param {Picture} picture @param {(act: () => void) => void} timed what measures a zoom */
  constructor(picture, timed) {
    this.picture = picture;
    this.axis = picture.axis;
    this.timed = timed;
    /** @type {Map<number, number>} pointers that are down, and where */
    this.down = new Map();
    /** @type {{x: number, from: number, kind: "select" | "pan" | "brush", moved: boolean} | null} */
    this.drag = null;
    this.pinch = 0;
    /** @type {(at: number, row: LaneRow | null) => void} */
    this.onClick = () => {};
    const { box } = picture;
    box.addEventListener("pointerdown", (event) => this.press(event));
    box.addEventListener("pointermove", (event) => this.move(event));
    box.addEventListener("pointerup", (event) => this.release(event));
    box.addEventListener("pointercancel", (event) => this.cancel(event));
    box.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && this.leave());
    addEventListener("scroll", () => this.leave(), { passive: true });
    box.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    box.addEventListener("dblclick", (event) => this.double(event));
  }

  /** @param {MouseEvent} event in pixels of the plot; null beside it */
  xOf(event) {
    const x = event.clientX - this.picture.over.getBoundingClientRect().left;
    return x >= -6 && x <= this.axis.width + 6 ? Math.min(Math.max(x, 0), this.axis.width) : null;
  }

  /** @param {PointerEvent} event */
  press(event) {
    const x = this.xOf(event);
    if (x === null || event.button !== 0 || isControl(event)) return;
    this.down.set(event.pointerId, x);
    this.pinch = this.down.size === 2 ? this.apart() : 0;
    if (this.pinch) this.drag = null;
    else this.drag = { x, from: this.axis.view.from, kind: this.kindOf(event), moved: false };
    this.picture.box.setPointerCapture(event.pointerId);
    if (this.drag?.kind === "brush") this.brushTo(x);
    else this.point(x, event);
  }

  /** @param {number | null} x @param {PointerEvent} event */
  point(x, event) {
    const over = x !== null && !insideOf(event, "overview-row");
    this.axis.point(over ? this.axis.at(x) : null);
    showTip(over ? this.picture : null, event, this.axis);
  }

  /** @param {PointerEvent} event */
  kindOf(event) {
    if (insideOf(event, "overview-row")) return "brush";
    return event.shiftKey || event.pointerType === "touch" || insideOf(event, "ruler") ? "pan" : "select";
  }

  apart() {
    const [first, second] = [...this.down.values()];
    return Math.abs(first - second);
  }

  /** @param {PointerEvent} event */
  move(event) {
    const x = this.xOf(event);
    if (this.down.has(event.pointerId) && x !== null) this.down.set(event.pointerId, x);
    if (this.pinch && this.down.size === 2) this.pinchTo();
    else if (this.drag && x !== null) this.dragTo(x);
    this.point(x, event);
  }

  pinchTo() {
    const now = Math.max(8, this.apart());
    const [first, second] = [...this.down.values()];
    this.timed(() => this.axis.zoom(this.pinch / now, this.axis.at((first + second) / 2)));
    this.pinch = now;
  }

  /** @param {number} x */
  dragTo(x) {
    const { drag, axis } = this;
    if (!drag || (!drag.moved && Math.abs(x - drag.x) < CLICK_PX)) return;
    drag.moved = true;
    const moved_us = ((x - drag.x) / axis.width) * axis.span;
    if (drag.kind === "brush") this.brushTo(x);
    else if (drag.kind === "pan") axis.show(drag.from - moved_us, drag.from - moved_us + axis.span);
    else axis.select({ from: axis.at(Math.min(x, drag.x)), to: axis.at(Math.max(x, drag.x)) });
  }

  /** @param {number} x */
  brushTo(x) {
    const { axis } = this;
    const at = axis.window.from + (x / axis.width) * (axis.window.to - axis.window.from);
    axis.show(at - axis.span / 2, at + axis.span / 2);
  }

  /** @param {PointerEvent} event */
  release(event) {
    const { drag } = this;
    const x = this.xOf(event);
    this.cancel(event);
    if (drag && !drag.moved && drag.kind !== "brush" && x !== null) this.onClick(this.axis.at(x), rowUnder(this.picture.lanes, event));
  }

  /** @param {PointerEvent} event */
  cancel(event) {
    this.down.delete(event.pointerId);
    this.pinch = 0;
    this.drag = null;
  }

  leave() {
    this.axis.point(null);
    showTip(null, null, this.axis);
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    const x = this.xOf(event);
    if (x === null) return;
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.shiftKey ? event.deltaY : 0;
    const turned = Math.max(-120, Math.min(120, event.deltaY));
    if (event.ctrlKey || event.metaKey || event.altKey) this.timed(() => this.axis.zoom(Math.exp(turned / 300), this.axis.at(x)));
    else if (sideways) this.axis.pan(sideways / this.axis.width);
    else return;
    event.preventDefault();
  }

  /** @param {MouseEvent} event */
  double(event) {
    const x = this.xOf(event);
    if (x === null || isControl(event)) return;
    const at = this.axis.at(x);
    const chosen = this.axis.selection;
    if (chosen && at >= chosen.from && at <= chosen.to) this.timed(() => this.axis.show(chosen.from, chosen.to));
    else this.timed(() => this.axis.zoom(event.shiftKey ? 3 : 1 / 3, at));
  }
}

/** @param {Event} event */
function isControl(event) {
  return event.target instanceof Element && event.target.closest("button, a, input, select") !== null;
}

/** @param {Event} event @param {string} id */
function insideOf(event, id) {
  return event.target instanceof Element && event.target.closest(`#${id}`) !== null;
}

/** @param {Lanes} lanes @param {MouseEvent} event */
function rowUnder(lanes, event) {
  const box = lanes.box.getBoundingClientRect();
  return event.clientY >= box.top && event.clientY <= box.bottom ? lanes.rowAt(event.clientY - box.top) : null;
}

/** What is under the pointer: rank, phase, how long, when. @param {Picture | null} picture @param {MouseEvent | null} event @param {Axis} axis */
function showTip(picture, event, axis) {
  const tip = element("tip");
  const row = picture && event && rowUnder(picture.lanes, event);
  tip.hidden = !row || !row.track || axis.cursor === null;
  if (tip.hidden || !row?.track || !event || !picture?.data || axis.cursor === null) return;
  tip.replaceChildren(...tipLines(row.track, axis.cursor, picture.data.page, axis));
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  tip.style.left = `${Math.max(4, event.clientX + 14 + width > innerWidth - 8 ? event.clientX - width - 14 : event.clientX + 14)}px`;
  tip.style.top = `${event.clientY + 16 + height > innerHeight - 8 ? event.clientY - height - 12 : event.clientY + 16}px`;
}

/** @param {Track} track @param {number} at @param {Page} page @param {Axis} axis */
function tipLines(track, at, page, axis) {
  const lines = [made("strong", "", said(track.lane.label))];
  const index = placeOf(track.ends, at);
  if (index < track.starts.length && track.starts[index] <= at) lines.push(...phaseLines(track, index, page));
  else lines.push(made("span", "", text(at < track.lane.start_us || (track.lane.end_us !== null && at > track.lane.end_us) ? "ui.tip_gone" : "ui.tip_idle")));
  const reach = (8 / axis.width) * axis.span;
  const near = track.lane.marks.filter((mark) => Math.abs(mark.at_us - at) < reach);
  lines.push(...near.map((mark) => made("span", "mark", `${said(mark.words)}, ${spellAfter(mark.at_us)}`)));
  if (track.lane.notes.length) lines.push(made("span", "faint", track.lane.notes.map(said).join(" \u00b7 ")));
  lines.push(made("span", "faint", `${spellOffset(at)} s \u00b7 ${spellClock(page.zero_ms + at / 1000)}`));
  return lines;
}

/** @param {Track} track @param {number} index @param {Page} page */
function phaseLines(track, index, page) {
  const phase = track.phases[index];
  const words = said(page.phases[phase < 0 ? -1 - phase : phase].words);
  const took = spellMeasured(track.ends[index] - track.starts[index]);
  const line = made("span", "", text(phase < 0 ? "ui.tip_open" : "ui.tip_phase", { phase: words, took }));
  line.prepend(swatch(phaseVariables(page)[phase < 0 ? -1 - phase : phase]));
  return [line];
}
