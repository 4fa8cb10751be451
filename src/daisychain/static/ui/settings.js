/** The settings of a run: sliders with numbers, and what they cost. */

import { BATCH_SAMPLES, MAX_LAYERS, RATE_THOUSANDTHS, SEQUENCE, STEPS, WIDTH } from "../limits.js";
import { element, part, say } from "./dom.js";
import { parametersOf, stepBytes } from "./estimate.js";
import { DEFAULT_SETTINGS } from "./state.js";
import { inBytes, isBusy, many, nameOf, short, whole } from "./words.js";

/** @typedef {import("./state.js").Page} Page */
/** @typedef {import("./state.js").Settings} Settings */
/** @typedef {{key: keyof Settings, label: string, hint: string, range: readonly [number, number, number], step: number}} Slider */

const SEED_MAX = 2 ** 32 - 1;

/** @type {Slider[]} */
export const SLIDERS = [
  {
    key: "width",
    label: "Width",
    hint: "Numbers per token: more learns more and costs more.",
    range: WIDTH,
    step: 8,
  },
  { key: "sequence", label: "Sequence", hint: "Tokens the model sees at once.", range: SEQUENCE, step: 8 },
  { key: "batch", label: "Batch", hint: "Sequences per device and step.", range: BATCH_SAMPLES, step: 1 },
  { key: "steps", label: "Steps", hint: "", range: STEPS, step: 50 },
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
      ["auto", "FineWeb-Edu if it can be had, else built-in"],
      ["fineweb-edu", "FineWeb-Edu only"],
      ["embedded", "Built-in"],
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
    `and the group reads ${short(batch * sequence * devices)} tokens.`,
  ].join(" ");
}

/** Makes the form; returns its renderer and a reader of the settings chosen. */
export function createSettings() {
  const form = part("settings", HTMLFormElement);
  const leader = part("settings-leader", HTMLElement);
  const brief = part("settings-brief", HTMLElement);
  const sizes = element("p", { class: "sizes" });
  const all = element("fieldset", { class: "bare" });
  let chosen = { ...DEFAULT_SETTINGS };
  let shown = chosen;
  let devices = 1;

  const sum = () => {
    say(brief, briefWords(shown));
    say(sizes, sizeWords(shown, devices));
  };
  const choose = (/** @type {keyof Settings} */ key, /** @type {number | string} */ value) => {
    chosen = { ...chosen, [key]: value };
    shown = chosen;
    sum();
  };
  const controls = [...SLIDERS, LAYERS].map((slider) => sliderControl(slider, choose));
  const choices = CHOICES.map((choice) => choiceControl(choice, choose));
  const seed = seedControl(choose);
  const more = element("details", { class: "more" }, element("summary", {}, "More"));
  more.append(...[...controls.slice(SLIDERS.length), ...choices, seed].map(({ box }) => box));
  all.append(...controls.slice(0, SLIDERS.length).map(({ box }) => box), more, sizes);
  form.append(all);
  form.addEventListener("submit", (event) => event.preventDefault());

  const show = () => {
    for (const control of [...controls, ...choices, seed]) control.show(shown);
    sum();
  };
  show();
  return {
    /** @returns {Settings} */
    read: () => chosen,
    /** @param {Page} page */
    render(page) {
      const busy = isBusy(page);
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

/** @param {Slider} slider @param {Choose} choose */
function sliderControl(slider, choose) {
  const { key, label, hint, range, step } = slider;
  const [min, max] = range;
  const id = `setting-${key}`;
  const bounds = { min, max, step };
  const about = { "aria-describedby": hint && `${id}-hint` };
  const slide = element("input", { type: "range", id, ...bounds, ...about });
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
