/** Mean over a roster and the order of samples (docs/NUMERICS.md, rules 13 and 15). */

import { ConfigError } from "../errors.js";
import { clz32, floor, fround, imul, max } from "./numbers.js";

const FEISTEL_ROUNDS = 6;
const GOLDEN = 0x9e3779b9;

/**
 * Σ of per-sample-sum gradients, in roster order from +0, over Σ counts.
 * @param {Float32Array[]} gradients of one length
 * @param {number[]} counts
 */
export function rosterMean(gradients, counts) {
  const total = counts.reduce((a, b) => a + b, 0);
  if (total < 1) throw new ConfigError(`a roster with ${total} samples has no mean gradient.`);
  const out = new Float32Array(gradients[0].length);
  for (const gradient of gradients) {
    for (let i = 0; i < out.length; i++) out[i] += gradient[i];
  }
  const count = fround(total);
  return out.map((sum) => sum / count);
}

/**
 * A 32-bit mixing function: multiply and xor-shift, invertible.
 * @param {number} x any integer; taken modulo 2^32
 * @returns {number} uint32
 */
export function mix(x) {
  let y = imul(x ^ (x >>> 16), 0x85ebca6b);
  y = imul(y ^ (y >>> 13), 0xc2b2ae35);
  return (y ^ (y >>> 16)) >>> 0;
}

/**
 * A Feistel permutation of the numbers below 2^(2·halfBits).
 * @param {number} index
 * @param {number} halfBits 1…16
 * @param {number} key uint32
 */
function permute(index, halfBits, key) {
  const mask = (1 << halfBits) - 1;
  let left = index >>> halfBits;
  let right = index & mask;
  for (let turn = 0; turn < FEISTEL_ROUNDS; turn++) {
    const turned = left ^ (mix(right ^ mix(key + turn * GOLDEN)) & mask);
    [left, right] = [right, turned];
  }
  return ((left << halfBits) | right) >>> 0;
}

/**
 * The sample at each position of the run: position p is place p mod n of epoch p div n. Each epoch is a seeded
 * permutation of 0…n−1, so that a sample is used exactly once an epoch, whatever joins or leaves.
 * @param {ArrayLike<number>} positions integers of 0 or more
 * @param {number} sampleCount n
 * @param {number} seed a safe integer
 * @returns {number[]}
 */
export function sampleIds(positions, sampleCount, seed) {
  if (!(sampleCount >= 1 && sampleCount < 2 ** 31)) {
    throw new ConfigError(`a task needs between 1 and 2^31 − 1 samples; it has ${sampleCount}.`);
  }
  const halfBits = max(1, (33 - clz32(sampleCount - 1)) >> 1);
  const seedLow = mix((seed >>> 0) + GOLDEN);
  const seedHigh = floor(seed / 2 ** 32);
  return Array.from(positions, (position) => {
    const place = position % sampleCount;
    const key = mix(seedLow ^ mix(seedHigh + (position - place) / sampleCount));
    let id = permute(place, halfBits, key);
    while (id >= sampleCount) id = permute(id, halfBits, key); // cycle-walking: at most a few rounds
    return id;
  });
}
