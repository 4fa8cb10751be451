/**
 * The golden vectors as cases that run wherever JavaScript does: no import of Node's. `run` throws when an
 * implementation gives another bit.
 */

import { CONTRACT_VERSION } from "../../../src/daisychain/static/limits.js";
import * as blocks from "../../../src/daisychain/static/numerics/blocks.js";
import * as elementwise from "../../../src/daisychain/static/numerics/elementwise.js";
import * as functions from "../../../src/daisychain/static/numerics/functions.js";
import * as optimizer from "../../../src/daisychain/static/numerics/optimizer.js";
import * as roster from "../../../src/daisychain/static/numerics/roster.js";
import { toHex } from "../../../src/daisychain/static/numerics/sha256.js";
import * as stateHash from "../../../src/daisychain/static/numerics/stateHash.js";

/** @typedef {{type: string, shape: number[], base64: string}} Encoded */
/** @typedef {{name: string, run: () => void}} Case */
/** @typedef {(name: string) => Promise<any>} Loader the parsed vectors/NAME.json */

export const MIRRORS = { ...blocks, ...elementwise, ...functions, ...optimizer, ...roster, ...stateHash };

const TYPES = {
  int8: Int8Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  float32: Float32Array,
};

/**
 * Every case of every vector file, against `mirrors` or another implementation of the same functions.
 * @param {Loader} load
 * @param {typeof MIRRORS} [mirrors]
 * @returns {Promise<Case[]>}
 */
export async function conformanceCases(load, mirrors = MIRRORS) {
  const makers = {
    blocks: blockCases,
    refused,
    units,
    functions: functionCases,
    optimizers,
    roster: rosters,
  };
  const cases = Object.entries(makers).map(async ([rule, make]) => {
    const { contract, [rule]: vectors } = await load(rule);
    if (contract !== CONTRACT_VERSION) throw new Error(`vectors/${rule} are of contract ${contract}`);
    return make(vectors, mirrors).map(({ name, run }) => ({ name: `${rule}: ${name}`, run }));
  });
  return (await Promise.all(cases)).flat();
}

/** @param {Encoded} value */
function bytesOf({ base64 }) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/**
 * @param {Encoded} value
 * @returns {any} the typed array of the value's type
 */
export function decode(value) {
  const Type = TYPES[/** @type {keyof typeof TYPES} */ (value.type)];
  return new Type(bytesOf(value).buffer);
}

/**
 * The rows of a matrix.
 * @param {Encoded} value
 * @returns {Float32Array[]}
 */
function rowsOf(value) {
  const [rows, length] = value.shape;
  const all = decode(value);
  return Array.from({ length: rows }, (_, row) => all.subarray(row * length, (row + 1) * length));
}

/**
 * Throw unless `got` has the bits of `wanted`.
 * @param {string} what
 * @param {ArrayLike<number>} got
 * @param {Encoded} wanted
 */
export function same(what, got, wanted) {
  const values = decode(wanted);
  const typed = values.constructor.from(got);
  const [mine, theirs] = [typed, values].map((array) => new Uint8Array(array.buffer));
  const place = mine.length === theirs.length ? mine.findIndex((byte, i) => byte !== theirs[i]) : 0;
  if (place >= 0) {
    const i = Math.floor(place / values.BYTES_PER_ELEMENT);
    throw new Error(
      `${what}: ${typed.length} of ${values.length} numbers; [${i}] is ${typed[i]}, not ${values[i]}`,
    );
  }
}

/**
 * @param {any[]} vectors
 * @param {typeof MIRRORS} mirrors
 * @returns {Case[]}
 */
function blockCases(vectors, { blockProduct, blockRelu, quantise, tripleProduct }) {
  return vectors.map((v) => ({
    name: v.name,
    run() {
      const [[m, length], [n]] = [v.a.shape, v.b.shape];
      const [a, b, edges] = [v.a, v.b, v.edges].map(decode);
      const [qa, qb] = [quantise(a, m, length, edges), quantise(b, n, length, edges)];
      same("codes of a", qa.codes, v.codes_a);
      same("exponents of a", qa.exponents, v.exponents_a);
      same("codes of b", qb.codes, v.codes_b);
      same("exponents of b", qb.exponents, v.exponents_b);
      same("product", blockProduct(qa, qb), v.product);
      same("triple product", tripleProduct(a, b, m, n, length, edges), v.triple_product);
      same("relu of a", blockRelu(a, m, length), v.relu_a);
    },
  }));
}

/**
 * @param {any[]} vectors
 * @param {typeof MIRRORS} mirrors
 * @returns {Case[]}
 */
function refused(vectors, { checkContraction, product, quantise, tripleProduct }) {
  return vectors.map((v) => ({
    name: v.name,
    run() {
      if (v.length) {
        const long = new Float32Array(v.length);
        mustRefuse(v.error, () => checkContraction(v.length));
        mustRefuse(v.error, () => product(long, long, 1, 1, v.length));
        mustRefuse(v.error, () => tripleProduct(long, long, 1, 1, v.length));
        return;
      }
      const x = decode(v.x);
      const [rows, length] = v.x.shape;
      const message = mustRefuse(v.error, () => quantise(x, rows, length));
      if (!message.startsWith("1 of 2 values") || !message.includes("the first at (0, 1)")) {
        throw new Error(`the refusal does not say how many and where: ${message}`);
      }
    },
  }));
}

/**
 * @param {string} name
 * @param {() => void} action
 */
function mustRefuse(name, action) {
  try {
    action();
  } catch (error) {
    if (error instanceof Error && error.name === name) return error.message;
    throw error;
  }
  throw new Error(`not refused with ${name}`);
}

/**
 * @param {any} v
 * @param {typeof MIRRORS} mirrors
 * @returns {Case[]}
 */
function units(v, { blockEdges, blockProduct, relu, requantise }) {
  /** @param {number} x */
  const stepsUp = (x) => x === -32768 || requantise(x) !== requantise(x - 1);
  const all16 = Array.from({ length: 65536 }, (_, i) => i - 32768);
  const all8 = Array.from({ length: 256 }, (_, i) => i - 128);
  return [
    {
      name: "requantise on its whole domain",
      run() {
        same("first inputs", all16.filter(stepsUp), v.requantise_first_input_of_each_output);
        same("outputs", all16.filter(stepsUp).map(requantise), { ...encodeInt8(all8), shape: [256] });
      },
    },
    { name: "relu on its whole domain", run: () => same("relu", all8.map(relu), v.relu_of_all) },
    {
      name: "products of extreme codes",
      run() {
        const codes = decode(v.codes);
        const rows = codes.length;
        const ones = { codes, exponents: new Int8Array(rows), edges: blockEdges(1), rows, length: 1 };
        same("products", blockProduct(ones, ones), v.products);
      },
    },
  ];
}

/** @param {number[]} values */
function encodeInt8(values) {
  const bytes = new Uint8Array(Int8Array.from(values).buffer);
  return { type: "int8", base64: btoa(String.fromCharCode(...bytes)) };
}

/**
 * @param {any} v
 * @param {typeof MIRRORS} mirrors
 * @returns {Case[]}
 */
function functionCases(v, { crossEntropy, exp, laneSum, log, logSoftmax, softmax }) {
  const logits = rowsOf(v.logits);
  const targets = decode(v.targets);
  const all = (/** @type {(row: Float32Array) => Float32Array} */ f) => logits.flatMap((row) => [...f(row)]);
  const entropies = () => logits.map((row, i) => crossEntropy(row, targets[i]));
  return [
    { name: "exp", run: () => same("exp", decode(v.x).map(exp), v.exp) },
    { name: "log", run: () => same("log", decode(v.positive).map(log), v.log) },
    { name: "lane sum", run: () => same("sum", logits.map(laneSum), v.lane_sum) },
    { name: "softmax", run: () => same("softmax", all(softmax), v.softmax) },
    { name: "log softmax", run: () => same("log softmax", all(logSoftmax), v.log_softmax) },
    {
      name: "cross-entropy",
      run() {
        same(
          "loss",
          entropies().map(({ loss }) => loss),
          v.loss,
        );
        same(
          "gradient",
          entropies().flatMap(({ gradient }) => [...gradient]),
          v.gradient,
        );
      },
    },
  ];
}

/**
 * @param {any} v
 * @param {typeof MIRRORS} mirrors
 * @returns {Case[]}
 */
function optimizers(v, { DaisyAdam, DaisySGD }) {
  /** @type {Record<string, (size: number) => any>} */
  const makers = {
    adam: (size) => new DaisyAdam(size),
    "adam_decay_0.1": (size) => new DaisyAdam(size, { weightDecay: 0.1 }),
    "sgd_momentum_0.9": (size) => new DaisySGD(size),
  };
  return Object.entries(makers).map(([name, make]) => ({
    name,
    run() {
      const weights = decode(v.start);
      const { weights: history, ...state } = v[name];
      const learner = make(weights.length);
      const steps = rowsOf(v.gradients).flatMap((gradient) => {
        learner.step(weights, gradient, v.rate);
        return [...weights];
      });
      same("weights of every step", steps, history);
      for (const key of Object.keys(state)) same(key, learner[key], state[key]);
    },
  }));
}

/**
 * @param {any} v
 * @param {typeof MIRRORS} mirrors
 * @returns {Case[]}
 */
function rosters(v, { rosterMean, sampleIds, stateHash: hashOf }) {
  const orders = v.sample_orders.map((/** @type {any} */ order) => ({
    name: `sample order of ${order.sample_count}, seed ${order.seed}`,
    run() {
      const positions = Array.from({ length: order.ids.shape[0] }, (_, i) => i);
      same("ids", sampleIds(positions, order.sample_count, order.seed), order.ids);
    },
  }));
  const mean = { name: "mean", run: () => same("mean", rosterMean(rowsOf(v.gradients), v.counts), v.mean) };
  const hash = {
    name: "state hash",
    run() {
      /** @type {Record<string, string>} */
      const numpyTypes = { float32: "<f4", int64: "<i8" };
      /** @type {[string, stateHash.Tensor][]} */
      const state = Object.entries(v.state).map(([name, value]) => [
        name,
        { type: numpyTypes[value.type], shape: value.shape, bytes: bytesOf(value) },
      ]);
      const got = toHex(hashOf(state, 7));
      if (got !== v.state_hash_at_step_7) throw new Error(`state hash is ${got}`);
    },
  };
  return [...orders, mean, hash];
}
