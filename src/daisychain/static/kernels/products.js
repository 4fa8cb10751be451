/** Exact products of matrices that lie in the memory of a backend: quantised block by block, multiplied, audited. */

import { ConfigError, KernelFault } from "../errors.js";
import { bitsOf } from "../numerics/bits.js";
import { blockEdges, checkContraction, checkQuantisable, MAGNITUDE_LIMIT } from "../numerics/blocks.js";

/** @typedef {import("./memory.js").Memory} Memory */
/** @typedef {import("./plain.js").Primitives} Primitives */

/**
 * A matrix of float32 numbers in place, contraction last: number (row, step) lies at
 * `offset + 4·(row·stride + step)` if the contraction lies along a row, else at `offset + 4·(step·stride + row)`.
 * @typedef {{offset: number, stride: number, rows: number, length: number, along: boolean}} View
 */

/**
 * A quantised matrix: where the codes and scales of each block lie (see plain.js).
 * @typedef {{view: View, edges: Int32Array, width: number, blocks: {codes: number, scales: number}[]}} Operand
 */

/** @typedef {{offset: number, stride: number}} Place */

export const LEFT = 4;
export const RIGHT = 8;
/** Magnitudes with these bits or more are refused. */
export const REFUSED_BITS = bitsOf(MAGNITUDE_LIMIT);

/**
 * `rows` rows of `length` numbers, to be contracted along the row.
 * @param {number} offset
 * @param {number} stride
 * @param {number} rows
 * @param {number} length
 * @returns {View}
 */
export function alongRows(offset, stride, rows, length) {
  return { offset, stride, rows, length, along: true };
}

/**
 * `length` rows of `columns` numbers, to be contracted across the rows.
 * @param {number} offset
 * @param {number} stride
 * @param {number} columns
 * @param {number} length
 * @returns {View}
 */
export function acrossRows(offset, stride, columns, length) {
  return { offset, stride, rows: columns, length, along: false };
}

export class Products {
  /** Told of every product before and after; set by the backend. @type {import("./audit.js").Audit | null} */
  audit = null;

  /**
   * @param {Memory} memory
   * @param {Primitives} primitives
   */
  constructor(memory, primitives) {
    this.memory = memory;
    this.primitives = primitives;
  }

  /**
   * Quantise a matrix into scratch. Throws AccumulatorBoundError, NonFiniteError, BlockRangeError.
   * @param {View} view
   * @param {number} width LEFT or RIGHT
   * @param {number} [period] blocks restart at multiples of it
   * @returns {Operand}
   */
  quantise(view, width, period = view.length) {
    checkContraction(view.length);
    const edges = blockEdges(view.length, period);
    const padded = (view.rows + 7) & ~7;
    const blocks = [];
    for (let block = 0; block + 1 < edges.length; block++) {
      const pairs = (edges[block + 1] - edges[block] + 1) >> 1;
      const codes = this.memory.scratch(4 * padded * (pairs + 1));
      blocks.push({ codes, scales: codes + 4 * padded * pairs });
    }
    return this.fill({ view, edges, width, blocks }, view);
  }

  /**
   * A quantiser of one side that uses its room again as long as the shapes are the same.
   * @param {number} width LEFT or RIGHT
   * @returns {(view: View) => Operand}
   */
  quantiser(width) {
    /** @type {Operand | undefined} */
    let last;
    return (view) => {
      const fits = last && last.view.rows === view.rows && last.view.length === view.length;
      last = last && fits ? this.fill(last, view) : this.quantise(view, width);
      return last;
    };
  }

  /**
   * Quantise another matrix of the same shape into an operand's place.
   * @param {Operand} operand
   * @param {View} view
   */
  fill(operand, view) {
    const { edges, width, blocks } = operand;
    operand.view = view;
    const { quantiseRows, quantiseColumns } = this.primitives;
    const quantise = view.along ? quantiseRows : quantiseColumns;
    for (let block = 0; block < blocks.length; block++) {
      const start = edges[block];
      const from = view.offset + 4 * start * (view.along ? 1 : view.stride);
      const { codes, scales } = blocks[block];
      const bits = quantise(from, view.stride, view.rows, edges[block + 1] - start, width, codes, scales);
      if (bits >= REFUSED_BITS) this.refuse(view);
    }
    return operand;
  }

  /**
   * out[r, c] = Σ over blocks in order from +0; with `adds`, from what `out` holds.
   * @param {Operand} a LEFT
   * @param {Operand} b RIGHT
   * @param {Place} out
   * @param {boolean} [adds]
   */
  multiply(a, b, out, adds = false) {
    if (a.view.length !== b.view.length) {
      throw new ConfigError(`contractions of ${a.view.length} and ${b.view.length} do not fit each other.`);
    }
    const cells = this.audit?.choose(this.memory, a, b, out, adds);
    for (let block = 0; block < a.blocks.length; block++) {
      const [left, right] = [a.blocks[block], b.blocks[block]];
      const pairs = (a.edges[block + 1] - a.edges[block] + 1) >> 1;
      this.primitives.product(
        left.codes,
        left.scales,
        a.view.rows,
        right.codes,
        right.scales,
        b.view.rows,
        pairs,
        out.offset,
        out.stride,
        adds || block > 0,
      );
    }
    if (cells) this.audit?.compare(this.memory, a, b, out, cells);
  }

  /**
   * Throw what the contract says of a matrix that cannot be quantised.
   * @param {View} view
   * @returns {never}
   */
  refuse(view) {
    checkQuantisable(gather(this.memory, view), view.length);
    throw new KernelFault("a quantiser found a number out of range where there is none.");
  }
}

/**
 * A copy of a matrix, row after row, contraction last.
 * @param {Memory} memory
 * @param {View} view
 */
export function gather(memory, view) {
  const out = new Float32Array(view.rows * view.length);
  for (let row = 0; row < view.rows; row++) out.set(gatherRow(memory, view, row), row * view.length);
  return out;
}

/**
 * A copy of one row of `gather`.
 * @param {Memory} memory
 * @param {View} view
 * @param {number} row
 */
export function gatherRow(memory, { offset, stride, length, along }, row) {
  const { floats } = memory;
  const start = (offset >> 2) + row * (along ? stride : 1);
  if (along) return floats.slice(start, start + length);
  const out = new Float32Array(length);
  for (let step = 0; step < length; step++) out[step] = floats[start + step * stride];
  return out;
}
