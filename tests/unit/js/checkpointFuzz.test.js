/** 10,000 mutated checkpoints: a typed refusal or a checkpoint that can be used, and memory within the file's size. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { readCheckpoint } from "../../../src/daisychain/static/checkpoint/validate.js";
import { CheckpointError } from "../../../src/daisychain/static/errors.js";
import { parameterCount } from "../../../src/daisychain/static/model/weights.js";
import {
  joinSafetensors,
  PT,
  SAFETENSORS,
  seeded,
  splitSafetensors,
  TOKENIZER,
  withPickle,
} from "./checkpointHelp.js";

const MUTATIONS = 5000; // of each format
const SEED = 20;
const HOSTILE = [0, -1, 1, 3, 4, 0.5, 1e300, 2 ** 31, 2 ** 32, 2 ** 53, null, "4", [], {}, true];
const HOSTILE_BYTES = ["\xff\xff\xff\xff", "\x00\x00\x00\x80", "\x00\x00\x00\x00", "\xff\xff\xff\x7f"];

/** @typedef {(n: number) => number} Below a whole number below n */

/**
 * @template T
 * @param {Below} below
 * @param {readonly T[]} choices
 */
const pick = (below, choices) => choices[below(choices.length)];

/**
 * A place in a file; every other time in its first or last 2 KiB, where descriptions stand.
 * @param {Below} below
 * @param {number} length
 */
function place(below, length) {
  const near = below(Math.min(2048, length));
  return pick(below, [below(length), near, length - 1 - near]);
}

/** @type {Record<string, (file: Uint8Array, below: Below) => Uint8Array>} */
const BYTE_MUTATIONS = {
  flips(file, below) {
    const mutated = file.slice();
    for (let i = below(8); i >= 0; i--) mutated[place(below, file.length)] ^= 1 << below(8);
    return mutated;
  },
  cut: (file, below) => file.slice(0, place(below, file.length)),
  insert(file, below) {
    const at = place(below, file.length);
    const added = Uint8Array.from({ length: 1 + below(16) }, () => below(256));
    return Uint8Array.of(...file.subarray(0, at), ...added, ...file.subarray(at));
  },
  remove(file, below) {
    const at = place(below, file.length);
    return Uint8Array.of(...file.subarray(0, at), ...file.subarray(at + 1 + below(64)));
  },
  number(file, below) {
    const mutated = file.slice();
    const at = Math.min(place(below, file.length), file.length - 4);
    mutated.set(
      Uint8Array.from(pick(below, HOSTILE_BYTES), (c) => c.charCodeAt(0)),
      at,
    );
    return mutated;
  },
};

/**
 * One value of the header or of the description in it, made hostile.
 * @param {Uint8Array} file
 * @param {Below} below
 */
function rewriteHeader(file, below) {
  const { header, data } = splitSafetensors(file);
  const names = Object.keys(header).slice(1);
  const tensor = header[pick(below, names)];
  const described = JSON.parse(header.__metadata__.daisychain);
  const target = pick(below, [
    tensor,
    tensor,
    tensor.shape,
    tensor.data_offsets,
    described,
    described.config,
  ]);
  const key = pick(below, Object.keys(target));
  const choices = [...HOSTILE, "F16", tensor.shape, header[pick(below, names)].data_offsets];
  const value = structuredClone(pick(below, choices));
  target[key] = pick(below, [
    value,
    typeof target[key] === "number" ? target[key] + pick(below, [4, -4, 1]) : value,
  ]);
  header.__metadata__.daisychain = JSON.stringify(described);
  return joinSafetensors(JSON.stringify(header), data);
}

/**
 * The pickle with changed bytes, in an archive that is whole again.
 * @param {Uint8Array} _
 * @param {Below} below
 */
function rewritePickle(_, below) {
  return withPickle((pickle) => {
    const at = below(pickle.length);
    const codes = "(t)}]RQubsc\x81\x85\x86\x87\x88\x93hjqrKMJXN.";
    const added = pick(below, [
      ...HOSTILE_BYTES,
      pick(below, [...codes]),
      String.fromCharCode(below(256)),
      "",
    ]);
    return pickle.slice(0, at) + added + pickle.slice(at + below(6));
  });
}

/**
 * The largest number of bytes or floats taken at once while `action` ran.
 * @param {() => void} action
 */
function largestAllocation(action) {
  const { Uint8Array: Bytes, Float32Array: Floats } = globalThis;
  let largest = 0;
  const counting = (/** @type {any} */ Type) =>
    class extends Type {
      constructor(/** @type {any[]} */ ...given) {
        super(...given);
        if (!(given[0] instanceof ArrayBuffer)) largest = Math.max(largest, this.length);
      }
    };
  Object.assign(globalThis, { Uint8Array: counting(Bytes), Float32Array: counting(Floats) });
  try {
    action();
  } finally {
    Object.assign(globalThis, { Uint8Array: Bytes, Float32Array: Floats });
  }
  return largest;
}

/**
 * @param {Uint8Array} original
 * @param {(file: Uint8Array, below: Below) => Uint8Array} rewrite
 */
function fuzz(original, rewrite) {
  const outcomes = { refused: 0, read: 0 };
  const mutations = [...Object.values(BYTE_MUTATIONS), rewrite, rewrite, rewrite];
  for (let turn = 0; turn < MUTATIONS; turn++) {
    const below = seeded(SEED * MUTATIONS + turn);
    const file = pick(below, mutations)(original, below);
    const largest = largestAllocation(() => {
      try {
        const { config, weights, optimizer } = readCheckpoint(file, "mutated", TOKENIZER);
        for (const numbers of [weights, optimizer?.mean ?? weights, optimizer?.square ?? weights]) {
          assert.equal(numbers.length, parameterCount(config), `seed ${SEED}, turn ${turn}`);
          assert.ok(numbers.every(Number.isFinite), `seed ${SEED}, turn ${turn}`);
        }
        outcomes.read++;
      } catch (error) {
        if (!(error instanceof CheckpointError))
          throw new Error(`seed ${SEED}, turn ${turn}`, { cause: error });
        assert.ok(error.message.length < 600, error.message);
        outcomes.refused++;
      }
    });
    assert.ok(
      largest <= file.length,
      `seed ${SEED}, turn ${turn}: ${largest} taken for ${file.length} bytes`,
    );
  }
  return outcomes;
}

test(`${MUTATIONS} mutated safetensors files`, () => {
  const { refused, read } = fuzz(SAFETENSORS, rewriteHeader);
  assert.ok(refused > MUTATIONS / 2 && read > 0, `${refused} refused, ${read} read`);
});

test(`${MUTATIONS} mutated .pt files`, () => {
  const { refused, read } = fuzz(PT, rewritePickle);
  assert.ok(refused > MUTATIONS / 2 && read > 0, `${refused} refused, ${read} read`);
});

test("the measure of memory sees a large one", () => {
  assert.equal(
    largestAllocation(() => new Uint8Array(1e6)),
    1e6,
  );
});
