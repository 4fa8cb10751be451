/** Tries of the quantisers and the product, on inputs chosen to break them. */

import { BlockRangeError, KernelFault, NonFiniteError } from "../errors.js";
import { bitsOf, fromBits, powerOfTwo } from "../numerics/bits.js";
import {
  blockEdges,
  blockRelu,
  blockValues,
  MAGNITUDE_LIMIT,
  product,
  quantise,
} from "../numerics/blocks.js";
import { abs, fround, max } from "../numerics/numbers.js";
import { acrossRows, alongRows, LEFT, RIGHT } from "./products.js";

/** @typedef {import("./trial.js").Trial} Trial */
/** One try; `run` throws when a bit is wrong. @typedef {{name: string, run: (trial: Trial) => void}} Try */

/** Rows, contraction, columns and period. @type {[number, number, number, number][]} */
const SHAPES = [
  [1, 1, 1, 1],
  [4, 8, 8, 8],
  [1, 2, 9, 2],
  [3, 31, 8, 31],
  [2, 127, 7, 127],
  [5, 128, 16, 128],
  [4, 129, 1, 129],
  [9, 64, 17, 64],
  [7, 255, 10, 255],
  [6, 257, 11, 257],
  [13, 45, 5, 20],
  [5, 300, 3, 150],
];

const EDGES = [
  127,
  -127,
  126.5,
  -126.5,
  127.49999,
  -127.49999,
  0.5,
  -0.5,
  1.5,
  0,
  -0,
  1,
  2 ** -126,
  2 ** -149,
];

/** Matrices by kind. @type {Record<string, (trial: Trial, length: number) => Float32Array>} */
const KINDS = {
  random: (trial, length) => trial.random(length),
  "all exponents": (trial, length) => trial.random(length, -126, 180),
  "edges of codes": (trial, length) =>
    Float32Array.from({ length }, () => EDGES[trial.bits() % EDGES.length]),
  "all 127": (_, length) => new Float32Array(length).fill(127),
  "all −127": (_, length) => new Float32Array(length).fill(-127),
  ties: (_, length) => Float32Array.from({ length }, (_, i) => (i % 253) - 126 + 0.5),
  subnormal: (trial, length) => Float32Array.from({ length }, () => fromBits(trial.bits() & 0x803fffff)),
};

/**
 * A matrix in memory, contraction along its rows or across them.
 * @param {Trial} trial
 * @param {Float32Array} values [rows, length]
 * @param {number} rows
 * @param {number} length
 * @param {boolean} along
 */
function viewOf(trial, values, rows, length, along) {
  if (along) {
    const stride = length + (rows % 3);
    return alongRows(trial.strided(values, length, stride), stride, rows, length);
  }
  const turned = values.map((_, i) => values[(i % rows) * length + (i - (i % rows)) / rows]);
  const stride = rows + (length % 3);
  return acrossRows(trial.strided(turned, rows, stride), stride, rows, length);
}

/** @type {Try[]} */
const products = SHAPES.flatMap(([m, length, n, period], shape) =>
  Object.entries(KINDS).map(([kind, values], i) => ({
    name: `product ${m}×${length}×${n}, ${kind}`,
    run(trial) {
      const [a, b] = [values(trial, m * length), (shape % 2 ? values : KINDS.random)(trial, n * length)];
      const layout = shape + i;
      const left = trial.products.quantise(viewOf(trial, a, m, length, layout % 2 === 0), LEFT, period);
      const right = trial.products.quantise(viewOf(trial, b, n, length, layout % 4 < 2), RIGHT, period);
      const stride = n + (layout % 3);
      const offset = trial.output(m * stride);
      const wanted = product(a, b, m, n, length, blockEdges(length, period));
      trial.products.multiply(left, right, { offset, stride });
      trial.expect("stored", offset, wanted, n, stride);
      if (left.blocks.length > 1) return;
      trial.products.multiply(left, right, { offset, stride }, true);
      const twice = wanted.map((value) => fround(value + value));
      trial.expect("added", offset, twice, n, stride);
    },
  })),
);

/** @type {[number, typeof NonFiniteError | typeof BlockRangeError][]} */
const REFUSED = [
  [Number.NaN, NonFiniteError],
  [Number.POSITIVE_INFINITY, NonFiniteError],
  [Number.NEGATIVE_INFINITY, NonFiniteError],
  [MAGNITUDE_LIMIT, BlockRangeError],
  [-MAGNITUDE_LIMIT, BlockRangeError],
];

/**
 * Throw KernelFault unless `action` throws this error.
 * @param {() => void} action
 * @param {typeof NonFiniteError} Refusal
 */
function mustRefuse(action, Refusal) {
  try {
    action();
  } catch (error) {
    if (error instanceof Refusal) return;
    throw error;
  }
  throw new KernelFault("nothing was refused");
}

/** @type {Try[]} */
const refusals = REFUSED.flatMap(([value, Refusal]) =>
  [true, false].map((along) => ({
    name: `${value} refused ${along ? "along" : "across"} rows`,
    run(trial) {
      const [rows, length] = [6, 21];
      for (const at of [0, 19, 20, rows * length - 1]) {
        const x = trial.random(rows * length);
        x[at] = value;
        const view = viewOf(trial, x, rows, length, along);
        mustRefuse(() => trial.products.quantise(view, at % 2 ? LEFT : RIGHT), Refusal);
      }
    },
  })),
);

/** @type {Try} */
const largestAccepted = {
  name: "the largest number that a block holds",
  run(trial) {
    const x = Float32Array.of(fromBits(bitsOf(MAGNITUDE_LIMIT) - 1), powerOfTwo(52), 0);
    const view = alongRows(trial.input(x), 3, 1, 3);
    const [a, b] = [trial.products.quantise(view, LEFT), trial.products.quantise(view, RIGHT)];
    const offset = trial.output(1);
    trial.products.multiply(a, b, { offset, stride: 1 });
    trial.expect("product", offset, product(x, x, 1, 1, 3));
  },
};

/** @type {Try[]} */
const values = [1, 3, 4, 7, 16, 127, 128].map((length) => ({
  name: `values of blocks of ${length}`,
  run(trial) {
    const [rows, stride] = [3, length + 5];
    for (const make of [KINDS.random, KINDS["all exponents"], KINDS["edges of codes"]]) {
      const x = make(trial, rows * length);
      const [from, relu, to] = [
        trial.strided(x, length, stride),
        trial.output(rows * stride),
        trial.output(rows * stride),
      ];
      const bits = trial.primitives.blockValues(from, stride, rows, length, 0, relu);
      trial.same("largest magnitude", bits, bitsOf(x.reduce((a, b) => max(a, abs(b)), 0)));
      trial.expect("ReLU", relu, blockRelu(x, rows, length), length, stride);
      trial.primitives.blockValues(from, stride, rows, length, -127, to);
      trial.expect("values", to, blockValues(quantise(x, rows, length)), length, stride);
    }
  },
}));

export const productTries = [...products, ...refusals, largestAccepted, ...values];
