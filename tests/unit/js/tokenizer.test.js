/** The tokenizer gives the ids that Python gave (vectors/tokenizer.json), and gives every text back. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { ConfigError } from "../../../src/daisychain/static/errors.js";
import { VOCABULARY } from "../../../src/daisychain/static/limits.js";
import { END, Tokenizer } from "../../../src/daisychain/static/model/tokenizer.js";

/** @param {string} path from the root */
const readJson = (path) => JSON.parse(readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8"));

const file = readJson("src/daisychain/data/tokenizer.json");
const vectors = readJson("vectors/tokenizer.json");
const tokenizer = new Tokenizer(file);

/** @param {{base64: string}} array uint16, little-endian */
function decodeIds({ base64 }) {
  const bytes = Buffer.from(base64, "base64");
  return Array.from({ length: bytes.length / 2 }, (_, i) => bytes.readUInt16LE(2 * i));
}

/** @param {number} seed @returns {() => number} a stream of u32 */
function randoms(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) ^ (state >>> 12)) >>> 0;
  };
}

for (const { name, text, ids } of vectors.ids_of) {
  test(`the ids of Python: ${name}`, () => {
    assert.deepEqual(Array.from(tokenizer.encode(text)), decodeIds(ids));
    assert.equal(tokenizer.decode(tokenizer.encode(text)), Buffer.from(text).toString());
  });
}

test("ids of no text decode as in Python", () => {
  for (const { ids, text } of vectors.texts_of) assert.equal(tokenizer.decode(decodeIds(ids)), text);
});

test("every string of characters comes back", () => {
  const random = randoms(7);
  for (let round = 0; round < 200; round++) {
    const text = Array.from({ length: random() % 60 }, () => {
      const code = random() % [0x80, 0x800, 0x10000, 0x110000][random() % 4];
      return String.fromCodePoint(code >= 0xd800 && code < 0xe000 ? 0x20 : code);
    }).join("");
    const ids = tokenizer.encode(text);
    assert.equal(tokenizer.decode(ids), text, JSON.stringify(text));
    assert.ok(ids.every((id) => id < VOCABULARY));
  }
});

test("every byte and the end are entries", () => {
  const decoded = Array.from({ length: 128 }, (_, byte) => String.fromCharCode(byte));
  for (const character of decoded) assert.equal(tokenizer.encode(character).length, 1);
  assert.deepEqual(Array.from(tokenizer.encode(END)), [vectors.end]);
  assert.equal(tokenizer.end, vectors.end);
});

test("one instance gives the same ids whatever it has seen", () => {
  const fresh = new Tokenizer(file);
  for (const { text } of [...vectors.ids_of].reverse()) {
    assert.deepEqual(fresh.encode(text), tokenizer.encode(text));
  }
});

test("a long text without spaces is no trouble", () => {
  const text = "ab".repeat(200_000);
  assert.equal(tokenizer.decode(tokenizer.encode(text)), text);
});

test("an id out of range and files that are no tokenizer are refused", () => {
  for (const id of [-1, VOCABULARY, 1.5, Number.NaN]) {
    assert.throws(() => tokenizer.decode([id]), ConfigError);
  }
  const { "!": _, ...fewer } = file.model.vocab;
  const wrong = [null, {}, { model: {} }, { ...file, model: { ...file.model, vocab: fewer } }];
  for (const json of wrong) assert.throws(() => new Tokenizer(/** @type {any} */ (json)), ConfigError);
});
