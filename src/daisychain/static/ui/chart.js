/** The loss chart on a canvas: one line, its spread behind it, a readout by pointer or arrow keys. */

import { READOUT_COLUMN_PX } from "../limits.js";
import { chartWords, columns, lossRange, nearest, readoutWords, ticks } from "./chartData.js";
import { part, say } from "./dom.js";
import { short } from "./words.js";

/** @typedef {import("./state.js").Page} Page */
/** @typedef {import("./state.js").Point} Point */
/** @typedef {import("./chartData.js").Column} Column */
/** @typedef {{left: number, right: number, top: number, bottom: number}} Frame */
/** @typedef {{frame: Frame, drawn: Column[], x: (step: number) => number, y: (loss: number) => number, colour: (name: string) => string}} Plot */

/** @param {() => void} redraw asks for a render in the next frame */
export function createChart(redraw) {
  const canvas = part("chart", HTMLCanvasElement);
  const readout = part("chart-readout", HTMLOutputElement);
  const pen = canvas.getContext("2d");
  if (!pen) throw new TypeError("This browser gives no 2D canvas.");
  /** @type {Column[]} */
  let drawn = [];
  /** @type {number | null} the step looked at */
  let looked = null;
  /** @type {(pixel: number) => number} */
  let stepAt = () => 0;

  const look = (/** @type {number | null} */ step) => {
    looked = step;
    redraw();
  };
  canvas.addEventListener("pointermove", (event) => look(stepAt(event.offsetX)));
  canvas.addEventListener("pointerdown", (event) => look(stepAt(event.offsetX)));
  canvas.addEventListener("pointerleave", () => look(null));
  canvas.addEventListener("blur", () => look(null));
  canvas.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!way || !drawn.length) return;
    event.preventDefault();
    const from = looked === null ? (way > 0 ? -1 : drawn.length) : nearest(drawn, looked);
    look(drawn[Math.min(drawn.length - 1, Math.max(0, from + way))]?.step ?? null);
  });
  new ResizeObserver(redraw).observe(canvas);

  return {
    /** @param {Page} page */
    render({ losses, run }) {
      const { clientWidth: width, clientHeight: height } = canvas;
      if (!width || !height) return;
      fit(canvas, pen, width, height);
      const frame = { left: 42, right: width - 10, top: 24, bottom: height - 40 };
      drawn = columns(losses, Math.floor((frame.right - frame.left) / READOUT_COLUMN_PX));
      const last = Math.max(run.steps, losses[losses.length - 1]?.[0] ?? 0, 1);
      const [low, high] = lossRange(drawn);
      const plot = makePlot(frame, drawn, [0, last], [low, high]);
      stepAt = (pixel) => ((pixel - frame.left) / (frame.right - frame.left)) * last;
      if (drawn.length) drawAxes(pen, plot, [0, last], [low, high]);
      else drawEmpty(pen, plot);
      drawLine(pen, plot);
      const at = looked === null ? undefined : drawn[nearest(drawn, looked)];
      if (at) drawMark(pen, plot, at);
      say(readout, at ? readoutWords(at) : "");
      canvas.setAttribute("aria-label", chartWords(losses));
    },
  };
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {CanvasRenderingContext2D} pen
 * @param {number} width
 * @param {number} height
 */
function fit(canvas, pen, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
}

/**
 * @param {Frame} frame
 * @param {Column[]} drawn
 * @param {[number, number]} steps
 * @param {[number, number]} losses
 * @returns {Plot}
 */
function makePlot(frame, drawn, [first, last], [low, high]) {
  const style = getComputedStyle(document.documentElement);
  return {
    frame,
    drawn,
    x: (step) => frame.left + ((step - first) / (last - first)) * (frame.right - frame.left),
    y: (loss) => frame.bottom - ((loss - low) / (high - low)) * (frame.bottom - frame.top),
    colour: (name) => style.getPropertyValue(name).trim(),
  };
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Plot} plot
 * @param {[number, number]} steps
 * @param {[number, number]} losses
 */
function drawAxes(pen, { frame, x, y, colour }, steps, losses) {
  pen.lineWidth = 1;
  pen.strokeStyle = colour("--edge");
  pen.fillStyle = colour("--soft");
  pen.font = "13px system-ui, sans-serif";
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const loss of ticks(losses[0], losses[1], 5)) {
    const at = Math.round(y(loss)) + 0.5;
    pen.beginPath();
    pen.moveTo(frame.left, at);
    pen.lineTo(frame.right, at);
    pen.stroke();
    pen.fillText(String(Number(loss.toFixed(2))), frame.left - 8, at);
  }
  pen.textBaseline = "top";
  const wide = frame.right - frame.left > 420;
  for (const step of ticks(steps[0], steps[1], wide ? 8 : 4)) {
    pen.textAlign = step === steps[1] ? "right" : "center";
    pen.fillText(short(step), x(step), frame.bottom + 6);
  }
  pen.textAlign = "center";
  pen.fillText("step", (frame.left + frame.right) / 2, frame.bottom + 23);
  pen.textAlign = "left";
  pen.fillText("loss, nats a token", 8, 0);
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Plot} plot
 */
function drawEmpty(pen, { frame, colour }) {
  pen.fillStyle = colour("--soft");
  pen.font = "15px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  const middle = (frame.left + frame.right) / 2;
  pen.fillText("The loss appears here, step by step.", middle, (frame.top + frame.bottom) / 2);
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Plot} plot
 */
function drawLine(pen, { drawn, x, y, colour }) {
  if (!drawn.length) return;
  pen.fillStyle = colour("--leaf-faint");
  pen.beginPath();
  for (const column of drawn) pen.lineTo(x(column.step), y(column.high));
  for (const column of [...drawn].reverse()) pen.lineTo(x(column.step), y(column.low));
  pen.fill();
  pen.strokeStyle = colour("--leaf");
  pen.lineWidth = 2;
  pen.lineJoin = "round";
  pen.beginPath();
  for (const column of drawn) pen.lineTo(x(column.step), y(column.mean));
  pen.stroke();
  const last = drawn[drawn.length - 1];
  dot(pen, x(last.step), y(last.mean), colour("--petal"), colour("--leaf"));
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Plot} plot
 * @param {Column} at
 */
function drawMark(pen, { frame, x, y, colour }, at) {
  pen.strokeStyle = colour("--soft");
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(x(at.step), frame.top);
  pen.lineTo(x(at.step), frame.bottom);
  pen.stroke();
  dot(pen, x(at.step), y(at.mean), colour("--card"), colour("--leaf"));
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {number} x
 * @param {number} y
 * @param {string} inside
 * @param {string} edge
 */
function dot(pen, x, y, inside, edge) {
  pen.beginPath();
  pen.arc(x, y, 4, 0, 2 * Math.PI);
  pen.fillStyle = inside;
  pen.fill();
  pen.lineWidth = 2;
  pen.strokeStyle = edge;
  pen.stroke();
}
