/** The safetensors format: length of the header (u64), header in JSON, then the tensors, one after the other. */

import { CheckpointError } from "../errors.js";
import { MAX_CHECKPOINT_HEADER_BYTES } from "../limits.js";
import { concatenate } from "./bytes.js";
import { isCounts, isObject, isShape, quote } from "./untrusted.js";

/**
 * A float32 tensor in a file: its shape and its little-endian bytes, which are a view of the file's.
 * @typedef {{shape: number[], bytes: Uint8Array}} StoredTensor
 */

const encoder = new TextEncoder();

/**
 * @param {Map<string, StoredTensor>} tensors
 * @param {Record<string, string>} metadata
 */
export function encodeSafetensors(tensors, metadata) {
  /** @type {Record<string, unknown>} */
  const header = { __metadata__: metadata };
  let end = 0;
  for (const [name, { shape, bytes }] of tensors) {
    header[name] = { dtype: "F32", shape, data_offsets: [end, end + bytes.length] };
    end += bytes.length;
  }
  const text = encoder.encode(JSON.stringify(header));
  const headerLength = text.length + (-text.length & 7);
  const start = new Uint8Array(8 + headerLength).fill(0x20);
  new DataView(start.buffer).setBigUint64(0, BigInt(headerLength), true);
  start.set(text, 8);
  return concatenate([start, ...Array.from(tensors.values(), ({ bytes }) => bytes)]);
}

/**
 * Tensors and metadata of a file whose every byte is accounted for, once. Takes no memory for tensors. Throws
 * CheckpointError.
 * @param {Uint8Array} file
 * @returns {{tensors: Map<string, StoredTensor>, metadata: Record<string, unknown>}}
 */
export function decodeSafetensors(file) {
  const data = file.subarray(8 + headerBytes(file));
  const { __metadata__: metadata, ...entries } = parseHeader(file.subarray(8, file.length - data.length));
  if (!isObject(metadata)) throw new CheckpointError("its header has no metadata");
  const placed = Object.entries(entries).map(([name, entry]) => ({ name, ...checkEntry(name, entry) }));
  placed.sort((a, b) => a.start - b.start || a.end - b.end);
  const tensors = new Map();
  let expected = 0;
  for (const { name, shape, start, end } of placed) {
    if (start !== expected) {
      const fault = start < expected ? "overlaps the tensor before it" : "leaves a hole before it";
      throw new CheckpointError(
        `tensor ${quote(name)} begins at byte ${start}, not ${expected}: it ${fault}`,
      );
    }
    tensors.set(name, { shape, bytes: data.subarray(start, end) });
    expected = end;
  }
  if (expected !== data.length) {
    throw new CheckpointError(
      `it holds ${data.length} bytes of tensors where its header says ${expected}: it is cut, or has bytes added`,
    );
  }
  return { tensors, metadata };
}

/** @param {Uint8Array} file */
function headerBytes(file) {
  if (file.length < 8)
    throw new CheckpointError(`it is ${file.length} bytes long, too short for a checkpoint`);
  const length = new DataView(file.buffer, file.byteOffset).getBigUint64(0, true);
  if (length > MAX_CHECKPOINT_HEADER_BYTES || length > file.length - 8) {
    throw new CheckpointError(
      `it claims a header of ${length} bytes, of at most ${MAX_CHECKPOINT_HEADER_BYTES} and of a file of ` +
        `${file.length}: it is cut, or no safetensors file`,
    );
  }
  return Number(length);
}

/**
 * @param {Uint8Array} bytes
 * @returns {Record<string, unknown>}
 */
function parseHeader(bytes) {
  let header;
  let isCanonical = false;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes).replace(/ +$/, "");
    header = JSON.parse(text);
    // What another reader might take otherwise, such as a name twice, is not written back as it was.
    isCanonical = JSON.stringify(header) === text;
  } catch {
    throw new CheckpointError("its header is no JSON: it is cut or altered, or no safetensors file");
  }
  if (!isObject(header) || !isCanonical) {
    throw new CheckpointError(
      "its header has a name twice, or is not written as safetensors libraries write it",
    );
  }
  return header;
}

/**
 * @param {string} name
 * @param {unknown} entry
 */
function checkEntry(name, entry) {
  const { dtype, shape, data_offsets: offsets } = isObject(entry) ? entry : /** @type {any} */ ({});
  if (dtype !== "F32") {
    throw new CheckpointError(`tensor ${quote(name)} has type ${quote(dtype)}; only F32 can be used`);
  }
  if (!isShape(shape) || !isCounts(offsets) || offsets.length !== 2) {
    throw new CheckpointError(`tensor ${quote(name)} has an impossible shape or place in the file`);
  }
  const [start, end] = offsets;
  const bytesLong = shape.reduce((product, side) => product * side, 4);
  if (end - start !== bytesLong) {
    throw new CheckpointError(
      `tensor ${quote(name)} of shape [${shape}] needs ${bytesLong} bytes and has those from ${start} to ${end}`,
    );
  }
  return { shape, start, end };
}
