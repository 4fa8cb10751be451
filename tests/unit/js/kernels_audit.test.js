/** Faults planted in kernels that work: seen by the audit, the kernels replaced, the operation done again. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import test from "node:test";
import { KernelFault } from "../../../src/daisychain/static/errors.js";
import { openBackend } from "../../../src/daisychain/static/kernels/registry.js";

/** @typedef {import("../../../src/daisychain/static/kernels/plain.js").Primitives} Primitives */
/** @typedef {import("../../../src/daisychain/static/kernels/cpu.js").CpuBackend} CpuBackend */
/** @typedef {(right: Primitives, backend: CpuBackend) => Partial<Primitives>} Fault */

const wasmBytes = await readFile(
  new URL("../../../src/daisychain/static/kernels/kernels.wasm", import.meta.url),
);
const [ROWS, WIDTH, VOCABULARY, SEQUENCE] = [12, 16, 150, 4];

/** A fault that adds to the number at this row and column. @type {(row: number, column: number) => Fault} */
const wrongAt = (row, column) => (right, backend) => ({
  product(a, sa, m, b, sb, n, pairs, out, stride, adds) {
    right.product(a, sa, m, b, sb, n, pairs, out, stride, adds);
    const [r, c] = [row < 0 ? m + row : row, column < 0 ? n + column : column];
    if (r < m && c < n) backend.memory.floats[(out >> 2) + r * stride + c] += 2 ** -10;
  },
});

/**
 * A backend with a planted fault, what it reported, and the head's operation on it.
 * @param {"wasm" | "plain"} force
 * @param {Fault} [fault]
 */
async function planted(force, fault) {
  /** @type {string[]} */
  const reports = [];
  const { backend } = await openBackend({ wasmBytes, force, report: (text) => reports.push(text) });
  if (fault) {
    const right = backend.primitives;
    backend.products.primitives = { ...right, ...fault(right, backend) };
  }
  const hold = (/** @type {number} */ length) => backend.f32(length);
  const [x, dx, losses] = [hold(ROWS * WIDTH), hold(ROWS * WIDTH), hold(ROWS)];
  const [tokens, dTokens] = [hold(VOCABULARY * WIDTH), hold(VOCABULARY * WIDTH)];
  const targets = backend.u16(ROWS);
  backend.write(
    x,
    Float32Array.from({ length: x.length }, (_, i) => Math.fround(((i * 37) % 101) / 50 - 1)),
  );
  backend.write(
    tokens,
    Float32Array.from({ length: tokens.length }, (_, i) => Math.fround(((i * 53) % 211) / 100 - 1)),
  );
  backend.write(
    targets,
    Uint16Array.from({ length: ROWS }, (_, i) => i * 11),
  );
  const op = {
    op: "headLoss",
    ...{ x, tokens, targets, dx, dTokens, losses },
    ...{ rows: ROWS, sequence: SEQUENCE, width: WIDTH, vocabulary: VOCABULARY },
  };
  const results = async () => [
    await backend.read(dx),
    await backend.read(dTokens),
    await backend.read(losses),
  ];
  return { backend, reports, op, results };
}

/** @type {Record<string, Fault>} */
const FAULTS = {
  "the first cell": wrongAt(0, 0),
  "the last cell": wrongAt(-1, -1),
  "the last column of the first row": wrongAt(0, -1),
  "the first of the last row": wrongAt(-1, 0),
  "the corner of a tile": wrongAt(3, 7),
  "a cell that only chance finds": wrongAt(2, 3),
  "sums that do not go on": (right) => ({
    product: (a, sa, m, b, sb, n, pairs, out, stride) =>
      right.product(a, sa, m, b, sb, n, pairs, out, stride, false),
  }),
  "a scale": (right, backend) => ({
    quantiseRows(x, stride, rows, length, width, codes, scales) {
      const bits = right.quantiseRows(x, stride, rows, length, width, codes, scales);
      backend.memory.floats[scales >> 2] *= 2;
      return bits;
    },
  }),
  "a refusal without reason": (right) => ({
    quantiseColumns(...args) {
      right.quantiseColumns(...args);
      return 0x7fc00000;
    },
  }),
};

for (const [name, fault] of Object.entries(FAULTS)) {
  test(`seen at work: ${name}`, async () => {
    const right = await planted("plain");
    await right.backend.run([right.op]);
    const { backend, reports, op, results } = await planted("wasm", fault);
    for (let run = 0; run < 200 && reports.length === 0; run++) await backend.run([op]);
    assert.equal(reports.length, 1);
    assert.match(reports[0] ?? "", /^wasm was replaced by plain JavaScript: headLoss: /);
    assert.equal(backend.name, "plain");
    const [got, wanted] = [await results(), await right.results()];
    assert.deepEqual(
      got.map((array) => new Uint8Array(array.buffer)),
      wanted.map((array) => new Uint8Array(array.buffer)),
    );
  });
}

test("right kernels are left alone", async () => {
  const { backend, reports, op } = await planted("wasm");
  for (let run = 0; run < 50; run++) await backend.run([op]);
  assert.deepEqual([backend.name, reports], ["wasm", []]);
});

test("with nothing to fall back on, the chain stops", async () => {
  const { backend, op } = await planted("plain", wrongAt(-1, -1));
  await assert.rejects(async () => {
    for (let run = 0; run < 20; run++) await backend.run([op]);
  }, KernelFault);
});
