/** The decoder's life in training: refusals that change nothing, state that goes on elsewhere, memory given back. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { CpuBackend } from "../../../src/daisychain/static/kernels/cpu.js";
import { Memory, PlainMemory } from "../../../src/daisychain/static/kernels/memory.js";
import { plainPrimitives } from "../../../src/daisychain/static/kernels/plain.js";
import { Decoder } from "../../../src/daisychain/static/model/decoder.js";
import { generate, pick } from "../../../src/daisychain/static/model/generate.js";
import { Inference } from "../../../src/daisychain/static/model/inference.js";
import { sampleCount, sampleWindows } from "../../../src/daisychain/static/model/samples.js";
import {
  checkConfig,
  initialWeights,
  parameterCount,
  parameterShapes,
} from "../../../src/daisychain/static/model/weights.js";
import { toHex } from "../../../src/daisychain/static/numerics/sha256.js";

const CONFIG = { vocabulary: 40, width: 12, layers: 2, heads: 3, sequence: 7 };
const DEFAULT = { vocabulary: 16_512, width: 32, layers: 2, heads: 4, sequence: 32 };
const SAMPLES = 3;
const COUNT = SAMPLES * CONFIG.sequence;
const TEXT = Uint16Array.from({ length: 60 }, (_, i) => (i * i + 3 * i) % 40);
const BATCH = sampleWindows(TEXT, [4, 0, 2], CONFIG.sequence);

function newBackend() {
  const memory = new Memory(new PlainMemory());
  return new CpuBackend({ name: "plain", memory, primitives: plainPrimitives(memory) });
}

function newDecoder(backend = newBackend()) {
  const decoder = new Decoder(backend, CONFIG, SAMPLES);
  decoder.load({ step: 0, weights: initialWeights(CONFIG, 5) });
  return decoder;
}

/** @param {Decoder} decoder */
async function trainStep(decoder) {
  const { lossSum, count } = await decoder.gradient(BATCH.ids, BATCH.targets);
  await decoder.update([await decoder.readGradient()], count, 20);
  return lossSum / count;
}

/** @param {Decoder} decoder */
const hash = async (decoder) => toHex(await decoder.hash());

test("parameters lie one after the other", () => {
  let end = 0;
  for (const { at, length, shape } of parameterShapes(CONFIG)) {
    assert.equal(at, end);
    assert.equal(
      length,
      shape.reduce((a, b) => a * b),
    );
    end += length;
  }
  assert.equal(end, parameterCount(CONFIG));
  assert.equal(parameterCount(DEFAULT), 554_144);
});

test("a config outside the limits is refused by name", () => {
  assert.deepEqual(checkConfig({ ...CONFIG, .../** @type {object} */ ({ batch: 4 }) }), CONFIG);
  const wrong = [
    { vocabulary: 16_513 },
    { width: 129 },
    { width: 0 },
    { layers: 9 },
    { heads: 5 },
    { heads: 24 },
    { sequence: 129 },
    { sequence: 1.5 },
    { layers: Number.NaN },
    { width: /** @type {any} */ ("12") },
  ];
  for (const part of wrong) {
    const message = new RegExp(Object.keys(part)[0]);
    assert.throws(() => checkConfig({ ...CONFIG, ...part }), { name: "ConfigError", message });
  }
  for (const seed of [-1, 2 ** 32, 0.5]) {
    assert.throws(() => initialWeights(CONFIG, seed), { name: "ConfigError", message: /seed/ });
  }
});

test("samples are windows side by side", () => {
  assert.deepEqual(
    [0, 1, 7, 8, 14, 15, 60].map((length) => sampleCount(TEXT.subarray(0, length), 7)),
    [0, 0, 0, 1, 1, 2, 8],
  );
  assert.deepEqual([...BATCH.ids.subarray(0, 7)], [...TEXT.subarray(28, 35)]);
  assert.deepEqual([...BATCH.targets.subarray(7, 14)], [...TEXT.subarray(1, 8)]);
});

test("training lowers the loss", async () => {
  const decoder = newDecoder();
  const losses = [];
  for (let i = 0; i < 25; i++) losses.push(await trainStep(decoder));
  assert.ok(losses[0] > 3.5 && losses[24] < losses[0] - 2, String(losses));
  assert.equal(decoder.step, 25);
});

test("a gradient that cannot be used changes nothing", async () => {
  const [decoder, other] = [newDecoder(), newDecoder()];
  await trainStep(decoder);
  await trainStep(other);
  const before = await decoder.state();
  await decoder.gradient(BATCH.ids, BATCH.targets);
  const good = await decoder.readGradient();
  const bad = [
    [[good.subarray(1)], "ConfigError"],
    [[good, good.map((g, i) => (i === 9 ? Number.NaN : g))], "NonFiniteError"],
    [[good.map((g, i) => (i === 9 ? Number.NEGATIVE_INFINITY : g)), good], "NonFiniteError"],
    [[good.map(() => 3e38), good.map(() => 3e38)], "NonFiniteError"],
  ];
  for (const [parts, name] of bad) {
    await assert.rejects(decoder.update(/** @type {Float32Array[]} */ (parts), COUNT, 20), { name });
    assert.deepEqual(await decoder.state(), before);
  }
  await trainStep(decoder);
  await trainStep(other);
  assert.equal(await hash(decoder), await hash(other));
});

test("diverged weights are refused and stay as they are", async () => {
  const decoder = newDecoder();
  const weights = initialWeights(CONFIG, 5);
  weights[parameterShapes(CONFIG)[3].at] = Number.NaN;
  decoder.load({ step: 4, weights });
  await assert.rejects(decoder.gradient(BATCH.ids, BATCH.targets), { name: "NonFiniteError" });
  assert.deepEqual((await decoder.state()).weights, weights);
  await assert.rejects(decoder.gradient(BATCH.ids.subarray(1), BATCH.targets), { name: "ConfigError" });
});

test("a state goes on elsewhere with the same bits", async () => {
  const [first, second] = [newDecoder(), newDecoder()];
  for (let i = 0; i < 3; i++) await trainStep(first);
  const state = await first.state();
  await trainStep(second);
  assert.throws(() => second.load({ ...state, mean: state.mean.subarray(1) }), {
    name: "ConfigError",
    message: /mean/,
  });
  second.load(state);
  for (const decoder of [first, second]) await trainStep(decoder);
  assert.equal(await hash(first), await hash(second));
  second.load({ step: 3, weights: state.weights });
  await trainStep(second);
  assert.notEqual(await hash(first), await hash(second));
});

test("the next token's logits, while it trains and alone", async () => {
  const decoder = newDecoder();
  await trainStep(decoder);
  const backend = newBackend();
  const alone = new Inference(backend, CONFIG);
  backend.write(alone.weights, (await decoder.state()).weights);
  for (const length of [1, 4, 7]) {
    const ids = TEXT.subarray(0, length);
    assert.deepEqual(await decoder.logits(ids), await alone.logits(ids));
  }
  for (const length of [0, 8]) {
    await assert.rejects(alone.logits(new Uint16Array(length)), {
      name: "ConfigError",
      message: /sequence, 7/,
    });
  }
  const other = newDecoder();
  for (let i = 0; i < 2; i++) await trainStep(other);
  await trainStep(decoder);
  assert.equal(await hash(decoder), await hash(other));
});

test("generation slides its window and repeats itself", async () => {
  const decoder = newDecoder();
  for (let i = 0; i < 5; i++) await trainStep(decoder);
  const settings = { tokens: 9, temperature: 0.9, seed: 4 };
  const write = async (/** @type {Uint16Array} */ prompt, seed = 4) => {
    const ids = [];
    for await (const id of generate(decoder, prompt, { ...settings, seed })) ids.push(id);
    return ids;
  };
  const text = await write(TEXT);
  assert.equal(text.length, 9);
  assert.deepEqual(await write(TEXT.subarray(-7)), text);
  assert.notDeepEqual(await write(TEXT, 5), text);
  /** @type {[object, RegExp][]} */
  const wrong = [
    [{ tokens: -1 }, /tokens/],
    [{ tokens: 1e9 }, /tokens/],
    [{ temperature: Number.NaN }, /temperature/],
    [{ temperature: 0.001 }, /temperature/],
    [{ seed: 2 ** 32 }, /seed/],
  ];
  for (const [part, message] of wrong) {
    assert.throws(() => generate(decoder, TEXT, { ...settings, ...part }), { name: "ConfigError", message });
  }
  assert.throws(() => generate(decoder, [], settings), { name: "ConfigError", message: /prompt/ });
});

test("ties go to the lower place", () => {
  const logits = Float32Array.of(1, 3, 3, -3, 3);
  assert.equal(pick(logits, 0, 0.9), 1);
  assert.equal(pick(logits, 1, 0.999, 1), 1);
  assert.equal(pick(logits, 1, 0.999, 2), 2);
  assert.equal(pick(logits, 1, 1 - 2 ** -24, 5), 4);
  assert.throws(() => pick(Float32Array.of(0, Number.NaN), 1, 0.5), { name: "NonFiniteError" });
  assert.throws(() => pick(logits, 1, 0.5, 0), { name: "ConfigError" });
});

test("memory is given back", async () => {
  const backend = newBackend();
  const before = backend.f32(4);
  backend.free(before);
  const decoder = newDecoder(backend);
  await trainStep(decoder);
  await decoder.logits([1]);
  decoder.free();
  const size = backend.memory.bytes.length;
  for (let i = 0; i < 3; i++) {
    const again = newDecoder(backend);
    await trainStep(again);
    again.free();
  }
  assert.equal(backend.memory.bytes.length, size);
  assert.equal(backend.f32(4).offset, before.offset);
});
