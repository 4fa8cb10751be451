/** The loss chart's arithmetic: columns of points, ticks, words. Pure. */

import { many, whole } from "./words.js";

/** @typedef {import("./state.js").Point} Point */
/** @typedef {{step: number, low: number, high: number, mean: number}} Column */

/**
 * At most so many columns, each over as many points as the others, the last maybe over fewer.
 * @param {Point[]} points in order of step
 * @param {number} most
 * @returns {Column[]}
 */
export function columns(points, most) {
  const size = Math.max(1, Math.ceil(points.length / Math.max(1, most)));
  const found = [];
  for (let from = 0; from < points.length; from += size) {
    const part = points.slice(from, from + size);
    const losses = part.map(([, loss]) => loss);
    found.push({
      step: part[part.length - 1][0],
      low: Math.min(...losses),
      high: Math.max(...losses),
      mean: losses.reduce((sum, loss) => sum + loss, 0) / losses.length,
    });
  }
  return found;
}

/**
 * Round numbers within a range, about so many.
 * @param {number} low
 * @param {number} high
 * @param {number} about
 */
export function ticks(low, high, about) {
  const rough = (high - low) / Math.max(1, about);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((each) => each * power >= rough) ?? 10) * power;
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

/**
 * The range of losses to show, with a little air; never empty.
 * @param {Column[]} drawn
 * @returns {[low: number, high: number]}
 */
export function lossRange(drawn) {
  if (!drawn.length) return [0, 10];
  const low = Math.min(...drawn.map((column) => column.low));
  const high = Math.max(...drawn.map((column) => column.high));
  const air = Math.max((high - low) * 0.06, 0.05);
  return [Math.max(0, low - air), high + air];
}

/**
 * What the chart shows, for someone who cannot see it.
 * @param {Point[]} points
 */
export function chartWords(points) {
  const first = points[0];
  const last = points[points.length - 1];
  if (!first || !last) return "Loss chart. No steps yet.";
  const lowest = points.reduce((best, point) => (point[1] < best[1] ? point : best), first);
  return [
    `Loss chart over ${many(points.length, "step")}:`,
    `from ${first[1].toFixed(2)} at step ${whole(first[0])}`,
    `to ${last[1].toFixed(2)} at step ${whole(last[0])};`,
    `lowest ${lowest[1].toFixed(2)} at step ${whole(lowest[0])}.`,
  ].join(" ");
}

/**
 * @param {Column} column
 */
export function readoutWords({ step, low, high, mean }) {
  const range = high > low ? ` (${low.toFixed(3)} to ${high.toFixed(3)})` : "";
  return `Step ${whole(step)}: loss ${mean.toFixed(3)}${range}`;
}

/**
 * The index of the column whose step is nearest.
 * @param {Column[]} drawn
 * @param {number} step
 */
export function nearest(drawn, step) {
  let best = 0;
  for (const [index, column] of drawn.entries()) {
    if (Math.abs(column.step - step) < Math.abs(drawn[best].step - step)) best = index;
  }
  return best;
}
