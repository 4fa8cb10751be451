/** The host does what the contract says: whose samples, which position, what is carried over. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { ConfigError } from "../../../src/daisychain/static/errors.js";
import { openBackend } from "../../../src/daisychain/static/kernels/registry.js";
import { CONTRACT_VERSION } from "../../../src/daisychain/static/limits.js";
import { Decoder } from "../../../src/daisychain/static/model/decoder.js";
import { sampleCount, sampleWindows } from "../../../src/daisychain/static/model/samples.js";
import { initialWeights } from "../../../src/daisychain/static/model/weights.js";
import { sampleIds } from "../../../src/daisychain/static/numerics/roster.js";
import { compress } from "../../../src/daisychain/static/sync/compress.js";
import { Host } from "../../../src/daisychain/static/worker/host.js";
import { SETTINGS } from "../../virtual_peers.js";

const WASM = new URL("../../../src/daisychain/static/kernels/kernels.wasm", import.meta.url);
const SMALL = {
  ...SETTINGS,
  ...{ width: 16, layers: 1, sequence: 16, batch: 2, contract: CONTRACT_VERSION },
};
const INT8 = { ...SMALL, gradients: /** @type {const} */ ("int8") };
const TEXT = Uint16Array.from({ length: 1_000 }, (_, i) => (i * 7 + (i >> 3)) % 300);

async function backend() {
  return (await openBackend({ wasmBytes: readFileSync(WASM) })).backend;
}

/** @param {typeof SMALL | typeof INT8} settings */
async function host(settings) {
  const made = new Host(await backend(), "ab".repeat(32), async () => {});
  await made.import(settings, TEXT, null);
  return made;
}

/** The gradient of the samples at these positions, from the model itself. @param {number[]} positions */
async function expected(positions) {
  const decoder = new Decoder(await backend(), SMALL, positions.length);
  decoder.load({ weights: initialWeights(SMALL, SMALL.seed), step: 0 });
  const samples = sampleIds(positions, sampleCount(TEXT, SMALL.sequence), SMALL.seed);
  const { ids, targets } = sampleWindows(TEXT, samples, SMALL.sequence);
  await decoder.gradient(ids, targets);
  return decoder.readGradient();
}

/** @param {Uint8Array} payload */
const floats = (payload) => new Float32Array(payload.slice().buffer);

test("each place has samples of its own, and the position moves by the whole roster's", async () => {
  const one = await host(SMALL);
  const parts = [];
  for (const place of [0, 1, 2]) {
    const { payload, count } = await one.compute({ epoch: 1, step: 0, place });
    assert.deepEqual(floats(payload), await expected([2 * place, 2 * place + 1]));
    assert.equal(count, 32);
    parts.push({ id: String(place), count, bytes: payload });
  }
  assert.equal(one.position, 0);
  await one.apply({ origin: 1, parts });
  assert.equal(one.position, 6);
});

test("what error feedback carries over is that of the set that was applied", async () => {
  const one = await host(INT8);
  const gradient = await expected([0, 1]);
  const first = compress(gradient, "int8", new Float32Array(gradient.length));
  const computed = await one.compute({ epoch: 1, step: 0, place: 0 });
  assert.deepEqual(computed.payload, first.payload);
  // Of the same step under a later epoch: the first was not applied, so nothing is carried over yet.
  const again = await one.compute({ epoch: 2, step: 0, place: 0 });
  assert.deepEqual(again.payload, first.payload);
  const part = { id: "a", count: again.count, bytes: again.payload };
  await one.apply({ origin: 2, parts: [part] });
  const two = await host(INT8);
  await two.apply({ origin: 2, parts: [part] });
  const [carried, fresh] = [
    await one.compute({ epoch: 2, step: 1, place: 0 }),
    await two.compute({ epoch: 2, step: 1, place: 0 }),
  ];
  assert.notDeepEqual(carried.payload, fresh.payload, "the residual of the applied set is current");
  await one.import(INT8, TEXT, await two.export());
  assert.deepEqual(
    (await one.compute({ epoch: 3, step: 1, place: 0 })).payload,
    fresh.payload,
    "none after an import",
  );
});

test("a set of another epoch leaves the residual as it was", async () => {
  const one = await host(INT8);
  const { payload, count } = await one.compute({ epoch: 1, step: 0, place: 0 });
  const two = await host(INT8);
  const set = { origin: 5, parts: [{ id: "a", count, bytes: payload }] };
  await one.apply(set);
  await two.apply(set);
  const next = await Promise.all([one, two].map((each) => each.compute({ epoch: 5, step: 1, place: 0 })));
  assert.deepEqual(next[0].payload, next[1].payload);
});

test("settings and states of strangers are checked", async () => {
  const one = await host(SMALL);
  for (const change of [
    ...[{ batch: 0 }, { batch: 1e9 }, { rate: 0 }, { seed: -1 }, { steps: Number.NaN }, { steps: -1 }],
    ...[{ gradients: "bogus" }, { contract: 2 }, { layers: 1e9 }, { width: 0 }, { heads: 3 }],
  ]) {
    const settings = /** @type {typeof SMALL} */ ({ ...SMALL, ...change });
    await assert.rejects(one.import(settings, TEXT, null), ConfigError, JSON.stringify(change));
  }
  const state = await one.export();
  await assert.rejects(one.import({ ...SMALL, width: 32 }, TEXT, state), /another shape/);
});
