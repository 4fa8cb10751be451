/** The primitives that do not quantise, in plain JavaScript. Offsets are in bytes; rows lie one after the other. */

import { floor, fround, LN2, LOG2E, max, sqrt } from "../numerics/numbers.js";

const LANES = 16;
const LOG2_E = fround(LOG2E);
const LN2_HIGH = 355 / 512;
const LN2_LOW = fround(LN2 - 355 / 512);
const [C7, C6, C5, C4, C3] = [5040, 720, 120, 24, 6].map((factorial) => fround(1 / factorial));
const NORM_EPSILON = fround(1e-5);
const SIGN = 0x7fffffff;
const INFINITY_BITS = 0x7f800000;

/** @param {import("./memory.js").Memory} memory */
export function plainFunctions(memory) {
  const asInt = new Int32Array(1);
  const asFloat = new Float32Array(asInt.buffer);
  const lanes = new Float32Array(LANES);

  /**
   * Rule 9, unrolled.
   * @param {number} x
   */
  function exp(x) {
    if (x < -87) return 0;
    if (x > 88) return Number.POSITIVE_INFINITY;
    const n = floor(fround(fround(x * LOG2_E) + 0.5));
    const r = fround(fround(x - n * LN2_HIGH) - fround(n * LN2_LOW));
    let y = fround(fround(C7 * r) + C6);
    y = fround(fround(y * r) + C5);
    y = fround(fround(y * r) + C4);
    y = fround(fround(y * r) + C3);
    y = fround(fround(y * r) + 0.5);
    y = fround(fround(y * r) + 1);
    y = fround(fround(y * r) + 1);
    asInt[0] = (n + 127) << 23;
    return fround(y * asFloat[0]);
  }

  /** The lanes halved 8, 4, 2, 1. */
  function halveLanes() {
    for (let half = LANES / 2; half >= 1; half /= 2) {
      for (let lane = 0; lane < half; lane++) lanes[lane] += lanes[lane + half];
    }
    return lanes[0];
  }

  /**
   * Lane sum of x·y.
   * @param {number} x
   * @param {number} y
   * @param {number} length
   */
  function dot(x, y, length) {
    const { floats } = memory;
    lanes.fill(0);
    for (let i = 0; i < length; i++) {
      lanes[i % LANES] += fround(floats[(x >> 2) + i] * floats[(y >> 2) + i]);
    }
    return halveLanes();
  }

  /**
   * The largest number of a row, +0 for −0; NaN if one is not finite.
   * @param {number} x
   * @param {number} length
   */
  function maximum(x, length) {
    const { floats, ints } = memory;
    let [largest, bits] = [floats[x >> 2], 0];
    for (let i = x >> 2; i < (x >> 2) + length; i++) {
      largest = max(largest, floats[i]);
      bits = max(bits, ints[i] & SIGN);
    }
    return bits >= INFINITY_BITS ? Number.NaN : largest + 0;
  }

  /**
   * out = exp(x − shift); returns the lane sum. `out` may be `x`.
   * @param {number} x
   * @param {number} shift
   * @param {number} out
   * @param {number} length
   */
  function exponentials(x, shift, out, length) {
    const { floats } = memory;
    lanes.fill(0);
    for (let i = 0; i < length; i++) {
      const value = exp(fround(floats[(x >> 2) + i] - shift));
      floats[(out >> 2) + i] = value;
      lanes[i % LANES] += value;
    }
    return halveLanes();
  }

  /**
   * x = x / by, in place.
   * @param {number} x
   * @param {number} by
   * @param {number} length
   */
  function divide(x, by, length) {
    const { floats } = memory;
    for (let i = x >> 2; i < (x >> 2) + length; i++) floats[i] /= by;
  }

  return {
    maximum,
    exponentials,
    divide,

    /**
     * out = a + b. `out` may be `a` or `b`.
     * @param {number} a
     * @param {number} b
     * @param {number} out
     * @param {number} length
     */
    add(a, b, out, length) {
      const { floats } = memory;
      for (let i = 0; i < length; i++) floats[(out >> 2) + i] = floats[(a >> 2) + i] + floats[(b >> 2) + i];
    },

    /**
     * out = a − b. `out` may be `a` or `b`.
     * @param {number} a
     * @param {number} b
     * @param {number} out
     * @param {number} length
     */
    subtract(a, b, out, length) {
      const { floats } = memory;
      for (let i = 0; i < length; i++) floats[(out >> 2) + i] = floats[(a >> 2) + i] - floats[(b >> 2) + i];
    },

    /**
     * dx = g where y > 0, else +0.
     * @param {number} g
     * @param {number} y
     * @param {number} dx
     * @param {number} length
     */
    reluBackward(g, y, dx, length) {
      const { floats } = memory;
      for (let i = 0; i < length; i++) {
        floats[(dx >> 2) + i] = floats[(y >> 2) + i] > 0 ? floats[(g >> 2) + i] : 0;
      }
    },

    /**
     * RMS norm: inverse = 1/√(Σx²/width + ε); out = (x·inverse)·gain.
     * @param {number} x [rows, width]
     * @param {number} gain [width]
     * @param {number} out [rows, width]
     * @param {number} inverse [rows]
     * @param {number} rows
     * @param {number} width
     */
    norm(x, gain, out, inverse, rows, width) {
      const { floats } = memory;
      for (let row = 0; row < rows; row++) {
        const at = x + 4 * row * width;
        const square = fround(fround(dot(at, at, width) / width) + NORM_EPSILON);
        const scale = fround(1 / fround(sqrt(square)));
        floats[(inverse >> 2) + row] = scale;
        for (let i = 0; i < width; i++) {
          const value = fround(floats[(at >> 2) + i] * scale);
          floats[(out >> 2) + row * width + i] = value * floats[(gain >> 2) + i];
        }
      }
    },

    /**
     * h = g·gain; k = (((Σh·x·inverse)·inverse)·inverse)/width; dx = h·inverse − x·k; dGain = Σ g·(x·inverse) in
     * order of rows from +0. `dx` is none of the inputs.
     * @param {number} g [rows, width]
     * @param {number} x [rows, width]
     * @param {number} gain [width]
     * @param {number} inverse [rows]
     * @param {number} dx [rows, width]
     * @param {number} dGain [width]
     * @param {number} rows
     * @param {number} width
     */
    normBackward(g, x, gain, inverse, dx, dGain, rows, width) {
      const { floats } = memory;
      const sums = dGain >> 2;
      floats.fill(0, sums, sums + width);
      for (let row = 0; row < rows; row++) {
        const scale = floats[(inverse >> 2) + row];
        const [gAt, xAt, dxAt] = [g, x, dx].map((matrix) => (matrix >> 2) + row * width);
        for (let i = 0; i < width; i++) {
          floats[dxAt + i] = floats[gAt + i] * floats[(gain >> 2) + i];
          floats[sums + i] += fround(floats[gAt + i] * fround(floats[xAt + i] * scale));
        }
        const total = dot(4 * dxAt, 4 * xAt, width);
        const k = fround(fround(fround(fround(total * scale) * scale) * scale) / width);
        for (let i = 0; i < width; i++) {
          floats[dxAt + i] = fround(floats[dxAt + i] * scale) - fround(floats[xAt + i] * k);
        }
      }
    },

    /**
     * Softmax of scale·s over columns up to the row's, +0 beyond, in place. Returns the bits of the largest magnitude
     * of what went in.
     * @param {number} s [length, length]
     * @param {number} length
     * @param {number} scale
     */
    causalSoftmax(s, length, scale) {
      const { floats, ints } = memory;
      let bits = 0;
      for (let row = 0; row < length; row++) {
        const at = (s >> 2) + row * length;
        for (let i = at; i <= at + row; i++) {
          floats[i] *= scale;
          bits = max(bits, ints[i] & SIGN);
        }
        const largest = maximum(4 * at, row + 1);
        divide(4 * at, exponentials(4 * at, largest, 4 * at, row + 1), row + 1);
        floats.fill(0, at + row + 1, at + length);
      }
      return bits;
    },

    /**
     * dS = (P·(dP − Σ P·dP))·scale over columns up to the row's, +0 beyond, in place of dP.
     * @param {number} weights P [length, length]
     * @param {number} gradient dP [length, length]
     * @param {number} length
     * @param {number} scale
     */
    causalSoftmaxBackward(weights, gradient, length, scale) {
      const { floats } = memory;
      for (let row = 0; row < length; row++) {
        const shift = 4 * row * length;
        const total = dot(weights + shift, gradient + shift, row + 1);
        const [p, dp] = [(weights + shift) >> 2, (gradient + shift) >> 2];
        for (let i = 0; i <= row; i++) {
          floats[dp + i] = fround(floats[p + i] * fround(floats[dp + i] - total)) * scale;
        }
        floats.fill(0, dp + row + 1, dp + length);
      }
    },

    /**
     * One step of DaisyAdam in place (rule 12).
     * @param {number} w
     * @param {number} g
     * @param {number} m
     * @param {number} v
     * @param {number} length
     * @param {number} beta1
     * @param {number} rest1
     * @param {number} beta2
     * @param {number} rest2
     * @param {number} root
     * @param {number} size
     * @param {number} epsilon
     * @param {number} keep
     */
    adam(w, g, m, v, length, beta1, rest1, beta2, rest2, root, size, epsilon, keep) {
      const { floats } = memory;
      for (let i = 0; i < length; i++) {
        const gradient = floats[(g >> 2) + i];
        const mean = fround(fround(floats[(m >> 2) + i] * beta1) + fround(gradient * rest1));
        const squared = fround(fround(gradient * gradient) * rest2);
        const square = fround(fround(floats[(v >> 2) + i] * beta2) + squared);
        const divisor = fround(fround(fround(sqrt(square)) * root) + epsilon);
        floats[(m >> 2) + i] = mean;
        floats[(v >> 2) + i] = square;
        floats[(w >> 2) + i] = fround(floats[(w >> 2) + i] * keep) - fround(fround(mean / divisor) * size);
      }
    },
  };
}
