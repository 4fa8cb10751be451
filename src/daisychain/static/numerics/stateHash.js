/** One hash for the whole state of a replica (docs/NUMERICS.md, rule 14). */

import { sha256 } from "./sha256.js";

/**
 * SHA-256 over its arguments one after the other; kernels have a faster one.
 * @typedef {(...parts: Uint8Array[]) => Uint8Array} Hash
 */

/**
 * `type` is NumPy's type string; `bytes` are little-endian.
 * @typedef {{type: string, shape: readonly number[], bytes: Uint8Array}} Tensor
 */

const encoder = new TextEncoder();

/**
 * What is hashed before the bytes of a tensor, such as `<f4[2, 3]\0`.
 * @param {string} type
 * @param {readonly number[]} shape
 */
export function tensorHead(type, shape) {
  return encoder.encode(`${type}[${shape.join(", ")}]\0`);
}

/**
 * The hash of a state whose tensors' digests are known: 32 bytes.
 * @param {Iterable<[string, Uint8Array]>} digests by name, in any order
 * @param {number} step
 * @param {Hash} [hash]
 */
export function combineDigests(digests, step, hash = sha256) {
  const named = Array.from(digests, ([name, digest]) => ({ name: encoder.encode(name), digest }));
  named.sort((a, b) => compareBytes(a.name, b.name));
  const stepBytes = new Uint8Array(8);
  new DataView(stepBytes.buffer).setBigUint64(0, BigInt(step), true);
  /** @type {Uint8Array[]} */
  const parts = [encoder.encode("daisychain state 1\0"), stepBytes];
  for (const { name, digest } of named) {
    const length = new Uint8Array(4);
    new DataView(length.buffer).setUint32(0, name.length, true);
    parts.push(length, name, digest);
  }
  return hash(...parts);
}

/**
 * The hash of a state: 32 bytes.
 * @param {Iterable<[string, Tensor]>} state by name, in any order
 * @param {number} step
 * @param {Hash} [hash]
 */
export function stateHash(state, step, hash = sha256) {
  /** @type {[string, Uint8Array][]} */
  const digests = Array.from(state, ([name, { type, shape, bytes }]) => [
    name,
    hash(tensorHead(type, shape), bytes),
  ]);
  return combineDigests(digests, step, hash);
}

/**
 * @param {Uint8Array} a
 * @param {Uint8Array} b
 */
function compareBytes(a, b) {
  const place = a.findIndex((byte, i) => byte !== b[i]);
  if (place < 0) return a.length - b.length;
  return place < b.length ? a[place] - b[place] : 1;
}
