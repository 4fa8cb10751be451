/**
 * Does the block format cost the room's model quality? The default config on the embedded corpus, with the contract's
 * products (WASM) and with all of them, ReLU included, in float32.
 *
 *     node benchmarks/browser_accuracy.js [--seeds 3] [--steps 300] [--python .venv/bin/python]
 *
 * Prints a JSON line a seed: the mean loss of the last 50 steps of both, in nats a token.
 */

import { execFileSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { gather, Products } from "../src/daisychain/static/kernels/products.js";
import { openBackend } from "../src/daisychain/static/kernels/registry.js";
import * as limits from "../src/daisychain/static/limits.js";
import { Decoder } from "../src/daisychain/static/model/decoder.js";
import { sampleCount, sampleWindows } from "../src/daisychain/static/model/samples.js";
import { Tokenizer } from "../src/daisychain/static/model/tokenizer.js";
import { initialWeights } from "../src/daisychain/static/model/weights.js";
import { sampleIds } from "../src/daisychain/static/numerics/roster.js";

const CONFIG = {
  vocabulary: limits.VOCABULARY,
  width: limits.WIDTH[2],
  layers: limits.LAYERS_DEFAULT,
  heads: limits.HEADS_DEFAULT,
  sequence: limits.SEQUENCE[2],
};
const SAMPLES = limits.BATCH_SAMPLES[2];
const LAST = 50;
const TILE = 4;
const CORPUS =
  "import sys; from daisychain.data import read_text; sys.stdout.buffer.write(read_text(None)[0])";

/** @param {string} path */
const file = (path) => readFile(new URL(`../src/daisychain/${path}`, import.meta.url));

/** Products in float32, summed in order; an operand is a copy of its matrix. */
class FloatProducts extends Products {
  /** @type {Products["quantise"]} */
  quantise(view, width) {
    return this.fill({ view, edges: Int32Array.of(0, view.length), width, blocks: [] }, view);
  }

  /** @type {Products["fill"]} */
  fill(operand, view) {
    return Object.assign(operand, { view, values: padded(gather(this.memory, view), view.length) });
  }

  /**
   * @param {any} a
   * @param {any} b
   * @param {import("../src/daisychain/static/kernels/products.js").Place} out
   */
  multiply(a, b, out, adds = false) {
    const { floats } = this.memory;
    const sums = new Float32Array(TILE);
    const length = a.view.length;
    for (let row = 0; row < a.view.rows; row++) {
      for (let column = 0; column < b.view.rows; column += TILE) {
        dots(a.values, row * length, b.values, column * length, length, sums);
        const at = (out.offset >> 2) + row * out.stride + column;
        const count = Math.min(TILE, b.view.rows - column);
        for (let i = 0; i < count; i++) floats[at + i] = adds ? floats[at + i] + sums[i] : sums[i];
      }
    }
  }
}

/**
 * With room for TILE − 1 more rows, so that `dots` never reads beyond the end.
 * @param {Float32Array} values
 * @param {number} length
 */
function padded(values, length) {
  const out = new Float32Array(values.length + (TILE - 1) * length);
  out.set(values);
  return out;
}

/**
 * One row of `a` with TILE rows of `b`.
 * @param {Float32Array} a
 * @param {number} from
 * @param {Float32Array} b
 * @param {number} at
 * @param {number} length
 * @param {Float32Array} sums
 */
function dots(a, from, b, at, length, sums) {
  const { fround } = Math;
  let s0 = fround(0);
  let s1 = s0;
  let s2 = s0;
  let s3 = s0;
  for (let i = 0; i < length; i++) {
    const x = a[from + i];
    const j = at + i;
    s0 = fround(s0 + fround(x * b[j]));
    s1 = fround(s1 + fround(x * b[j + length]));
    s2 = fround(s2 + fround(x * b[j + 2 * length]));
    s3 = fround(s3 + fround(x * b[j + 3 * length]));
  }
  sums[0] = s0;
  sums[1] = s1;
  sums[2] = s2;
  sums[3] = s3;
}

async function blockBackend() {
  const wasmBytes = await file("static/kernels/kernels.wasm");
  return (await openBackend({ wasmBytes, force: "wasm" })).backend;
}

async function floatBackend() {
  const backend = await blockBackend();
  const { memory } = backend;
  backend.products = new FloatProducts(memory, {
    ...backend.primitives,
    blockValues(x, stride, rows, length, least, out) {
      const { floats } = memory;
      for (let row = 0; row < rows; row++) {
        const [from, to] = [(x >> 2) + row * stride, (out >> 2) + row * stride];
        for (let i = 0; i < length; i++) floats[to + i] = Math.max(floats[from + i], least);
      }
      return 0;
    },
  });
  return backend;
}

/**
 * @param {import("../src/daisychain/static/kernels/cpu.js").CpuBackend} backend
 * @param {Uint16Array} text
 * @param {number} seed
 * @param {number} steps
 */
async function train(backend, text, seed, steps) {
  const decoder = new Decoder(backend, CONFIG, SAMPLES);
  decoder.load({ step: 0, weights: initialWeights(CONFIG, seed) });
  const losses = [];
  for (let step = 0; step < steps; step++) {
    const positions = Array.from({ length: SAMPLES }, (_, i) => step * SAMPLES + i);
    const samples = sampleIds(positions, sampleCount(text, CONFIG.sequence), seed);
    const { ids, targets } = sampleWindows(text, samples, CONFIG.sequence);
    const { lossSum, count } = await decoder.gradient(ids, targets);
    await decoder.update([await decoder.readGradient()], count, limits.RATE_THOUSANDTHS[2]);
    losses.push(lossSum / count);
  }
  decoder.free();
  const last = losses.slice(-LAST);
  return last.reduce((a, b) => a + b) / last.length;
}

const { values } = parseArgs({
  options: {
    seeds: { type: "string", default: "3" },
    steps: { type: "string", default: String(limits.STEPS[2]) },
    python: { type: "string", default: ".venv/bin/python" },
  },
});
const [seeds, steps] = [Number(values.seeds), Number(values.steps)];
const corpus = execFileSync(values.python, ["-c", CORPUS], { maxBuffer: 2 ** 30 }).toString();
const text = new Tokenizer(JSON.parse((await file("data/tokenizer.json")).toString())).encode(corpus);
const backends = { block_format: await blockBackend(), float32: await floatBackend() };
for (let seed = 1; seed <= seeds; seed++) {
  /** @type {Record<string, number>} */
  const losses = {};
  for (const [name, backend] of Object.entries(backends)) {
    losses[name] = Number((await train(backend, text, seed, steps)).toFixed(4));
  }
  const line = { benchmark: "browser_accuracy", steps, tokens: text.length, seed, ...losses };
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
