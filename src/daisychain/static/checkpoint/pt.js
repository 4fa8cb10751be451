/** PyTorch's own format: a zip archive with a pickle that describes, and an entry of raw numbers a tensor. */

import { CheckpointError } from "../errors.js";
import { MAX_CHECKPOINT_HEADER_BYTES } from "../limits.js";
import { decodePickle } from "./pickle.js";
import { encodePickle, TensorPlace } from "./pickleWriter.js";
import { quote } from "./untrusted.js";
import { decodeZip, encodeZip } from "./zip.js";

/** @typedef {import("./safetensors.js").StoredTensor} StoredTensor */

const FOLDER = "daisychain/";
const DESCRIPTION = "data.pkl";

/**
 * A file that `torch.load(weights_only=True)` opens as a dict: `described`, and the tensors under "weights".
 * @param {Map<string, StoredTensor>} tensors
 * @param {import("./pickleWriter.js").Dict} described
 */
export function encodePt(tensors, described) {
  const named = [...tensors];
  /** @type {[string, unknown][]} */
  const places = named.map(([name, { shape }], i) => [name, new TensorPlace(String(i), shape)]);
  const pickle = encodePickle(new Map([...described, ["weights", new Map(places)]]));
  const text = (/** @type {string} */ content) => new TextEncoder().encode(content);
  return encodeZip([
    [FOLDER + DESCRIPTION, pickle],
    [`${FOLDER}byteorder`, text("little")],
    .../** @type {[string, Uint8Array][]} */ (named.map(([, { bytes }], i) => [`${FOLDER}data/${i}`, bytes])),
    [`${FOLDER}version`, text("3\n")],
  ]);
}

/**
 * The dict without "weights", and the tensors as views of the file. Nothing in it is executed. Throws
 * CheckpointError.
 * @param {Uint8Array} file
 * @returns {{tensors: Map<string, StoredTensor>, described: import("./pickleWriter.js").Dict}}
 */
export function decodePt(file) {
  const entries = decodeZip(file);
  const path = [...entries.keys()].find((name) => /^[^/]+\/data\.pkl$/.test(name)) ?? "";
  const pickle = entries.get(path);
  if (!pickle) throw new CheckpointError("it is a zip archive, but none of torch.save: it has no data.pkl");
  if (pickle.length > MAX_CHECKPOINT_HEADER_BYTES) {
    throw new CheckpointError(
      `its data.pkl has ${pickle.length} bytes, more than the ${MAX_CHECKPOINT_HEADER_BYTES} of any checkpoint`,
    );
  }
  const folder = path.slice(0, -DESCRIPTION.length);
  if (new TextDecoder().decode(entries.get(`${folder}byteorder`)) !== "little") {
    throw new CheckpointError("its numbers are not little-endian");
  }
  const described = decodePickle(pickle);
  const weights = described instanceof Map ? described.get("weights") : undefined;
  if (!(described instanceof Map) || !(weights instanceof Map)) {
    throw new CheckpointError('it is not a dict with "weights", as a checkpoint is');
  }
  described.delete("weights");
  const used = new Set();
  const tensors = new Map();
  for (const [name, place] of weights) {
    tensors.set(name, findTensor(name, place, entries, folder, used));
  }
  return { tensors, described };
}

/**
 * @param {unknown} name
 * @param {unknown} place
 * @param {Map<string, Uint8Array>} entries
 * @param {string} folder
 * @param {Set<string>} used storages, this one added
 * @returns {StoredTensor}
 */
function findTensor(name, place, entries, folder, used) {
  if (typeof name !== "string" || !(place instanceof TensorPlace)) {
    throw new CheckpointError(`its weight ${quote(name)} is ${quote(place)}, not a tensor`);
  }
  const { storage, shape } = place;
  if (used.has(storage)) {
    throw new CheckpointError(`tensor ${quote(name)} overlaps another, in storage ${quote(storage)}`);
  }
  used.add(storage);
  const bytes = entries.get(`${folder}data/${storage}`);
  if (!bytes) throw new CheckpointError(`the numbers of tensor ${quote(name)} are missing from the archive`);
  const bytesLong = shape.reduce((product, side) => product * side, 4);
  if (bytes.length !== bytesLong) {
    throw new CheckpointError(
      `tensor ${quote(name)} of shape [${shape}] needs ${bytesLong} bytes and has ${bytes.length}`,
    );
  }
  return { shape, bytes };
}
