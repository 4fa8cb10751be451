/**
 * How much faster is the exact product in WebAssembly SIMD than in plain JavaScript? 256 × 256 × 256, both sides
 * alternating in one process, float32 in and out: quantise both operands, multiply, scale.
 *
 *     node benchmarks/browser_product.js
 *
 * Prints one JSON line: the median milliseconds of both sides and their ratio, for the whole and for the product of
 * codes alone. A page may import `measure` instead.
 */

import { alongRows, LEFT, RIGHT } from "../src/daisychain/static/kernels/products.js";
import { openBackend } from "../src/daisychain/static/kernels/registry.js";

const SIZE = 256;
const ROUNDS = 15;
const WASM_REPEATS = 20;

/**
 * What one side does, over and over.
 * @param {Uint8Array<ArrayBuffer>} wasmBytes
 * @param {"wasm" | "plain"} force
 */
async function prepare(wasmBytes, force) {
  const { backend } = await openBackend({ wasmBytes, force });
  backend.audit = null;
  const { products } = backend;
  const [x, w, out] = [0, 1, 2].map(() => backend.f32(SIZE * SIZE));
  for (const buffer of [x, w]) backend.write(buffer, Float32Array.from({ length: x.length }, random));
  const views = [x, w].map(({ offset }) => alongRows(offset, SIZE, SIZE, SIZE));
  const [a, b] = [products.quantise(views[0], LEFT), products.quantise(views[1], RIGHT)];
  return {
    whole() {
      products.multiply(products.fill(a, views[0]), products.fill(b, views[1]), {
        offset: out.offset,
        stride: SIZE,
      });
    },
    product() {
      products.multiply(a, b, { offset: out.offset, stride: SIZE });
    },
    result: () => backend.read(out),
  };
}

let state = 1;
function random() {
  state = (Math.imul(state, 1103515245) + 12345) >>> 0;
  return state / 2 ** 31 - 1;
}

/**
 * Milliseconds of one call, of `repeats` in a row.
 * @param {() => void} action
 * @param {number} repeats
 */
function timed(action, repeats) {
  const start = performance.now();
  for (let i = 0; i < repeats; i++) action();
  return (performance.now() - start) / repeats;
}

/** @param {number[]} values */
function median(values) {
  return values.toSorted((a, b) => a - b)[values.length >> 1];
}

/**
 * Medians and ratios. Throws if both sides do not give the same bits.
 * @param {Uint8Array<ArrayBuffer>} wasmBytes
 */
export async function measure(wasmBytes) {
  state = 1;
  const wasm = await prepare(wasmBytes, "wasm");
  state = 1;
  const plain = await prepare(wasmBytes, "plain");
  /** @type {Record<string, number>} */
  const line = {};
  for (const part of /** @type {const} */ (["whole", "product"])) {
    timed(wasm[part], WASM_REPEATS);
    timed(plain[part], 2);
    const rounds = Array.from({ length: ROUNDS }, () => [
      timed(wasm[part], WASM_REPEATS),
      timed(plain[part], 1),
    ]);
    const [fast, slow] = [0, 1].map((side) => median(rounds.map((round) => round[side])));
    line[`${part}_wasm_ms`] = Number(fast.toFixed(3));
    line[`${part}_plain_ms`] = Number(slow.toFixed(2));
    line[`${part}_ratio`] = Number((slow / fast).toFixed(1));
  }
  const [a, b] = await Promise.all([wasm.result(), plain.result()]);
  const same = a.every((value, i) => Object.is(value, b[i]));
  if (!same) throw new Error("both sides do not give the same bits");
  return { benchmark: "browser_product", size: SIZE, ...line };
}

if (typeof process !== "undefined" && process.argv[1] === new URL(import.meta.url).pathname) {
  const { readFile } = await import("node:fs/promises");
  const bytes = await readFile(new URL("../src/daisychain/static/kernels/kernels.wasm", import.meta.url));
  process.stdout.write(`${JSON.stringify(await measure(bytes))}\n`);
}
