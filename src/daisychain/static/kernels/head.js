/** The tied head and its loss, one sequence at a time so that memory is sequence × vocabulary only. */

import { NonFiniteError } from "../errors.js";
import { log } from "../numerics/functions.js";
import { fround, min } from "../numerics/numbers.js";
import { idsOf, place } from "./ops.js";
import { acrossRows, alongRows, LEFT, RIGHT } from "./products.js";

/** @typedef {import("./cpu.js").CpuBackend} CpuBackend */
/** @typedef {import("./memory.js").Op} Op */

/**
 * Loss of one row of logits, which its gradient replaces (rule 11).
 * @param {CpuBackend} backend
 * @param {number} logits
 * @param {number} length
 * @param {number} target
 */
export function crossEntropy({ primitives, memory }, logits, length, target) {
  const largest = primitives.maximum(logits, length);
  if (Number.isNaN(largest)) {
    throw new NonFiniteError("logits are NaN or infinite. Training has diverged: lower the learning rate.");
  }
  const at = (logits >> 2) + target;
  const shifted = fround(memory.floats[at] - largest);
  const total = primitives.exponentials(logits, largest, logits, length);
  primitives.divide(logits, total, length);
  memory.floats[at] -= 1;
  return fround(log(total) - shifted);
}

/** @type {Record<string, (backend: CpuBackend, op: Op) => void>} */
export const headOps = {
  headLoss(backend, op) {
    const { rows, sequence, width, vocabulary } = op;
    const { products, memory } = backend;
    const [x, dx] = [place(op, "x", rows * width), place(op, "dx", rows * width)];
    const tokens = place(op, "tokens", vocabulary * width);
    const dTokens = place(op, "dTokens", vocabulary * width);
    const losses = place(op, "losses", rows);
    const targets = idsOf(backend, op, "targets", vocabulary).slice();
    const along = products.quantise(alongRows(tokens, width, vocabulary, width), RIGHT);
    const across = products.quantise(acrossRows(tokens, width, width, vocabulary), RIGHT);
    const logits = memory.scratch(4 * min(rows, sequence) * vocabulary);
    const output = { offset: logits, stride: vocabulary };
    const [input, gradient] = [products.quantiser(LEFT), products.quantiser(LEFT)];
    const [gradientAcross, inputAcross] = [products.quantiser(LEFT), products.quantiser(RIGHT)];
    for (let start = 0; start < rows; start += sequence) {
      const count = min(sequence, rows - start);
      const at = 4 * start * width;
      products.multiply(input(alongRows(x + at, width, count, width)), along, output);
      for (let row = 0; row < count; row++) {
        const loss = crossEntropy(backend, logits + 4 * row * vocabulary, vocabulary, targets[start + row]);
        memory.floats[(losses >> 2) + start + row] = loss;
      }
      const g = gradient(alongRows(logits, vocabulary, count, vocabulary));
      products.multiply(g, across, { offset: dx + at, stride: width });
      products.multiply(
        gradientAcross(acrossRows(logits, vocabulary, vocabulary, count)),
        inputAcross(acrossRows(x + at, width, width, count)),
        { offset: dTokens, stride: width },
        start > 0,
      );
    }
  },
};
