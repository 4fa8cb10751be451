/** A stranger's file, believed only when all of it is right. */

import { CheckpointError, ConfigError } from "../errors.js";
import { MAX_CHECKPOINT_STEP, UPLOAD_MAX_BYTES } from "../limits.js";
import { checkConfig, parameterCount, parameterShapes } from "../model/weights.js";
import { concatenate } from "./bytes.js";
import { MEAN, METADATA_KEY, PT_FORMAT, SAFETENSORS_FORMAT, SQUARE } from "./checkpoint.js";
import { decodePt } from "./pt.js";
import { decodeSafetensors } from "./safetensors.js";
import { isObject, quote } from "./untrusted.js";

/** @typedef {import("./checkpoint.js").Checkpoint} Checkpoint */
/** @typedef {import("./checkpoint.js").DecoderConfig} DecoderConfig */
/** @typedef {import("./safetensors.js").StoredTensor} StoredTensor */
/** @typedef {Record<string, unknown>} Described */

const ZIP_START = [0x50, 0x4b, 0x03, 0x04];
const CONFIG_NAMES = ["heads", "layers", "sequence", "vocabulary", "width"];

/**
 * Read a safetensors or .pt file of a room's model. Memory is taken for it only when its description is right and
 * the file is as long as it says. Throws CheckpointError that says what is wrong with `name`.
 * @param {Uint8Array} file
 * @param {string} name for messages
 * @param {{digest: string, vocabulary: number}} tokenizer SHA-256 in hex and size of the one in use
 * @returns {Checkpoint}
 */
export function readCheckpoint(file, name, tokenizer) {
  try {
    if (file.length > UPLOAD_MAX_BYTES) {
      throw new CheckpointError(
        `it has ${file.length} bytes, more than the ${UPLOAD_MAX_BYTES} of any checkpoint`,
      );
    }
    const isZip = ZIP_START.every((byte, i) => file[i] === byte);
    const { tensors, described } = isZip ? openPt(file) : openSafetensors(file);
    return build(tensors, described, tokenizer);
  } catch (error) {
    if (!(error instanceof CheckpointError)) throw error;
    throw new CheckpointError(
      `checkpoint ${name} was refused: ${error.message}. Nothing has changed; use a file that this page saved.`,
    );
  }
}

/** @param {Uint8Array} file */
function openPt(file) {
  const { tensors, described } = decodePt(file);
  const { format, config, ...rest } = Object.fromEntries(described);
  checkFormat(format, PT_FORMAT);
  return {
    tensors,
    described: { ...rest, config: config instanceof Map ? Object.fromEntries(config) : config },
  };
}

/** @param {Uint8Array} file */
function openSafetensors(file) {
  const { tensors, metadata } = decodeSafetensors(file);
  const text = metadata[METADATA_KEY];
  if (typeof text !== "string") throw new CheckpointError("it was not saved by DaisyChain");
  let parsed;
  try {
    parsed = JSON.parse(text);
  } catch {
    throw new CheckpointError("its description is no JSON: it is altered");
  }
  const { format, ...described } = isObject(parsed) ? parsed : /** @type {Described} */ ({});
  checkFormat(format, SAFETENSORS_FORMAT);
  return { tensors, described };
}

/**
 * @param {unknown} format
 * @param {string} known
 */
function checkFormat(format, known) {
  if (format !== known) {
    throw new CheckpointError(`its format is ${quote(format)}; this page reads ${quote(known)}`);
  }
}

/**
 * @param {Map<string, StoredTensor>} tensors
 * @param {Described} described
 * @param {{digest: string, vocabulary: number}} known
 * @returns {Checkpoint}
 */
function build(tensors, { config: described, step, tokenizer, optimizer, ...others }, known) {
  const [other] = Object.keys(others);
  if (other !== undefined) throw new CheckpointError(`it describes ${quote(other)}, unknown here`);
  if (tokenizer !== known.digest) {
    throw new CheckpointError(
      `it is of tokenizer ${quote(tokenizer)}, where this page uses ${quote(known.digest)}`,
    );
  }
  const config = readConfig(described, known.vocabulary);
  checkCount("step", step, MAX_CHECKPOINT_STEP);
  const shapes = parameterShapes(config);
  const flat = optimizer === undefined ? [] : [MEAN, SQUARE];
  const wanted = [...shapes, ...flat.map((name) => ({ name, shape: [parameterCount(config)] }))];
  checkLayout(tensors, wanted);
  const names = shapes.map(({ name }) => name);
  const checkpoint = { config, step, tokenizer: known.digest, weights: copyNumbers(tensors, names) };
  if (optimizer === undefined) return checkpoint;
  return { ...checkpoint, optimizer: readOptimizer(tensors, optimizer) };
}

/**
 * @param {Map<string, StoredTensor>} tensors
 * @param {unknown} described
 */
function readOptimizer(tensors, described) {
  const { power1, power2, position } = /** @type {Described} */ (isObject(described) ? described : {});
  checkPower("power1", power1);
  checkPower("power2", power2);
  checkCount("position", position, Number.MAX_SAFE_INTEGER);
  const [mean, square] = [MEAN, SQUARE].map((name) => copyNumbers(tensors, [name]));
  if (square.some((number) => number < 0)) throw new CheckpointError(`tensor ${quote(SQUARE)} is below zero`);
  return { mean, square, power1, power2, position };
}

/**
 * @param {string} what
 * @param {unknown} value
 * @returns {asserts value is number}
 */
function checkPower(what, value) {
  if (typeof value !== "number" || !(value >= 0 && value <= 1)) {
    throw new CheckpointError(`its optimizer's ${what} is ${quote(value)}, not a number from 0 to 1`);
  }
}

/**
 * @param {unknown} described
 * @param {number} vocabulary
 * @returns {DecoderConfig}
 */
function readConfig(described, vocabulary) {
  const numbers = isObject(described) ? Object.entries(described) : [];
  const isWhole = numbers.every(([, value]) => Number.isInteger(value));
  if (!isWhole || String(numbers.map(([name]) => name).sort()) !== String(CONFIG_NAMES)) {
    throw new CheckpointError(`its config is not made of whole numbers ${CONFIG_NAMES.join(", ")}`);
  }
  const config = /** @type {DecoderConfig} */ (described);
  if (config.vocabulary !== vocabulary) {
    throw new CheckpointError(
      `its vocabulary is ${quote(config.vocabulary)}, where the tokenizer has ${vocabulary}`,
    );
  }
  try {
    return checkConfig(config);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new CheckpointError(`its config cannot be used: ${error.message.replace(/\.$/, "")}`);
  }
}

/**
 * @param {string} what
 * @param {unknown} value
 * @param {number} most
 * @returns {asserts value is number}
 */
function checkCount(what, value, most) {
  if (!Number.isInteger(value) || Number(value) < 0 || Number(value) > most) {
    throw new CheckpointError(`its ${what} is ${quote(value)}, not a whole number from 0 to ${most}`);
  }
}

/**
 * Names and shapes, before memory is taken.
 * @param {Map<string, StoredTensor>} tensors
 * @param {{name: string, shape: number[]}[]} wanted
 */
function checkLayout(tensors, wanted) {
  for (const { name, shape } of wanted) {
    const found = tensors.get(name);
    if (!found) throw new CheckpointError(`tensor ${quote(name)} is missing`);
    if (String(found.shape) !== String(shape)) {
      throw new CheckpointError(
        `tensor ${quote(name)} has shape [${found.shape}], its config needs [${shape}]`,
      );
    }
  }
  const known = new Set(wanted.map(({ name }) => name));
  const extra = [...tensors.keys()].find((name) => !known.has(name));
  if (extra !== undefined) throw new CheckpointError(`its config has no tensor ${quote(extra)}`);
}

/**
 * The numbers of several tensors in one vector, all finite.
 * @param {Map<string, StoredTensor>} tensors
 * @param {string[]} names
 */
function copyNumbers(tensors, names) {
  const parts = names.map((name) => {
    const bytes = new Uint8Array(tensors.get(name)?.bytes ?? []);
    const numbers = new Float32Array(bytes.buffer);
    const place = numbers.findIndex((number) => !Number.isFinite(number));
    if (place >= 0)
      throw new CheckpointError(`tensor ${quote(name)} has ${numbers[place]} at place ${place}`);
    return bytes;
  });
  return new Float32Array(concatenate(parts).buffer);
}
