/** Messages as frames and back, with everything that a broken or hostile device may send. */

import assert from "node:assert/strict";
import test from "node:test";
import { ProtocolError } from "../../../src/daisychain/static/errors.js";
import {
  FRAME_BYTES,
  MESSAGE_BYTES,
  MESSAGES_IN_FLIGHT,
  REASSEMBLY_BYTES,
} from "../../../src/daisychain/static/limits.js";
import { HEADER_BYTES, Reassembly, split } from "../../../src/daisychain/static/mesh/frames.js";

const PART = FRAME_BYTES - HEADER_BYTES;

/** A small generator, so that a failure can be run again. @param {number} seed */
function generator(seed) {
  let state = seed >>> 0;
  return (/** @type {number} */ below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** @param {number} length */
function messageOf(length) {
  return Uint8Array.from({ length }, (_, i) => (i * 31 + (i >> 8)) & 255);
}

/** @param {Reassembly} reassembly @param {Iterable<Uint8Array<ArrayBuffer>>} frames */
function acceptAll(reassembly, frames) {
  let last = null;
  for (const frame of frames) last = reassembly.accept(frame.buffer);
  return last;
}

/** @param {number} number @param {number} index @param {number} count @param {number} total @param {number} part */
function frameOf(number, index, count, total, part) {
  const frame = new ArrayBuffer(HEADER_BYTES + part);
  const header = new DataView(frame);
  for (const [at, value] of [number, index, count, total].entries()) header.setUint32(4 * at, value, true);
  return frame;
}

test("messages of every kind of length come back, in frames of at most 48 KiB", () => {
  for (const length of [0, 1, PART - 1, PART, PART + 1, 2 * PART, 3_000_001]) {
    const message = messageOf(length);
    const frames = [...split(message, 7)];
    assert.ok(frames.every((frame) => frame.length <= 48 * 1024));
    const reassembly = new Reassembly();
    const back = acceptAll(reassembly, frames);
    assert.ok(back && Buffer.from(back).equals(message), `${length} bytes`);
    assert.equal(reassembly.heldBytes, 0);
    assert.equal(reassembly.inFlight, 0);
  }
});

test("frames keep below a smaller negotiated size, and never exceed ours", () => {
  const small = [...split(messageOf(5000), 1, 1200)];
  assert.ok(small.every((frame) => frame.length <= 1200));
  assert.ok(acceptAll(new Reassembly(), small));
  assert.ok([...split(messageOf(100_000), 1, 262_144)].every((frame) => frame.length <= FRAME_BYTES));
  assert.throws(() => [...split(messageOf(10), 1, HEADER_BYTES)], ProtocolError);
});

test("frames of several messages may alternate", () => {
  const reassembly = new Reassembly();
  const [one, two] = [messageOf(3 * PART), messageOf(3 * PART - 5)];
  const [a, b] = [[...split(one, 1)], [...split(two, 2)]];
  assert.equal(acceptAll(reassembly, [a[0], b[0], a[1], b[1]]), null);
  assert.equal(reassembly.heldBytes, one.length + two.length);
  assert.ok(Buffer.from(/** @type {ArrayBuffer} */ (reassembly.accept(a[2].buffer))).equals(one));
  assert.ok(Buffer.from(/** @type {ArrayBuffer} */ (reassembly.accept(b[2].buffer))).equals(two));
});

test("a message too large to be taken is not sent", () => {
  assert.throws(() => [...split(new Uint8Array(MESSAGE_BYTES + 1), 1)], /more than 67108864/);
});

test("of too many messages in flight the one that grew longest ago is dropped", () => {
  const reassembly = new Reassembly();
  for (let number = 0; number < MESSAGES_IN_FLIGHT; number++)
    reassembly.accept(frameOf(number, 0, 3, 30, 10));
  reassembly.accept(frameOf(0, 1, 3, 30, 10));
  reassembly.accept(frameOf(99, 0, 3, 30, 10));
  assert.equal(reassembly.dropped, 1);
  assert.equal(reassembly.inFlight, MESSAGES_IN_FLIGHT);
  assert.throws(() => reassembly.accept(frameOf(1, 1, 3, 30, 10)), /has not begun/);
  reassembly.accept(frameOf(0, 2, 3, 30, 10));
});

test("no more is held than the limit, whatever is announced", () => {
  const reassembly = new Reassembly();
  const count = Math.ceil(MESSAGE_BYTES / PART);
  reassembly.accept(frameOf(1, 0, count, MESSAGE_BYTES, PART));
  assert.throws(() => reassembly.accept(frameOf(2, 0, count, MESSAGE_BYTES, PART)), /does not fit/);
  assert.equal(reassembly.heldBytes, MESSAGE_BYTES);
  assert.throws(() => reassembly.accept(frameOf(3, 0, count + 1, MESSAGE_BYTES + PART, PART)), /more than/);
});

test("frames that fit nothing are refused, and what is held stays", () => {
  const begun = () => {
    const reassembly = new Reassembly();
    reassembly.accept(frameOf(5, 0, 3, 25, 10));
    return reassembly;
  };
  for (const [why, frame] of /** @type {[string, ArrayBuffer][]} */ ([
    ["no header", new ArrayBuffer(HEADER_BYTES - 1)],
    ["too long", new ArrayBuffer(FRAME_BYTES + 1)],
    ["unknown message", frameOf(6, 1, 3, 25, 10)],
    ["begun twice", frameOf(5, 0, 3, 25, 10)],
    ["repeated", frameOf(5, 0, 3, 25, 10)],
    ["skipped", frameOf(5, 2, 3, 25, 5)],
    ["other count", frameOf(5, 1, 4, 25, 10)],
    ["other total", frameOf(5, 1, 3, 26, 10)],
    ["short", frameOf(5, 1, 3, 25, 9)],
    ["long", frameOf(5, 1, 3, 25, 11)],
    ["no frames", frameOf(7, 0, 0, 0, 0)],
    ["empty frames", frameOf(7, 0, 2, 10, 0)],
    ["more frames than bytes need", frameOf(7, 0, 9, 25, 10)],
    ["a single frame that is not whole", frameOf(7, 0, 1, 11, 10)],
    ["payload beyond the total", frameOf(7, 0, 1, 9, 10)],
  ])) {
    const reassembly = begun();
    assert.throws(() => reassembly.accept(frame), ProtocolError, why);
    assert.equal(reassembly.heldBytes, 25, why);
    assert.equal(reassembly.accept(frameOf(5, 1, 3, 25, 10)), null, why);
    assert.equal(reassembly.accept(frameOf(5, 2, 3, 25, 5))?.byteLength, 25, why);
  }
});

test("100,000 mutated frames: typed refusals only, and bounded memory", () => {
  const seed = 20_240_607;
  const next = generator(seed);
  let reassembly = new Reassembly();
  let [refused, completed] = [0, 0];
  /** @type {Uint8Array<ArrayBuffer>[]} */
  let stream = [];
  for (let turn = 0; turn < 100_000; turn++) {
    if (turn % 1000 === 0) reassembly = new Reassembly();
    if (!stream.length) stream = [...split(messageOf(next(400)), next(200), HEADER_BYTES + 1 + next(90))];
    const frame = /** @type {Uint8Array<ArrayBuffer>} */ (stream.shift());
    for (const bytes of [mutate(frame, next), frame.buffer]) {
      const before = reassembly.heldBytes;
      try {
        if (reassembly.accept(bytes)) completed += 1;
      } catch (error) {
        assert.ok(error instanceof ProtocolError, `seed ${seed}, turn ${turn}: ${error}`);
        assert.ok(reassembly.heldBytes <= before, `seed ${seed}, turn ${turn}: a refused frame is held`);
        refused += 1;
      }
    }
    assert.ok(reassembly.heldBytes <= REASSEMBLY_BYTES && reassembly.inFlight <= MESSAGES_IN_FLIGHT);
  }
  assert.ok(refused > 10_000 && completed > 1_000, `${refused} refused, ${completed} completed`);
});

/**
 * @param {Uint8Array<ArrayBuffer>} frame @param {(below: number) => number} next
 * @returns {ArrayBuffer}
 */
function mutate(frame, next) {
  const bytes = Uint8Array.from(frame);
  const header = new DataView(bytes.buffer);
  switch (next(6)) {
    case 0:
      bytes[next(bytes.length)] ^= 1 << next(8);
      return bytes.buffer;
    case 1:
      return bytes.buffer.slice(0, next(bytes.length));
    case 2: {
      const longer = new Uint8Array(bytes.length + 1 + next(60_000));
      longer.set(bytes);
      return longer.buffer;
    }
    case 3:
      header.setUint32(4 * next(4), next(2) ? next(5) : next(2 ** 32), true);
      return bytes.buffer;
    case 4: // announces as much as can be
      return frameOf(next(6), 0, Math.ceil(MESSAGE_BYTES / (1 + next(64))), MESSAGE_BYTES, 1 + next(64));
    default: // another message's number
      header.setUint32(0, next(200), true);
      return bytes.buffer;
  }
}
