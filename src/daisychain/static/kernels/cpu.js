/** The CPU backend: runs chains of operations on one set of primitives, and replaces it when it gives a wrong bit. */

import { ConfigError, DaisyError, KernelFault } from "../errors.js";
import { fromBits } from "../numerics/bits.js";
import { mix } from "../numerics/roster.js";
import { sha256 } from "../numerics/sha256.js";
import { attentionOps } from "./attention.js";
import { headOps } from "./head.js";
import { ARRAYS, slice } from "./memory.js";
import { INFINITY_BITS, ops } from "./ops.js";
import { Products } from "./products.js";

/** @typedef {import("./memory.js").Memory} Memory */
/** @typedef {import("./plain.js").Primitives} Primitives */
/** @typedef {import("./memory.js").Kind} Kind */
/** @typedef {import("./memory.js").Buffer} Buffer */
/** @typedef {import("./memory.js").Op} Op */

/** Rows, contraction and columns of the probe: tiles and blocks are cut off. */
const PROBE_SHAPE = [37, 161, 29];

/** @type {Record<string, (backend: CpuBackend, op: Op) => void>} */
const OPS = { ...ops, ...attentionOps, ...headOps };

/**
 * @typedef {object} Parts
 * @property {string} name
 * @property {Memory} memory
 * @property {Primitives} primitives
 * @property {Primitives} [fallback] takes over when a kernel gives a wrong bit
 * @property {import("../numerics/stateHash.js").Hash} [hash]
 * @property {(text: string) => void} [report] told when the fallback takes over
 */

export class CpuBackend {
  /** @param {Parts} parts */
  constructor({ name, memory, primitives, fallback, hash = sha256, report = () => {} }) {
    this.name = name;
    this.memory = memory;
    this.fallback = fallback;
    this.report = report;
    /** SHA-256 over its arguments one after the other. */
    this.hash = hash;
    this.products = new Products(memory, primitives);
  }

  get primitives() {
    return this.products.primitives;
  }

  /** @param {import("./audit.js").Audit | null} audit */
  set audit(audit) {
    this.products.audit = audit;
  }

  /** @param {number} length */
  f32(length) {
    return this.#buffer("f32", length);
  }

  /** @param {number} length */
  i32(length) {
    return this.#buffer("i32", length);
  }

  /** @param {number} length */
  u16(length) {
    return this.#buffer("u16", length);
  }

  /**
   * @param {Kind} kind
   * @param {number} length
   * @returns {Buffer}
   */
  #buffer(kind, length) {
    const bytes = length * ARRAYS[kind].BYTES_PER_ELEMENT;
    const offset = this.memory.allocate(bytes);
    this.memory.bytes.fill(0, offset, offset + bytes);
    return { kind, offset, length };
  }

  /** @param {Buffer} buffer from f32, i32 or u16, not a slice */
  free(buffer) {
    this.memory.release(buffer.offset);
  }

  /**
   * A buffer's numbers in place, until memory is next allocated.
   * @param {Buffer} buffer
   */
  view({ kind, offset, length }) {
    return new ARRAYS[kind](this.memory.bytes.buffer, offset, length);
  }

  /**
   * @param {Buffer} buffer
   * @param {ArrayLike<number>} array
   * @param {number} [at]
   */
  write(buffer, array, at = 0) {
    this.view(slice(buffer, at, array.length)).set(array);
  }

  /**
   * A copy of a float buffer.
   * @param {Buffer} buffer
   * @returns {Promise<Float32Array>}
   */
  async read({ offset, length }) {
    return this.memory.floats.slice(offset >> 2, (offset >> 2) + length);
  }

  /**
   * Run operations in order. Throws what the first bad one throws; those after it have not run.
   * @param {Op[]} chain
   */
  async run(chain) {
    for (const op of chain) this.runOp(op);
  }

  /**
   * Run one operation at once.
   * @param {Op} op
   */
  runOp(op) {
    const run = OPS[op.op];
    if (!run)
      throw new ConfigError(`operation ${op.op} is not known; use one of ${Object.keys(OPS).join(", ")}.`);
    try {
      this.#attempt(run, op);
    } catch (error) {
      if (error instanceof DaisyError) error.message = `${op.op}: ${error.message}`;
      throw error;
    }
  }

  /**
   * @param {(backend: CpuBackend, op: Op) => void} run
   * @param {Op} op
   */
  #attempt(run, op) {
    try {
      run(this, op);
    } catch (error) {
      if (!(error instanceof KernelFault && this.fallback)) throw error;
      this.#demote(op, error);
      this.memory.releaseScratch();
      run(this, op);
    } finally {
      this.memory.releaseScratch();
    }
  }

  /**
   * Go on with the fallback. Operations with products overwrite what they give, so that the one at fault can be redone.
   * @param {Op} op
   * @param {KernelFault} fault
   */
  #demote(op, fault) {
    const before = this.name;
    if (this.fallback) this.products.primitives = this.fallback;
    this.fallback = undefined;
    this.name = "plain";
    this.hash = sha256;
    this.report(`${before} was replaced by plain JavaScript: ${op.op}: ${fault.message}`);
  }

  /** Whether no number of a float buffer is NaN or infinite. @param {Buffer} buffer */
  checkFinite({ offset, length }) {
    return this.primitives.largest(offset, length) < INFINITY_BITS;
  }

  /**
   * SHA-256 of `head` followed by a buffer's bytes.
   * @param {Buffer} buffer
   * @param {Uint8Array} [head]
   */
  async digest(buffer, head = new Uint8Array()) {
    const { offset, length, kind } = buffer;
    const bytes = this.memory.bytes.subarray(offset, offset + length * ARRAYS[kind].BYTES_PER_ELEMENT);
    return this.hash(head, bytes);
  }

  /**
   * Digest of a seeded product through the live kernel: the same on every device whose kernel is right.
   * @param {number} [seed]
   */
  probe(seed = 0) {
    const [rows, inner, outer] = PROBE_SHAPE;
    const [x, w, out] = [rows * inner, outer * inner, rows * outer].map((length) => this.f32(length));
    try {
      this.view(x).forEach((_, i, all) => {
        all[i] = seededNumber(seed, i);
      });
      this.view(w).forEach((_, i, all) => {
        all[i] = seededNumber(seed, i + rows * inner);
      });
      this.runOp({ op: "linear", x, w, out, rows, inner, outer });
      return this.hash(new Uint8Array(this.view(out).slice().buffer));
    } finally {
      for (const buffer of [x, w, out]) this.free(buffer);
    }
  }
}

/**
 * A number of magnitude 2^−4 … 2^4.
 * @param {number} seed
 * @param {number} i
 */
function seededNumber(seed, i) {
  const bits = mix(mix(seed) + i);
  return fromBits((bits & 0x807fffff) | ((123 + ((bits >>> 23) & 7)) << 23));
}
