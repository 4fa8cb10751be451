/** QR codes (ISO/IEC 18004): byte mode, error correction M, versions 1 to 10, which is up to 213 bytes. Pure. */

import { ConfigError } from "../errors.js";

/** For each version: correction bytes a block, then [blocks, data bytes a block] twice. */
const BLOCKS = [
  [10, 1, 16, 0, 0],
  [16, 1, 28, 0, 0],
  [26, 1, 44, 0, 0],
  [18, 2, 32, 0, 0],
  [24, 2, 43, 0, 0],
  [16, 4, 27, 0, 0],
  [18, 4, 31, 0, 0],
  [22, 2, 38, 2, 39],
  [22, 3, 36, 2, 37],
  [26, 4, 43, 1, 44],
];
const ALIGNMENT = [
  [],
  [6, 18],
  [6, 22],
  [6, 26],
  [6, 30],
  [6, 34],
  [6, 22, 38],
  [6, 24, 42],
  [6, 26, 46],
  [6, 28, 50],
];
/** The eight masks: is the module at (row, column) turned? */
/** @type {((y: number, x: number) => boolean)[]} */
const MASKS = [
  (y, x) => (y + x) % 2 === 0,
  (y) => y % 2 === 0,
  (_, x) => x % 3 === 0,
  (y, x) => (y + x) % 3 === 0,
  (y, x) => (Math.floor(y / 2) + Math.floor(x / 3)) % 2 === 0,
  (y, x) => ((y * x) % 2) + ((y * x) % 3) === 0,
  (y, x) => (((y * x) % 2) + ((y * x) % 3)) % 2 === 0,
  (y, x) => (((y + x) % 2) + ((y * x) % 3)) % 2 === 0,
];

/** Powers of 2 in the field of 256 elements with the polynomial 0x11d. */
const POWER = new Uint8Array(510);
const LOG = new Uint8Array(256);
for (let i = 0, value = 1; i < 255; i++) {
  POWER[i] = value;
  POWER[i + 255] = value;
  LOG[value] = i;
  value = (value << 1) ^ (value & 0x80 ? 0x11d : 0);
}

/** @param {number} a @param {number} b */
const times = (a, b) => (a && b ? POWER[LOG[a] + LOG[b]] : 0);

/**
 * The remainder of the data by the generator polynomial of a degree.
 * @param {Uint8Array} data
 * @param {number} degree
 */
function correction(data, degree) {
  let generator = [1];
  for (let i = 0; i < degree; i++) {
    const next = [...generator, 0];
    for (const [at, value] of generator.entries()) next[at + 1] ^= times(value, POWER[i]);
    generator = next;
  }
  const rest = new Uint8Array(data.length + degree);
  rest.set(data);
  for (let i = 0; i < data.length; i++) {
    const lead = rest[i];
    for (const [at, value] of generator.entries()) rest[i + at] ^= times(value, lead);
  }
  return rest.subarray(data.length);
}

/** @param {number} version */
function blocksOf(version) {
  const [degree, count, length, count2, length2] = BLOCKS[version - 1];
  const lengths = [...Array(count).fill(length), ...Array(count2).fill(length2)];
  return { degree, lengths, total: lengths.reduce((sum, each) => sum + each, 0) };
}

/**
 * The text's bytes with mode, length and padding: the data codewords.
 * @param {Uint8Array} bytes
 */
function codewords(bytes) {
  for (let version = 1; version <= BLOCKS.length; version++) {
    const { total } = blocksOf(version);
    const bits = [[4, 4], [bytes.length, version < 10 ? 8 : 16], ...[...bytes].map((byte) => [byte, 8])]
      .map(([value, length]) => value.toString(2).padStart(length, "0"))
      .join("");
    if (bits.length > total * 8) continue;
    const padded = `${bits}0000`.slice(0, total * 8);
    const data = new Uint8Array(total);
    const used = Math.ceil(padded.length / 8);
    for (let i = 0; i < used; i++)
      data[i] = Number.parseInt(padded.slice(i * 8, i * 8 + 8).padEnd(8, "0"), 2);
    for (let i = used; i < total; i++) data[i] = (i - used) % 2 ? 0x11 : 0xec;
    return { version, data };
  }
  throw new ConfigError(`A QR code here holds at most 213 bytes, not ${bytes.length}: use a shorter link.`);
}

/**
 * Data and correction of all blocks, interleaved, as bits.
 * @param {number} version
 * @param {Uint8Array} data
 */
function stream(version, data) {
  const { degree, lengths } = blocksOf(version);
  let end = 0;
  const parts = lengths.map((length) => {
    end += length;
    return data.subarray(end - length, end);
  });
  const checks = parts.map((part) => correction(part, degree));
  const out = [];
  for (let i = 0; i < Math.max(...lengths); i++)
    for (const part of parts) if (i < part.length) out.push(part[i]);
  for (let i = 0; i < degree; i++) for (const check of checks) out.push(check[i]);
  return out.flatMap((byte) => Array.from({ length: 8 }, (_, bit) => (byte >> (7 - bit)) & 1));
}

/**
 * The patterns that do not depend on the text; null where data goes.
 * @param {number} version
 */
function frame(version) {
  const size = 17 + 4 * version;
  /** @type {(number | null)[][]} */
  const grid = Array.from({ length: size }, () => Array(size).fill(null));
  const set = (/** @type {number} */ y, /** @type {number} */ x, /** @type {boolean} */ dark) => {
    if (grid[y] && x >= 0 && x < size) grid[y][x] = Number(dark);
  };
  for (let i = 8; i < size - 8; i++) {
    set(6, i, i % 2 === 0);
    set(i, 6, i % 2 === 0);
  }
  for (const [top, left] of [
    [0, 0],
    [0, size - 7],
    [size - 7, 0],
  ]) {
    for (let y = -1; y < 8; y++) {
      for (let x = -1; x < 8; x++) {
        const ring = Math.max(Math.abs(y - 3), Math.abs(x - 3));
        set(top + y, left + x, ring !== 2 && ring < 4);
      }
    }
  }
  const places = ALIGNMENT[version - 1];
  for (const y of places) {
    for (const x of places) {
      if (corner(y, x, places)) continue;
      for (let i = -2; i <= 2; i++)
        for (let j = -2; j <= 2; j++) set(y + i, x + j, Math.max(Math.abs(i), Math.abs(j)) !== 1);
    }
  }
  return grid;
}

/**
 * Would an alignment pattern lie on a finder pattern?
 * @param {number} y
 * @param {number} x
 * @param {number[]} places
 */
function corner(y, x, places) {
  const last = places.at(-1);
  return (y === 6 && x === 6) || (y === 6 && x === last) || (y === last && x === 6);
}

/**
 * A value with its check bits by a polynomial.
 * @param {number} value
 * @param {number} polynomial
 * @param {number} degree
 */
function checked(value, polynomial, degree) {
  let rest = value << degree;
  for (let bit = 31; bit >= degree; bit--) if ((rest >>> bit) & 1) rest ^= polynomial << (bit - degree);
  return (value << degree) | rest;
}

/**
 * Writes format and version next to the finder patterns.
 * @param {(number | null)[][]} grid
 * @param {number} version
 * @param {number} mask
 */
function describe(grid, version, mask) {
  const size = grid.length;
  const set = (/** @type {number} */ y, /** @type {number} */ x, /** @type {number} */ bit) => {
    grid[y][x] = bit;
  };
  // Level M is 00, so the five bits are the mask's number.
  const format = checked(mask, 0x537, 10) ^ 0x5412;
  for (let i = 0; i < 15; i++) {
    const bit = (format >> i) & 1;
    if (i < 8) set(i < 6 ? i : i + 1, 8, bit);
    else set(size - 15 + i, 8, bit);
    if (i < 8) set(8, size - 1 - i, bit);
    else set(8, i === 8 ? 7 : 14 - i, bit);
  }
  set(size - 8, 8, 1);
  if (version < 7) return;
  const number = checked(version, 0x1f25, 12);
  for (let i = 0; i < 18; i++) {
    const bit = (number >> i) & 1;
    set(Math.floor(i / 3), size - 11 + (i % 3), bit);
    set(size - 11 + (i % 3), Math.floor(i / 3), bit);
  }
}

/**
 * Lays the bits in their zigzag, turned by the mask.
 * @param {(number | null)[][]} grid
 * @param {number[]} bits
 * @param {(y: number, x: number) => boolean} mask
 */
function lay(grid, bits, mask) {
  const size = grid.length;
  let at = 0;
  let upward = true;
  for (let right = size - 1; right > 0; right -= 2) {
    if (right === 6) right = 5;
    for (let i = 0; i < size; i++) {
      const y = upward ? size - 1 - i : i;
      for (const x of [right, right - 1]) {
        if (grid[y][x] === null) grid[y][x] = (bits[at++] ?? 0) ^ Number(mask(y, x));
      }
    }
    upward = !upward;
  }
}

/**
 * How hard a code is to read: the standard's four penalties.
 * @param {number[][]} grid
 */
export function penalty(grid) {
  const size = grid.length;
  const lines = [...grid, ...grid.map((_, x) => grid.map((row) => row[x]))].map((line) => line.join(""));
  let total = 0;
  for (const line of lines) {
    for (const [run] of line.matchAll(/0{5,}|1{5,}/g)) total += run.length - 2;
    for (const _ of line.matchAll(/(?=00001011101|10111010000)/g)) total += 40;
  }
  let dark = 0;
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      const value = grid[y][x];
      dark += value;
      const square = [grid[y][x + 1], grid[y + 1]?.[x], grid[y + 1]?.[x + 1]];
      if (square.every((other) => other === value)) total += 3;
    }
  }
  return total + 10 * Math.floor(Math.abs((dark * 20) / (size * size) - 10));
}

/**
 * @param {string} text
 * @returns {number[][]} rows of modules, 1 is dark; without the quiet zone of 4
 * @throws {ConfigError} if the text has more than 213 bytes
 */
export function qrCode(text) {
  const { version, data } = codewords(new TextEncoder().encode(text));
  const bits = stream(version, data);
  /** @type {number[][]} */
  let best = [];
  let least = Number.POSITIVE_INFINITY;
  for (const [number, mask] of MASKS.entries()) {
    const grid = frame(version);
    describe(grid, version, number);
    lay(grid, bits, mask);
    const full = /** @type {number[][]} */ (grid);
    const cost = penalty(full);
    if (cost < least) {
      least = cost;
      best = full;
    }
  }
  return best;
}

/**
 * The dark modules as the path of an SVG, one unit a module.
 * @param {number[][]} grid
 */
export function qrPath(grid) {
  return grid.flatMap((row, y) => row.map((dark, x) => (dark ? `M${x} ${y}h1v1h-1z` : ""))).join("");
}
