/** What must hold at any time, over all devices that ever were. */

import { BATCH } from "./toy.js";

/** @typedef {import("../../src/daisychain/static/sync/types.js").Part} Part */
/** @typedef {import("../../src/daisychain/static/sync/types.js").View} View */

export class Violation extends Error {}

export class Judge {
  /** By run and epoch. @type {Map<string, View>} */
  #views = new Map();
  /** By run and step: the whole state. @type {Map<string, string>} */
  #states = new Map();

  /** @param {boolean} holds @param {string} what */
  require(holds, what) {
    if (!holds) throw new Violation(what);
  }

  /** @param {string} run @param {View} view @param {(a: string, b: string) => boolean} deaf */
  view(run, view, deaf) {
    const key = `${run}/${view.epoch}`;
    const known = this.#views.get(key);
    if (known) {
      this.require(JSON.stringify(known) === JSON.stringify(view), `epoch ${view.epoch} has two views`);
      return;
    }
    this.#views.set(key, view);
    for (const a of view.roster) {
      for (const b of view.roster)
        this.require(a === b || !deaf(a, b), `${a} is rostered with ${b}, but hears nothing`);
    }
  }

  /** @param {string} run @param {import("./toy.js").ToyState} state */
  state(run, state) {
    const key = `${run}/${state.step}`;
    const whole = JSON.stringify(state);
    const known = this.#states.get(key);
    if (known === undefined) this.#states.set(key, whole);
    else this.require(known === whole, `two states at step ${state.step}: ${known} and ${whole}`);
  }

  /** A set is one roster's whole set, and goes on where the last one ended.
   * @param {string} run @param {number} origin @param {Part[]} parts @param {import("./toy.js").ToyState} state */
  set(run, origin, parts, state) {
    const roster = this.#views.get(`${run}/${origin}`)?.roster ?? [];
    const ids = parts.map(({ id }) => id);
    this.require(ids.join() === roster.join(), `step ${state.step} averages ${ids} for the roster ${roster}`);
    parts.forEach(({ bytes, count }, place) => {
      const first = new Float32Array(bytes.slice().buffer)[1];
      const due = state.position + place * BATCH;
      this.require(first === due && count === BATCH, `position ${first} is used where ${due} is due`);
    });
  }
}
