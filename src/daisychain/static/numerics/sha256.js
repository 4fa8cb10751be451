/** SHA-256 in plain JavaScript: crypto.subtle does not exist on plain http pages. */

import { min } from "./numbers.js";

const BLOCK_BYTES = 64;
/** The state before the first block: eight words. */
export const INITIAL_STATE = [
  0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];
// biome-ignore format: eight a row
const ROUND = Int32Array.of(
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
);

/** A digest over bytes that come in parts. */
export class Sha256 {
  #state = Int32Array.from(INITIAL_STATE);
  #block = new Uint8Array(BLOCK_BYTES);
  #view = new DataView(this.#block.buffer);
  #words = new Int32Array(BLOCK_BYTES);
  #length = 0;

  /** @param {Uint8Array} bytes */
  update(bytes) {
    for (let at = 0; at < bytes.length; ) {
      const filled = this.#length % BLOCK_BYTES;
      const taken = min(BLOCK_BYTES - filled, bytes.length - at);
      this.#block.set(bytes.subarray(at, at + taken), filled);
      this.#length += taken;
      at += taken;
      if (filled + taken === BLOCK_BYTES) this.#compress();
    }
    return this;
  }

  /** The 32 bytes of the digest; the object is used up. */
  digest() {
    const bits = BigInt(this.#length) * 8n;
    const padding = new Uint8Array(BLOCK_BYTES - ((this.#length + 8) % BLOCK_BYTES));
    padding[0] = 0x80;
    this.update(padding);
    const end = new Uint8Array(8);
    new DataView(end.buffer).setBigUint64(0, bits);
    this.update(end);
    const out = new DataView(new ArrayBuffer(32));
    this.#state.forEach((word, i) => {
      out.setInt32(4 * i, word);
    });
    return new Uint8Array(out.buffer);
  }

  #compress() {
    const words = this.#words;
    for (let i = 0; i < 16; i++) words[i] = this.#view.getInt32(4 * i);
    for (let i = 16; i < 64; i++) {
      const [early, late] = [words[i - 15], words[i - 2]];
      const small = turn(early, 7) ^ turn(early, 18) ^ (early >>> 3);
      const large = turn(late, 17) ^ turn(late, 19) ^ (late >>> 10);
      words[i] = words[i - 16] + small + words[i - 7] + large;
    }
    let [a, b, c, d, e, f, g, h] = this.#state;
    for (let i = 0; i < 64; i++) {
      const chosen = (e & f) ^ (~e & g);
      const first = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + chosen + ROUND[i] + words[i]) | 0;
      const majority = (a & b) ^ (a & c) ^ (b & c);
      const second = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + majority;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => {
      this.#state[i] += word;
    });
  }
}

/**
 * @param {number} word
 * @param {number} bits
 */
function turn(word, bits) {
  return (word >>> bits) | (word << (32 - bits));
}

/**
 * SHA-256 over `parts`, one after the other: 32 bytes.
 * @param {...Uint8Array} parts
 */
export function sha256(...parts) {
  const total = new Sha256();
  for (const part of parts) total.update(part);
  return total.digest();
}

/**
 * @param {Uint8Array} bytes
 */
export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
