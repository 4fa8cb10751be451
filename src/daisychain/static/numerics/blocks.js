/**
 * Power-of-two block format and its exact products: slow, exact, readable (docs/NUMERICS.md, rules 1 to 7).
 *
 * A matrix is a flat array, row after row, with the contraction along the row. The contraction is cut into blocks
 * of 128; a block is 8-bit codes `q` in ±127 and one scale `2^k`.
 */

import { AccumulatorBoundError, BlockRangeError, NonFiniteError } from "../errors.js";
import { ACCUMULATOR_MAX_K, BLOCK_LENGTH, EXPONENT_MAX, EXPONENT_MIN } from "../limits.js";
import { bitsOf, powerOfTwo } from "./bits.js";
import * as units from "./elementwise.js";
import { abs, floor, fround, max, min } from "./numbers.js";

/**
 * A matrix in block format: `codes` [rows, length], `exponents` [rows, blocks]; block b covers columns
 * `edges[b]` up to `edges[b + 1]`.
 * @typedef {{codes: Int8Array, exponents: Int8Array, edges: Int32Array, rows: number, length: number}} Blocks
 */

/** The first magnitude that no exponent holds. Everything from here on is refused. */
export const MAGNITUDE_LIMIT = 127.5 * powerOfTwo(EXPONENT_MAX);

/**
 * Where blocks begin and end along a contraction: [0, 128, …, length]. With `period`, blocks restart at every
 * multiple of it, so that no block holds rows of two sequences.
 * @param {number} length
 * @param {number} [period]
 */
export function blockEdges(length, period = length) {
  const starts = [];
  for (let segment = 0; segment < length; segment += period) {
    const end = min(segment + period, length);
    for (let start = segment; start < end; start += BLOCK_LENGTH) starts.push(start);
  }
  return Int32Array.of(...starts, length);
}

/**
 * The smallest k ≥ −60 with floor(a·2^(8−k)) ≤ 32,639, read from the bits of the magnitude `a`:
 * a = 1.f · 2^e fits k = e − 6 unless 1.f ≥ 127.5/64, which is where adding 2^16 carries into the exponent.
 * @param {number} magnitude float32, 0 or more and below MAGNITUDE_LIMIT
 */
export function scaleExponent(magnitude) {
  return max(((bitsOf(magnitude) + 0x10000) >> 23) - 133, EXPONENT_MIN);
}

/**
 * Quantise along the rows, in blocks of 128 or those of `edges`. `requantise` is the unit that rounds. Throws
 * NonFiniteError for NaN or infinity, BlockRangeError for magnitudes of 127.5·2^53 or more.
 * @param {Float32Array} x [rows, length]
 * @param {number} rows
 * @param {number} length
 * @param {Int32Array} [edges]
 * @param {(x: number) => number} [requantise]
 * @returns {Blocks}
 */
export function quantise(x, rows, length, edges = blockEdges(length), requantise = units.requantise) {
  checkQuantisable(x, length);
  const blocks = edges.length - 1;
  const codes = new Int8Array(rows * length);
  const exponents = new Int8Array(rows * blocks);
  for (let row = 0; row < rows; row++) {
    for (let block = 0; block < blocks; block++) {
      const start = row * length + edges[block];
      const end = row * length + edges[block + 1];
      let magnitude = 0;
      for (let i = start; i < end; i++) magnitude = max(magnitude, abs(x[i]));
      const k = scaleExponent(magnitude);
      exponents[row * blocks + block] = k;
      const factor = powerOfTwo(8 - k);
      for (let i = start; i < end; i++) codes[i] = requantise(floor(fround(x[i] * factor)));
    }
  }
  return { codes, exponents, edges, rows, length };
}

/**
 * The numbers that the codes stand for, `q·2^k`: [rows, length], exact.
 * @param {Blocks} blocks
 */
export function blockValues({ codes, exponents, edges, rows, length }) {
  const values = new Float32Array(rows * length);
  const blocks = edges.length - 1;
  for (let row = 0; row < rows; row++) {
    for (let block = 0; block < blocks; block++) {
      const scale = powerOfTwo(exponents[row * blocks + block]);
      const end = row * length + edges[block + 1];
      for (let i = row * length + edges[block]; i < end; i++) values[i] = codes[i] * scale;
    }
  }
  return values;
}

/**
 * ReLU on the unit: quantise, ReLU of the codes, their values. Quantising the result again loses nothing.
 * @param {Float32Array} x [rows, length]
 * @param {number} rows
 * @param {number} length
 */
export function blockRelu(x, rows, length) {
  const blocks = quantise(x, rows, length);
  return blockValues({ ...blocks, codes: blocks.codes.map(units.relu) });
}

/**
 * (m, K) · (n, K)ᵀ → (m, n): Σ over blocks, in order from +0, of f32(sum)·2^(ka+kb). Conversion and scaling are
 * exact, so each block costs one rounding, that of its addition. Both sides have the same edges.
 * @param {Blocks} a
 * @param {Blocks} b
 */
export function blockProduct(a, b) {
  checkContraction(a.length);
  const blocks = a.edges.length - 1;
  const out = new Float32Array(a.rows * b.rows);
  for (let i = 0; i < a.rows; i++) {
    for (let j = 0; j < b.rows; j++) {
      let total = 0;
      for (let block = 0; block < blocks; block++) {
        let sum = 0;
        for (let at = a.edges[block]; at < a.edges[block + 1]; at++) {
          sum += a.codes[i * a.length + at] * b.codes[j * b.length + at];
        }
        const exponent = a.exponents[i * blocks + block] + b.exponents[j * blocks + block];
        total = fround(total + sum * powerOfTwo(exponent));
      }
      out[i * b.rows + j] = total;
    }
  }
  return out;
}

/**
 * Quantise `a` (m, K) and `b` (n, K) along K and multiply: (m, n).
 * @param {Float32Array} a
 * @param {Float32Array} b
 * @param {number} m
 * @param {number} n
 * @param {number} length K
 * @param {Int32Array} [edges]
 */
export function product(a, b, m, n, length, edges) {
  checkContraction(length);
  return blockProduct(quantise(a, m, length, edges), quantise(b, n, length, edges));
}

/**
 * 3×INT8: (high·high + high·low) + low·high, in that order; nearly float from three 8-bit products.
 * @param {Float32Array} a (m, K)
 * @param {Float32Array} b (n, K)
 * @param {number} m
 * @param {number} n
 * @param {number} length K
 * @param {Int32Array} [edges]
 */
export function tripleProduct(a, b, m, n, length, edges) {
  checkContraction(length);
  const [aHigh, aLow] = splitHighLow(a, m, length, edges);
  const [bHigh, bLow] = splitHighLow(b, n, length, edges);
  const highLow = blockProduct(aHigh, bLow);
  const lowHigh = blockProduct(aLow, bHigh);
  return blockProduct(aHigh, bHigh).map((high, i) => fround(high + highLow[i]) + lowHigh[i]);
}

/**
 * @param {Float32Array} x
 * @param {number} rows
 * @param {number} length
 * @param {Int32Array} [edges]
 */
function splitHighLow(x, rows, length, edges) {
  const high = quantise(x, rows, length, edges);
  const values = blockValues(high);
  const rest = x.map((value, i) => value - values[i]);
  return [high, quantise(rest, rows, length, edges)];
}

/**
 * Refuse a contraction longer than the exact accumulator allows, at every product's entry.
 * @param {number} length
 */
export function checkContraction(length) {
  if (length > ACCUMULATOR_MAX_K) {
    throw new AccumulatorBoundError(
      `a contraction of K = ${length} is above ${ACCUMULATOR_MAX_K}, where 8-bit products no longer sum exactly; ` +
        "use a smaller layer, or fewer rows (samples × positions) a step.",
    );
  }
}

/**
 * Refuse what the block format cannot hold, saying how many values are bad and where the first is.
 * @param {Float32Array} x [rows, length]
 * @param {number} length
 */
export function checkQuantisable(x, length) {
  if (allBelow(x, MAGNITUDE_LIMIT)) return;
  refuse(x, length, NonFiniteError, (value) => !Number.isFinite(value), "are NaN or infinite");
  const range = `have a magnitude of 127.5·2^${EXPONENT_MAX} or more`;
  refuse(x, length, BlockRangeError, (value) => abs(value) >= MAGNITUDE_LIMIT, range);
}

/** Whether all magnitudes are; NaN is not. @param {Float32Array} x @param {number} limit */
function allBelow(x, limit) {
  for (let i = 0; i < x.length; i++) if (!(abs(x[i]) < limit)) return false;
  return true;
}

/**
 * @param {Float32Array} x
 * @param {number} length
 * @param {typeof NonFiniteError | typeof BlockRangeError} Refusal
 * @param {(value: number) => boolean} bad
 * @param {string} what
 */
function refuse(x, length, Refusal, bad, what) {
  const first = x.findIndex(bad);
  if (first < 0) return;
  const place = `(${floor(first / length)}, ${first % length})`;
  throw new Refusal(
    `${x.filter(bad).length} of ${x.length} values ${what}, the first at ${place}; they cannot be quantised. ` +
      "Training has diverged, or the input is bad: lower the learning rate.",
  );
}
