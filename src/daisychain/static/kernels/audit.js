/**
 * The live audit: of every product some cells are recomputed from the numbers that went in, by the contract's own
 * slow functions. One cell is chosen by structure (corners, edges of tiles), one at random.
 */

import { KernelFault } from "../errors.js";
import { AUDIT_LONG } from "../limits.js";
import { bitsOf, powerOfTwo } from "../numerics/bits.js";
import { scaleExponent } from "../numerics/blocks.js";
import { requantise } from "../numerics/elementwise.js";
import { abs, floor, fround, max, min } from "../numerics/numbers.js";
import { mix } from "../numerics/roster.js";
import { gatherRow, LEFT, RIGHT } from "./products.js";

/** @typedef {import("./memory.js").Memory} Memory */
/** @typedef {import("./products.js").Operand} Operand */
/** @typedef {import("./products.js").Place} Place */
/** @typedef {{row: number, column: number, before: number}} Cell */

/** Rows and columns as (rows, columns) → [row, column]. @type {((m: number, n: number) => [number, number])[]} */
const STRUCTURE = [
  (m, n) => [m - 1, n - 1],
  () => [0, 0],
  (_, n) => [0, n - 1],
  (m) => [m - 1, 0],
  (m, n) => [min(LEFT, m) - 1, min(RIGHT, n) - 1],
  (m, n) => [min(LEFT, m - 1), min(RIGHT, n - 1)],
];

export class Audit {
  #count = 0;

  /** @param {number} seed of the random cells */
  constructor(seed) {
    this.seed = seed;
  }

  /**
   * The cells of the product that is to come, and what they hold if it adds to them.
   * @param {Memory} memory
   * @param {Operand} a
   * @param {Operand} b
   * @param {Place} out
   * @param {boolean} adds
   * @returns {Cell[]}
   */
  choose(memory, a, b, out, adds) {
    const count = this.#count++;
    const [m, n] = [a.view.rows, b.view.rows];
    const random = mix(this.seed + count);
    const structured = STRUCTURE[count % STRUCTURE.length](m, n);
    const places = [structured, [random % m, floor(random / m) % n]];
    // A long contraction is one of few and costs much: its cells take turns.
    const chosen = a.view.length > AUDIT_LONG ? [places[count % 2]] : places;
    return chosen.map(([row, column]) => {
      const before = adds ? memory.floats[(out.offset >> 2) + row * out.stride + column] : 0;
      return { row, column, before };
    });
  }

  /**
   * Throw KernelFault if a cell has another bit than the contract gives it.
   * @param {Memory} memory
   * @param {Operand} a
   * @param {Operand} b
   * @param {Place} out
   * @param {Cell[]} cells
   */
  compare(memory, a, b, out, cells) {
    for (const { row, column, before } of cells) {
      const wanted = cell(gatherRow(memory, a.view, row), gatherRow(memory, b.view, column), a.edges, before);
      const got = memory.floats[(out.offset >> 2) + row * out.stride + column];
      if (bitsOf(got) !== bitsOf(wanted)) {
        throw new KernelFault(
          `a product of ${a.view.rows}×${a.view.length} and ${b.view.rows}×${b.view.length} gave ${got} ` +
            `at row ${row}, column ${column}; the contract gives ${wanted}.`,
        );
      }
    }
  }
}

/**
 * One number of a product (rules 1 to 4), added to `total`.
 * @param {Float32Array} a
 * @param {Float32Array} b
 * @param {Int32Array} edges
 * @param {number} total
 */
function cell(a, b, edges, total) {
  for (let block = 0; block + 1 < edges.length; block++) {
    const [start, end] = [edges[block], edges[block + 1]];
    const [ka, kb] = [exponent(a, start, end), exponent(b, start, end)];
    const [toA, toB] = [powerOfTwo(8 - ka), powerOfTwo(8 - kb)];
    let sum = 0;
    for (let i = start; i < end; i++) sum += requantise(floor(a[i] * toA)) * requantise(floor(b[i] * toB));
    total = fround(total + sum * powerOfTwo(ka + kb));
  }
  return total;
}

/**
 * @param {Float32Array} x
 * @param {number} start
 * @param {number} end
 */
function exponent(x, start, end) {
  let magnitude = 0;
  for (let i = start; i < end; i++) magnitude = max(magnitude, abs(x[i]));
  return scaleExponent(magnitude);
}
