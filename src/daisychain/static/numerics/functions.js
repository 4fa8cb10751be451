/**
 * exp, log, softmax and cross-entropy from IEEE + − × ÷ and floor alone (docs/NUMERICS.md, rules 9 to 11).
 *
 * Every operation is a separate, correctly rounded float32 operation in the order written. Float64 followed by
 * fround rounds once for + − × ÷ and √ of float32 numbers.
 */

import { NonFiniteError } from "../errors.js";
import { bitsOf, fromBits, powerOfTwo } from "./bits.js";
import { floor, fround, LN2, LOG2E, max } from "./numbers.js";

const LANES = 16;
const LOG2_E = fround(LOG2E);
const LN2_HIGH = 355 / 512; // nine bits: n·LN2_HIGH is exact for every n that occurs
const LN2_LOW = fround(LN2 - 355 / 512);
const EXP_COEFFICIENTS = [5040, 720, 120, 24, 6, 2, 1, 1].map((factorial) => fround(1 / factorial));
const LOG_COEFFICIENTS = [2 / 9, 2 / 7, 2 / 5, 2 / 3].map(fround);
const EXP_MIN = -87; // below: 0, so that no subnormal arises
const EXP_MAX = 88; // above: infinity
const NORMAL_MIN = powerOfTwo(-126);

/**
 * e^x within 2 ulp; 0 below −87, infinity above 88, NaN for NaN.
 * @param {number} x float32
 */
export function exp(x) {
  if (x < EXP_MIN) return 0;
  if (x > EXP_MAX) return Number.POSITIVE_INFINITY;
  const n = floor(fround(fround(x * LOG2_E) + 0.5));
  const r = fround(fround(x - fround(n * LN2_HIGH)) - fround(n * LN2_LOW));
  return fround(horner(EXP_COEFFICIENTS, r) * powerOfTwo(n));
}

/**
 * Natural logarithm of a positive normal float32 number, within 2 ulp. Throws NonFiniteError for any other.
 * @param {number} x
 */
export function log(x) {
  if (!(x >= NORMAL_MIN && x < Number.POSITIVE_INFINITY)) {
    throw new NonFiniteError(`log needs a finite, positive, normal number; got ${x}.`);
  }
  const bits = bitsOf(x);
  // 0x3504F4 is just above the fraction of √2: mantissas from there on are halved, so that m lies in [√½, √2].
  const n = ((bits + (0x800000 - 0x3504f4)) >> 23) - 127;
  const f = fround(fromBits(bits - (n << 23)) - 1);
  const s = fround(f / fround(2 + f));
  const z = fround(s * s);
  const tail = fround(fround(s * z) * horner(LOG_COEFFICIENTS, z));
  const low = fround(fround(tail + fround(n * LN2_LOW)) + fround(s + s));
  return fround(low + fround(n * LN2_HIGH));
}

/**
 * @param {number[]} coefficients from the highest power on
 * @param {number} x
 */
function horner(coefficients, x) {
  return coefficients.reduce((y, coefficient) => fround(fround(y * x) + coefficient));
}

/**
 * Sum in the pinned order: 16 strided lanes, each in order from +0, then halved 8, 4, 2, 1.
 * @param {Float32Array} x
 */
export function laneSum(x) {
  const lanes = new Float32Array(LANES);
  // A last row that is not full adds +0 to the other lanes, which turns no bit of a sum that began at +0.
  for (let i = 0; i < x.length; i++) lanes[i % LANES] += x[i];
  for (let half = LANES / 2; half >= 1; half /= 2) {
    for (let lane = 0; lane < half; lane++) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

/**
 * x − max, its exponentials, and their sum. Throws NonFiniteError if a number of the row is not finite.
 * @param {Float32Array} x
 */
function shift(x) {
  const bad = x.filter((value) => !Number.isFinite(value)).length;
  if (bad) throw new NonFiniteError(`${bad} of ${x.length} logits are NaN or infinite.`);
  const largest = x.reduce((a, b) => max(a, b));
  const shifted = x.map((value) => value - largest);
  const exponentials = shifted.map(exp);
  return { shifted, exponentials, total: laneSum(exponentials) };
}

/**
 * Softmax of one row of finite numbers.
 * @param {Float32Array} x
 */
export function softmax(x) {
  const { exponentials, total } = shift(x);
  return exponentials.map((value) => value / total);
}

/**
 * Logarithm of the softmax of one row.
 * @param {Float32Array} x
 */
export function logSoftmax(x) {
  const { shifted, total } = shift(x);
  const logTotal = log(total);
  return shifted.map((value) => value - logTotal);
}

/**
 * Loss of one row in nats and its gradient.
 * @param {Float32Array} logits [classes]
 * @param {number} target
 */
export function crossEntropy(logits, target) {
  const { shifted, exponentials, total } = shift(logits);
  const gradient = exponentials.map((value) => value / total);
  gradient[target] -= 1;
  return { loss: fround(log(total) - shifted[target]), gradient };
}
