/** The operations of a chain that are no attention and no head, in terms of primitives and products. */

import { ConfigError, NonFiniteError } from "../errors.js";
import { BLOCK_LENGTH } from "../limits.js";
import { fround, min } from "../numerics/numbers.js";
import { slice } from "./memory.js";
import { acrossRows, alongRows, LEFT, REFUSED_BITS, RIGHT } from "./products.js";

/** @typedef {import("./memory.js").Buffer} Buffer */
/** @typedef {import("./cpu.js").CpuBackend} CpuBackend */
/** @typedef {import("./memory.js").Op} Op */

export const INFINITY_BITS = 0x7f800000;

/**
 * Where a buffer begins, if it holds at least `length` numbers.
 * @param {Op} op
 * @param {string} name
 * @param {number} length
 * @returns {number}
 */
export function place(op, name, length) {
  const buffer = /** @type {Buffer | undefined} */ (op[name]);
  if (!(length >= 0)) throw new ConfigError(`${op.op}: a size is missing (${name} would hold ${length}).`);
  if (!buffer || buffer.length < length) {
    throw new ConfigError(`${op.op}: ${name} holds ${buffer?.length ?? "no"} numbers, not ${length}.`);
  }
  return buffer.offset;
}

/**
 * The ids of rows, each below `limit`.
 * @param {CpuBackend} backend
 * @param {Op} op
 * @param {string} name
 * @param {number} limit
 */
export function idsOf(backend, op, name, limit) {
  place(op, name, op.rows);
  const ids = backend.view(op[name]).subarray(0, op.rows);
  const bad = ids.findIndex((id) => !(id >= 0 && id < limit));
  if (bad >= 0) throw new ConfigError(`${op.op}: ${name}[${bad}] is ${ids[bad]}, not below ${limit}.`);
  return ids;
}

/** @type {Record<string, (backend: CpuBackend, op: Op) => void>} */
export const ops = {
  embed(backend, op) {
    const { rows, sequence, width } = op;
    const positions = place(op, "positions", min(rows, sequence) * width);
    const out = place(op, "out", rows * width);
    const tokens = place(op, "tokens", 0);
    idsOf(backend, op, "ids", op.tokens.length / width).forEach((id, row) => {
      const at = 4 * width * (row % sequence);
      backend.primitives.add(tokens + 4 * width * id, positions + at, out + 4 * width * row, width);
    });
  },

  embedBackward(backend, op) {
    const { rows, sequence, width } = op;
    const positions = place(op, "dPositions", min(rows, sequence) * width);
    const g = place(op, "g", rows * width);
    const tokens = place(op, "dTokens", 0);
    idsOf(backend, op, "ids", op.dTokens.length / width).forEach((id, row) => {
      const [token, position] = [tokens + 4 * width * id, positions + 4 * width * (row % sequence)];
      backend.primitives.add(token, g + 4 * width * row, token, width);
      backend.primitives.add(position, g + 4 * width * row, position, width);
    });
  },

  norm({ primitives }, op) {
    const { rows, width } = op;
    const [x, gain] = [place(op, "x", rows * width), place(op, "gain", width)];
    primitives.norm(x, gain, place(op, "out", rows * width), place(op, "inverse", rows), rows, width);
  },

  normBackward({ primitives }, op) {
    const { rows, width } = op;
    const [g, x] = [place(op, "g", rows * width), place(op, "x", rows * width)];
    const [gain, inverse] = [place(op, "gain", width), place(op, "inverse", rows)];
    const [dx, dGain] = [place(op, "dx", rows * width), place(op, "dGain", width)];
    primitives.normBackward(g, x, gain, inverse, dx, dGain, rows, width);
  },

  linear({ products }, op) {
    const { rows, inner, outer } = op;
    const a = products.quantise(alongRows(place(op, "x", rows * inner), inner, rows, inner), LEFT);
    const b = products.quantise(alongRows(place(op, "w", outer * inner), inner, outer, inner), RIGHT);
    products.multiply(a, b, { offset: place(op, "out", rows * outer), stride: outer });
  },

  /** 3×INT8 (rule 6): (high·high + high·low) + low·high. */
  linear3(backend, op) {
    const { products, primitives, memory } = backend;
    const { rows, inner, outer } = op;
    const [aHigh, aLow] = split(backend, place(op, "x", rows * inner), rows, inner, LEFT);
    const [bHigh, bLow] = split(backend, place(op, "w", outer * inner), outer, inner, RIGHT);
    const offset = place(op, "out", rows * outer);
    const term = memory.scratch(4 * rows * outer);
    products.multiply(aHigh, bHigh, { offset, stride: outer });
    for (const [a, b] of [
      [aHigh, bLow],
      [aLow, bHigh],
    ]) {
      products.multiply(a, b, { offset: term, stride: outer });
      primitives.add(offset, term, offset, rows * outer);
    }
  },

  linearBackward({ products }, op) {
    const { rows, inner, outer, period = rows } = op;
    const [g, x] = [place(op, "g", rows * outer), place(op, "x", rows * inner)];
    const along = products.quantise(alongRows(g, outer, rows, outer), LEFT);
    const w = products.quantise(acrossRows(place(op, "w", outer * inner), inner, inner, outer), RIGHT);
    const across = products.quantise(acrossRows(g, outer, outer, rows), LEFT, period);
    const input = products.quantise(acrossRows(x, inner, inner, rows), RIGHT, period);
    products.multiply(along, w, { offset: place(op, "dx", rows * inner), stride: inner });
    products.multiply(across, input, { offset: place(op, "dw", outer * inner), stride: inner });
  },

  relu({ products, primitives }, op) {
    const { rows, width } = op;
    const [x, out] = [place(op, "x", rows * width), place(op, "out", rows * width)];
    for (let at = 0; at < width; at += BLOCK_LENGTH) {
      const length = min(BLOCK_LENGTH, width - at);
      const bits = primitives.blockValues(x + 4 * at, width, rows, length, 0, out + 4 * at);
      if (bits >= REFUSED_BITS) products.refuse(alongRows(x, width, rows, width));
    }
  },

  reluBackward({ primitives }, op) {
    const [g, y] = [place(op, "g", op.length), place(op, "out", op.length)];
    primitives.reluBackward(g, y, place(op, "dx", op.length), op.length);
  },

  add({ primitives }, op) {
    const [a, b] = [place(op, "a", op.length), place(op, "b", op.length)];
    primitives.add(a, b, place(op, "out", op.length), op.length);
  },

  /** Rule 13: Σ in roster order from +0, over the count. */
  mean({ primitives, memory }, op) {
    const out = place(op, "out", op.length);
    if (!(op.count >= 1)) throw new ConfigError(`a roster with ${op.count} samples has no mean gradient.`);
    memory.floats.fill(0, out >> 2, (out >> 2) + op.length);
    for (const part of op.parts) {
      primitives.add(out, place({ op: op.op, part }, "part", op.length), out, op.length);
    }
    primitives.divide(out, fround(op.count), op.length);
  },

  adam(backend, op) {
    const [w, g] = [place(op, "w", op.length), place(op, "g", op.length)];
    const [m, v] = [place(op, "m", op.length), place(op, "v", op.length)];
    const {
      beta1 = fround(0.9),
      rest1 = fround(1 - 0.9),
      beta2 = fround(0.999),
      rest2 = fround(1 - 0.999),
    } = op;
    const { root, size, epsilon = fround(1e-8), keep = 1 } = op;
    if (!backend.checkFinite(slice(op.g, 0, op.length))) {
      const g = Array.from(backend.view(op.g).subarray(0, op.length), Number.isFinite);
      const bad = g.filter((finite) => !finite).length;
      throw new NonFiniteError(
        `${bad} of ${op.length} numbers of the gradient are NaN or infinite, the first at ${g.indexOf(false)}. ` +
          "Training has diverged: lower the learning rate.",
      );
    }
    const { primitives } = backend;
    primitives.adam(w, g, m, v, op.length, beta1, rest1, beta2, rest2, root, size, epsilon, keep);
  },
};

/**
 * x = high + low, both quantised.
 * @param {CpuBackend} backend
 * @param {number} x
 * @param {number} rows
 * @param {number} length
 * @param {number} width
 */
function split({ products, primitives, memory }, x, rows, length, width) {
  const high = products.quantise(alongRows(x, length, rows, length), width);
  const rest = memory.scratch(4 * rows * length);
  for (let at = 0; at < length; at += BLOCK_LENGTH) {
    primitives.blockValues(x + 4 * at, length, rows, min(BLOCK_LENGTH, length - at), -127, rest + 4 * at);
  }
  primitives.subtract(x, rest, rest, rows * length);
  return [high, products.quantise(alongRows(rest, length, rows, length), width)];
}
