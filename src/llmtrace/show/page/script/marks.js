// What is drawn by hand over a lane's pixels: phases that never finished, and how a rank began, failed and ended.

/** So far beyond the plot its marks may reach: one at the very end is whole. */
const BLEED_PX = 8;
const MARK_PX = 6.5;
/** Of more marks than this at one moment the least important are left out; the tip still names them. */
const TOGETHER = 2;
/** What never finished is at least so wide, to the left: a hatch can be seen. */
const OPEN_PX = 8;
/** @type {MarkKind[]} by importance */
const MARK_ORDER = ["failed", "died", "clean", "started"];

/**
 * What was begun and never finished: hatched, with an edge.
 * @param {CanvasRenderingContext2D} context @param {Track} track @param {Axis} axis @param {Colours} colours @param {number} top
 * @param {number} height @param {Set<number>} drawn
 */
function drawOpen(context, track, axis, colours, top, height, drawn) {
  for (let index = placeOf(track.ends, axis.view.from); index < track.starts.length && track.starts[index] < axis.view.to; index++) {
    if (track.phases[index] >= 0) continue;
    const phase = placeOfPhase(track.phases[index]);
    const right = Math.min(axis.width + 2, axis.x(track.ends[index]));
    const left = Math.max(-2, Math.min(axis.x(track.starts[index]), right - OPEN_PX));
    const width = Math.max(1, right - left);
    context.fillStyle = colours.surface; // a clear would take the whole canvas off the paper
    context.fillRect(left, top, width, height);
    hatch(context, colours.phases[phase], colours.edges[phase], left, top, width, height);
    drawn.add(phase);
  }
}

/**
 * @param {CanvasRenderingContext2D} context @param {string} colour @param {string} edge @param {number} left @param {number} top @param {number} width
 * @param {number} height
 */
function hatch(context, colour, edge, left, top, width, height) {
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.globalAlpha = 0.22;
  context.fillStyle = colour;
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = edge;
  context.lineWidth = 2.2;
  context.beginPath();
  const first = Math.floor((left - height) / 6) * 6;
  for (let x = first; x < left + width; x += 6) {
    context.moveTo(x, top + height);
    context.lineTo(x + height, top);
  }
  context.stroke();
  context.restore();
  context.strokeStyle = edge;
  context.lineWidth = 1.5;
  context.strokeRect(left + 0.75, top + 0.75, Math.max(1, width - 1.5), height - 1.5);
}

/**
 * A lane's marks, each centred on its time; two that would hide one another stand one above the other.
 * @param {CanvasRenderingContext2D} context @param {LaneRow} row @param {Lane} lane @param {Axis} axis @param {Colours} colours
 * @param {Set<string>} drawn
 */
function drawMarks(context, row, lane, axis, colours, drawn) {
  const middle = row.top + row.band / 2;
  for (const { mark, x, size, lift } of arranged(lane.marks, axis, row.band)) {
    drawMark(context, mark.kind, x, middle + lift, size, colours);
    drawn.add(mark.kind);
  }
}

/** @typedef {{mark: Mark, x: number, size: number, lift: number}} Placed */

/** @param {Mark[]} marks @param {Axis} axis @param {number} height of the lane @returns {Placed[]} */
function arranged(marks, axis, height) {
  const size = Math.min(MARK_PX, height / 2 - 1.5);
  const found = marks.map((mark) => ({ mark, x: axis.x(mark.at_us), size, lift: 0 })).filter(({ x }) => x >= -0.5 && x <= axis.width + 0.5);
  return together(found, 2 * size).flatMap((group) => stacked(group, height));
}

/** Those that are nearer to the one before than they are wide. @param {Placed[]} placed in order of time @param {number} apart */
function together(placed, apart) {
  /** @type {Placed[][]} */
  const groups = [];
  for (const one of placed) {
    const group = groups[groups.length - 1];
    if (group && one.x - group[group.length - 1].x < apart) group.push(one);
    else groups.push([one]);
  }
  return groups;
}

/** @param {Placed[]} group @param {number} height @returns {Placed[]} */
function stacked(group, height) {
  if (group.length === 1) return group;
  const kept = [...group].sort((a, b) => MARK_ORDER.indexOf(a.mark.kind) - MARK_ORDER.indexOf(b.mark.kind)).slice(0, TOGETHER);
  const size = Math.min(MARK_PX, height / 4 - 0.75);
  return kept.sort((a, b) => a.mark.at_us - b.mark.at_us).map((one, place) => ({ ...one, size, lift: (place ? 1 : -1) * (size + 0.5) }));
}

/**
 * A triangle, a disc with a cross, a ring with a check, an empty ring: told apart without colour.
 * @param {CanvasRenderingContext2D} context @param {MarkKind} kind @param {number} x @param {number} y @param {number} size
 * @param {Colours} colours
 */
function drawMark(context, kind, x, y, size, colours) {
  context.lineCap = context.lineJoin = "round";
  context.beginPath();
  if (kind === "failed") polygon(context, [[x, y - size], [x + size, y + size * 0.8], [x - size, y + size * 0.8]]);
  else context.arc(x, y, kind === "started" ? size * 0.7 : size, 0, 2 * Math.PI);
  context.fillStyle = kind === "clean" ? colours.good : kind === "started" ? colours.surface : colours.bad;
  context.strokeStyle = colours.surface;
  context.lineWidth = 3;
  context.stroke();
  context.fill();
  context.lineWidth = Math.max(1.2, size * 0.26);
  if (kind === "started") context.strokeStyle = colours.muted;
  else context.beginPath();
  const arm = size * 0.42;
  if (kind === "died") strokes(context, [[x - arm, y - arm, x + arm, y + arm], [x - arm, y + arm, x + arm, y - arm]]);
  if (kind === "failed") strokes(context, [[x, y - size * 0.45, x, y + size * 0.22], [x, y + size * 0.45, x, y + size * 0.6]]);
  if (kind === "clean") strokes(context, [[x - size * 0.5, y, x - size * 0.1, y + arm], [x - size * 0.1, y + arm, x + size * 0.5, y - size * 0.35]]);
  context.stroke();
}

/** @param {CanvasRenderingContext2D} context @param {number[][]} points */
function polygon(context, points) {
  points.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.closePath();
}

/** @param {CanvasRenderingContext2D} context @param {number[][]} lines */
function strokes(context, lines) {
  for (const [fromX, fromY, toX, toY] of lines) {
    context.moveTo(fromX, fromY);
    context.lineTo(toX, toY);
  }
}
