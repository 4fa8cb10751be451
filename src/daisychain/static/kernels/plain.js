/**
 * The primitives in plain JavaScript: what every device can run, and what a wrong kernel is replaced by.
 *
 * Offsets are in bytes, strides in numbers. The codes of one block are held in panels of `width` rows: pair p (two
 * codes along the contraction, int16 each) of row r lies at pair `(⌊r/width⌋·pairs + p)·width + r mod width`; an odd
 * length ends in a code 0. The left operand has width 4, the right 8, so that a kernel reads both in order. Scales are
 * float32, one a row. Both are allocated for a multiple of 8 rows; what is in rows beyond the last is arbitrary, and
 * does not reach the output. Quantisers return the bits of the largest magnitude: what it refuses is the caller's
 * to refuse.
 */

import { EXPONENT_MIN } from "../limits.js";
import { floor, imul, max } from "../numerics/numbers.js";
import { plainFunctions } from "./plainFunctions.js";

/** @typedef {import("./memory.js").Memory} Memory */
/** @typedef {ReturnType<typeof plainPrimitives>} Primitives */

const SIGN = 0x7fffffff;

/**
 * k of rule 1, from the bits of the largest magnitude.
 * @param {number} bits
 */
function exponentOf(bits) {
  return max(((bits + 0x10000) >> 23) - 133, EXPONENT_MIN);
}

/** @param {Memory} memory */
export function plainPrimitives(memory) {
  const asInt = new Int32Array(1);
  const asFloat = new Float32Array(asInt.buffer);
  const sums = new Int32Array(8);

  /** @param {number} exponent */
  function powerOfTwo(exponent) {
    asInt[0] = (exponent + 127) << 23;
    return asFloat[0];
  }

  /**
   * Sums of codes of one row with the eight columns of a panel, into `sums`.
   * @param {Int16Array} shorts
   * @param {number} left where the row's first code lies among int16 numbers
   * @param {number} panel
   * @param {number} pairs
   */
  function panelSums(shorts, left, panel, pairs) {
    let s0 = 0;
    let s1 = 0;
    let s2 = 0;
    let s3 = 0;
    let s4 = 0;
    let s5 = 0;
    let s6 = 0;
    let s7 = 0;
    for (let i = left, j = panel; i < left + 8 * pairs; i += 8, j += 16) {
      const [x, y] = [shorts[i], shorts[i + 1]];
      s0 = (s0 + imul(x, shorts[j]) + imul(y, shorts[j + 1])) | 0;
      s1 = (s1 + imul(x, shorts[j + 2]) + imul(y, shorts[j + 3])) | 0;
      s2 = (s2 + imul(x, shorts[j + 4]) + imul(y, shorts[j + 5])) | 0;
      s3 = (s3 + imul(x, shorts[j + 6]) + imul(y, shorts[j + 7])) | 0;
      s4 = (s4 + imul(x, shorts[j + 8]) + imul(y, shorts[j + 9])) | 0;
      s5 = (s5 + imul(x, shorts[j + 10]) + imul(y, shorts[j + 11])) | 0;
      s6 = (s6 + imul(x, shorts[j + 12]) + imul(y, shorts[j + 13])) | 0;
      s7 = (s7 + imul(x, shorts[j + 14]) + imul(y, shorts[j + 15])) | 0;
    }
    sums[0] = s0;
    sums[1] = s1;
    sums[2] = s2;
    sums[3] = s3;
    sums[4] = s4;
    sums[5] = s5;
    sums[6] = s6;
    sums[7] = s7;
  }

  /**
   * One row (`step` 1) or column (`step` the stride) of a block.
   * @param {number} x
   * @param {number} step
   * @param {number} length
   */
  function largestBits(x, step, length) {
    const { ints } = memory;
    let bits = 0;
    for (let i = 0, at = x >> 2; i < length; i++, at += step) bits = max(bits, ints[at] & SIGN);
    return bits;
  }

  /**
   * @param {number} x
   * @param {number} rowStride
   * @param {number} step
   * @param {number} rows
   * @param {number} length at most 128
   * @param {number} width
   * @param {number} codes
   * @param {number} scales
   */
  function quantise(x, rowStride, step, rows, length, width, codes, scales) {
    const { floats, shorts } = memory;
    const pairs = (length + 1) >> 1;
    let all = 0;
    for (let row = 0; row < rows; row++) {
      const start = x + 4 * row * rowStride;
      const bits = largestBits(start, step, length);
      all = max(all, bits);
      const k = exponentOf(bits);
      floats[(scales >> 2) + row] = powerOfTwo(k);
      const factor = powerOfTwo(8 - k);
      const inPanel = row % width;
      let at = (codes >> 1) + 2 * ((row - inPanel) * pairs + inPanel);
      for (let i = 0, from = start >> 2; i < length; i++, from += step) {
        shorts[at] = (floor(floats[from] * factor) + 128) >> 8;
        at += i % 2 ? 2 * width - 1 : 1;
      }
      if (length % 2) shorts[at] = 0;
    }
    return all;
  }

  return {
    ...plainFunctions(memory),

    /**
     * Quantise `rows` rows; the contraction lies along a row.
     * @param {number} x
     * @param {number} stride from row to row
     * @param {number} rows
     * @param {number} length of the contraction, at most 128
     * @param {number} width 4 or 8
     * @param {number} codes
     * @param {number} scales
     */
    quantiseRows(x, stride, rows, length, width, codes, scales) {
      return quantise(x, stride, 1, rows, length, width, codes, scales);
    },

    /**
     * Quantise `rows` columns; the contraction lies across `length` rows of the matrix.
     * @param {number} x
     * @param {number} stride from row to row of the matrix, that is along the contraction
     * @param {number} rows
     * @param {number} length of the contraction, at most 128
     * @param {number} width 4 or 8
     * @param {number} codes
     * @param {number} scales
     */
    quantiseColumns(x, stride, rows, length, width, codes, scales) {
      return quantise(x, 1, stride, rows, length, width, codes, scales);
    },

    /**
     * One block's product: out[r, c] (+)= f32(Σ codes)·2^(ka+kb); the first block of a sum from +0 is stored.
     * @param {number} a codes, width 4
     * @param {number} aScales
     * @param {number} rows
     * @param {number} b codes, width 8
     * @param {number} bScales
     * @param {number} columns
     * @param {number} pairs
     * @param {number} out
     * @param {number} stride from row to row of `out`
     * @param {boolean} adds
     */
    product(a, aScales, rows, b, bScales, columns, pairs, out, stride, adds) {
      const { floats, shorts } = memory;
      for (let r = 0; r < rows; r++) {
        const left = (a >> 1) + 2 * ((r - (r % 4)) * pairs + (r % 4));
        const scale = floats[(aScales >> 2) + r];
        for (let c = 0; c < columns; c += 8) {
          panelSums(shorts, left, (b >> 1) + 2 * c * pairs, pairs);
          for (let at = (out >> 2) + r * stride + c, i = 0; i < 8 && c + i < columns; i++) {
            const value = sums[i] * scale * floats[(bScales >> 2) + c + i];
            floats[at + i] = adds ? floats[at + i] + value : value;
          }
        }
      }
    },

    /**
     * The values q·2^k of one block of each row, codes below `least` raised to it: −127 changes none, 0 is ReLU.
     * @param {number} x
     * @param {number} stride from row to row, of `x` and of `out`
     * @param {number} rows
     * @param {number} length at most 128
     * @param {number} least
     * @param {number} out
     */
    blockValues(x, stride, rows, length, least, out) {
      const { floats } = memory;
      let all = 0;
      for (let row = 0; row < rows; row++) {
        const shift = 4 * row * stride;
        const bits = largestBits(x + shift, 1, length);
        all = max(all, bits);
        const k = exponentOf(bits);
        const [factor, scale] = [powerOfTwo(8 - k), powerOfTwo(k)];
        for (let i = 0, from = (x + shift) >> 2, to = (out + shift) >> 2; i < length; i++) {
          floats[to + i] = max((floor(floats[from + i] * factor) + 128) >> 8, least) * scale;
        }
      }
      return all;
    },

    /**
     * The bits of the largest magnitude; from 0x7F800000 on it is infinite or NaN.
     * @param {number} x
     * @param {number} length
     */
    largest(x, length) {
      return largestBits(x, 1, length);
    },
  };
}
