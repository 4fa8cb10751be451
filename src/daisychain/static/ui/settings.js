/** The settings of a run: sliders with numbers, and what they cost. */

import { BATCH_SAMPLES, MAX_LAYERS, RATE_THOUSANDTHS, SEQUENCE, STEPS, WIDTH } from "../limits.js";
import { element, part, say } from "./dom.js";
import { parametersOf, stepBytes } from "./estimate.js";
import { DEFAULT_SETTINGS } from "./state.js";
import { inBytes, isBusy, many, nameOf, whole } from "./words.js";

/** @typedef {import("./state.js").Page} Page */
/** @typedef {import("./state.js").Settings} Settings */
/** @typedef {{key: keyof Settings, label: string, hint: string, range: readonly [number, number, number], step: number, slide?: number}} Slider what slides goes by `slide` where that is not `step` */

const SEED_MAX = 2 ** 32 - 1;

/** @type {Slider[]} */
export const SLIDERS = [
  {
    key: "width",
    label: "Width",
    hint: "Numbers per token, in steps of 8: more learns more and costs more.",
    range: WIDTH,
    step: 8,
  },
  {
    key: "sequence",
    label: "Sequence",
    hint: "Tokens the model sees at once.",
    range: SEQUENCE,
    step: 1,
    slide: 8,
  },
  { key: "batch", label: "Batch", hint: "Sequences per device and step.", range: BATCH_SAMPLES, step: 1 },
  { key: "steps", label: "Steps", hint: "", range: STEPS, step: 1, slide: 50 },
  { key: "rate", label: "Learning rate × 1000", hint: "", range: RATE_THOUSANDTHS, step: 1 },
];

/** @type {Slider} */
const LAYERS = {
  key: "layers",
  label: "Layers",
  hint: "",
  range: [1, MAX_LAYERS, DEFAULT_SETTINGS.layers],
  step: 1,
};

/** @type {[key: keyof Settings, label: string, hint: string, options: [value: string, label: string][]][]} */
const CHOICES = [
  [
    "heads",
    "Attention heads",
    "",
    ["1", "2", "4", "8"].map((heads) => /** @type {[string, string]} */ ([heads, heads])),
  ],
  [
    "gradients",
    "Gradients travel as",
    "8-bit needs a quarter of the network; what rounding loses is added to the next step.",
    [
      ["float32", "float32"],
      ["int8", "8-bit"],
    ],
  ],
  [
    "source",
    "Text",
    "",
    [
      ["auto", "FineWeb-Edu, else built-in text"],
      ["fineweb-edu", "FineWeb-Edu only"],
      ["embedded", "Built-in text"],
    ],
  ],
];

/**
 * A number as near to the wanted one as the range and the step allow.
 * @param {number} value
 * @param {Pick<Slider, "range" | "step">} slider
 */
export function fitted(value, { range: [least, most, usual], step }) {
  if (!Number.isFinite(value)) return usual;
  const onStep = least + Math.round((value - least) / step) * step;
  return Math.min(most, Math.max(least, onStep));
}

/** @param {Settings} settings */
export function briefWords({ width, layers, steps }) {
  return `width ${width}, ${many(layers, "layer")}, ${many(steps, "step")}`;
}

/** @param {Settings} settings @param {number} devices */
export function sizeWords(settings, devices) {
  const { batch, sequence } = settings;
  return [
    `${whole(parametersOf(settings))} parameters.`,
    `Each device sends ${inBytes(stepBytes(settings))} to each other device a step`,
    `and the group reads ${whole(batch * sequence * devices)} tokens.`,
  ].join(" ");
}

/**
 * The settings for the next run once one is over: the model's own shape, and all else as the run had it, so that
 * every device offers the same; but what the person chose here stays.
 * @param {Settings} chosen
 * @param {Page} page whose run is over
 * @param {Set<keyof Settings>} own keys that the person chose here
 * @returns {Settings}
 */
export function takenOver(chosen, { id, run, losses, newRun, from }, own) {
  if (!run.settings) return chosen;
  const { width, layers, heads, sequence, batch, steps, rate, seed, gradients, source } = run.settings;
  const shape = { width, layers, heads, sequence };
  // The leader's were its own; a loaded file has none beside the shape.
  if (run.leader === id || newRun || !losses.length) return { ...chosen, ...shape };
  const rest = {
    batch,
    steps: fitted(steps - from, { range: STEPS, step: 1 }),
    rate,
    seed,
    gradients,
    source,
  };
  const free = Object.entries(rest).filter(([key]) => !own.has(/** @type {keyof Settings} */ (key)));
  return { ...chosen, ...shape, ...Object.fromEntries(free) };
}

/**
 * Makes the form; returns its renderer and a reader of the settings chosen.
 * @param {() => void} changed told of a choice
 */
export function createSettings(changed) {
  const leader = part("settings-leader", HTMLElement);
  const brief = part("settings-brief", HTMLElement);
  const sizes = element("p", { class: "sizes" });
  let chosen = { ...DEFAULT_SETTINGS };
  let shown = chosen;
  let devices = 1;
  /** @type {Set<keyof Settings>} */
  const own = new Set();
  let taken = "";

  const sum = () => {
    say(brief, briefWords(shown));
    say(sizes, sizeWords(shown, devices));
  };
  const choose = (/** @type {keyof Settings} */ key, /** @type {number | string} */ value) => {
    chosen = { ...chosen, [key]: value };
    shown = chosen;
    own.add(key);
    sum();
    changed();
  };
  const controls = allControls(choose);
  const boxes = controls.map(({ box }) => box);
  const all = fillForm(boxes, sizes);
  const show = () => {
    for (const control of controls) control.show(shown);
    sum();
  };
  show();
  return {
    /** @returns {Settings} */
    read: () => chosen,
    /** @param {Page} page */
    render(page) {
      const busy = isBusy(page);
      const ran = JSON.stringify(page.run.settings);
      if (!busy && page.run.model && !page.asked && ran !== taken) {
        taken = ran;
        chosen = takenOver(chosen, page, own);
        own.clear();
      }
      const wanted = busy && page.run.settings ? page.run.settings : chosen;
      const count = page.members.length + 1;
      if (wanted !== shown || count !== devices) {
        shown = wanted;
        devices = count;
        show();
      }
      all.disabled = busy;
      leader.hidden = !busy;
      const by = page.run.leader ? nameOf(page, page.run.leader) : "";
      say(leader, by ? `Set by ${by} for all. They can change again after the run.` : "");
    },
  };
}

/** @typedef {(key: keyof Settings, value: number | string) => void} Choose */

/** The sliders, the rest folded away, and what all of it costs. @param {Node[]} boxes @param {Node} sizes */
function fillForm(boxes, sizes) {
  const form = part("settings", HTMLFormElement);
  const more = element("details", { class: "more" }, element("summary", {}, "More"));
  more.append(...boxes.slice(SLIDERS.length));
  const all = element("fieldset", { class: "bare" }, ...boxes.slice(0, SLIDERS.length), more, sizes);
  form.append(all);
  form.addEventListener("submit", (event) => event.preventDefault());
  return all;
}

/** In the order of the page. @param {Choose} choose */
const allControls = (choose) => [
  ...[...SLIDERS, LAYERS].map((slider) => sliderControl(slider, choose)),
  ...CHOICES.map((choice) => choiceControl(choice, choose)),
  seedControl(choose),
];

/** @param {Slider} slider @param {Choose} choose */
function sliderControl(slider, choose) {
  const { key, label, hint, range, step, slide: slideStep = step } = slider;
  const [min, max] = range;
  const id = `setting-${key}`;
  const bounds = { min, max, step };
  const about = { "aria-describedby": hint && `${id}-hint` };
  const slide = element("input", { type: "range", id, ...bounds, step: slideStep, ...about });
  const number = element("input", { type: "number", "aria-label": `${label}, as a number`, ...bounds });
  const box = element("div", { class: "setting" }, element("label", { for: id }, label), slide, number);
  if (hint) box.append(element("p", { class: "hint", id: `${id}-hint` }, hint));
  slide.addEventListener("input", () => {
    number.value = slide.value;
    choose(key, Number(slide.value));
  });
  number.addEventListener("change", () => {
    const value = fitted(number.value === "" ? Number.NaN : Number(number.value), slider);
    number.value = slide.value = String(value);
    choose(key, value);
  });
  return {
    box,
    show(/** @type {Settings} */ settings) {
      number.value = slide.value = String(settings[key]);
    },
  };
}

/** @param {(typeof CHOICES)[number]} choice @param {Choose} choose */
function choiceControl([key, label, hint, options], choose) {
  const id = `setting-${key}`;
  const about = { "aria-describedby": hint && `${id}-hint` };
  const select = element(
    "select",
    { id, ...about },
    ...options.map(([value, words]) => element("option", { value }, words)),
  );
  const box = element("div", { class: "setting" }, element("label", { for: id }, label), select);
  if (hint) box.append(element("p", { class: "hint", id: `${id}-hint` }, hint));
  select.addEventListener("change", () => choose(key, key === "heads" ? Number(select.value) : select.value));
  return {
    box,
    show(/** @type {Settings} */ settings) {
      select.value = String(settings[key]);
    },
  };
}

/** @param {Choose} choose */
function seedControl(choose) {
  const id = "setting-seed";
  const slider = { range: /** @type {const} */ ([0, SEED_MAX, DEFAULT_SETTINGS.seed]), step: 1 };
  const number = element("input", { type: "number", id, min: 0, max: SEED_MAX, step: 1 });
  const box = element("div", { class: "setting" }, element("label", { for: id }, "Seed"), number);
  number.addEventListener("change", () => {
    const value = fitted(number.value === "" ? Number.NaN : Number(number.value), slider);
    number.value = String(value);
    choose("seed", value);
  });
  return {
    box,
    show(/** @type {Settings} */ settings) {
      number.value = String(settings.seed);
    },
  };
}
