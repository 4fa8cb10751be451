/** Admission by proof: a set of primitives may work once it has given the contract's bits on every try. */

import { messageOf } from "../errors.js";
import { sha256, toHex } from "../numerics/sha256.js";
import { functionTries } from "./gateFunctions.js";
import { productTries } from "./gateProducts.js";
import { Trial } from "./trial.js";

/** @typedef {import("../numerics/stateHash.js").Hash} Hash */

/** Around the ends of blocks and of the room that a hash works in. */
const HASHED_BYTES = [0, 1, 55, 56, 63, 64, 65, 119, 1000, 65_535, 65_536];

/**
 * The first try that a set of primitives fails and how, or null.
 * @param {import("./memory.js").Memory} memory its own, nothing else in it
 * @param {import("./plain.js").Primitives} primitives
 * @param {Hash} [hash] if it has its own
 */
export function firstFault(memory, primitives, hash) {
  const trial = new Trial(memory, primitives);
  for (const { name, run } of [...productTries, ...functionTries]) {
    trial.begin();
    try {
      run(trial);
    } catch (error) {
      return `${name}: ${messageOf(error)}`;
    } finally {
      memory.releaseScratch();
    }
  }
  return hash ? firstWrongHash(hash) : null;
}

/** @param {Hash} hash */
function firstWrongHash(hash) {
  const head = Uint8Array.of(1, 2, 3);
  for (const length of HASHED_BYTES) {
    const bytes = Uint8Array.from({ length }, (_, i) => (i * 167) >> 3);
    const [got, wanted] = [hash, sha256].map((one) => toHex(one(head, bytes)));
    if (got !== wanted) return `SHA-256 of ${length} bytes is ${got}, not ${wanted}`;
  }
  return null;
}
