/** The gradients at hand: sets that are being collected, and the last applied ones, kept for repair. */

import { EARLY_GRADIENTS, REPAIR_BYTES, REPAIR_STEPS } from "../limits.js";

/** @typedef {import("./view.js").Content} Content */
/** @typedef {{count: number, loss: number, probe: string, tookMs: number, payload: Uint8Array}} Gradient */
/** @typedef {{of: number, origin: number, parts: Map<string, Gradient>}} GradientSet */

export class Gradients {
  /** By step and origin. @type {Map<string, GradientSet>} */
  #sets = new Map();
  /** Applied sets, the latest last. @type {(GradientSet & {last: boolean})[]} */
  #applied = [];

  /**
   * Keep a gradient; of one device the newest few, and those of a set that is `kept`.
   * @param {number} of step @param {number} origin @param {string} author @param {Gradient} gradient
   * @param {{origin: number} | null} kept
   */
  add(of, origin, author, gradient, kept) {
    const key = `${of}/${origin}`;
    const set = this.#sets.get(key) ?? { of, origin, parts: new Map() };
    if (set.parts.has(author)) return;
    this.#sets.set(key, set);
    set.parts.set(author, gradient);
    const others = [...this.#sets.values()].filter(({ parts }) => parts.has(author));
    if (others.length <= EARLY_GRADIENTS) return;
    const oldest = others
      .filter(({ origin: other }) => other !== kept?.origin)
      .reduce((a, b) => (b.of < a.of || (b.of === a.of && b.origin < a.origin) ? b : a));
    oldest.parts.delete(author);
    if (oldest.parts.size === 0) this.#sets.delete(`${oldest.of}/${oldest.origin}`);
  }

  /** @param {number} of @param {number} origin @param {string} author */
  get(of, origin, author) {
    const set =
      this.#sets.get(`${of}/${origin}`) ?? this.#applied.find((a) => a.of === of && a.origin === origin);
    return set?.parts.get(author);
  }

  /** Whose gradients are missing. @param {Content} content */
  missing({ step, origin, roster }) {
    return roster.filter((author) => this.get(step, origin, author) === undefined);
  }

  /** The whole set in roster order. @param {Content} content */
  parts({ step, origin, roster }) {
    return roster.map((id) => ({ id, .../** @type {Gradient} */ (this.get(step, origin, id)) }));
  }

  /**
   * This content was applied: keep it for repair, drop what else was collected for its step.
   * @param {Content} content @param {boolean} last @param {number} steps that are kept
   */
  retire({ step, origin }, last, steps) {
    const set = this.#sets.get(`${step}/${origin}`);
    if (set) this.#applied.push({ ...set, last });
    this.dropBelow(step + 1);
    while (this.#applied.length > 1 && (this.#applied.length > steps || this.#bytes() > REPAIR_BYTES)) {
      this.#applied.shift();
    }
  }

  /** @param {number} step */
  dropBelow(step) {
    for (const [key, set] of this.#sets) if (set.of < step) this.#sets.delete(key);
  }

  /** How a step was applied, if it is still known. @param {number} of */
  applied(of) {
    return this.#applied.find((set) => set.of === of);
  }

  #bytes() {
    let total = 0;
    for (const { parts } of this.#applied) for (const { payload } of parts.values()) total += payload.length;
    return total;
  }
}

/** @param {boolean} leads */
export function stepsKept(leads) {
  return leads ? REPAIR_STEPS : 1;
}
