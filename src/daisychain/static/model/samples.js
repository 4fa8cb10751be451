/** A text of tokens as samples: windows side by side, each with one token to come. */

import { floor, max } from "../numerics/numbers.js";

/**
 * How many samples a text has.
 * @param {Uint16Array} text
 * @param {number} sequence
 */
export function sampleCount(text, sequence) {
  return max(0, floor((text.length - 1) / sequence));
}

/**
 * Tokens of these samples, one after the other, and the tokens that follow each.
 * @param {Uint16Array} text
 * @param {number[]} samples numbers below sampleCount
 * @param {number} sequence
 */
export function sampleWindows(text, samples, sequence) {
  const ids = new Uint16Array(samples.length * sequence);
  const targets = new Uint16Array(ids.length);
  samples.forEach((sample, i) => {
    const start = sample * sequence;
    ids.set(text.subarray(start, start + sequence), i * sequence);
    targets.set(text.subarray(start + 1, start + 1 + sequence), i * sequence);
  });
  return { ids, targets };
}
