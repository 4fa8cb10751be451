/** Causal attention, head by head: products on strided views of [rows, 3·width], where q, k and v lie side by side. */

import { ConfigError, NonFiniteError } from "../errors.js";
import { fround, sqrt } from "../numerics/numbers.js";
import { INFINITY_BITS, place } from "./ops.js";
import { acrossRows, alongRows, LEFT, RIGHT } from "./products.js";

/** @typedef {import("./cpu.js").CpuBackend} CpuBackend */
/** @typedef {import("./memory.js").Op} Op */

/**
 * What each sample and head of an attention needs: byte offsets of its parts.
 * @param {Op} op
 * @param {(head: {q: number, k: number, v: number, weights: number, rows: number, column: number}) => void} visit
 */
function eachHead(op, visit) {
  const { samples, sequence, heads, width } = op;
  const qkv = place(op, "qkv", 3 * samples * sequence * width);
  const weights = place(op, "weights", samples * heads * sequence * sequence);
  const size = width / heads;
  if (!Number.isInteger(size))
    throw new ConfigError(`a width of ${width} cannot be cut into ${heads} heads.`);
  for (let sample = 0; sample < samples; sample++) {
    for (let head = 0; head < heads; head++) {
      const rows = sample * sequence;
      const column = head * size;
      const q = qkv + 4 * (3 * rows * width + column);
      const at = weights + 4 * (sample * heads + head) * sequence * sequence;
      visit({ q, k: q + 4 * width, v: q + 8 * width, weights: at, rows, column });
    }
  }
}

/** @param {Op} op */
function scaleOf(op) {
  return fround(1 / fround(sqrt(op.width / op.heads)));
}

/** @type {Record<string, (backend: CpuBackend, op: Op) => void>} */
export const attentionOps = {
  attention(backend, op) {
    const { samples, sequence, heads, width } = op;
    const { products, primitives } = backend;
    const out = place(op, "out", samples * sequence * width);
    const [d, stride] = [width / heads, 3 * width];
    const [query, key] = [products.quantiser(LEFT), products.quantiser(RIGHT)];
    const [weight, value] = [products.quantiser(LEFT), products.quantiser(RIGHT)];
    eachHead(op, ({ q, k, v, weights, rows, column }) => {
      const scores = { offset: weights, stride: sequence };
      const [left, right] = [alongRows(q, stride, sequence, d), alongRows(k, stride, sequence, d)];
      products.multiply(query(left), key(right), scores);
      if (primitives.causalSoftmax(weights, sequence, scaleOf(op)) >= INFINITY_BITS) {
        throw new NonFiniteError(
          "attention scores are NaN or infinite. Training has diverged: lower the learning rate.",
        );
      }
      products.multiply(
        weight(alongRows(weights, sequence, sequence, sequence)),
        value(acrossRows(v, stride, d, sequence)),
        { offset: out + 4 * (rows * width + column), stride: width },
      );
    });
  },

  attentionBackward(backend, op) {
    const { samples, sequence, heads, width } = op;
    const { products, primitives, memory } = backend;
    const g = place(op, "g", samples * sequence * width);
    const dqkv = place(op, "dqkv", 3 * samples * sequence * width);
    const [d, stride, scale] = [width / heads, 3 * width, scaleOf(op)];
    const scores = memory.scratch(4 * sequence * sequence);
    const [output, value] = [products.quantiser(LEFT), products.quantiser(RIGHT)];
    const [weight, outputAcross] = [products.quantiser(LEFT), products.quantiser(RIGHT)];
    const [score, key] = [products.quantiser(LEFT), products.quantiser(RIGHT)];
    const [scoreAcross, query] = [products.quantiser(LEFT), products.quantiser(RIGHT)];
    eachHead(op, ({ q, k, v, weights, rows, column }) => {
      const dOut = g + 4 * (rows * width + column);
      const dq = dqkv + 4 * (3 * rows * width + column);
      products.multiply(
        output(alongRows(dOut, width, sequence, d)),
        value(alongRows(v, stride, sequence, d)),
        {
          offset: scores,
          stride: sequence,
        },
      );
      products.multiply(
        weight(acrossRows(weights, sequence, sequence, sequence)),
        outputAcross(acrossRows(dOut, width, d, sequence)),
        { offset: dq + 8 * width, stride },
      );
      primitives.causalSoftmaxBackward(weights, scores, sequence, scale);
      products.multiply(
        score(alongRows(scores, sequence, sequence, sequence)),
        key(acrossRows(k, stride, d, sequence)),
        { offset: dq, stride },
      );
      products.multiply(
        scoreAcross(acrossRows(scores, sequence, sequence, sequence)),
        query(acrossRows(q, stride, d, sequence)),
        { offset: dq + 4 * width, stride },
      );
    });
  },
};
