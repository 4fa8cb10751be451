/**
 * Gradients on the wire: float32 as they are, or 8-bit blocks of 128 along the flat vector (docs/NUMERICS.md, rules 1
 * and 2) with error feedback. The bytes of int8: an exponent per block, then a code per number.
 */

import { NonFiniteError, ProtocolError } from "../errors.js";
import { BLOCK_LENGTH, EXPONENT_MAX, EXPONENT_MIN } from "../limits.js";
import { blockEdges, blockValues, MAGNITUDE_LIMIT, quantise } from "../numerics/blocks.js";
import { abs, ceil } from "../numerics/numbers.js";
import { checkLength, floatsOf } from "./bytes.js";

/** @typedef {"float32" | "int8"} Gradients */

/** @param {number} length numbers @param {Gradients} gradients */
export function payloadBytes(length, gradients) {
  return gradients === "int8" ? ceil(length / BLOCK_LENGTH) + length : 4 * length;
}

/**
 * What is sent for a gradient, and what of it is left for the next time. The new residual becomes the current one
 * only when a set with this gradient is applied. Throws NonFiniteError or BlockRangeError.
 * @param {Float32Array} gradient
 * @param {Gradients} gradients
 * @param {Float32Array} residual of the gradient's length for int8, else unused
 */
export function compress(gradient, gradients, residual) {
  if (gradients === "float32") {
    const { buffer, byteOffset, byteLength } = gradient;
    return { payload: new Uint8Array(buffer, byteOffset, byteLength), residual };
  }
  const { length } = gradient;
  const wanted = new Float32Array(length);
  for (let i = 0; i < length; i++) wanted[i] = gradient[i] + residual[i];
  const blocks = quantise(wanted, 1, length);
  const payload = new Uint8Array(payloadBytes(length, gradients));
  payload.set(new Uint8Array(blocks.exponents.buffer));
  payload.set(new Uint8Array(blocks.codes.buffer), blocks.exponents.length);
  const sent = blockValues(blocks);
  for (let i = 0; i < length; i++) wanted[i] -= sent[i];
  return { payload, residual: wanted };
}

/**
 * The numbers of a payload. Throws ProtocolError for another length or form, NonFiniteError for NaN and infinity.
 * @param {Uint8Array} payload
 * @param {Gradients} gradients
 * @param {number} length numbers
 */
export function decompress(payload, gradients, length) {
  checkLength(payload, payloadBytes(length, gradients), "the gradient");
  checkPayload(payload, gradients);
  if (gradients === "float32") return floatsOf(payload);
  const exponentCount = payload.length - length;
  const exponents = new Int8Array(payload.buffer, payload.byteOffset, exponentCount);
  const codes = new Int8Array(payload.buffer, payload.byteOffset + exponentCount, length);
  return blockValues({ codes, exponents, edges: blockEdges(length), rows: 1, length });
}

/**
 * Throws for a payload that no device may average, whatever its length.
 * @param {Uint8Array} payload
 * @param {Gradients} gradients
 */
export function checkPayload(payload, gradients) {
  if (gradients === "float32") return checkFinite(floatsOf(payload));
  const exponentCount = ceil(payload.length / (BLOCK_LENGTH + 1));
  const numbers = new Int8Array(payload.buffer, payload.byteOffset, payload.length);
  for (let i = 0; i < exponentCount; i++) {
    if (numbers[i] < EXPONENT_MIN || numbers[i] > EXPONENT_MAX) {
      throw new ProtocolError(
        `the gradient has exponent ${numbers[i]}; it has to be ${EXPONENT_MIN} to ${EXPONENT_MAX}.`,
      );
    }
  }
  if (numbers.includes(-128, exponentCount)) throw new ProtocolError("the gradient has code −128.");
}

/** @param {Float32Array} numbers */
function checkFinite(numbers) {
  let bad = 0;
  for (let i = 0; i < numbers.length; i++) bad += abs(numbers[i]) < MAGNITUDE_LIMIT ? 0 : 1;
  if (bad === 0) return;
  const finite = numbers.every(Number.isFinite);
  const what = finite ? `of a magnitude of 127.5·2^${EXPONENT_MAX} or more` : "that are NaN or infinite";
  throw new NonFiniteError(`the gradient has ${bad} numbers ${what}.`);
}
