/** Which primitives this device works with: the fastest that prove themselves. */

import { ConfigError, KernelError, messageOf } from "../errors.js";
import { AUDIT_SEED } from "../limits.js";
import { Audit } from "./audit.js";
import { CpuBackend } from "./cpu.js";
import { kernelHash } from "./digest.js";
import { firstFault } from "./gate.js";
import { Memory, PlainMemory, wasmMemory } from "./memory.js";
import { plainPrimitives } from "./plain.js";
import { wasmPrimitives } from "./wasm.js";

/**
 * @typedef {object} Opening
 * @property {BufferSource | null} wasmBytes of kernels.wasm; null where they could not be loaded
 * @property {"wasm" | "plain"} [force] this or an error
 * @property {(text: string) => void} [report] told when a kernel gives a wrong bit and is replaced
 */

/**
 * Open the backend of this device. `why` says in a sentence what was taken and what spoke against the rest. Throws
 * KernelError if nothing, or not what is forced, matches the contract.
 * @param {Opening} opening
 * @returns {Promise<{backend: CpuBackend, why: string}>}
 */
export async function openBackend({ wasmBytes, force, report = () => {} }) {
  if (force !== undefined && force !== "wasm" && force !== "plain") {
    throw new ConfigError(`backend ${force} is not known; use wasm or plain.`);
  }
  const wasm = force === "plain" ? "it was asked for" : await openWasm(wasmBytes);
  if (typeof wasm !== "string") {
    const fallback = plainPrimitives(wasm.memory);
    const backend = new CpuBackend({ name: "wasm", ...wasm, fallback, report });
    backend.audit = new Audit(AUDIT_SEED);
    return { backend, why: "WebAssembly SIMD, which matched the contract bit for bit." };
  }
  if (force === "wasm") throw new KernelError(`WebAssembly cannot be used: ${wasm}.`);
  const memory = new Memory(new PlainMemory());
  const primitives = plainPrimitives(memory);
  const fault = firstFault(memory, primitives);
  if (fault) throw new KernelError(`JavaScript itself does not give the contract's bits here: ${fault}.`);
  const backend = new CpuBackend({ name: "plain", memory, primitives, report });
  backend.audit = new Audit(AUDIT_SEED);
  return { backend, why: `plain JavaScript, ten times slower or more: ${wasm}.` };
}

/**
 * The primitives in WebAssembly if they prove themselves, else what speaks against them.
 * @param {BufferSource | null} bytes
 */
async function openWasm(bytes) {
  if (bytes === null) return "the kernels could not be loaded";
  if (typeof WebAssembly === "undefined") return "there is no WebAssembly in this browser";
  try {
    const memory = new Memory(wasmMemory());
    const primitives = await wasmPrimitives(bytes, memory);
    const hash = kernelHash(memory, primitives.sha256);
    const fault = firstFault(memory, primitives, hash);
    return fault ? `a kernel gave a wrong bit (${fault})` : { memory, primitives, hash };
  } catch (error) {
    return `this browser cannot run the kernels (${messageOf(error)})`;
  }
}
