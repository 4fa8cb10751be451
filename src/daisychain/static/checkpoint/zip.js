/** Zip archives of stored (not compressed) entries, as torch.save writes them. */

import { CheckpointError } from "../errors.js";
import { MAX_CHECKPOINT_ENTRIES } from "../limits.js";
import { concatenate } from "./bytes.js";
import { quote } from "./untrusted.js";

const LOCAL = 0x04034b50;
const CENTRAL = 0x02014b50;
const END = 0x06054b50;
const LOCAL_BYTES = 30;
const CENTRAL_BYTES = 46;
const END_BYTES = 22;
const ALIGNMENT_BYTES = 64;
const PADDING_FIELD = 0x4246;
const DATE_1980 = 0x21;
const UTF8_NAMES = 0x800;
const SIZES_FOLLOW = 0x8;

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  return crc;
});

/** @param {Uint8Array} bytes */
export function crc32(bytes) {
  let crc = -1;
  for (let i = 0; i < bytes.length; i++) crc = CRC_TABLE[(crc ^ bytes[i]) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
}

/**
 * An archive whose entries' contents begin at multiples of 64 bytes.
 * @param {[string, Uint8Array][]} entries
 */
export function encodeZip(entries) {
  /** @type {Uint8Array[]} */
  const parts = [];
  const directory = [];
  let at = 0;
  for (const [text, content] of entries) {
    const name = new TextEncoder().encode(text);
    const padding = -(at + LOCAL_BYTES + name.length + 4) & (ALIGNMENT_BYTES - 1);
    const facts = [UTF8_NAMES, 0, 0, DATE_1980];
    const sizes = [crc32(content), content.length, content.length];
    const field = fields([2, PADDING_FIELD, padding]);
    const local = fields([4, LOCAL], [2, 20, ...facts], [4, ...sizes], [2, name.length, 4 + padding]);
    parts.push(local, name, field, new Uint8Array(padding), content);
    const central = [
      [4, CENTRAL],
      [2, 20, 20, ...facts],
      [4, ...sizes],
      [2, name.length, 0, 0, 0, 0],
    ];
    directory.push(fields(...central, [4, 0, at]), name);
    at += LOCAL_BYTES + name.length + 4 + padding + content.length;
  }
  const count = entries.length;
  const directoryBytes = directory.reduce((sum, part) => sum + part.length, 0);
  const end = fields([4, END], [2, 0, 0, count, count], [4, directoryBytes, at], [2, 0]);
  return concatenate([...parts, ...directory, end]);
}

/**
 * Little-endian numbers: each group is [bytes of a number, ...numbers].
 * @param {...number[]} groups
 */
function fields(...groups) {
  return Uint8Array.from(
    groups.flatMap(([width, ...numbers]) =>
      numbers.flatMap((number) => Array.from({ length: width }, (_, i) => (number >>> (8 * i)) & 255)),
    ),
  );
}

/**
 * The entries of an archive by name, as views of it; checksums are compared. Throws CheckpointError.
 * @param {Uint8Array} file
 * @returns {Map<string, Uint8Array>}
 */
export function decodeZip(file) {
  const view = new DataView(file.buffer, file.byteOffset, file.length);
  const { directory, count } = findDirectory(view);
  /** @type {ReturnType<typeof readEntry>[]} */
  const entries = [];
  let at = directory;
  for (let i = 0; i < count; i++) {
    const entry = readEntry(file, view, at);
    entries.push(entry);
    at = entry.next;
  }
  entries.sort((a, b) => a.start - b.start);
  const contents = new Map();
  entries.forEach(({ name, end, crc, content }, i) => {
    if (end > (entries[i + 1]?.start ?? directory)) {
      throw new CheckpointError(`the archive's entry ${quote(name)} overlaps what follows it`);
    }
    if (contents.has(name)) throw new CheckpointError(`the archive holds ${quote(name)} twice`);
    if (crc32(content) !== crc) {
      throw new CheckpointError(
        `the archive's entry ${quote(name)} does not have its checksum: it is altered`,
      );
    }
    contents.set(name, content);
  });
  return contents;
}

/** @param {DataView} view */
function findDirectory(view) {
  const end = view.byteLength - END_BYTES;
  if (end < 0 || view.getUint32(end, true) !== END) {
    throw new CheckpointError("it is a zip archive without its end: it is cut, or has bytes added");
  }
  const count = view.getUint16(end + 10, true);
  if (count > MAX_CHECKPOINT_ENTRIES) {
    throw new CheckpointError(`the archive has ${count} entries, more than ${MAX_CHECKPOINT_ENTRIES}`);
  }
  return { directory: view.getUint32(end + 16, true), count };
}

/**
 * @param {Uint8Array} file
 * @param {DataView} view
 * @param {number} at where the directory describes the entry
 */
function readEntry(file, view, at) {
  const nameAt = at + CENTRAL_BYTES;
  if (nameAt > file.length || view.getUint32(at, true) !== CENTRAL) throw damaged();
  const next = nameAt + [28, 30, 32].reduce((sum, field) => sum + view.getUint16(at + field, true), 0);
  const name = new TextDecoder().decode(file.subarray(nameAt, nameAt + view.getUint16(at + 28, true)));
  const method = view.getUint16(at + 10, true);
  const flags = view.getUint16(at + 8, true);
  const [crc, packed, size, start] = [16, 20, 24, 42].map((field) => view.getUint32(at + field, true));
  if (method !== 0 || packed !== size || flags & ~(UTF8_NAMES | SIZES_FOLLOW)) {
    throw new CheckpointError(
      `the archive's entry ${quote(name)} is compressed or encrypted (method ${method}, flags ${flags}); ` +
        "use the file as torch.save wrote it",
    );
  }
  if (start + LOCAL_BYTES > file.length || view.getUint32(start, true) !== LOCAL) throw damaged();
  const contentAt = start + LOCAL_BYTES + view.getUint16(start + 26, true) + view.getUint16(start + 28, true);
  const end = contentAt + size;
  return { name, start, end, next, crc, content: file.subarray(contentAt, end) };
}

function damaged() {
  return new CheckpointError("the archive's directory points to what is not there: it is cut or altered");
}
