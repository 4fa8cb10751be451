/** SHA-256 by a kernel that takes whole blocks. */

import { min } from "../numerics/numbers.js";
import { INITIAL_STATE } from "../numerics/sha256.js";

const BLOCK_BYTES = 64;
const ROOM_BYTES = 65_536;

/**
 * @param {import("./memory.js").Memory} memory
 * @param {import("./wasm.js").Compress} compress
 * @returns {import("../numerics/stateHash.js").Hash}
 */
export function kernelHash(memory, compress) {
  const room = memory.allocate(ROOM_BYTES);
  const state = memory.allocate(32);
  return (...parts) => {
    memory.ints.set(INITIAL_STATE, state >> 2);
    let [filled, total] = [0, 0];
    const take = (/** @type {Uint8Array} */ bytes) => {
      for (let at = 0; at < bytes.length; ) {
        const taken = min(ROOM_BYTES - filled, bytes.length - at);
        memory.bytes.set(bytes.subarray(at, at + taken), room + filled);
        at += taken;
        filled += taken;
        if (filled === ROOM_BYTES) {
          compress(state, room, ROOM_BYTES / BLOCK_BYTES);
          filled = 0;
        }
      }
      total += bytes.length;
    };
    parts.forEach(take);
    const end = new DataView(new ArrayBuffer(8 + BLOCK_BYTES - ((total + 8) % BLOCK_BYTES)));
    end.setUint8(0, 0x80);
    end.setBigUint64(end.byteLength - 8, BigInt(total) * 8n);
    take(new Uint8Array(end.buffer));
    if (filled) compress(state, room, filled / BLOCK_BYTES);
    const out = new DataView(new ArrayBuffer(32));
    for (let word = 0; word < 8; word++) out.setInt32(4 * word, memory.ints[(state >> 2) + word]);
    return new Uint8Array(out.buffer);
  };
}
