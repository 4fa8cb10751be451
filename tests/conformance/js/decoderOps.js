/** The operations of vectors/decoder.json through a backend. No import of Node's. */

import { decode, same } from "./cases.js";
import { apply } from "./kernelCases.js";

/** @typedef {import("../../../src/daisychain/static/kernels/cpu.js").CpuBackend} CpuBackend */
/** @typedef {import("./cases.js").Case} Case */

/**
 * Run an operation on vectors, and compare each output with the vector of that name.
 * @param {CpuBackend} backend
 * @param {string} op
 * @param {any} v
 * @param {Record<string, string>} inputs field → name of the vector
 * @param {Record<string, string>} outputs
 * @param {Record<string, number>} sizes
 */
function check(backend, op, v, inputs, outputs, sizes) {
  const fields = Object.fromEntries(Object.entries(inputs).map(([field, name]) => [field, decode(v[name])]));
  const lengths = Object.fromEntries(
    Object.entries(outputs).map(([field, name]) => [field, decode(v[name]).length]),
  );
  const got = apply(backend, op, { ...fields, ...sizes }, lengths);
  for (const [field, name] of Object.entries(outputs)) same(`${op}: ${name}`, got[field], v[name]);
}

/**
 * @param {CpuBackend} backend
 * @param {any} vectors of decoder.json
 * @returns {Case[]}
 */
export function decoderOpCases(backend, vectors) {
  const run = (/** @type {[string, any, any, any, any]} */ ...args) => check(backend, ...args);
  const { embed, norm, linear, relu, attention, head_loss: head } = vectors;
  return [
    { name: "embed", run: () => embedding(backend, embed) },
    ...norm.map((/** @type {any} */ v, /** @type {number} */ i) => ({
      name: `norm ${i}`,
      run() {
        const [rows, width] = v.x.shape;
        run("norm", v, { x: "x", gain: "gain" }, { out: "out", inverse: "inverse" }, { rows, width });
        const inputs = { g: "g", x: "x", gain: "gain", inverse: "inverse" };
        run("normBackward", v, inputs, { dx: "dx", dGain: "d_gain" }, { rows, width });
      },
    })),
    ...linear.map((/** @type {any} */ v, /** @type {number} */ i) => ({
      name: `linear ${i}`,
      run() {
        const sizes = { rows: v.x.shape[0], inner: v.x.shape[1], outer: v.w.shape[0], period: v.period };
        run("linear", v, { x: "x", w: "w" }, { out: "out" }, sizes);
        run("linearBackward", v, { g: "g", x: "x", w: "w" }, { dx: "dx", dw: "dw" }, sizes);
      },
    })),
    {
      name: "relu",
      run() {
        const [rows, width] = relu.x.shape;
        run("relu", relu, { x: "x" }, { out: "out" }, { rows, width });
        run("reluBackward", relu, { g: "g", out: "out" }, { dx: "dx" }, { length: rows * width });
      },
    },
    ...attention.map((/** @type {any} */ v, /** @type {number} */ i) => ({
      name: `attention ${i}`,
      run() {
        const { samples, heads } = v;
        const sizes = { samples, heads, sequence: v.out.shape[0] / samples, width: v.out.shape[1] };
        run("attention", v, { qkv: "qkv" }, { out: "out", weights: "weights" }, sizes);
        const inputs = { g: "g", qkv: "qkv", weights: "weights" };
        run("attentionBackward", v, inputs, { dqkv: "dqkv" }, sizes);
      },
    })),
    {
      name: "head and loss",
      run() {
        const [[rows, width], [vocabulary]] = [head.x.shape, head.tokens.shape];
        const sizes = { rows, width, vocabulary, sequence: head.sequence };
        const outputs = { losses: "losses", dx: "dx", dTokens: "d_tokens" };
        run("headLoss", head, { x: "x", tokens: "tokens", targets: "targets" }, outputs, sizes);
      },
    },
  ];
}

/**
 * @param {CpuBackend} backend
 * @param {any} v
 */
function embedding(backend, v) {
  const [[rows, width], [sequence]] = [v.out.shape, v.positions.shape];
  const sizes = { rows, width, sequence };
  check(backend, "embed", v, { ids: "ids", tokens: "tokens", positions: "positions" }, { out: "out" }, sizes);
  const fields = { ids: decode(v.ids), g: decode(v.g), dTokens: decode(v.d_tokens_before), ...sizes };
  const dPositions = new Float32Array(sequence * width);
  const lengths = { dTokens: fields.dTokens.length, dPositions: dPositions.length };
  const got = apply(backend, "embedBackward", { ...fields, dPositions }, lengths);
  same("dTokens", got.dTokens, v.d_tokens);
  same("dPositions", got.dPositions, v.d_positions);
}
