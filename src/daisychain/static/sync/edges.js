/** The links between the others, as the leader sees them: who fits into a roster, and when one cannot go on. */

import { LINK_GRACE_MS, MAX_MEMBERS } from "../limits.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./types.js").View} View */

export class Edges {
  /** Since when an edge of the roster is broken. @type {Map<string, number>} */
  #brokenMs = new Map();

  /** @param {Session} session */
  constructor(session) {
    this.session = session;
  }

  forget() {
    this.#brokenMs.clear();
  }

  /** @param {string} id @param {View} view */
  fits(id, { roster }) {
    if (roster.includes(id) || roster.length >= MAX_MEMBERS) return false;
    return roster.every((member) => this.#linked(member, id));
  }

  /** Mutual, by what both last said. @param {string} a @param {string} b @returns {boolean} */
  #linked(a, b) {
    const { session } = this;
    if (a === session.id) return session.alive(b) && session.links.status(b)?.links.includes(a) === true;
    if (b === session.id) return this.#linked(b, a);
    const says = (/** @type {string} */ x, /** @type {string} */ y) =>
      session.links.status(x)?.links.includes(y);
    return says(a, b) === true && says(b, a) === true;
  }

  /** A leader's view that cannot go on: someone is gone, an edge is broken for too long, or someone promised another.
   * @param {View} view */
  unfit({ roster, epoch }) {
    const { session } = this;
    const others = roster.filter((id) => id !== session.id);
    if (session.promised.epoch > epoch || others.some((id) => session.gone(id))) return true;
    const counted = session.trail.flatMap((each) => each.roster);
    const promisedLater = counted.some((id) => {
      const status = session.links.status(id);
      return status?.run === session.run && status.promised > session.promised.epoch;
    });
    if (promisedLater) return true;
    let unfit = false;
    for (const a of roster) {
      for (const b of roster) unfit = (a < b && this.#edgeGone(a, b)) || unfit;
    }
    return unfit;
  }

  /** @param {string} a @param {string} b */
  #edgeGone(a, b) {
    const { nowMs } = this.session;
    const edge = `${a} ${b}`;
    if (this.#linked(a, b)) this.#brokenMs.delete(edge);
    else if (!this.#brokenMs.has(edge)) this.#brokenMs.set(edge, nowMs);
    return nowMs - (this.#brokenMs.get(edge) ?? nowMs) > LINK_GRACE_MS;
  }
}
