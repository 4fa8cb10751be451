/** What a device knows of the run that it is in. */

import { EPOCH_LEAP } from "../limits.js";
import { max } from "../numerics/numbers.js";

/** @typedef {import("./types.js").View} View */
/** @typedef {import("./view.js").Content} Content */

export class Memory {
  /** @type {string | null} */
  run = null;
  /** @type {import("./types.js").RunConfig | null} */
  config = null;
  tokens = new Uint16Array(0);
  /** The state: steps applied, its hash (null: none yet), and what a gradient of it measures. */
  step = 0;
  /** @type {string | null} */
  hash = null;
  payloadBytes = 0;
  /** The views that count: the first has committed steps, the last is the accepted one. @type {View[]} */
  trail = [];
  /** Where the accepted view began, and the content that it completes first. */
  base = 0;
  /** @type {Content | null} */
  adopt = null;
  promised = { epoch: 0, to: "", sinceMs: 0 };
  /** The highest epoch seen anywhere in the run. */
  seenEpoch = 0;
  stopping = false;
  /** What the host is at, besides computing. @type {Job | null} */
  job = null;
  /** @type {import("./types.js").Phase} */
  phase = "idle";
  reason = "";

  /**
   * Take note of an epoch; false for one so far ahead that no honest device can have come to it: the numbers would run
   * out. A device that knows nothing of the run yet believes any.
   * @param {number} epoch
   */
  saw(epoch) {
    const plausible =
      this.trail.length === 0 || epoch <= max(this.promised.epoch, this.seenEpoch) + EPOCH_LEAP;
    if (plausible) this.seenEpoch = max(this.seenEpoch, epoch);
    return plausible;
  }
}

/** `expected`: what an import has to arrive at, and who sent it.
 * @typedef {{job: number, kind: "apply" | "export" | "import", expected?: Expected}} Job */
/** @typedef {{step: number, hash: string, from: string}} Expected */
