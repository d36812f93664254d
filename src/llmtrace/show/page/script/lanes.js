// A lane a rank, by node: laid out, drawn on a canvas as high as what is in view, labelled by elements beside it. Its marks are on a canvas of their own,
// above the lines that go through everything.

const CAPTION_PX = 24;
const ALONE_PX = 36;
const CROWD_PX = 22;
const MEMBER_PX = 16;
/** Below its lane: a line of a note, and how much of its width a word that does not fit may leave. */
const NOTE_LINE_PX = 15;
const NOTE_LEFT_PX = 70;
/** From this height on a note beside its lane may take two lines. */
const TWO_LINES_PX = 30;
/** From so many pixels a step, a line is between steps. */
const SEPARATED_PX = 6;
/** So much of the line of a living process is to be seen before the legend says what it is. */
const IDLE_PX = 3;

class Lanes {
  /** @param {Axis} axis */
  constructor(axis) {
    this.axis = axis;
    this.box = element("lanes");
    this.space = element("lanes-space");
    this.names = element("lane-names");
    this.remarks = element("lane-notes");
    this.canvas = canvasById("lane-canvas");
    this.marks = canvasById("mark-canvas");
    /** @type {Drawn} */
    this.drawn = nothingDrawn();
    /** @type {Set<number>} places of the lanes that are unfolded */
    this.unfolded = new Set();
    /** @type {LaneRow[]} */
    this.rows = [];
    /** @type {Map<Lane, Track>} */
    this.decoded = new Map();
    this.height = 0;
    /** @type {number | null} the lane that evidence points at */
    this.pointed = null;
    /** @type {(ranks: (number | null)[]) => void} */
    this.onRanks = () => {};
    /** @type {() => void} */
    this.onLayout = () => {};
    this.box.addEventListener("scroll", () => this.onLayout());
  }

  /** @param {Scene} data */
  take(data) {
    this.data = data;
    this.decoded.clear();
    this.layOut();
  }

  layOut() {
    if (!this.data) return;
    this.below = getComputedStyle(this.box).getPropertyValue("--notes-below").trim() === "1";
    this.rows = laidOut(this.data.tracks, this.unfolded, (lane) => this.trackOf(lane), this.below ? this.box.clientWidth : 0);
    const last = this.rows[this.rows.length - 1];
    this.height = last ? last.top + last.height : 0;
    this.space.style.height = `${this.height}px`;
  }

  /** @param {Lane} lane */
  trackOf(lane) {
    const found = this.decoded.get(lane) || trackOf(lane);
    this.decoded.set(lane, found);
    return found;
  }

  /** The rows that are in view. */
  shown() {
    const [top, bottom] = [this.box.scrollTop, this.box.scrollTop + this.box.clientHeight];
    return this.rows.filter((row) => row.top < bottom && row.top + row.height > top);
  }

  /** @param {number} y in the box, in pixels @returns {LaneRow | null} */
  rowAt(y) {
    const at = y + this.box.scrollTop;
    return this.rows.find((row) => row.top <= at && at < row.top + row.height) || null;
  }

  /** @param {number} place */
  toggle(place) {
    if (!this.unfolded.delete(place)) this.unfolded.add(place);
    this.layOut();
    this.onLayout();
  }

  /** Brings a lane into view and points at it. @param {number | null} place */
  pointAt(place) {
    this.pointed = place;
    const row = this.rows.find((found) => found.kind === "lane" && found.place === place);
    if (!row) return;
    const hidden = row.top < this.box.scrollTop || row.top + row.height > this.box.scrollTop + this.box.clientHeight;
    if (hidden) this.box.scrollTop = row.top - this.box.clientHeight / 2;
    this.onLayout();
  }

  /** @param {Colours} colours */
  draw(colours) {
    const rows = this.shown();
    const [width, height] = [this.axis.width, this.box.clientHeight];
    const context = sized(this.canvas, width, height);
    const above = sized(this.marks, width + 2 * BLEED_PX, height);
    this.marks.style.marginTop = `${-height}px`;
    context.translate(0, -this.box.scrollTop);
    above.translate(BLEED_PX, -this.box.scrollTop);
    this.drawn = { ...nothingDrawn(), shares: this.data !== undefined && inShares(this.data.tracks, this.axis) };
    for (const row of rows) if (row.track) this.drawRow(context, row, row.track, colours);
    for (const row of rows) if (row.track) drawMarks(above, row, row.track.lane, this.axis, colours, this.drawn.marks);
    this.label(rows);
  }

  /** @param {CanvasRenderingContext2D} context @param {LaneRow} row @param {Track} track @param {Colours} colours */
  drawRow(context, row, track, colours) {
    const inset = row.band > 20 ? 4 : row.band > 14 ? 2 : 1;
    const [top, height] = [row.top + inset, row.band - 2 * inset];
    const { axis, drawn } = this;
    this.drawAlive(context, row, track, colours);
    const ratio = window.devicePixelRatio || 1;
    const image = lanePixels(track, axis, colours.packed, this.canvas.width, Math.max(1, Math.round(height * ratio)), drawn.shares, drawn.phases);
    blend(context, image, top, height, axis.width);
    if (!drawn.shares && axis.pixels(track.rhythm_us) >= SEPARATED_PX) this.drawBegins(context, track, colours, top, height);
    drawOpen(context, track, axis, colours, top, height, drawn.open);
  }

  /**
   * A thin line while the process lives: it is seen where no step is.
   * @param {CanvasRenderingContext2D} context @param {LaneRow} row @param {Track} track @param {Colours} colours
   */
  drawAlive(context, row, track, colours) {
    const { lane } = track;
    const left = Math.max(0, this.axis.x(lane.start_us));
    const right = Math.min(this.axis.width, this.axis.x(lane.end_us ?? this.axis.window.to));
    if (right <= left) return;
    context.fillStyle = colours.idle;
    context.fillRect(left, row.top + row.band / 2 - 0.75, right - left, 1.5);
    this.drawn.idle ||= right - left - this.axis.pixels(spentIn(track, this.axis.view)) > IDLE_PX;
  }

  /**
   * A line where each step begins.
   * @param {CanvasRenderingContext2D} context @param {Track} track @param {Colours} colours @param {number} top @param {number} height
   */
  drawBegins(context, { begins, starts }, colours, top, height) {
    const { axis } = this;
    context.fillStyle = colours.muted;
    const first = placeOf(begins, placeOf(starts, axis.view.from));
    for (let step = first; step < begins.length && starts[begins[step]] <= axis.view.to; step++) {
      context.fillRect(Math.round(axis.x(starts[begins[step]])) - 0.5, top - 2, 1, height + 4);
      this.drawn.begins = true;
    }
  }

  /** @param {LaneRow[]} rows */
  label(rows) {
    this.names.replaceChildren(...rows.map((row) => this.nameOf(row)), ...this.scaleOf(rows));
    const noted = rows.filter((row) => row.track && (!this.below || row.height > row.band));
    this.remarks.replaceChildren(...noted.map((row) => noteOf(row, this.below === true)));
  }

  /** What height means, beside the first lane of shares. @param {LaneRow[]} rows */
  scaleOf(rows) {
    const row = rows.find((found) => found.kind === "lane" && found.track);
    if (!this.drawn.shares || !row) return [];
    const node = made("div", "lane-scale");
    putAt(node, row.top, row.band);
    node.append(made("span", "", "100 %"), made("span", "", "0"));
    return [node];
  }

  /** @param {LaneRow} row */
  nameOf(row) {
    const node = made("div", `lane-name ${row.kind}`);
    putAt(node, row.top, row.band);
    if (!row.track) {
      node.append(made("span", "caption", row.caption));
      return node;
    }
    const { lane } = row.track;
    node.classList.toggle("culprit", lane.culprit);
    node.classList.toggle("bad", lane.bad && !lane.culprit);
    node.classList.toggle("pointed", row.kind === "lane" && row.place === this.pointed);
    node.append(this.foldOf(row, lane), this.nameButton(lane));
    return node;
  }

  /** @param {Lane} lane */
  nameButton(lane) {
    const node = button("name", said(lane.label), () => this.onRanks(lane.ranks));
    node.title = `${said(lane.label)}\n${lane.notes.map(said).join("\n")}\n${text("ui.lane_filter")}`;
    if (lane.culprit) node.prepend(sign("sign-culprit"));
    return node;
  }

  /** @param {LaneRow} row @param {Lane} lane */
  foldOf(row, lane) {
    if (row.kind !== "lane" || !lane.members.length) return made("span", "fold none");
    const open = this.unfolded.has(row.place);
    const node = button("fold", "", () => this.toggle(row.place));
    node.append(sign("sign-chevron", "chevron"));
    node.setAttribute("aria-expanded", String(open));
    node.setAttribute("aria-label", text(open ? "ui.fold" : "ui.unfold", { count: lane.members.length }));
    node.title = node.getAttribute("aria-label") || "";
    return node;
  }
}

/**
 * @param {Track[]} tracks @param {Set<number>} unfolded @param {(lane: Lane) => Track} decode
 * @param {number} below how wide notes are that are below their lanes; 0: they are beside them
 * @returns {LaneRow[]}
 */
function laidOut(tracks, unfolded, decode, below) {
  /** @type {Map<string, number[]>} */
  const nodes = new Map();
  tracks.forEach((track, place) => nodes.set(track.lane.node, [...(nodes.get(track.lane.node) || []), place]));
  /** @type {LaneRow[]} */
  const rows = [];
  let top = 0;
  /** @param {LaneRow["kind"]} kind @param {number} band @param {Track | null} track @param {number} place @param {string} caption */
  const add = (kind, band, track, place, caption) => {
    const height = band + (kind === "lane" && track && below ? noteHeight(track.lane, below) : 0);
    rows.push({ kind, top, height, band, track, place, caption });
    top += height;
  };
  for (const [node, places] of nodes) {
    if (nodes.size > 1) add("node", CAPTION_PX, null, -1, node || text("ui.several_nodes"));
    for (const place of places) {
      add("lane", tracks.length > 12 ? CROWD_PX : ALONE_PX, tracks[place], place, "");
      if (unfolded.has(place)) for (const member of tracks[place].lane.members) add("member", MEMBER_PX, decode(member), place, "");
    }
  }
  return rows;
}

/** @param {Lane} lane */
function noteWords(lane) {
  return lane.notes.map(said).join(" \u00b7 ");
}

/** @param {Lane} lane @param {number} width */
function noteHeight(lane, width) {
  const words = noteWords(lane);
  if (!words) return 0;
  const needed = widthOf(words, `12px ${getComputedStyle(document.body).fontFamily}`);
  return (needed <= width - 10 ? 1 : Math.ceil(needed / Math.max(NOTE_LEFT_PX, width - NOTE_LEFT_PX))) * NOTE_LINE_PX + 4;
}

/** @param {HTMLElement} node @param {number} top @param {number} height */
function putAt(node, top, height) {
  node.style.top = `${top}px`;
  node.style.height = `${height}px`;
}

/** @returns {Drawn} */
function nothingDrawn() {
  return { phases: new Set(), open: new Set(), marks: new Set(), begins: false, idle: false, shares: false };
}

/** How much of a stretch went to steps. @param {Track} track @param {Stretch} view */
function spentIn({ starts, ends }, view) {
  let sum = 0;
  for (let index = placeOf(ends, view.from); index < starts.length && starts[index] < view.to; index++) {
    sum += Math.min(ends[index], view.to) - Math.max(starts[index], view.from);
  }
  return sum;
}

/** How far, how fast, how it ended. @param {LaneRow} row @param {boolean} below */
function noteOf(row, below) {
  const lane = /** @type {Track} */ (row.track).lane;
  const node = made("div", "lane-note", noteWords(lane));
  node.classList.toggle("culprit", lane.culprit);
  node.classList.toggle("roomy", row.band >= TWO_LINES_PX);
  node.title = node.textContent || "";
  putAt(node, below ? row.top + row.band : row.top, below ? row.height - row.band : row.band);
  return node;
}

/** @type {OffscreenCanvas | null} */
let spareCanvas = null;

/**
 * Pixels onto a canvas whose other parts stay.
 * @param {CanvasRenderingContext2D} context @param {ImageData} image @param {number} top @param {number} height @param {number} width
 */
function blend(context, image, top, height, width) {
  if (!spareCanvas || spareCanvas.width !== image.width || spareCanvas.height < image.height) spareCanvas = new OffscreenCanvas(image.width, image.height);
  const spare = /** @type {OffscreenCanvasRenderingContext2D} */ (spareCanvas.getContext("2d"));
  spare.clearRect(0, 0, spareCanvas.width, spareCanvas.height);
  spare.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(spareCanvas, 0, 0, image.width, image.height, 0, top, width, height);
}
