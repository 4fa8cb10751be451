import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import test from "node:test";
import { ConfigError } from "../../../src/daisychain/static/errors.js";
import { qrCode, qrPath } from "../../../src/daisychain/static/ui/qr.js";

/** "x" repeated, and the SHA-256 of the modules that another encoder (segno 1.6.6) gives with the same mask. */
const KNOWN = /** @type {[number, string][]} */ ([
  [26, "08ea762643d0039fd64a43ff571e49be7fff3abe515a4a45a89eb97b3897e83b"],
  [42, "c711766f4553907f07f4f08d2ffe761d9cfe2119eea73b2bcd621e5fc0e5b993"],
  [62, "6224a6f3a0bbc68bf1f11309238651e9ef17e8fe344d97b66bee65b9b59d04bb"],
  [84, "828d6d94d58d40c1ae8210987a7a1ab106fefb7b2a24eb144fd59c5d6fdad37b"],
  [106, "7c10b09ae528505dc913009ca42f0eafedf2129151607b984f7a08e1ff9c1ffc"],
  [122, "39fabad74b9daebadbedcc7a7fe0cab84625a14627e0c779522e63a26538d223"],
  [152, "9136eafad1d668c13eceba75c9717e00424bb6409d69d7f95ac934bafa083e38"],
  [180, "81d47104c29942ba3da743c85bfe28ff6792290d30b3c455e1f214a88b473029"],
  [213, "f673820bb5ccd3f0f6035d879c98fa30d6d1f03153cace0b9a23da4e0a681a53"],
]);

test("full codes of versions 2 to 10 are those of another encoder", () => {
  for (const [length, digest] of KNOWN) {
    const modules = qrCode("x".repeat(length)).flat().join("");
    assert.equal(createHash("sha256").update(modules).digest("hex"), digest, `${length} bytes`);
  }
});

const MASKS = /** @type {((y: number, x: number) => number)[]} */ ([
  (y, x) => (y + x) % 2,
  (y) => y % 2,
  (_, x) => x % 3,
  (y, x) => (y + x) % 3,
  (y, x) => ((y >> 1) + Math.floor(x / 3)) % 2,
  (y, x) => ((y * x) % 2) + ((y * x) % 3),
  (y, x) => (((y * x) % 2) + ((y * x) % 3)) % 2,
  (y, x) => (((y + x) % 2) + ((y * x) % 3)) % 2,
]);

/**
 * Reads a code of versions 2 to 4, of one or two blocks, without correcting errors.
 * @param {number[][]} grid
 */
function read(grid) {
  const size = grid.length;
  const version = (size - 17) / 4;
  const format = [0, 1, 2, 3, 4].map((i) => grid[8][i] ^ [1, 0, 1, 0, 1][i]);
  assert.deepEqual(format.slice(0, 2), [0, 0], "level M");
  const mask = MASKS[format[2] * 4 + format[3] * 2 + format[4]];
  const centre = size - 7;
  const isData = (/** @type {number} */ y, /** @type {number} */ x) =>
    y !== 6 &&
    x !== 6 &&
    !(y < 9 && (x < 9 || x >= size - 8)) &&
    !(y >= size - 8 && x < 9) &&
    !(version > 1 && Math.abs(y - centre) <= 2 && Math.abs(x - centre) <= 2);
  /** @type {number[]} */
  const bits = [];
  for (let column = 0; column < (size - 1) / 2; column++) {
    const right = size - 1 - 2 * column - (size - 1 - 2 * column <= 6 ? 1 : 0);
    for (let i = 0; i < size; i++) {
      const y = column % 2 ? i : size - 1 - i;
      for (const x of [right, right - 1]) if (isData(y, x)) bits.push(grid[y][x] ^ Number(mask(y, x) === 0));
    }
  }
  const byte = (/** @type {number[]} */ part) => Number.parseInt(part.join(""), 2);
  const words = Array.from({ length: bits.length >> 3 }, (_, i) => byte(bits.slice(8 * i, 8 * i + 8)));
  const [blocks, length] = { 1: [1, 16], 2: [1, 28], 3: [1, 44], 4: [2, 32] }[version] ?? [0, 0];
  const data = Array.from({ length: blocks }, (_, block) =>
    Array.from({ length }, (_, i) => words[i * blocks + block]),
  ).flat();
  const stream = data.map((word) => word.toString(2).padStart(8, "0")).join("");
  assert.equal(stream.slice(0, 4), "0100", "byte mode");
  const count = Number.parseInt(stream.slice(4, 12), 2);
  const text = Array.from({ length: count }, (_, i) =>
    Number.parseInt(stream.slice(12 + 8 * i, 20 + 8 * i), 2),
  );
  return { text: new TextDecoder().decode(Uint8Array.from(text)), rest: stream.slice(12 + 8 * count) };
}

test("short texts are padded and read back", () => {
  for (const text of [
    "A",
    "http://192.168.1.20:8787/",
    "é€😀",
    "http://192.168.1.20:8787/?room=0123456789ABC",
  ]) {
    const { text: found, rest } = read(qrCode(text));
    assert.equal(found, text);
    assert.match(rest, /^0{4}(1110110000010001)*(11101100)?$/);
  }
});

test("a text that is too long is refused", () => {
  assert.throws(() => qrCode("x".repeat(214)), ConfigError);
});

test("the path draws the dark modules", () => {
  assert.equal(
    qrPath([
      [0, 1],
      [1, 0],
    ]),
    "M1 0h1v1h-1zM0 1h1v1h-1z",
  );
});
