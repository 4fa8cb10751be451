/** Who can be reached: channels, the both-way hello, the last sign of life, and what each device last said of itself. */

import { LINK_GRACE_MS, SILENCE_MS } from "../limits.js";

/** What a device says of itself; `links` are those it can reach.
 * @typedef {{run: string | null, epoch: number, step: number, hash: string | null, phase: import("./types.js").Phase,
 *   leader: string | null, promised: number, links: string[], backend: string}} Status */
/** @typedef {{up: boolean, hears: boolean, heardUs: boolean, heardMs: number, brokenMs: number,
 *   status: Status | null}} Peer `hears`: we heard it since the channel came up; `heardUs`: it says that it heard us */

/** @type {Omit<Status, "run" | "step" | "hash">} */
const NOTHING_SAID = { epoch: 0, phase: "idle", leader: null, promised: 0, links: [], backend: "" };

export class Links {
  /** @type {Map<string, Peer>} */
  peers = new Map();

  /** @param {string} id @param {number} nowMs */
  up(id, nowMs) {
    const status = this.peers.get(id)?.status ?? null;
    this.peers.set(id, { up: true, hears: false, heardUs: false, heardMs: nowMs, brokenMs: nowMs, status });
  }

  /** @param {string} id @param {number} nowMs */
  down(id, nowMs) {
    const peer = this.peers.get(id);
    if (peer) Object.assign(peer, { up: false, hears: false, heardUs: false, brokenMs: nowMs });
  }

  /** A hello. @param {string} id @param {boolean} heardUs */
  hello(id, heardUs) {
    Object.assign(/** @type {Peer} */ (this.peers.get(id)), { hears: true, heardUs });
  }

  /**
   * What a message says of its sender.
   * @param {import("./codec.js").Message} message @param {number} nowMs
   */
  said(message, nowMs) {
    const peer = /** @type {Peer} */ (this.peers.get(message.sender));
    peer.heardMs = nowMs;
    const { run, step, hash } = message;
    if (message.kind === "status") {
      const { epoch, phase, leader, promised, links, backend } = message;
      peer.status = { run, epoch, step, hash, phase, leader, promised, links, backend };
    } else if (peer.status) Object.assign(peer.status, { run, step, hash });
    else peer.status = { ...NOTHING_SAID, run, step, hash };
  }

  /** Heard in both directions since the channel came up. @param {string} id */
  mutual(id) {
    const peer = this.peers.get(id);
    return peer?.up === true && peer.hears && peer.heardUs;
  }

  /** @param {string} id @param {number} nowMs */
  alive(id, nowMs) {
    return this.mutual(id) && nowMs - /** @type {Peer} */ (this.peers.get(id)).heardMs <= SILENCE_MS;
  }

  /**
   * Given up: silent, or broken for longer than a link may take to come back.
   * @param {string} id @param {number} nowMs
   */
  gone(id, nowMs) {
    const peer = this.peers.get(id);
    if (!peer) return true;
    return this.mutual(id) ? nowMs - peer.heardMs > SILENCE_MS : nowMs - peer.brokenMs > LINK_GRACE_MS;
  }

  /** @param {number} nowMs */
  aliveIds(nowMs) {
    return [...this.peers.keys()].filter((id) => this.alive(id, nowMs)).sort();
  }

  /** @param {string} id */
  status(id) {
    return this.peers.get(id)?.status ?? null;
  }
}
