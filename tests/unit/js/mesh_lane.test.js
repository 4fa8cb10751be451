/** Back-pressure on a channel, and the watchdog over it. */

import assert from "node:assert/strict";
import test from "node:test";
import {
  CHANNEL_DEAD_MS,
  CHANNEL_POLL_MS,
  CHANNEL_STUCK_MS,
  HIGH_WATER_BYTES,
} from "../../../src/daisychain/static/limits.js";
import { Reassembly } from "../../../src/daisychain/static/mesh/frames.js";
import { Lane } from "../../../src/daisychain/static/mesh/lane.js";
import { FakeChannel, FakeClock } from "./mesh_help.js";

function laneOnFakes() {
  const clock = new FakeClock();
  const channel = new FakeChannel();
  /** @type {(string | null)[]} */
  const stuck = [];
  /** @type {string[]} */
  const dead = [];
  let number = 0;
  let sentBytes = 0;
  const lane = new Lane({
    channel: /** @type {any} */ (channel),
    clock,
    frameBytes: () => 48 * 1024,
    nextNumber: () => number++,
    onSent: (bytes) => {
      sentBytes += bytes;
    },
    onStuck: (reason) => stuck.push(reason),
    onDead: (reason) => dead.push(reason),
  });
  return { clock, channel, lane, stuck, dead, sent: () => sentBytes };
}

/** @param {FakeChannel} channel @returns {number[]} lengths of the messages that arrive */
function arrivals(channel) {
  const reassembly = new Reassembly();
  return channel.sent.flatMap((frame) => reassembly.accept(frame.buffer)?.byteLength ?? []);
}

test("a large message waits at the high-water mark and goes on at the low event", () => {
  const { channel, lane, sent } = laneOnFakes();
  lane.send(new Uint8Array(5_000_000));
  assert.ok(channel.bufferedAmount > HIGH_WATER_BYTES - 48 * 1024, "the channel is used to the full");
  assert.ok(lane.queuedBytes > 0);
  while (channel.bufferedAmount) channel.drain(300_000);
  assert.ok(channel.mostBuffered <= HIGH_WATER_BYTES);
  assert.deepEqual(arrivals(channel), [5_000_000]);
  assert.equal(lane.queuedBytes, 0);
  assert.ok(sent() > 5_000_000, "frames are counted with their headers");
});

test("a missed low event costs one look, not the message", async () => {
  const { channel, clock, lane, dead } = laneOnFakes();
  lane.send(new Uint8Array(3_000_000));
  for (let turn = 0; turn < 10; turn++) {
    channel.drain(HIGH_WATER_BYTES, false);
    await clock.pass(CHANNEL_POLL_MS);
  }
  assert.deepEqual(arrivals(channel), [3_000_000]);
  assert.deepEqual(dead, []);
});

test("messages keep their order, and none is lost while the channel is full", () => {
  const { channel, lane } = laneOnFakes();
  const lengths = [2_000_000, 10, 0, 700_000, 5];
  for (const length of lengths) lane.send(new Uint8Array(length));
  while (channel.bufferedAmount) channel.drain(1_000_000);
  assert.deepEqual(arrivals(channel), lengths);
});

test("what is sent before the channel opens goes when it does", () => {
  const { channel, lane } = laneOnFakes();
  channel.readyState = "connecting";
  lane.send(new Uint8Array(10));
  assert.equal(channel.sent.length, 0);
  channel.readyState = "open";
  lane.pump();
  assert.deepEqual(arrivals(channel), [10]);
});

test("a stuck channel is named, and named sound when it moves", async () => {
  const { channel, clock, lane, stuck, dead } = laneOnFakes();
  lane.send(new Uint8Array(3_000_000));
  await clock.pass(CHANNEL_STUCK_MS - 1);
  assert.deepEqual(stuck, []);
  await clock.pass(CHANNEL_POLL_MS);
  assert.equal(stuck.length, 1);
  assert.match(stuck[0] ?? "", /bulk channel has not moved for 15 s, with \d+ bytes waiting/);
  channel.drain(100);
  await clock.pass(CHANNEL_POLL_MS);
  assert.equal(stuck[1], null);
  assert.deepEqual(dead, []);
});

test("a channel that stays stuck is given up", async () => {
  const { clock, lane, dead } = laneOnFakes();
  lane.send(new Uint8Array(3_000_000));
  await clock.pass(CHANNEL_DEAD_MS + CHANNEL_POLL_MS);
  assert.match(dead[0], /has not moved for 45 s/);
});

test("an idle channel is never stuck, and keeps no timer", async () => {
  const { channel, clock, lane, stuck } = laneOnFakes();
  lane.send(new Uint8Array(10));
  channel.drain(1000, false);
  await clock.pass(CHANNEL_POLL_MS);
  assert.equal(clock.pending, 0);
  await clock.pass(10 * CHANNEL_DEAD_MS);
  lane.send(new Uint8Array(10));
  await clock.pass(CHANNEL_POLL_MS);
  assert.deepEqual(stuck, []);
});

test("a channel that throws is dead, with the reason", () => {
  const { channel, lane, dead } = laneOnFakes();
  channel.send = () => {
    throw new Error("OperationError: queue is full");
  };
  lane.send(new Uint8Array(10));
  assert.match(dead[0], /bulk channel took no more data.*queue is full/);
});

test("close frees the queue and the timer", () => {
  const { channel, clock, lane } = laneOnFakes();
  lane.send(new Uint8Array(3_000_000));
  lane.close();
  assert.equal(lane.queuedBytes, 0);
  assert.equal(clock.pending, 0);
  assert.equal(channel.onbufferedamountlow, null);
  const { length } = channel.sent;
  lane.pump();
  assert.equal(channel.sent.length, length);
});
