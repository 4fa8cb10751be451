import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { fround, max, min } from "../../../src/daisychain/static/numerics/numbers.js";
import { Sha256, sha256, toHex } from "../../../src/daisychain/static/numerics/sha256.js";
import { conformanceCases, MIRRORS } from "./cases.js";

/** @param {string} name */
const load = async (name) =>
  JSON.parse(await readFile(new URL(`../../../vectors/${name}.json`, import.meta.url), "utf8"));

for (const { name, run } of await conformanceCases(load)) test(name, run);

/**
 * The names of the cases that fail.
 * @param {Partial<typeof MIRRORS>} faults
 */
async function failures(faults) {
  const cases = await conformanceCases(load, { ...MIRRORS, ...faults });
  return cases.flatMap(({ name, run }) => {
    try {
      run();
      return [];
    } catch {
      return [name];
    }
  });
}

/** @param {number} x */
function halfToEven(x) {
  const code = (x + 128) >> 8;
  const tie = (x & 255) === 128;
  return max(-128, min(127, tie && code & 1 ? code - 1 : code));
}

const { crossEntropy, exp, quantise, rosterMean, sampleIds, stateHash } = MIRRORS;

/** @type {[string, Partial<typeof MIRRORS>, string][]} */
const FAULTS = [
  ["half to even", { quantise: (x, m, k, edges) => quantise(x, m, k, edges, halfToEven) }, "blocks: ties"],
  ["half to even, the unit", { requantise: halfToEven }, "units: requantise on its whole domain"],
  ["blocks that do not restart", { quantise: (x, m, k) => quantise(x, m, k) }, "blocks: restarting blocks"],
  ["a platform's exp", { exp: (x) => fround(Math.exp(x)) }, "functions: exp"],
  ["a plain sum", { laneSum: (x) => x.reduce((a, b) => fround(a + b)) }, "functions: lane sum"],
  ["−0 as a zero", { exp: (x) => exp(x) || -0 }, "functions: exp"],
  ["targets ignored", { crossEntropy: (x) => crossEntropy(x, 0) }, "functions: cross-entropy"],
  [
    "no refusal of NaN",
    {
      quantise: (x, m, k, edges) =>
        quantise(
          x.map((v) => v || 0),
          m,
          k,
          edges,
        ),
    },
    "refused: nan",
  ],
  ["no bound on K", { checkContraction: () => {} }, "refused: K too long"],
  [
    "a roster in another order",
    { rosterMean: (gradients, counts) => rosterMean(gradients.toReversed(), counts) },
    "roster: mean",
  ],
  [
    "a seed cut to 32 bits",
    { sampleIds: (at, n, seed) => sampleIds(at, n, seed >>> 0) },
    "roster: sample order of 100, seed 1099511627779",
  ],
  ["a hash without the step", { stateHash: (state) => stateHash(state, 0) }, "roster: state hash"],
];

for (const [name, fault, caught] of FAULTS) {
  test(`planted fault is caught: ${name}`, async () => {
    assert.ok((await failures(fault)).includes(caught));
  });
}

test("without a fault no case fails", async () => {
  assert.deepEqual(await failures({}), []);
});

test("SHA-256 is that of others, for every length around a block, whole and in parts", () => {
  for (let length = 0; length < 200; length++) {
    const bytes = Uint8Array.from({ length }, (_, i) => (i * 7 + length) & 255);
    const wanted = createHash("sha256").update(bytes).digest("hex");
    assert.equal(toHex(sha256(bytes)), wanted);
    const parts = new Sha256();
    for (let at = 0; at < length; at += 13) parts.update(bytes.subarray(at, at + 13));
    assert.equal(toHex(parts.digest()), wanted);
  }
});
