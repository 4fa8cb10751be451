/** A link to every member of the group; whole messages between them. */

import { systemClock } from "./clock.js";
import { Peer } from "./peer.js";
import { readSignal } from "./signals.js";

/** @typedef {import("./clock.js").Clock} Clock */
/** @typedef {import("./signalling.js").Signalling} Signalling */

/**
 * @typedef {object} MeshOptions
 * @property {Pick<Signalling, "on" | "signal">} signalling
 * @property {(configuration: RTCConfiguration) => RTCPeerConnection} connect
 * @property {(id: string, message: ArrayBuffer) => void} onMessage
 * @property {(id: string, state: "up" | "down" | "trouble", reason: string) => void} onLink
 * @property {Clock} [clock]
 */

/**
 * @typedef {object} LinkView
 * @property {string} id
 * @property {string} name
 * @property {"connecting" | "up" | "trouble" | "down"} state
 * @property {string | null} path ICE candidate type in use: "host", "srflx", "prflx" or "relay"
 * @property {number} sentBytes on this link
 * @property {number} receivedBytes
 * @property {number} sentBytesPerS over the last second or two
 * @property {number} receivedBytesPerS
 */

export class Mesh {
  #options;
  #clock;
  #id = "";
  /** @type {RTCIceServer[]} */
  #ice = [];
  /** @type {Map<string, {name: string, peer: Peer}>} */
  #peers = new Map();
  #lastLink = 0;
  /** @type {Set<string>} */
  #dropNext = new Set();
  /** @type {(() => void)[]} */
  #listening;

  /** @param {MeshOptions} options; made before the signalling connects */
  constructor(options) {
    const { signalling } = options;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#listening = [
      signalling.on("welcome", (welcome) => this.#welcomed(welcome)),
      signalling.on("joined", ({ id, name }) => this.#met(id, name)),
      signalling.on("left", ({ id }) => this.#left(id)),
      signalling.on("renamed", ({ id, name }) => {
        const known = this.#peers.get(id);
        if (known) known.name = name;
      }),
      signalling.on("signal", ({ from, data }) => this.#signalCame(from, data)),
    ];
  }

  /**
   * @param {string} id
   * @param {Uint8Array} message not to be changed afterwards
   * @returns {boolean} false when there is no link, or too much waits for that device already
   */
  send(id, message) {
    const peer = this.#peers.get(id)?.peer;
    if (peer?.up && this.#dropNext.delete(id)) return true;
    return peer?.send(message) ?? false;
  }

  /** @returns {LinkView[]} */
  links() {
    return [...this.#peers].map(
      ([
        id,
        {
          name,
          peer: { link },
        },
      ]) => ({
        id,
        name,
        state: !link || link.state === "closed" ? "down" : link.state,
        path: link?.path ?? null,
        sentBytes: link?.sent.bytes ?? 0,
        receivedBytes: link?.received.bytes ?? 0,
        sentBytesPerS: link?.sent.bytesPerS ?? 0,
        receivedBytesPerS: link?.received.bytesPerS ?? 0,
      }),
    );
  }

  close() {
    for (const stop of this.#listening) stop();
    for (const id of [...this.#peers.keys()]) this.#remove(id);
  }

  /** Faults for tests. */
  faults = {
    /** Breaks the link to a device, and refuses new ones until released. @param {string} id */
    breakLink: (id) => this.#peers.get(id)?.peer.hold(),
    /** @param {string} id */
    releaseLink: (id) => this.#peers.get(id)?.peer.release(),
    /** Loses the next message to a device, as if sent. @param {string} id */
    dropNext: (id) => this.#dropNext.add(id),
  };

  /** @param {import("./signalling.js").Welcome} welcome */
  #welcomed({ id, members, ice }) {
    this.#ice = ice;
    const present = new Set(members.map((member) => member.id));
    for (const peerId of [...this.#peers.keys()]) {
      if (id !== this.#id) this.#remove(peerId);
      else if (!present.has(peerId)) this.#left(peerId);
    }
    this.#id = id;
    for (const member of members) this.#met(member.id, member.name);
  }

  /** @param {string} id @param {string} name */
  #met(id, name) {
    if (id === this.#id) return;
    const known = this.#peers.get(id);
    if (known) {
      known.name = name;
      known.peer.present();
      return;
    }
    const peer = new Peer({
      offers: this.#id < id,
      clock: this.#clock,
      connect: () => this.#options.connect({ iceServers: this.#ice }),
      nextLink: () => {
        this.#lastLink += 1;
        return this.#lastLink;
      },
      signal: (signal) => this.#options.signalling.signal(id, signal),
      onMessage: (message) => this.#options.onMessage(id, message),
      onLink: (state, reason) => this.#options.onLink(id, state, reason),
    });
    this.#peers.set(id, { name, peer });
  }

  /**
   * The server has lost a device. That may be its line to the server only, or the server began anew: a link that
   * carries something goes on.
   * @param {string} id
   */
  #left(id) {
    this.#peers.get(id)?.peer.leave(() => this.#remove(id));
  }

  /** @param {string} id */
  #remove(id) {
    this.#peers.get(id)?.peer.close();
    this.#peers.delete(id);
    this.#dropNext.delete(id);
  }

  /** @param {string} from @param {unknown} data */
  #signalCame(from, data) {
    const peer = this.#peers.get(from)?.peer;
    if (!peer) return;
    let signal;
    try {
      signal = readSignal(data);
    } catch (error) {
      if (!peer.up) this.#options.onLink(from, "down", `${error}`);
      return;
    }
    peer.receive(signal);
  }
}
