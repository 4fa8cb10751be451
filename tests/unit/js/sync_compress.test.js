/** Gradients on the wire. */

import assert from "node:assert/strict";
import test from "node:test";
import { BlockRangeError, NonFiniteError, ProtocolError } from "../../../src/daisychain/static/errors.js";
import { compress, decompress, payloadBytes } from "../../../src/daisychain/static/sync/compress.js";
import { chanceOf } from "../../sim/world.js";

const LENGTH = 300;
const none = new Float32Array(0);

/** @param {number} seed */
function gradientOf(seed) {
  const chance = chanceOf(seed);
  return Float32Array.from({ length: LENGTH }, () => chance.between(-1, 1) * 10 ** chance.between(-9, 3));
}

test("float32 is sent as it is, wherever the bytes lie", () => {
  const gradient = gradientOf(1);
  const { payload } = compress(gradient, "float32", none);
  assert.equal(payload.length, payloadBytes(LENGTH, "float32"));
  const moved = new Uint8Array(payload.length + 3);
  moved.set(payload, 3);
  assert.deepEqual(decompress(moved.subarray(3), "float32", LENGTH), gradient);
});

test("int8: what is sent and what is left are what there was, step after step", () => {
  /** @type {Float32Array} */
  let residual = new Float32Array(LENGTH);
  for (let seed = 0; seed < 50; seed++) {
    const gradient = gradientOf(seed);
    const sent = compress(gradient, "int8", residual);
    assert.equal(sent.payload.length, LENGTH + 3);
    const values = decompress(sent.payload, "int8", LENGTH);
    for (let i = 0; i < LENGTH; i++) {
      assert.equal(
        values[i] + sent.residual[i],
        Math.fround(gradient[i] + residual[i]),
        `seed ${seed}, number ${i}`,
      );
    }
    assert.deepEqual(decompress(sent.payload, "int8", LENGTH), values, "decoding is deterministic");
    residual = sent.residual;
  }
});

test("a small number under large neighbours arrives in the end", () => {
  const gradient = new Float32Array(LENGTH).fill(1000);
  gradient[5] = 1;
  /** @type {Float32Array} */
  let residual = new Float32Array(LENGTH);
  let arrived = 0;
  for (let step = 0; step < 64; step++) {
    const sent = compress(gradient, "int8", residual);
    arrived += decompress(sent.payload, "int8", LENGTH)[5];
    residual = sent.residual;
  }
  assert.ok(Math.abs(arrived - 64) <= 8, `${arrived} of 64`);
});

test("lengths of the payload and of its parts", () => {
  for (const length of [1, 127, 128, 129, 255, 256, 257, 1000]) {
    const { payload } = compress(new Float32Array(length).fill(2), "int8", new Float32Array(length));
    assert.equal(payload.length, payloadBytes(length, "int8"));
    assert.deepEqual(decompress(payload, "int8", length), new Float32Array(length).fill(2));
  }
});

test("refusals", () => {
  const { payload } = compress(gradientOf(3), "int8", new Float32Array(LENGTH));
  assert.throws(() => decompress(payload.subarray(1), "int8", LENGTH), ProtocolError);
  assert.throws(() => decompress(Uint8Array.of(54, ...payload.subarray(1)), "int8", LENGTH), /exponent 54/);
  assert.throws(() => decompress(Uint8Array.of(195, ...payload.subarray(1)), "int8", LENGTH), /exponent -61/);
  const code = payload.slice();
  code[3] = 128;
  assert.throws(() => decompress(code, "int8", LENGTH), /code −128/);
  for (const bad of [Number.NaN, Number.POSITIVE_INFINITY]) {
    const numbers = new Uint8Array(Float32Array.of(1, bad).buffer);
    assert.throws(() => decompress(numbers, "float32", 2), NonFiniteError);
    assert.throws(() => compress(Float32Array.of(bad), "int8", new Float32Array(1)), NonFiniteError);
  }
  assert.throws(() => compress(Float32Array.of(3e38), "int8", new Float32Array(1)), BlockRangeError);
});
