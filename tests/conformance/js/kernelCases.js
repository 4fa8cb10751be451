/**
 * The golden vectors through a backend: the functions of the contract as its kernels compute them, for `conformanceCases`,
 * and the operations of the decoder. No import of Node's.
 */

import { crossEntropy } from "../../../src/daisychain/static/kernels/head.js";
import { acrossRows, alongRows, LEFT, RIGHT } from "../../../src/daisychain/static/kernels/products.js";
import { bitsOf, powerOfTwo } from "../../../src/daisychain/static/numerics/bits.js";
import { blockEdges } from "../../../src/daisychain/static/numerics/blocks.js";
import { AdamSchedule } from "../../../src/daisychain/static/numerics/optimizer.js";
import { MIRRORS } from "./cases.js";

/** @typedef {import("../../../src/daisychain/static/kernels/cpu.js").CpuBackend} CpuBackend */
/** @typedef {import("../../../src/daisychain/static/kernels/memory.js").Buffer} Buffer */
/** @typedef {import("../../../src/daisychain/static/numerics/blocks.js").Blocks} Blocks */
/** @typedef {import("./cases.js").Case} Case */

/**
 * A backend's buffer with these numbers.
 * @param {CpuBackend} backend
 * @param {ArrayLike<number>} values
 */
function held(backend, values) {
  const buffer = values instanceof Uint16Array ? backend.u16(values.length) : backend.f32(values.length);
  backend.write(buffer, values);
  return buffer;
}

/**
 * Run one operation whose arrays are given as numbers and whose outputs by their lengths. Unlike `run`, at once.
 * @param {CpuBackend} backend
 * @param {string} op
 * @param {Record<string, any>} fields arrays, and sizes
 * @param {Record<string, number>} outputs name → length
 * @returns {Record<string, Float32Array<ArrayBuffer>>}
 */
export function apply(backend, op, fields, outputs) {
  /** @type {Record<string, any>} */
  const all = { ...fields };
  /** @type {Buffer[]} */
  const buffers = [];
  const hold = (/** @type {ArrayLike<number>} */ values) => {
    buffers.push(held(backend, values));
    return buffers[buffers.length - 1];
  };
  for (const [name, value] of Object.entries(fields)) {
    if (Array.isArray(value)) all[name] = value.map(hold);
    else if (ArrayBuffer.isView(value)) all[name] = hold(/** @type {any} */ (value));
  }
  for (const [name, length] of Object.entries(outputs)) {
    all[name] ??= hold(new Float32Array(length).fill(Number.NaN));
  }
  try {
    backend.runOp({ op, ...all });
    return Object.fromEntries(
      Object.keys(outputs).map((name) => [name, Float32Array.from(backend.view(all[name]))]),
    );
  } finally {
    for (const buffer of buffers) backend.free(buffer);
  }
}

/**
 * Codes and scales of an operand as a Blocks of the contract.
 * @param {CpuBackend} backend
 * @param {import("../../../src/daisychain/static/kernels/products.js").Operand} operand
 * @returns {Blocks}
 */
function unpack({ memory }, { view: { rows, length }, edges, width, blocks }) {
  const codes = new Int8Array(rows * length);
  const exponents = new Int8Array(rows * blocks.length);
  blocks.forEach((block, b) => {
    const pairs = (edges[b + 1] - edges[b] + 1) >> 1;
    for (let row = 0; row < rows; row++) {
      exponents[row * blocks.length + b] = (bitsOf(memory.floats[(block.scales >> 2) + row]) >> 23) - 127;
      for (let step = 0; step < edges[b + 1] - edges[b]; step++) {
        const pair = (row - (row % width)) * pairs + (step >> 1) * width + (row % width);
        codes[row * length + edges[b] + step] = memory.shorts[(block.codes >> 1) + 2 * pair + (step % 2)];
      }
    }
  });
  return { codes, exponents, edges, rows, length };
}

/**
 * The period of edges that blockEdges made.
 * @param {number} length
 * @param {Int32Array} edges
 */
function periodOf(length, edges) {
  const fits = (/** @type {number} */ period) => `${blockEdges(length, period)}` === `${edges}`;
  return Array.from({ length }, (_, i) => length - i).find(fits) ?? length;
}

/**
 * The contract's functions as the backend computes them; those that it does not have are the mirrors'.
 * @param {CpuBackend} backend
 * @param {boolean} along whether matrices are quantised along their rows, or transposed and then across them
 * @returns {typeof MIRRORS}
 */
export function kernelMirrors(backend, along) {
  const { memory, products } = backend;
  /** @type {(x: Float32Array, rows: number, length: number) => import("../../../src/daisychain/static/kernels/products.js").View} */
  const viewOf = (x, rows, length) => {
    const offset = memory.scratch(4 * x.length);
    x.forEach((value, i) => {
      const at = along ? i : (i % length) * rows + Math.floor(i / length);
      memory.floats[(offset >> 2) + at] = value;
    });
    return along ? alongRows(offset, length, rows, length) : acrossRows(offset, rows, rows, length);
  };
  const copy = (/** @type {number} */ offset, /** @type {number} */ length) =>
    Float32Array.from(memory.floats.subarray(offset >> 2, (offset >> 2) + length));
  /** @type {<T>(action: () => T) => T} */
  const scoped = (action) => {
    try {
      return action();
    } finally {
      memory.releaseScratch();
    }
  };
  /** @param {Float32Array} x */
  const softmax = (x) =>
    scoped(() => {
      const { offset } = viewOf(x, 1, x.length);
      const total = backend.primitives.exponentials(
        offset,
        backend.primitives.maximum(offset, x.length),
        offset,
        x.length,
      );
      backend.primitives.divide(offset, total, x.length);
      return copy(offset, x.length);
    });
  return {
    ...MIRRORS,
    quantise: (x, rows, length, edges = blockEdges(length)) =>
      scoped(() => {
        const view = viewOf(x, rows, length);
        return unpack(backend, products.quantise(view, rows % 2 ? LEFT : RIGHT, periodOf(length, edges)));
      }),
    blockProduct: (a, b) =>
      scoped(() => {
        const [left, right] = [a, b].map((blocks, i) => {
          const values = MIRRORS.blockValues(blocks);
          const view = viewOf(values, blocks.rows, blocks.length);
          const operand = products.quantise(view, i ? RIGHT : LEFT, periodOf(blocks.length, blocks.edges));
          const { codes, exponents } = unpack(backend, operand);
          // Codes smaller than a quantiser would give, such as those of extreme products, keep their scale.
          return codes.every((code, at) => code === blocks.codes[at]) &&
            exponents.every((k, at) => k === blocks.exponents[at])
            ? operand
            : repack(backend, operand, blocks);
        });
        const out = memory.scratch(4 * a.rows * b.rows);
        products.multiply(left, right, { offset: out, stride: b.rows });
        return copy(out, a.rows * b.rows);
      }),
    product: (a, b, rows, outer, inner, edges) =>
      edges
        ? MIRRORS.product(a, b, rows, outer, inner, edges)
        : apply(backend, "linear", { x: a, w: b, rows, inner, outer }, { out: rows * outer }).out,
    tripleProduct: (a, b, rows, outer, inner, edges) =>
      edges && periodOf(inner, edges) !== inner
        ? MIRRORS.tripleProduct(a, b, rows, outer, inner, edges)
        : apply(backend, "linear3", { x: a, w: b, rows, inner, outer }, { out: rows * outer }).out,
    blockRelu: (x, rows, width) => apply(backend, "relu", { x, rows, width }, { out: x.length }).out,
    exp: (x) =>
      scoped(() => {
        const { offset } = viewOf(Float32Array.of(x), 1, 1);
        backend.primitives.exponentials(offset, 0, offset, 1);
        return memory.floats[offset >> 2];
      }),
    softmax,
    crossEntropy: (x, target) =>
      scoped(() => {
        const { offset } = viewOf(x, 1, x.length);
        const loss = crossEntropy(backend, offset, x.length, target);
        return { loss, gradient: copy(offset, x.length) };
      }),
    DaisyAdam: adamOf(backend),
    rosterMean: (parts, counts) =>
      apply(
        backend,
        "mean",
        { parts, count: counts.reduce((a, b) => a + b, 0), length: parts[0].length },
        { out: parts[0].length },
      ).out,
  };
}

/**
 * An operand with the codes and exponents of a Blocks.
 * @param {CpuBackend} backend
 * @param {import("../../../src/daisychain/static/kernels/products.js").Operand} operand
 * @param {Blocks} blocks
 */
function repack({ memory }, operand, { codes, exponents, rows, length }) {
  const { edges, width } = operand;
  operand.blocks.forEach((block, b) => {
    const pairs = (edges[b + 1] - edges[b] + 1) >> 1;
    for (let row = 0; row < rows; row++) {
      memory.floats[(block.scales >> 2) + row] = powerOfTwo(exponents[row * operand.blocks.length + b]);
      for (let step = 0; step < edges[b + 1] - edges[b]; step++) {
        const pair = (row - (row % width)) * pairs + (step >> 1) * width + (row % width);
        memory.shorts[(block.codes >> 1) + 2 * pair + (step % 2)] = codes[row * length + edges[b] + step];
      }
    }
  });
  return operand;
}

/**
 * DaisyAdam whose steps are the backend's.
 * @param {CpuBackend} backend
 * @returns {typeof MIRRORS.DaisyAdam}
 */
function adamOf(backend) {
  return class extends AdamSchedule {
    /**
     * @param {number} size
     * @param {ConstructorParameters<typeof AdamSchedule>[0]} [constants]
     */
    constructor(size, constants) {
      super(constants);
      this.mean = new Float32Array(size);
      this.square = new Float32Array(size);
    }

    /**
     * @param {Float32Array} weights
     * @param {Float32Array} g
     * @param {number} rate
     */
    step(weights, g, rate) {
      const length = weights.length;
      const fields = { w: weights, g, m: this.mean, v: this.square, length, ...this.scalars(rate) };
      const { w, m, v } = apply(backend, "adam", fields, { w: length, m: length, v: length });
      weights.set(w);
      this.mean.set(m);
      this.square.set(v);
    }
  };
}
