/**
 * The whole models of vectors/decoder.json through a backend, and sampling; single operations are in decoderOps.js.
 * No import of Node's.
 */

import { Decoder } from "../../../src/daisychain/static/model/decoder.js";
import { generate, pick } from "../../../src/daisychain/static/model/generate.js";
import { sampleCount, sampleWindows } from "../../../src/daisychain/static/model/samples.js";
import { initialWeights, randomBits, streamKey } from "../../../src/daisychain/static/model/weights.js";
import { sampleIds } from "../../../src/daisychain/static/numerics/roster.js";
import { sha256, toHex } from "../../../src/daisychain/static/numerics/sha256.js";
import { tensorHead } from "../../../src/daisychain/static/numerics/stateHash.js";
import { decode, same } from "./cases.js";

/** @typedef {import("../../../src/daisychain/static/kernels/memory.js").Backend} Backend */
/** @typedef {{name: string, run: () => Promise<void>}} Case */

/**
 * @param {Backend} backend
 * @param {any} vectors of decoder.json
 * @returns {Case[]}
 */
export function decoderCases(backend, { default: common, model: whole, sampling: drawn }) {
  return [
    { name: "the default config", run: () => defaultConfig(backend, common) },
    { name: "the whole model", run: () => model(backend, whole) },
    { name: "sampling", run: async () => sampling(drawn) },
  ];
}

/**
 * @param {string} what
 * @param {unknown} got
 * @param {unknown} wanted
 */
function equal(what, got, wanted) {
  const [mine, theirs] = [got, wanted].map((value) => JSON.stringify(value));
  if (mine !== theirs) throw new Error(`${what} is ${mine}, not ${theirs}`);
}

/** Of a flat vector, by rule 14. @param {Float32Array} flat */
function digest(flat) {
  return toHex(sha256(tensorHead("<f4", [flat.length]), new Uint8Array(flat.buffer)));
}

/** @type {(backend: Backend, c: any) => Promise<void>} */
async function defaultConfig(backend, { config, seed, samples, ...c }) {
  const decoder = new Decoder(backend, config, samples);
  decoder.load({ step: 0, weights: initialWeights(config, seed) });
  equal("the state hash", toHex(await decoder.hash()), c.state_hash_at_step_0);
  equal("the loss", (await decoder.gradient(decode(c.ids), decode(c.targets))).lossSum, c.loss_sum);
  equal("the gradient's digest", digest(await decoder.readGradient()), c.gradient_digest);
  decoder.free();
}

/** @type {(backend: Backend, c: any) => Promise<void>} */
async function model(backend, c) {
  const { config, seed, samples, roster, rate_thousandths: rate, first, generated } = c;
  const decoder = new Decoder(backend, config, samples);
  decoder.load({ step: 0, weights: initialWeights(config, seed) });
  equal("the first state hash", toHex(await decoder.hash()), c.state_hash_at_step_0);
  const text = decode(c.text);
  const count = sampleCount(text, config.sequence);
  for (const [step, wanted] of c.steps.entries()) {
    /** @type {Float32Array[]} */
    const parts = [];
    /** @type {number[]} */
    const lossSums = [];
    for (let place = 0; place < roster; place++) {
      const start = (step * roster + place) * samples;
      const positions = Array.from({ length: samples }, (_, i) => start + i);
      const { ids, targets } = sampleWindows(text, sampleIds(positions, count, seed), config.sequence);
      lossSums.push((await decoder.gradient(ids, targets)).lossSum);
      parts.push(await decoder.readGradient());
      if (step + place === 0) {
        same("ids", ids, first.ids);
        same("targets", targets, first.targets);
        equal("the first loss", lossSums, [first.loss_sum]);
        same("the first gradient", parts[0], first.gradient);
        equal("its digest", digest(parts[0]), first.gradient_digest);
      }
    }
    equal("losses", lossSums, wanted.loss_sums);
    await decoder.update(parts, roster * samples * config.sequence, rate);
    equal(`the state hash at step ${step + 1}`, toHex(await decoder.hash()), wanted.state_hash);
  }
  const ids = [];
  for await (const id of generate(decoder, generated.prompt, generated)) ids.push(id);
  equal("generated ids", ids, generated.ids);
  decoder.free();
}

/** @param {any} c */
function sampling(c) {
  const logits = decode(c.logits);
  const key = streamKey(c.seed, 0);
  const fractions = Array.from(decode(c.fractions), (_, i) => randomBits(key, i) * 2 ** -24);
  same("fractions", fractions, c.fractions);
  for (const { temperature, top_k: topK, tokens } of c.cases) {
    const got = fractions.map((fraction) => pick(logits, temperature, fraction, topK));
    equal(`tokens at temperature ${temperature} of ${topK}`, got, tokens);
  }
  const { temperature, top_k: topK, token } = c.largest_fraction;
  equal("the last token", pick(logits, temperature, Math.fround(1 - 2 ** -24), topK), token);
}
