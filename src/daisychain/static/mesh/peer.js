/** One other device: a link to it, and a new one whenever that ends, for as long as it is a member. */

import {
  ABSENT_PATIENCE_MS,
  COLLECTION_PRESSURE_BYTES,
  ICE_PATIENCE_MS,
  LINK_DEADLINE_MS,
  LINK_RETRY_MS,
  LINK_SOUND_MS,
} from "../limits.js";
import { retryWaitMs } from "./clock.js";
import { Link } from "./link.js";

/** @typedef {import("./clock.js").Clock} Clock */
/** @typedef {import("./signals.js").Signal} Signal */

/**
 * @typedef {object} PeerOptions
 * @property {boolean} offers whether this side makes the links; the other side asks for them
 * @property {Clock} clock
 * @property {() => RTCPeerConnection} connect
 * @property {() => number} nextLink number larger than all before on this page
 * @property {(signal: Signal) => void} signal
 * @property {(message: ArrayBuffer) => void} onMessage
 * @property {(state: "up" | "down" | "trouble", reason: string) => void} onLink
 */

export class Peer {
  #options;
  /** @type {Link | null} */
  #link = null;
  #failures = 0;
  #begunAtMs = 0;
  /** @type {number | null} since when the link has been up */
  #upAtMs = null;
  /** @type {any} */
  #timer = null;
  #closed = false;
  #held = false;
  /** The newest link that was refused while held. */
  #refused = 0;
  /** @type {(() => void) | null} set while the other device is no member */
  #gone = null;
  /** @type {any} */
  #absence = null;

  /** @param {PeerOptions} options */
  constructor(options) {
    this.#options = options;
    this.#begin(0);
  }

  /** @returns {Link | null} */
  get link() {
    return this.#link;
  }

  get up() {
    return this.#upAtMs !== null;
  }

  /** @param {Uint8Array} message */
  send(message) {
    return this.#link?.send(message) ?? false;
  }

  /** @param {Signal} signal */
  receive(signal) {
    if (this.#closed) return;
    if (this.#held) {
      if ("link" in signal) this.#refused = signal.link;
      return;
    }
    if ("again" in signal) this.#againAsked(signal.again);
    else if (signal.link === this.#link?.number) this.#link.receive(signal);
    else if ("description" in signal && signal.description.type === "offer" && !this.#options.offers) {
      // The other side has begun a new link, so it has given up the one that stands here.
      if (this.#replace(signal.link, true)) this.#link?.receive(signal);
    }
  }

  /** The other device is a member (again): a link that is not up is made anew at once. */
  present() {
    this.#gone = null;
    this.#options.clock.clearTimeout(this.#absence);
    if (this.#closed || this.#held || this.up) return;
    this.#failures = 0;
    this.#begin(this.#refused);
    this.#refused = 0;
  }

  /**
   * The other device is no member any more: a link that works stays until it fails or falls silent.
   * @param {() => void} gone called then
   */
  leave(gone) {
    this.#gone = gone;
    this.#options.clock.clearTimeout(this.#absence);
    if (this.#link?.state === "up") this.#listen(this.#link.received.bytes);
    else gone();
  }

  /** @param {number} heardBytes */
  #listen(heardBytes) {
    this.#absence = this.#options.clock.setTimeout(() => {
      const bytes = this.#link?.received.bytes ?? heardBytes;
      if (bytes === heardBytes) this.#gone?.();
      else this.#listen(bytes);
    }, ABSENT_PATIENCE_MS);
  }

  /** For tests: ends the link and refuses new ones until `release`. */
  hold() {
    this.#held = true;
    this.#drop("the link was broken by a test");
  }

  release() {
    this.#held = false;
    this.present();
  }

  close() {
    this.#closed = true;
    this.#options.clock.clearTimeout(this.#absence);
    this.#drop("the device has left");
  }

  /** @param {number} replaced number of the link that ended, 0 for none */
  #begin(replaced) {
    const { offers, clock, nextLink, signal } = this.#options;
    clock.clearTimeout(this.#timer);
    if (offers) {
      this.#replace(nextLink(), false);
      return;
    }
    signal({ again: replaced });
    this.#timer = clock.setTimeout(
      () => this.#ended("the other device does not begin a link; reload the page there if this stays"),
      LINK_DEADLINE_MS + retryWaitMs(this.#failures, LINK_RETRY_MS, clock),
    );
  }

  /**
   * @param {number} number @param {boolean} polite
   * @returns {boolean} whether there is a new link
   */
  #replace(number, polite) {
    const { connect, clock, signal, onMessage, onLink } = this.#options;
    this.#drop("the other device began a new link");
    this.#begunAtMs = clock.now();
    let connection;
    try {
      connection = connect();
    } catch (error) {
      pressForCollection();
      this.#ended(`this browser makes no connection: ${error}`);
      return false;
    }
    this.#link = new Link({
      number,
      polite,
      connection,
      clock,
      signal,
      onMessage,
      onState: (state, reason) => {
        if (state === "up") this.#upAtMs ??= clock.now();
        onLink(state, reason);
        if (state === "trouble") this.#gone?.();
      },
      onEnd: (reason) => this.#ended(reason),
    });
    return true;
  }

  /** @param {number} number that the other device has lost, 0 if it has none */
  #againAsked(number) {
    const { offers, clock } = this.#options;
    // The other side, when it asked, may not have seen the offer of a link that has just begun.
    const young = !this.up && clock.now() - this.#begunAtMs < ICE_PATIENCE_MS;
    const lost = number === 0 ? !young : number === this.#link?.number;
    if (offers && (!this.#link || lost)) this.#begin(0);
  }

  /** @param {string} reason */
  #ended(reason) {
    const { clock, onLink } = this.#options;
    const number = this.#link?.number ?? 0;
    const sound = this.#upAtMs !== null && clock.now() - this.#upAtMs >= LINK_SOUND_MS;
    this.#failures = sound ? 0 : this.#failures + 1;
    this.#forget();
    onLink("down", reason);
    if (this.#closed || this.#held) return; // onLink may have closed it
    if (this.#gone) {
      this.#gone();
      return;
    }
    if (this.#failures === 0) {
      this.#begin(number);
      return;
    }
    const waitMs = retryWaitMs(this.#failures, LINK_RETRY_MS, clock);
    this.#timer = clock.setTimeout(() => this.#begin(number), waitMs);
  }

  /** @param {string} reason */
  #drop(reason) {
    const wasUp = this.up;
    this.#forget();
    if (wasUp) this.#options.onLink("down", reason);
  }

  #forget() {
    this.#options.clock.clearTimeout(this.#timer);
    this.#link?.close();
    this.#link = null;
    this.#upAtMs = null;
  }
}

/**
 * Chrome counts a closed connection, of at most 500 a page, until it is collected, and a page that does little
 * collects nothing. Memory that is taken and dropped makes it; the next try then succeeds.
 */
function pressForCollection() {
  try {
    new ArrayBuffer(COLLECTION_PRESSURE_BYTES);
  } catch {
    // Memory is short already: the browser collects by itself.
  }
}
