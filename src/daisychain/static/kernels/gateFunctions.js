/** Tries of the primitives that do not quantise, against the contract's functions, at lengths that break loops. */

import { bitsOf, fromBits } from "../numerics/bits.js";
import { exp, laneSum, softmax } from "../numerics/functions.js";
import { abs, fround, max, sqrt } from "../numerics/numbers.js";
import { adamUpdate } from "../numerics/optimizer.js";
import { POISON } from "./trial.js";

/** @typedef {import("./gateProducts.js").Try} Try */
/** @typedef {import("./trial.js").Trial} Trial */

const LENGTHS = [1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 33, 64, 67];
const NORM_EPSILON = fround(1e-5);

/** Random numbers, with zeros of both signs and subnormals among them. @param {Trial} trial @param {number} length */
function mixed(trial, length) {
  const special = [0, -0, fromBits(1), fromBits(0x80000001)];
  return trial.random(length).map((x, i) => (i % 5 === 4 ? special[trial.bits() % 4] : x));
}

/** @type {Record<string, (trial: Trial, length: number) => void>} */
const CHECKS = {
  exponentials(trial, length) {
    // From far below what gives 0 to far above what gives infinity, with a shift as softmax has it.
    const x = Float32Array.from({ length }, () => (trial.bits() % 20_000) / 97 - 110);
    for (const [values, shift] of /** @type {[Float32Array, number][]} */ ([
      [x, 0],
      [x.map((value) => (value > 80 ? value - 120 : value)), fround(3.3)],
      [Float32Array.of(Number.NaN, ...x.subarray(1)), 0],
    ])) {
      const [from, to] = [trial.input(values), trial.output(length)];
      const wanted = values.map((value) => exp(fround(value - shift)));
      const total = trial.primitives.exponentials(from, shift, to, length);
      trial.same("lane sum", total, laneSum(wanted));
      // Which NaN comes out is the engine's affair.
      if (Number.isNaN(wanted[0])) {
        trial.same("NaN", trial.memory.floats[to >> 2], Number.NaN);
        wanted[0] = trial.memory.floats[to >> 2] = 0;
      }
      trial.expect("exp", to, wanted);
    }
  },

  maximum(trial, length) {
    const x = mixed(trial, length);
    const largest = x.reduce((a, b) => max(a, b)) + 0;
    trial.same("largest", trial.primitives.maximum(trial.input(x), length), largest);
    const below = x.map((value) => -abs(value) - 1);
    const least = below.reduce((a, b) => max(a, b));
    trial.same("largest below 0", trial.primitives.maximum(trial.input(below), length), least);
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
      for (const at of [0, length - 1]) {
        const spoilt = x.map((value, i) => (i === at ? bad : value));
        trial.same("not finite", trial.primitives.maximum(trial.input(spoilt), length), Number.NaN);
      }
    }
  },

  largest(trial, length) {
    const x = mixed(trial, length);
    for (const at of [0, length - 1]) {
      x[at] = -12345;
      trial.same("bits", trial.primitives.largest(trial.input(x), length), bitsOf(12345));
      x[at] = Number.NEGATIVE_INFINITY;
      trial.same("infinite", trial.primitives.largest(trial.input(x), length), 0x7f800000);
      x[at] = -0;
    }
  },

  "sums and differences"(trial, length) {
    const [a, b] = [mixed(trial, length), mixed(trial, length)];
    const [x, y] = [trial.input(a), trial.input(b)];
    const [sum, difference] = [trial.output(length), trial.output(length)];
    trial.primitives.add(x, y, sum, length);
    trial.expect(
      "a + b",
      sum,
      a.map((value, i) => value + b[i]),
    );
    trial.primitives.subtract(x, y, difference, length);
    trial.expect(
      "a − b",
      difference,
      a.map((value, i) => value - b[i]),
    );
    trial.primitives.add(x, y, x, length);
    trial.expect(
      "a += b",
      x,
      a.map((value, i) => value + b[i]),
    );
    trial.primitives.divide(y, fround(3.7), length);
    trial.expect(
      "b / c",
      y,
      b.map((value) => value / fround(3.7)),
    );
  },

  reluBackward(trial, length) {
    const [g, y] = [mixed(trial, length), mixed(trial, length)];
    const out = trial.output(length);
    trial.primitives.reluBackward(trial.input(g), trial.input(y), out, length);
    trial.expect(
      "gradient",
      out,
      g.map((value, i) => (y[i] > 0 ? value : 0)),
    );
  },

  norm(trial, width) {
    const rows = 3;
    const [x, g, gain] = [mixed(trial, rows * width), mixed(trial, rows * width), mixed(trial, width)];
    x.fill(0, 0, width); // a row of zeros rests on ε alone
    const wanted = { out: [...x], inverse: [0, 0, 0], dx: [...x], dGain: new Float32Array(width) };
    for (let row = 0; row < rows; row++) {
      const [xs, gs] = [x, g].map((all) => all.subarray(row * width, (row + 1) * width));
      const s = fround(
        1 / fround(sqrt(fround(fround(laneSum(xs.map((v) => v * v)) / width) + NORM_EPSILON))),
      );
      const h = gs.map((value, i) => value * gain[i]);
      const total = laneSum(h.map((value, i) => value * xs[i]));
      const k = fround(fround(fround(fround(total * s) * s) * s) / width);
      wanted.inverse[row] = s;
      xs.forEach((value, i) => {
        wanted.out[row * width + i] = fround(value * s) * gain[i];
        wanted.dx[row * width + i] = fround(h[i] * s) - fround(value * k);
        wanted.dGain[i] += fround(gs[i] * fround(value * s));
      });
    }
    const [xAt, gAt, gainAt] = [x, g, gain].map((values) => trial.input(values));
    const [out, inverse, dx] = [rows * width, rows, rows * width].map((length) => trial.output(length));
    const dGain = trial.output(width);
    trial.primitives.norm(xAt, gainAt, out, inverse, rows, width);
    trial.expect("out", out, Float32Array.from(wanted.out));
    trial.expect("inverse", inverse, Float32Array.from(wanted.inverse));
    trial.primitives.normBackward(gAt, xAt, gainAt, inverse, dx, dGain, rows, width);
    trial.expect("dx", dx, Float32Array.from(wanted.dx));
    trial.expect("dGain", dGain, wanted.dGain);
  },

  adam(trial, length) {
    const [w, g, m, v] = [0, 1, 2, 3].map(() => mixed(trial, length));
    v.forEach((value, i) => {
      v[i] = abs(value);
    });
    const constants = [0.9, 0.1, 0.999, 0.001, 31.6, 0.03, 1e-8].map(fround);
    const [beta1, rest1, beta2, rest2, root, size, epsilon] = constants;
    for (const keep of [1, fround(0.997)]) {
      const offsets = [w, g, m, v].map((values) => trial.input(values));
      const [wAt, gAt, mAt, vAt] = offsets;
      trial.primitives.adam(
        wAt,
        gAt,
        mAt,
        vAt,
        length,
        beta1,
        rest1,
        beta2,
        rest2,
        root,
        size,
        epsilon,
        keep,
      );
      adamUpdate(w, g, m, v, { keep, beta1, rest1, beta2, rest2, root, size, epsilon });
      [w, g, m, v].forEach((values, i) => {
        trial.expect("wgmv"[i], offsets[i], values);
      });
    }
  },
};

/** Causal softmax and its gradient, for each length as the sequence. @param {Trial} trial @param {number} length */
function causal(trial, length) {
  const scale = fround(0.35355338);
  const [s, dp] = [trial.random(length * length), mixed(trial, length * length)];
  const [p, ds] = [new Float32Array(s.length), new Float32Array(s.length)];
  let largest = 0;
  for (let row = 0; row < length; row++) {
    const [start, end] = [row * length, row * length + row + 1];
    const scaled = s.subarray(start, end).map((value) => value * scale);
    largest = scaled.reduce((a, b) => max(a, abs(b)), largest);
    p.set(softmax(scaled), start);
    const total = laneSum(p.subarray(start, end).map((value, i) => value * dp[start + i]));
    for (let i = start; i < end; i++) ds[i] = fround(p[i] * fround(dp[i] - total)) * scale;
    // What lies beyond the row's own column must not matter.
    for (let i = end; i < start + length; i++) s[i] = dp[i] = fromBits(POISON);
  }
  const [scores, gradient] = [trial.input(s), trial.input(dp)];
  trial.same("largest", trial.primitives.causalSoftmax(scores, length, scale), bitsOf(largest));
  trial.expect("weights", scores, p);
  trial.primitives.causalSoftmaxBackward(scores, gradient, length, scale);
  trial.expect("gradient", gradient, ds);
}

/** @type {Try[]} */
export const functionTries = [
  ...Object.entries(CHECKS).flatMap(([name, check]) =>
    LENGTHS.map((length) => ({
      name: `${name}, ${length}`,
      run: (/** @type {Trial} */ trial) => check(trial, length),
    })),
  ),
  ...[1, 2, 3, 5, 16, 19, 33].map((length) => ({
    name: `causal softmax, ${length}`,
    run: (/** @type {Trial} */ trial) => causal(trial, length),
  })),
];
