/** Checkpoints of a room's model, as safetensors or as PyTorch's .pt: what they hold, and how they are written. */

import { parameterShapes } from "../model/weights.js";
import { encodePt } from "./pt.js";
import { encodeSafetensors } from "./safetensors.js";

/** @typedef {import("../model/weights.js").DecoderConfig} DecoderConfig */

/**
 * What a run needs to go on: DaisyAdam's flat vectors and powers, and the position in the sample order.
 * @typedef {object} OptimizerState
 * @property {Float32Array} mean
 * @property {Float32Array} square
 * @property {number} power1
 * @property {number} power2
 * @property {number} position
 */

/**
 * `weights` and the optimiser's vectors are flat, in the order of `parameterShapes`; `tokenizer` is the SHA-256 of
 * tokenizer.json in hex.
 * @typedef {object} Checkpoint
 * @property {DecoderConfig} config
 * @property {number} step
 * @property {string} tokenizer
 * @property {Float32Array} weights
 * @property {OptimizerState} [optimizer]
 */

export const METADATA_KEY = "daisychain";
export const SAFETENSORS_FORMAT = "room 1";
export const PT_FORMAT = "daisychain room 1";
export const MEAN = "optimizer/mean";
export const SQUARE = "optimizer/square";

/**
 * @param {Checkpoint} checkpoint
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function writeSafetensors({ config, step, tokenizer, weights, optimizer }) {
  const tensors = storedTensors(config, weights);
  /** @type {Record<string, unknown>} */
  const described = { format: SAFETENSORS_FORMAT, config, step, tokenizer };
  if (optimizer) {
    const { mean, square, power1, power2, position } = optimizer;
    tensors.set(MEAN, { shape: [mean.length], bytes: bytesOf(mean) });
    tensors.set(SQUARE, { shape: [square.length], bytes: bytesOf(square) });
    described.optimizer = { power1, power2, position };
  }
  return encodeSafetensors(tensors, { [METADATA_KEY]: JSON.stringify(described) });
}

/**
 * Without the optimiser's state: for PyTorch, and for going on with a fresh optimiser.
 * @param {Checkpoint} checkpoint
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function writePt({ config, step, tokenizer, weights }) {
  /** @type {[string, unknown][]} */
  const described = [
    ["format", PT_FORMAT],
    ["config", new Map(Object.entries(config))],
    ["tokenizer", tokenizer],
    ["step", step],
  ];
  return encodePt(storedTensors(config, weights), new Map(described));
}

/**
 * @param {DecoderConfig} config
 * @param {Float32Array} weights
 * @returns {Map<string, import("./safetensors.js").StoredTensor>}
 */
function storedTensors(config, weights) {
  return new Map(
    parameterShapes(config).map(({ name, shape, at, length }) => [
      name,
      { shape, bytes: bytesOf(weights.subarray(at, at + length)) },
    ]),
  );
}

/** @param {Float32Array} values */
function bytesOf(values) {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
