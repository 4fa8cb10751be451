/** One data channel with its queue: frames go out only as fast as the other side takes them. */

import {
  CHANNEL_DEAD_MS,
  CHANNEL_POLL_MS,
  CHANNEL_STUCK_MS,
  HIGH_WATER_BYTES,
  LOW_WATER_BYTES,
} from "../limits.js";
import { split } from "./frames.js";

/** @typedef {import("./clock.js").Clock} Clock */

/**
 * @typedef {object} LaneOptions
 * @property {RTCDataChannel} channel
 * @property {Clock} clock
 * @property {() => number} frameBytes largest frame, known once the channel is open
 * @property {() => number} nextNumber of a message
 * @property {(bytes: number) => void} onSent frame bytes handed to the channel
 * @property {(reason: string | null) => void} onStuck with a reason when nothing moves, with null when it does
 * @property {(reason: string) => void} onDead the channel cannot be used any more
 */

export class Lane {
  #options;
  #channel;
  /** @type {Uint8Array[]} */
  #queue = [];
  /** @type {Generator<Uint8Array<ArrayBuffer>, void> | null} frames of the queue's first message */
  #frames = null;
  /** @type {Uint8Array<ArrayBuffer> | null} */
  #frame = null;
  #queuedBytes = 0;
  /** @type {any} */
  #timer = null;
  #movedAtMs = 0;
  #lastBuffered = 0;
  #stuck = false;
  #closed = false;

  /** @param {LaneOptions} options */
  constructor(options) {
    this.#options = options;
    this.#channel = options.channel;
    this.#channel.bufferedAmountLowThreshold = LOW_WATER_BYTES;
    this.#channel.onbufferedamountlow = () => this.pump();
  }

  /** Bytes of messages that have not been handed to the channel whole. */
  get queuedBytes() {
    return this.#queuedBytes;
  }

  /** @param {Uint8Array} message */
  send(message) {
    this.#queue.push(message);
    this.#queuedBytes += message.length;
    this.pump();
  }

  close() {
    this.#closed = true;
    this.#queue = [];
    this.#frames = this.#frame = null;
    this.#queuedBytes = 0;
    this.#options.clock.clearTimeout(this.#timer);
    this.#channel.onbufferedamountlow = null;
  }

  /** Hands over what the channel takes now; harmless at any time. */
  pump() {
    if (this.#closed || this.#channel.readyState !== "open") return;
    try {
      for (;;) {
        this.#frame ??= this.#nextFrame();
        if (!this.#frame) break;
        if (this.#channel.bufferedAmount + this.#frame.length > HIGH_WATER_BYTES) break;
        this.#channel.send(this.#frame);
        this.#options.onSent(this.#frame.length);
        this.#frame = null;
        this.#moved();
      }
    } catch (error) {
      this.#options.onDead(`the ${this.#channel.label} channel took no more data: ${error}`);
      return;
    }
    this.#watch();
  }

  #nextFrame() {
    while (this.#queue.length) {
      this.#frames ??= split(this.#queue[0], this.#options.nextNumber(), this.#options.frameBytes());
      const { value } = this.#frames.next();
      if (value) return value;
      this.#frames = null;
      const message = this.#queue.shift();
      this.#queuedBytes -= message?.length ?? 0;
    }
    return null;
  }

  #moved() {
    this.#movedAtMs = this.#options.clock.now();
    this.#lastBuffered = this.#channel.bufferedAmount;
    if (!this.#stuck) return;
    this.#stuck = false;
    this.#options.onStuck(null);
  }

  /** While something waits: looks again, in case the low event was missed or the channel is stuck. */
  #watch() {
    this.#options.clock.clearTimeout(this.#timer);
    if (!this.#frame && this.#channel.bufferedAmount === 0) {
      if (this.#stuck) this.#moved();
      return;
    }
    this.#timer = this.#options.clock.setTimeout(() => this.#look(), CHANNEL_POLL_MS);
  }

  #look() {
    if (this.#channel.bufferedAmount !== this.#lastBuffered) this.#moved();
    const stillMs = this.#options.clock.now() - this.#movedAtMs;
    const seconds = (stillMs / 1000).toFixed(0);
    const what = `the ${this.#channel.label} channel has not moved for ${seconds} s`;
    if (stillMs >= CHANNEL_DEAD_MS) {
      this.#options.onDead(what);
      return;
    }
    if (stillMs >= CHANNEL_STUCK_MS && !this.#stuck) {
      this.#stuck = true;
      this.#options.onStuck(`${what}, with ${this.#channel.bufferedAmount} bytes waiting`);
    }
    this.pump();
  }
}
