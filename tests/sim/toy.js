/** A toy model in integers: any gradient left out, counted twice or in another place shows in all that follows. */

import { mix } from "../../src/daisychain/static/numerics/roster.js";

/** @typedef {import("../../src/daisychain/static/sync/types.js").Part} Part */
/** @typedef {{step: number, position: number, w: number, m: number}} ToyState */

export const BATCH = 3;
const GRAIN = 16;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** What a hash shows of a state: the weights, not the optimiser's part. @param {ToyState} state */
export function hashOf({ step, w }) {
  const word = (/** @type {number} */ x) => mix(x).toString(16).padStart(8, "0");
  return word(w) + word(w + step) + "5".repeat(48);
}

export class Toy {
  /** @type {ToyState} */
  state = { step: 0, position: 0, w: 1, m: 1 };
  residual = 0;
  /** Raw and sent gradients of this device in applied sets, since its state came in. */
  raw = 0;
  sent = 0;
  /** By epoch and step: what each computed gradient would make of the residual. @type {Map<string, number[]>} */
  pending = new Map();

  /** @param {{epoch: number, step: number, place: number}} of */
  compute({ epoch, step, place }) {
    const first = this.state.position + place * BATCH;
    const raw = 32 + (mix(first * 7919 + this.state.w) & 255);
    const sent = Math.floor((raw + this.residual) / GRAIN) * GRAIN;
    this.pending.set(`${epoch}/${step}`, [raw, sent]);
    return {
      payload: new Uint8Array(Float32Array.of(sent, first).buffer),
      count: BATCH,
      loss: raw,
      probe: "7".repeat(64),
      tookMs: 1,
    };
  }

  /** @param {string} id @param {{origin: number, parts: Part[]}} set */
  apply(id, { origin, parts }) {
    const { state } = this;
    let { w, m } = state;
    for (const { bytes, count } of parts) {
      const [value, first] = new Float32Array(bytes.slice().buffer);
      w = mix(w ^ (value + 31 * first + count));
    }
    m = mix(m + w);
    this.#account(id, origin, parts);
    this.state = { step: state.step + 1, position: state.position + BATCH * parts.length, w: w ^ m, m };
  }

  /** @param {string} id @param {number} origin @param {Part[]} parts */
  #account(id, origin, parts) {
    const mine = parts.some((part) => part.id === id);
    const [raw, sent] = this.pending.get(`${origin}/${this.state.step}`) ?? [0, 0];
    if (mine) {
      this.raw += raw;
      this.sent += sent;
      this.residual += raw - sent;
    }
    this.pending.clear();
  }

  /** Nothing of this device's gradients is lost or counted twice. */
  balanced() {
    return this.raw === this.sent + this.residual;
  }

  export() {
    return encoder.encode(JSON.stringify(this.state));
  }

  /** @param {Uint8Array | null} bytes */
  import(bytes) {
    this.state = bytes ? JSON.parse(decoder.decode(bytes)) : { step: 0, position: 0, w: 1, m: 1 };
    Object.assign(this, { residual: 0, raw: 0, sent: 0, pending: new Map() });
  }
}
