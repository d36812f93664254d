// A lane a rank, by node: laid out, drawn on a canvas as high as what is in view, labelled by elements beside it.

const CAPTION_PX = 24;
const ALONE_PX = 30;
const CROWD_PX = 22;
const MEMBER_PX = 16;

class Lanes {
  /** @param {Axis} axis */
  constructor(axis) {
    this.axis = axis;
    this.box = element("lanes");
    this.space = element("lanes-space");
    this.names = element("lane-names");
    this.remarks = element("lane-notes");
    this.canvas = canvasById("lane-canvas");
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
    this.rows = laidOut(this.data.tracks, this.unfolded, (lane) => this.trackOf(lane));
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
    const context = sized(this.canvas, this.axis.width, this.box.clientHeight);
    context.translate(0, -this.box.scrollTop);
    for (const row of rows) if (row.track) this.drawRow(context, row, row.track, colours);
    for (const row of rows) if (row.track) drawMarks(context, row, row.track.lane, this.axis, colours);
    this.label(rows);
  }

  /** @param {CanvasRenderingContext2D} context @param {LaneRow} row @param {Track} track @param {Colours} colours */
  drawRow(context, row, track, colours) {
    const inset = row.height > 20 ? 4 : row.height > 14 ? 2 : 1;
    const [top, height] = [row.top + inset, row.height - 2 * inset];
    const { lane } = track;
    const left = this.axis.x(lane.start_us);
    const right = Math.min(this.axis.width, this.axis.x(lane.end_us ?? this.axis.window.to));
    context.fillStyle = colours.idle;
    context.fillRect(left, row.top + row.height / 2 - 0.5, Math.max(0, right - left), 1);
    const ratio = window.devicePixelRatio || 1;
    const image = lanePixels(track, this.axis, colours.packed, this.canvas.width, Math.max(1, Math.round(height * ratio)));
    blend(context, image, top, height, this.axis.width);
    drawOpen(context, track, this.axis, colours, top, height);
  }

  /** @param {LaneRow[]} rows */
  label(rows) {
    this.names.replaceChildren(...rows.map((row) => this.nameOf(row)));
    this.remarks.replaceChildren(...rows.filter((row) => row.track).map((row) => noteOf(row)));
  }

  /** @param {LaneRow} row */
  nameOf(row) {
    const node = made("div", `lane-name ${row.kind}`);
    putAt(node, row);
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
    const node = button("fold", open ? "\u25be" : "\u25b8", () => this.toggle(row.place));
    node.setAttribute("aria-expanded", String(open));
    node.setAttribute("aria-label", text(open ? "ui.fold" : "ui.unfold", { count: lane.members.length }));
    node.title = node.getAttribute("aria-label") || "";
    return node;
  }
}

/** @param {Track[]} tracks @param {Set<number>} unfolded @param {(lane: Lane) => Track} decode @returns {LaneRow[]} */
function laidOut(tracks, unfolded, decode) {
  /** @type {Map<string, number[]>} */
  const nodes = new Map();
  tracks.forEach((track, place) => nodes.set(track.lane.node, [...(nodes.get(track.lane.node) || []), place]));
  /** @type {LaneRow[]} */
  const rows = [];
  let top = 0;
  /** @param {LaneRow["kind"]} kind @param {number} height @param {Track | null} track @param {number} place @param {string} caption */
  const add = (kind, height, track, place, caption) => {
    rows.push({ kind, top, height, track, place: place, caption });
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

/** @param {HTMLElement} node @param {LaneRow} row */
function putAt(node, row) {
  node.style.top = `${row.top}px`;
  node.style.height = `${row.height}px`;
}

/** How far, how fast, how it ended. @param {LaneRow} row */
function noteOf(row) {
  const lane = /** @type {Track} */ (row.track).lane;
  const node = made("div", "lane-note", lane.notes.map(said).join(" \u00b7 "));
  node.classList.toggle("culprit", lane.culprit);
  node.title = node.textContent || "";
  putAt(node, row);
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
