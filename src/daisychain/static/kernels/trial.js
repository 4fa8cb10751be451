/** One try of a kernel: inputs and outputs in memory that is full of NaN, and outputs compared bit for bit. */

import { KernelFault } from "../errors.js";
import { fromBits } from "../numerics/bits.js";
import { mix } from "../numerics/roster.js";
import { Products } from "./products.js";

/** @typedef {import("./memory.js").Memory} Memory */
/** @typedef {import("./plain.js").Primitives} Primitives */

/** A NaN that no arithmetic gives anew, though it may pass one on. */
export const POISON = 0x7fc0dead;
/** Another, around outputs, so that a number made from the first is seen. */
const OUTPUT_POISON = 0x7fc0beef;
const ROOM_BYTES = 2 ** 19;
/** Numbers behind every input and output that must stay as they are. */
const GUARD = 16;

export class Trial {
  #draws = 0;
  /** What surrounds the numbers at an offset. @type {Map<number, number>} */
  #poisons = new Map();

  /**
   * @param {Memory} memory of which nothing is held but by the caller
   * @param {Primitives} primitives
   */
  constructor(memory, primitives) {
    this.memory = memory;
    this.primitives = primitives;
    this.products = new Products(memory, primitives);
  }

  /** Poison what will be handed out next, so that a kernel that takes memory to be zero is caught. */
  begin() {
    this.memory.releaseScratch();
    const offset = this.memory.allocate(ROOM_BYTES);
    this.memory.ints.fill(POISON, offset >> 2, (offset + ROOM_BYTES) >> 2);
    this.memory.release(offset);
  }

  /**
   * Room for an output.
   * @param {number} length
   */
  output(length) {
    return this.#room(length, OUTPUT_POISON);
  }

  /** @param {Float32Array} values */
  input(values) {
    return this.strided(values, values.length, values.length);
  }

  /**
   * @param {number} length
   * @param {number} poison
   */
  #room(length, poison) {
    const offset = this.memory.scratch(4 * (length + GUARD));
    this.memory.ints.fill(poison, offset >> 2, (offset >> 2) + length + GUARD);
    this.#poisons.set(offset, poison);
    return offset;
  }

  /**
   * A matrix whose rows lie `stride` apart.
   * @param {Float32Array} values [rows, length]
   * @param {number} length
   * @param {number} stride
   */
  strided(values, length, stride) {
    const rows = values.length / length;
    const offset = this.#room(rows * stride, POISON);
    for (let row = 0; row < rows; row++) {
      this.memory.floats.set(values.subarray(row * length, (row + 1) * length), (offset >> 2) + row * stride);
    }
    return offset;
  }

  /**
   * Throw KernelFault unless the output has these bits, and the guard behind it is whole.
   * @param {string} what
   * @param {number} offset
   * @param {Float32Array} wanted [rows, length]
   * @param {number} [length]
   * @param {number} [stride] from row to row of the output
   */
  expect(what, offset, wanted, length = wanted.length, stride = length) {
    const rows = wanted.length / length;
    const bits = new Int32Array(wanted.buffer, wanted.byteOffset, wanted.length);
    const { ints } = this.memory;
    const poison = this.#poisons.get(offset);
    for (let i = 0; i < rows * stride + GUARD; i++) {
      const [row, column] = [(i - (i % stride)) / stride, i % stride];
      const bit = row < rows && column < length ? bits[row * length + column] : poison;
      const got = ints[(offset >> 2) + i];
      if (got !== bit) {
        throw new KernelFault(`${what}: number ${i} is ${fromBits(got)}, not ${fromBits(bit ?? 0)}`);
      }
    }
  }

  /**
   * Throw KernelFault unless two numbers have the same bits.
   * @param {string} what
   * @param {number} got
   * @param {number} wanted
   */
  same(what, got, wanted) {
    if (!Object.is(got, wanted)) throw new KernelFault(`${what}: gave ${got}, not ${wanted}`);
  }

  /** The next 32 bits of a seeded stream. */
  bits() {
    return mix(this.#draws++);
  }

  /**
   * Numbers of random sign, of exponents from `least` on.
   * @param {number} length
   * @param {number} [least]
   * @param {number} [count] of exponents
   */
  random(length, least = -4, count = 8) {
    return Float32Array.from({ length }, () => {
      const exponent = 127 + least + (this.bits() % count);
      return fromBits((this.bits() & 0x807fffff) | (exponent << 23));
    });
  }
}
