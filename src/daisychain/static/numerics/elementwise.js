/** Requantise and ReLU: the two elementwise units, in integer arithmetic (docs/NUMERICS.md, rules 2 and 5). */

import { max, min } from "./numbers.js";

/**
 * `sat8((x + 128) >> 8)`: a 16-bit number to an 8-bit one, half rounds up.
 * @param {number} x int16
 * @returns {number} int8
 */
export function requantise(x) {
  return max(-128, min(127, (x + 128) >> 8));
}

/**
 * `max(x, 0)` on an 8-bit code.
 * @param {number} x int8
 * @returns {number} int8
 */
export function relu(x) {
  return max(x, 0);
}
