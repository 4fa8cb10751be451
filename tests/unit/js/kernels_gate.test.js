/** The gate, gated: every planted fault keeps a set of primitives out. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import test from "node:test";
import { kernelHash } from "../../../src/daisychain/static/kernels/digest.js";
import { firstFault } from "../../../src/daisychain/static/kernels/gate.js";
import { Memory, PlainMemory, wasmMemory } from "../../../src/daisychain/static/kernels/memory.js";
import { plainPrimitives } from "../../../src/daisychain/static/kernels/plain.js";
import { wasmPrimitives } from "../../../src/daisychain/static/kernels/wasm.js";

/** @typedef {import("../../../src/daisychain/static/kernels/plain.js").Primitives} Primitives */

const bytes = await readFile(new URL("../../../src/daisychain/static/kernels/kernels.wasm", import.meta.url));

test("both sets pass", async () => {
  const plain = new Memory(new PlainMemory());
  assert.equal(firstFault(plain, plainPrimitives(plain)), null);
  const memory = new Memory(wasmMemory());
  const primitives = await wasmPrimitives(bytes, memory);
  assert.equal(firstFault(memory, primitives, kernelHash(memory, primitives.sha256)), null);
});

/**
 * Quantise, then change codes: `change` is given the number over its scale, and the code.
 * @param {Memory} memory
 * @param {Primitives["quantiseRows"]} quantise
 * @param {(exact: number, code: number) => number} change
 * @returns {Primitives["quantiseRows"]}
 */
function recoded(memory, quantise, change) {
  return (x, stride, rows, length, width, codes, scales) => {
    const bits = quantise(x, stride, rows, length, width, codes, scales);
    const pairs = (length + 1) >> 1;
    for (let row = 0; row < rows; row++) {
      for (let step = 0; step < length; step++) {
        const exact = memory.floats[(x >> 2) + row * stride + step] / memory.floats[(scales >> 2) + row];
        const pair = (row - (row % width)) * pairs + (step >> 1) * width + (row % width);
        const at = (codes >> 1) + 2 * pair + (step % 2);
        memory.shorts[at] = change(exact, memory.shorts[at]);
      }
    }
    return bits;
  };
}

/** @type {Record<string, (right: Primitives, memory: Memory) => Partial<Primitives>>} */
const FAULTS = {
  "ties round down": (right, memory) => ({
    quantiseRows: recoded(memory, right.quantiseRows, (exact, code) => code - Number(code - exact === 0.5)),
  }),
  "code −128 for −127": (right, memory) => ({
    quantiseRows: recoded(memory, right.quantiseRows, (_, code) => (code === -127 ? -128 : code)),
  }),
  "the code after an odd end is not cleared": (right, memory) => ({
    quantiseColumns(x, stride, rows, length, width, codes, scales) {
      const bits = right.quantiseColumns(x, stride, rows, length, width, codes, scales);
      if (length % 2) memory.shorts[(codes >> 1) + (length - 1) * width + 1] = 3;
      return bits;
    },
  }),
  "NaN is taken for 0": (right) => ({
    quantiseRows: (...args) => {
      const bits = right.quantiseRows(...args);
      return bits > 0x7f800000 ? 0 : bits;
    },
  }),
  "a number too large is let through": (right) => ({
    quantiseColumns: (...args) => {
      const bits = right.quantiseColumns(...args);
      return bits < 0x7f800000 ? 0 : bits;
    },
  }),
  "the last column is forgotten": (right) => ({
    product: (a, sa, m, b, sb, n, pairs, ...rest) => right.product(a, sa, m, b, sb, n - 1, pairs, ...rest),
  }),
  "the last row is forgotten": (right) => ({
    product: (a, sa, m, ...rest) => right.product(a, sa, m - 1, ...rest),
  }),
  "memory is taken to be zero": (right) => ({
    product: (a, sa, m, b, sb, n, pairs, out, stride) =>
      right.product(a, sa, m, b, sb, n, pairs, out, stride, true),
  }),
  "later blocks overwrite": (right) => ({
    product: (a, sa, m, b, sb, n, pairs, out, stride) =>
      right.product(a, sa, m, b, sb, n, pairs, out, stride, false),
  }),
  "sums saturate at 16 bits": (right, memory) => ({
    product(a, sa, m, b, sb, n, pairs, out, stride, adds) {
      right.product(a, sa, m, b, sb, n, pairs, out, stride, adds);
      if (adds || pairs < 2) return;
      const scale = memory.floats[sa >> 2] * memory.floats[sb >> 2];
      const least = Math.min(memory.floats[out >> 2] / scale, 32767);
      memory.floats[out >> 2] = least * scale;
    },
  }),
  "rows run together": (right) => ({
    product: (a, sa, m, b, sb, n, pairs, out, stride, adds) =>
      right.product(a, sa, m, b, sb, n, pairs, out, Math.min(stride, n), adds),
  }),
  "one number too many": (right) => ({ add: (a, b, out, length) => right.add(a, b, out, length + 1) }),
  "a reciprocal instead of a division": (_, memory) => ({
    divide(x, by, length) {
      const inverse = Math.fround(1 / by);
      for (let i = x >> 2; i < (x >> 2) + length; i++) memory.floats[i] *= inverse;
    },
  }),
  "a plain sum": (right, memory) => ({
    exponentials(x, shift, out, length) {
      right.exponentials(x, shift, out, length);
      return memory.floats
        .subarray(out >> 2, (out >> 2) + length)
        .reduce((sum, value) => Math.fround(sum + value), 0);
    },
  }),
  "a platform's exp": (right, memory) => ({
    exponentials(x, shift, out, length) {
      const values = memory.floats.slice(x >> 2, (x >> 2) + length);
      const total = right.exponentials(x, shift, out, length);
      memory.floats.set(
        values.map((value) => Math.exp(Math.fround(value - shift))),
        out >> 2,
      );
      return total;
    },
  }),
  "infinity is a maximum": (right) => ({
    maximum(x, length) {
      const largest = right.maximum(x, length);
      return Number.isNaN(largest) ? Number.POSITIVE_INFINITY : largest;
    },
  }),
  "the future is seen": (right, memory) => ({
    causalSoftmax(s, length, scale) {
      const before = memory.floats[(s >> 2) + length - 1];
      const bits = right.causalSoftmax(s, length, scale);
      if (length > 1) memory.floats[(s >> 2) + length - 1] = before;
      return bits;
    },
  }),
  "subnormals are flushed": (right, memory) => ({
    subtract(a, b, out, length) {
      right.subtract(a, b, out, length);
      for (let i = out >> 2; i < (out >> 2) + length; i++) {
        if (Math.abs(memory.floats[i]) < 2 ** -126) memory.floats[i] = 0;
      }
    },
  }),
  "−0 for +0": (right, memory) => ({
    reluBackward(g, y, dx, length) {
      right.reluBackward(g, y, dx, length);
      for (let i = dx >> 2; i < (dx >> 2) + length; i++) memory.floats[i] ||= -0;
    },
  }),
  "no ε": (right, memory) => ({
    norm(x, gain, out, inverse, rows, width) {
      right.norm(x, gain, out, inverse, rows, width);
      for (let row = 0; row < rows; row++) {
        if (memory.floats[(inverse >> 2) + row] > 300) memory.floats[(inverse >> 2) + row] = Infinity;
      }
    },
  }),
  "dGain is added to what was there": (right, memory) => ({
    normBackward(g, x, gain, inverse, dx, dGain, rows, width) {
      const before = memory.floats.slice(dGain >> 2, (dGain >> 2) + width);
      right.normBackward(g, x, gain, inverse, dx, dGain, rows, width);
      before.forEach((value, i) => {
        memory.floats[(dGain >> 2) + i] += value;
      });
    },
  }),
  "weight decay is ignored": (right) => ({
    adam: (w, g, m, v, length, beta1, rest1, beta2, rest2, root, size, epsilon) =>
      right.adam(w, g, m, v, length, beta1, rest1, beta2, rest2, root, size, epsilon, 1),
  }),
  "a magnitude at the end is not seen": (right) => ({
    largest: (x, length) => right.largest(x, length - 1),
  }),
};

for (const [name, plant] of Object.entries(FAULTS)) {
  test(`kept out: ${name}`, () => {
    const memory = new Memory(new PlainMemory());
    const right = plainPrimitives(memory);
    const fault = firstFault(memory, { ...right, ...plant(right, memory) });
    assert.ok(fault, "the gate saw nothing");
  });
}

test("kept out: a hash that forgets the last bytes", () => {
  const memory = new Memory(new PlainMemory());
  const fault = firstFault(memory, plainPrimitives(memory), () => new Uint8Array(32));
  assert.match(String(fault), /SHA-256 of 0 bytes/);
});
