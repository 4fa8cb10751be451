/** A small model's checkpoint, seeded chance, and files put together by hand. */

import { concatenate } from "../../../src/daisychain/static/checkpoint/bytes.js";
import { writePt, writeSafetensors } from "../../../src/daisychain/static/checkpoint/checkpoint.js";
import { decodeZip, encodeZip } from "../../../src/daisychain/static/checkpoint/zip.js";
import { initialWeights } from "../../../src/daisychain/static/model/weights.js";
import { mix } from "../../../src/daisychain/static/numerics/roster.js";

export const TOKENIZER = { digest: "5a".repeat(32), vocabulary: 64 };
export const CONFIG = { vocabulary: 64, width: 16, layers: 2, heads: 4, sequence: 16 };

const weights = initialWeights(CONFIG, 1);
weights[3] = -0;
weights[4] = 2 ** -149;

export const CHECKPOINT = {
  config: CONFIG,
  step: 7,
  tokenizer: TOKENIZER.digest,
  weights,
  optimizer: {
    mean: weights.map((w) => w / 3),
    square: weights.map((w) => w * w),
    power1: 0.9 ** 7,
    power2: 0.999 ** 7,
    position: 2 ** 40 + 1,
  },
};

export const SAFETENSORS = writeSafetensors(CHECKPOINT);
export const PT = writePt(CHECKPOINT);

/**
 * Whole numbers below `n`, the same for the same seed.
 * @param {number} seed
 */
export function seeded(seed) {
  let turn = 0;
  return (/** @type {number} */ n) => mix(mix(seed) + turn++) % n;
}

/** @param {Uint8Array} file */
export function splitSafetensors(file) {
  const end = 8 + new DataView(file.buffer, file.byteOffset).getUint32(0, true);
  return { header: JSON.parse(new TextDecoder().decode(file.subarray(8, end))), data: file.subarray(end) };
}

/**
 * @param {string} header
 * @param {Uint8Array} data
 */
export function joinSafetensors(header, data) {
  const text = new TextEncoder().encode(header);
  const length = new Uint8Array(BigUint64Array.of(BigInt(text.length)).buffer);
  return concatenate([length, text, data]);
}

/** @param {string} text characters below 256, one a byte */
export function bytesOf(text) {
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}

/**
 * The .pt with changed entries, checksums made right again.
 * @param {(entries: Map<string, Uint8Array>) => void} change
 */
export function rebuiltPt(change) {
  const entries = decodeZip(PT);
  change(entries);
  return encodeZip([...entries]);
}

/**
 * The .pt with another pickle.
 * @param {string | ((pickle: string) => string)} pickle as characters below 256
 */
export function withPickle(pickle) {
  return rebuiltPt((entries) => {
    const path = "daisychain/data.pkl";
    const old = String.fromCharCode(...(entries.get(path) ?? []));
    entries.set(path, bytesOf(typeof pickle === "string" ? pickle : pickle(old)));
  });
}
