/** Hex and little-endian bytes. */

import { ProtocolError } from "../errors.js";

const PAIRS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/** @param {Uint8Array} bytes @param {number} at @param {number} length */
export function hexAt(bytes, at, length) {
  let text = "";
  for (let i = at; i < at + length; i++) text += PAIRS[bytes[i]];
  return text;
}

/** @param {Uint8Array} bytes @param {number} at @param {string} hex */
export function putHex(bytes, at, hex) {
  for (let i = 0; i < hex.length; i += 2) bytes[at + (i >> 1)] = (digit(hex, i) << 4) | digit(hex, i + 1);
}

/** @param {Uint8Array} bytes */
export function viewOf(bytes) {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/**
 * The float32 numbers of bytes that may lie at any offset.
 * @param {Uint8Array} bytes of a length divisible by 4
 */
export function floatsOf(bytes) {
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
  return new Float32Array(aligned.buffer, aligned.byteOffset, aligned.byteLength / 4);
}

/** @param {Uint8Array} bytes @param {number} length @param {string} name */
export function checkLength(bytes, length, name) {
  if (bytes.length !== length) {
    throw new ProtocolError(`${name} of a message has ${bytes.length} bytes; it has to have ${length}.`);
  }
}

/** @param {string} hex lower case @param {number} at */
function digit(hex, at) {
  const code = hex.charCodeAt(at);
  return code < 58 ? code - 48 : code - 87;
}
