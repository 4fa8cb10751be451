/** Writes the pickle of a dict of numbers, texts and tensors, as torch.save would. */

import { concatenate } from "./bytes.js";

/** A tensor that fills the entry `data/STORAGE` of the archive. */
export class TensorPlace {
  /**
   * @param {string} storage
   * @param {number[]} shape
   */
  constructor(storage, shape) {
    this.storage = storage;
    this.shape = shape;
  }
}

/** @typedef {Map<string, unknown>} Dict */

export const REBUILD_TENSOR = "torch._utils _rebuild_tensor_v2";
export const FLOAT_STORAGE = "torch FloatStorage";
export const ORDERED_DICT = "collections OrderedDict";

/**
 * A pickle of dicts with texts as keys; values are texts, whole numbers below 2^31, TensorPlaces, dicts.
 * @param {Dict} dict
 */
export function encodePickle(dict) {
  return concatenate([ascii("\x80\x02"), ...encodeValue(dict), ascii(".")]);
}

/**
 * @param {unknown} value
 * @returns {Uint8Array[]}
 */
function encodeValue(value) {
  if (value instanceof Map) {
    const items = [...value].flatMap(([key, item]) => [...encodeValue(key), ...encodeValue(item)]);
    return [ascii("}("), ...items, ascii("u")];
  }
  if (value instanceof TensorPlace) return encodeTensor(value);
  if (Array.isArray(value)) return [ascii("("), ...value.flatMap(encodeValue), ascii("t")];
  if (typeof value === "number") return [ascii("J"), bytesOf(value)];
  const text = new TextEncoder().encode(String(value));
  return [ascii("X"), bytesOf(text.length), text];
}

/** @param {TensorPlace} place */
function encodeTensor({ storage, shape }) {
  const length = shape.reduce((a, b) => a * b, 1);
  return [
    ascii(`c${REBUILD_TENSOR.replace(" ", "\n")}\n((`),
    ...encodeValue("storage"),
    ascii(`c${FLOAT_STORAGE.replace(" ", "\n")}\n`),
    ...[storage, "cpu", length].flatMap(encodeValue),
    ascii("tQ"),
    ...[0, shape, rowMajor(shape)].flatMap(encodeValue),
    ascii(`\x89c${ORDERED_DICT.replace(" ", "\n")}\n)RtR`),
  ];
}

/** @param {string} text */
function ascii(text) {
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}

/** @param {number} value int32 */
function bytesOf(value) {
  return new Uint8Array(Int32Array.of(value).buffer);
}

/**
 * How far apart neighbours along each axis are.
 * @param {number[]} shape
 */
export function rowMajor(shape) {
  return shape.map((_, i) => shape.slice(i + 1).reduce((a, b) => a * b, 1));
}
