// What is drawn by hand over a lane's pixels: phases that never finished, and how a rank began, failed and ended.

/**
 * What was begun and never finished: hatched, with an edge.
 * @param {CanvasRenderingContext2D} context @param {Track} track @param {Axis} axis @param {Colours} colours @param {number} top
 * @param {number} height
 */
function drawOpen(context, track, axis, colours, top, height) {
  for (let index = placeOf(track.ends, axis.view.from); index < track.starts.length && track.starts[index] < axis.view.to; index++) {
    if (track.phases[index] >= 0) continue;
    const colour = colours.phases[-1 - track.phases[index]];
    const left = Math.max(-2, axis.x(track.starts[index]));
    const width = Math.max(3, Math.min(axis.width + 2, axis.x(track.ends[index])) - left);
    hatch(context, colour, left, top, width, height);
  }
}

/** @param {CanvasRenderingContext2D} context @param {string} colour @param {number} left @param {number} top @param {number} width @param {number} height */
function hatch(context, colour, left, top, width, height) {
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.globalAlpha = 0.22;
  context.fillStyle = colour;
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = colour;
  context.lineWidth = 2.2;
  context.beginPath();
  const first = Math.floor((left - height) / 6) * 6;
  for (let x = first; x < left + width; x += 6) {
    context.moveTo(x, top + height);
    context.lineTo(x + height, top);
  }
  context.stroke();
  context.restore();
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.strokeRect(left + 0.75, top + 0.75, Math.max(1, width - 1.5), height - 1.5);
}

/** @param {CanvasRenderingContext2D} context @param {LaneRow} row @param {Lane} lane @param {Axis} axis @param {Colours} colours */
function drawMarks(context, row, lane, axis, colours) {
  const size = Math.min(6.5, row.height / 2 - 2);
  for (const mark of lane.marks) {
    const x = axis.x(mark.at_us);
    if (x > -8 && x < axis.width + 8) drawMark(context, mark.kind, Math.min(Math.max(x, size), axis.width - size), row.top + row.height / 2, size, colours);
  }
}

/**
 * A triangle, a disc with a cross, a square, a flag: told apart without colour.
 * @param {CanvasRenderingContext2D} context @param {MarkKind} kind @param {number} x @param {number} y @param {number} size
 * @param {Colours} colours
 */
function drawMark(context, kind, x, y, size, colours) {
  context.beginPath();
  if (kind === "failed") polygon(context, [[x, y - size], [x + size * 1.05, y + size * 0.8], [x - size * 1.05, y + size * 0.8]]);
  else if (kind === "died") context.arc(x, y, size, 0, 2 * Math.PI);
  else if (kind === "clean") context.rect(x - size * 0.75, y - size * 0.75, size * 1.5, size * 1.5);
  else polygon(context, [[x - size * 0.6, y - size], [x + size * 0.8, y], [x - size * 0.6, y + size]]);
  context.fillStyle = kind === "clean" ? colours.good : kind === "started" ? colours.muted : colours.bad;
  context.strokeStyle = colours.surface;
  context.lineWidth = 3;
  context.stroke();
  context.fill();
  context.lineWidth = 1.7;
  context.beginPath();
  const arm = size * 0.42;
  if (kind === "died") strokes(context, [[x - arm, y - arm, x + arm, y + arm], [x - arm, y + arm, x + arm, y - arm]]);
  if (kind === "failed") strokes(context, [[x, y - size * 0.45, x, y + size * 0.22], [x, y + size * 0.45, x, y + size * 0.6]]);
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
