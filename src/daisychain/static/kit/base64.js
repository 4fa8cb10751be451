/** Bytes as text and back. */

const CHUNK = 0x8000; // arguments of one call

/** @param {Uint8Array} bytes */
export function base64(bytes) {
  let binary = "";
  for (let at = 0; at < bytes.length; at += CHUNK) {
    binary += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
  }
  return btoa(binary);
}

/** @param {string} text */
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
