/** Numbers and states in words. Pure. */

import { BUSY } from "./state.js";

/** @typedef {import("./state.js").Page} Page */

const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** @param {number} value @param {number} [digits] after the point */
export const whole = (value, digits = 0) => value.toLocaleString("en", { maximumFractionDigits: digits });

/** @param {number} value such as 554 thousand: "554K"; below ten thousand in full */
export const short = (value) => (Math.round(value) < 10_000 ? whole(value) : SHORT.format(value));

/** @param {number} bytes */
export function inBytes(bytes) {
  const [unit, size] = bytes < 1e3 ? ["B", 1] : bytes < 1e6 ? ["kB", 1e3] : ["MB", 1e6];
  const digits = bytes / size < 10 ? 2 : bytes / size < 100 ? 1 : 0;
  return `${whole(bytes / size, size === 1 ? 0 : digits)} ${unit}`;
}

/** @param {number} seconds */
export function inTime(seconds) {
  const total = Math.round(seconds);
  if (total < 60) return `${total} s`;
  const minutes = Math.floor(total / 60);
  if (minutes < 60) return `${minutes} min ${total % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/**
 * @param {number} count
 * @param {string} one such as "device"
 */
export const many = (count, one) => `${whole(count)} ${one}${count === 1 ? "" : "s"}`;

/** @param {Page} page @param {string} id */
export function nameOf(page, id) {
  if (id === page.id) return "this device";
  const known = page.members.find((member) => member.id === id);
  return known?.name ?? page.run.devices.find((device) => device.id === id)?.name ?? "a device that left";
}

/** @param {Page} page */
export const isBusy = (page) => BUSY.includes(page.run.phase);

/**
 * What goes on, in one sentence.
 * @param {Page} page
 */
export function statusWords(page) {
  const { phase, reason, steps, leader, step } = page.run;
  const led = leader ? ` Led by ${nameOf(page, leader)}.` : "";
  if (page.asked) return "Fetching the text to train on…";
  const because = reason ? ` ${sentence(reason)}` : "";
  switch (phase) {
    case "idle":
      if (!page.backend) return "Testing what this device computes with…";
      return page.members.length
        ? "Ready. Whoever presses Start sets the settings for all."
        : "Ready. You can also train on this device alone.";
    case "starting":
      return `Getting ready.${led}${because}`;
    case "running":
      return `Training.${led}`;
    case "waiting":
      return `Waiting.${because || led}`;
    case "finished":
      return `Done: ${many(steps, "step")}. The model can write now.`;
    case "stopped":
      return `Stopped after ${many(step, "step")}.${because}`;
    case "halted":
      return `Halted at step ${whole(step)}; the weights are as they were before it.${because}`;
    default:
      return phase;
  }
}

/** @param {Pick<import("./state.js").Settings, "width" | "layers" | "heads" | "sequence">} shape */
const shapeWords = ({ width, layers, heads, sequence }) =>
  `width ${width}, ${many(layers, "layer")}, ${many(heads, "head")}, sequence ${sequence}`;

/**
 * What "Train on" does, and "Start anew" where its model has another shape.
 * @param {Page} page
 * @param {import("./state.js").Settings} chosen
 */
export function goOnWords({ run }, chosen) {
  if (!run.settings) return "";
  const [here, next] = [shapeWords(run.settings), shapeWords(chosen)];
  const words = `Train on: ${many(chosen.steps, "more step")} of the model here (${here}), with the batch, rate and text of the settings.`;
  return here === next ? words : `${words} Start anew: a new model (${next}).`;
}

/** @param {string} text */
function sentence(text) {
  const start = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(start) ? start : `${start}.`;
}

/**
 * Are the weights the same on every device that trains?
 * @param {Page} page
 * @returns {{tone: "" | "good" | "bad", text: string}}
 */
export function equalWords(page) {
  const { hash, devices } = page.run;
  if (!hash) return { tone: "", text: "No weights yet" };
  const rostered = devices.filter((device) => device.place !== null);
  if (rostered.some((device) => device.equal === false)) return { tone: "bad", text: "Weights differ" };
  if (rostered.length < 2) return { tone: "", text: "One device" };
  if (rostered.some((device) => device.equal === null)) return { tone: "", text: "Comparing weights" };
  return { tone: "good", text: `Equal on all ${rostered.length} devices` };
}

/** @param {string} hash in hex */
export const shortHash = (hash) => hash.slice(0, 12);

/** @param {string} source of the text that this device trains on */
export function sourceWords(source) {
  if (!source) return "";
  return source === "embedded"
    ? "Text: built-in text"
    : source === "fineweb-edu"
      ? "Text: FineWeb-Edu"
      : `Text: ${source}`;
}

/** @param {Page} page @returns {string} "–" where nothing can be said yet */
export function leftWords(page) {
  const { phase, stepMs, steps, step } = page.run;
  if (phase !== "running" || !stepMs) return "–";
  return inTime(((steps - step) * stepMs) / 1000);
}

/** @type {[RegExp, string][]} */
const KINDS = [
  [/iPhone/, "iPhone"],
  [/iPad/, "iPad"],
  [/Android.*Mobile/, "Android phone"],
  [/Android/, "Android tablet"],
  [/CrOS/, "Chromebook"],
  [/Windows/, "Windows computer"],
  [/Macintosh/, "Mac"],
  [/Linux/, "Linux computer"],
];

const PLANTS = [
  ...["Alder", "Aster", "Basil", "Birch", "Clover", "Daisy", "Fern", "Hazel"],
  ...["Heather", "Holly", "Iris", "Ivy", "Jasmine", "Juniper", "Larch", "Lily"],
  ...["Linden", "Lotus", "Lupin", "Maple", "Mint", "Moss", "Olive", "Pansy"],
  ...["Poppy", "Reed", "Rowan", "Sage", "Thyme", "Tulip", "Violet", "Willow"],
];

/**
 * A first name for a device. Like ones stay apart by a plant and a number of two digits: of eight devices, two have
 * the same in one case of a hundred.
 * @param {string} userAgent
 * @param {number} random 0 … 2^32 − 1
 */
export function firstName(userAgent, random) {
  const kind = KINDS.find(([pattern]) => pattern.test(userAgent))?.[1] ?? "Device";
  const number = 10 + (Math.floor(random / PLANTS.length) % 90);
  return `${PLANTS[random % PLANTS.length]} ${number} · ${kind}`;
}
