/** The primitives in WebAssembly SIMD: `kernels.wasm`, compiled from assembly/ by `npm run build:kernels`. */

/** @typedef {import("./plain.js").Primitives} Primitives */
/** SHA-256 of whole blocks, which plain JavaScript has elsewhere. @typedef {(state: number, data: number, blocks: number) => void} Compress */

/**
 * Throws WebAssembly.CompileError where SIMD is missing.
 * @param {BufferSource} bytes of kernels.wasm
 * @param {import("./memory.js").Memory} memory with a WebAssembly.Memory
 * @returns {Promise<Primitives & {sha256: Compress}>}
 */
export async function wasmPrimitives(bytes, memory) {
  const { instance } = await WebAssembly.instantiate(bytes, {
    env: { memory: /** @type {any} */ (memory.raw) },
  });
  return /** @type {any} */ ({ ...instance.exports });
}
