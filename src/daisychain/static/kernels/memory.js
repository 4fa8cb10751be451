/** One linear memory for every number of a backend, shared by WASM and plain JavaScript, and who holds which part. */

import { ConfigError, KernelError } from "../errors.js";
import { KERNEL_MEMORY_BYTES, MEMORY_MAX_BYTES } from "../limits.js";
import { ceil, max } from "../numerics/numbers.js";

const PAGE_BYTES = 65_536;
/** Below: the kernels' own tables and temporary numbers. */
export const HEAP_START = 4096;
/** Kernels may read, never write, this far beyond a part. */
const SLACK_BYTES = 64;
const ALIGNMENT = 16;

/** @typedef {import("./cpu.js").CpuBackend} Backend */
/** @typedef {"f32" | "i32" | "u16"} Kind */
/** A part of the memory: `length` numbers from byte `offset` on. @typedef {{kind: Kind, offset: number, length: number}} Buffer */
/** One operation: its name, its buffers and its sizes. @typedef {{op: string, [field: string]: any}} Op */

export const ARRAYS = { f32: Float32Array, i32: Int32Array, u16: Uint16Array };

/**
 * A part of a buffer, which it shares.
 * @param {Buffer} buffer
 * @param {number} at
 * @param {number} length
 * @returns {Buffer}
 */
export function slice({ kind, offset, length: whole }, at, length) {
  if (!(at >= 0 && length >= 0 && at + length <= whole)) {
    throw new ConfigError(`numbers ${at} to ${at + length} lie outside a buffer of ${whole}.`);
  }
  return { kind, offset: offset + at * ARRAYS[kind].BYTES_PER_ELEMENT, length };
}

/** Stands in for WebAssembly.Memory where that is missing. */
export class PlainMemory {
  buffer = new ArrayBuffer(KERNEL_MEMORY_BYTES);

  /** @param {number} pages */
  grow(pages) {
    const larger = new Uint8Array(this.buffer.byteLength + pages * PAGE_BYTES);
    larger.set(new Uint8Array(this.buffer));
    this.buffer = larger.buffer;
  }
}

/** A WebAssembly memory of the size that a backend starts with. */
export function wasmMemory() {
  return new WebAssembly.Memory({ initial: KERNEL_MEMORY_BYTES / PAGE_BYTES });
}

/** @param {ArrayBuffer} buffer */
function viewsOf(buffer) {
  return {
    buffer,
    floats: new Float32Array(buffer),
    ints: new Int32Array(buffer),
    shorts: new Int16Array(buffer),
    bytes: new Uint8Array(buffer),
  };
}

export class Memory {
  /** Free parts by place, never touching: [offset, bytes]. @type {[number, number][]} */
  #free;
  /** @type {Map<number, number>} */
  #held = new Map();
  /** @type {number[]} */
  #scratch = [];
  #views;

  /** @param {PlainMemory | WebAssembly.Memory} raw */
  constructor(raw) {
    this.raw = raw;
    this.#free = [[HEAP_START, raw.buffer.byteLength - SLACK_BYTES - HEAP_START]];
    this.#views = viewsOf(raw.buffer);
  }

  /** The whole memory as float32, until it next grows. */
  get floats() {
    return this.#current().floats;
  }

  /** As int32. */
  get ints() {
    return this.#current().ints;
  }

  /** As int16. */
  get shorts() {
    return this.#current().shorts;
  }

  /** As bytes. */
  get bytes() {
    return this.#current().bytes;
  }

  #current() {
    if (this.raw.buffer !== this.#views.buffer) this.#views = viewsOf(this.raw.buffer);
    return this.#views;
  }

  /**
   * Hold a part until `release`; what is in it is arbitrary. Throws KernelError when the device has no more.
   * @param {number} bytes
   * @returns {number} its offset, a multiple of 16
   */
  allocate(bytes) {
    const size = max(ALIGNMENT, ceil(bytes / ALIGNMENT) * ALIGNMENT);
    let place = this.#free.findIndex(([, free]) => free >= size);
    if (place < 0) {
      this.#grow(size);
      place = this.#free.length - 1;
    }
    const part = this.#free[place];
    const offset = part[0];
    part[0] += size;
    part[1] -= size;
    if (part[1] === 0) this.#free.splice(place, 1);
    this.#held.set(offset, size);
    return offset;
  }

  /**
   * Hold a part until `releaseScratch`.
   * @param {number} bytes
   */
  scratch(bytes) {
    const offset = this.allocate(bytes);
    this.#scratch.push(offset);
    return offset;
  }

  releaseScratch() {
    for (const offset of this.#scratch) this.release(offset);
    this.#scratch.length = 0;
  }

  /** @param {number} offset as `allocate` gave it */
  release(offset) {
    const size = this.#held.get(offset);
    if (size === undefined) throw new KernelError(`no part of the memory that is held begins at ${offset}.`);
    this.#held.delete(offset);
    let place = this.#free.findIndex(([start]) => start > offset);
    if (place < 0) place = this.#free.length;
    this.#free.splice(place, 0, [offset, size]);
    this.#join(place);
    if (place > 0) this.#join(place - 1);
  }

  /** Join a free part with the one behind it if they touch. @param {number} place */
  #join(place) {
    const [part, next] = [this.#free[place], this.#free[place + 1]];
    if (next && part[0] + part[1] === next[0]) {
      part[1] += next[1];
      this.#free.splice(place + 1, 1);
    }
  }

  /** @param {number} bytes that no free part has */
  #grow(bytes) {
    const before = this.raw.buffer.byteLength;
    const pages = ceil(max(bytes, KERNEL_MEMORY_BYTES) / PAGE_BYTES);
    const after = before + pages * PAGE_BYTES;
    if (after > MEMORY_MAX_BYTES) {
      throw new KernelError(
        `${bytes} more bytes would be above ${MEMORY_MAX_BYTES}: choose a smaller model.`,
      );
    }
    try {
      this.raw.grow(pages);
    } catch {
      throw new KernelError(`this device has no ${bytes} more bytes of memory: choose a smaller model.`);
    }
    this.#free.push([before - SLACK_BYTES, pages * PAGE_BYTES]);
    if (this.#free.length > 1) this.#join(this.#free.length - 2);
  }
}
