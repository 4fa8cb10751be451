/**
 * What do 8-bit gradients with error feedback cost in loss, and gain in time? Three Chromium pages of one room on this
 * machine, default config, built-in text, the same seed; runs of both formats in turn.
 *
 *     node benchmarks/browser_gradients.js [ROUNDS]
 *
 * Prints one JSON line: for both, bytes of a gradient, median milliseconds of a step, and the mean loss of the last
 * quarter of the steps.
 */

import { argv, stdout } from "node:process";
import { parameterCount } from "../src/daisychain/static/model/weights.js";
import { payloadBytes } from "../src/daisychain/static/sync/compress.js";
import { heard, inPhase, Room, tell } from "../tests/browser/room_help.js";
import { SETTINGS } from "../tests/virtual_peers.js";

const DEVICES = 3;
const STEPS = 120;
const ROUNDS = Number(argv[2] ?? 2);

/** @param {number[]} values */
const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
/** @param {number[]} values */
const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

/** @param {Room} room @param {"float32" | "int8"} gradients */
async function run(room, gradients) {
  const [leader] = room.pages;
  const before = (await heard(leader)).log.length;
  await tell(leader, { type: "start", settings: { ...SETTINGS, steps: STEPS, gradients } });
  await inPhase(leader, ["starting", "running"]);
  await Promise.all(room.pages.map((page) => inPhase(page, ["finished"])));
  const { log, state } = await heard(leader);
  const steps = log.slice(before).filter((/** @type {any} */ { kind }) => kind === "step");
  const losses = steps.map((/** @type {any} */ { text }) => Number(text.match(/loss ([\d.]+)/)[1]));
  return { ms: state.stepMs, loss: mean(losses.slice(-STEPS / 4)) };
}

const room = new Room();
try {
  await room.open();
  for (let i = 0; i < DEVICES; i++) await room.join();
  const formats = /** @type {const} */ (["float32", "int8"]);
  /** @type {Record<string, {ms: number, loss: number}[]>} */
  const runs = { float32: [], int8: [] };
  for (let round = 0; round < ROUNDS; round++) {
    for (const format of formats) runs[format].push(await run(room, format));
  }
  const sides = formats.map((format) => [
    format,
    {
      bytes: payloadBytes(parameterCount(SETTINGS), format),
      step_ms: median(runs[format].map(({ ms }) => ms)),
      loss: mean(runs[format].map(({ loss }) => loss)),
    },
  ]);
  const claim = "8-bit gradients: a quarter of the bytes for the same loss";
  const { float32, int8 } = Object.fromEntries(sides);
  const ratio = float32.step_ms / int8.step_ms;
  stdout.write(`${JSON.stringify({ claim, devices: DEVICES, steps: STEPS, float32, int8, ratio })}\n`);
} finally {
  await room.close();
}
