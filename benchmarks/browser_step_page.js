/** The page of browser_step.js: both sides, alternating. */

import { openBackend } from "../src/daisychain/static/kernels/registry.js";
import { Decoder } from "../src/daisychain/static/model/decoder.js";
import { initialWeights } from "../src/daisychain/static/model/weights.js";
import { TfDecoder } from "./tfjs_decoder.js";

const CONFIG = { vocabulary: 16_512, width: 32, layers: 2, heads: 4, sequence: 32 };
const SAMPLES = 8;
const RATE_THOUSANDTHS = 10;
const ROUNDS = 9;
const STEPS_A_ROUND = 5;
const TOKENS = SAMPLES * CONFIG.sequence;

const ids = Uint16Array.from({ length: TOKENS }, (_, i) => (i * 7919) % CONFIG.vocabulary);
const targets = Uint16Array.from({ length: TOKENS }, (_, i) => ((i + 1) * 7919) % CONFIG.vocabulary);

async function ours() {
  const wasmBytes = new Uint8Array(
    await (await fetch("/src/daisychain/static/kernels/kernels.wasm")).arrayBuffer(),
  );
  const { backend } = await openBackend({ wasmBytes });
  const decoder = new Decoder(backend, CONFIG, SAMPLES);
  decoder.load({ weights: initialWeights(CONFIG, 1), step: 0 });
  return {
    backend: backend.name,
    async step() {
      const { lossSum, count } = await decoder.gradient(ids, targets);
      await decoder.update([await decoder.readGradient()], count, RATE_THOUSANDTHS);
      await decoder.hash();
      return lossSum / count;
    },
  };
}

/** @param {string} backend */
async function theirs(backend) {
  const { tf } = /** @type {any} */ (globalThis);
  tf.wasm.setThreadsCount(navigator.hardwareConcurrency);
  tf.wasm.setWasmPaths("/modules/@tensorflow/tfjs-backend-wasm/dist/");
  await tf.setBackend(backend);
  await tf.ready();
  const decoder = new TfDecoder(tf, CONFIG, SAMPLES, RATE_THOUSANDTHS / 1000);
  const [i, t] = [ids, targets].map((list) => Int32Array.from(list));
  return {
    backend: `${tf.getBackend()}, ${tf.wasm.getThreadsCount?.() ?? 1} threads`,
    step: async () => decoder.step(i, t),
  };
}

/** Milliseconds of a step. @param {() => Promise<number>} step */
async function timed(step) {
  const start = performance.now();
  for (let i = 0; i < STEPS_A_ROUND; i++) await step();
  return (performance.now() - start) / STEPS_A_ROUND;
}

/** @param {number[]} values */
const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

/** Medians of both sides and their ratio. */
export async function measure() {
  const sides = { page: await ours(), tensorflow: await theirs("wasm") };
  const losses = { page: await sides.page.step(), tensorflow: await sides.tensorflow.step() };
  /** @type {{page: number[], tensorflow: number[]}} */
  const times = { page: [], tensorflow: [] };
  for (let round = 0; round < ROUNDS; round++) {
    for (const side of /** @type {const} */ (["page", "tensorflow"]))
      times[side].push(await timed(sides[side].step));
  }
  const [page, tensorflow] = [median(times.page), median(times.tensorflow)];
  return {
    page: { backend: sides.page.backend, ms: page, tokens_per_s: (1000 * TOKENS) / page },
    tensorflow: {
      backend: sides.tensorflow.backend,
      ms: tensorflow,
      tokens_per_s: (1000 * TOKENS) / tensorflow,
    },
    first_losses: losses,
    cores: navigator.hardwareConcurrency,
    isolated: crossOriginIsolated,
    ratio: tensorflow / page,
  };
}
