/** Bytes counted, and bytes a second over the last one to two seconds. */

const WINDOW_MS = 1000;

export class Meter {
  #clock;
  #sinceMs;
  #windowBytes = 0;
  #lastBytesPerS = 0;
  bytes = 0;

  /** @param {import("./clock.js").Clock} clock */
  constructor(clock) {
    this.#clock = clock;
    this.#sinceMs = clock.now();
  }

  /** @param {number} bytes */
  add(bytes) {
    this.#turn();
    this.bytes += bytes;
    this.#windowBytes += bytes;
  }

  get bytesPerS() {
    this.#turn();
    return this.#lastBytesPerS;
  }

  #turn() {
    const passedMs = this.#clock.now() - this.#sinceMs;
    if (passedMs < WINDOW_MS) return;
    this.#lastBytesPerS = (this.#windowBytes * 1000) / passedMs;
    this.#windowBytes = 0;
    this.#sinceMs += passedMs;
  }
}
