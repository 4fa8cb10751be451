/** Messages as they come in: refused, set aside, or handed to the part that they are for. */

import { DaisyError, ProtocolError } from "../errors.js";
import { decode } from "./codec.js";
import { minority } from "./round.js";

/** @typedef {import("./codec.js").Message} Message */
/** @typedef {import("./session.js").Session} Session */

/** What a device still answers when its run is over. */
const AFTERWARDS = ["fetch", "repair", "held"];

export class Inbox {
  /** @param {Session} session */
  constructor(session) {
    this.session = session;
  }

  /** @param {string} id @param {Uint8Array} bytes */
  message(id, bytes) {
    const { session } = this;
    let message;
    try {
      message = decode(bytes);
      if (message.sender !== id)
        throw new ProtocolError(`a message of ${id} says that it is of ${message.sender}.`);
    } catch (error) {
      if (!(error instanceof DaisyError)) throw error;
      return session.report({ kind: "refused", id, reason: error.message });
    }
    if (!session.links.peers.get(id)?.up) return;
    if (message.run === session.run && !session.saw(message.epoch)) {
      return session.report({
        kind: "refused",
        id,
        reason: `epoch ${message.epoch} is far ahead of the run's.`,
      });
    }
    session.links.said(message, session.nowMs);
    if (message.kind === "hello") return this.#hello(message);
    this.compareHash(id);
    if (message.kind === "status") return this.#status(message);
    if (message.kind === "join") return this.#join(message);
    if (message.run !== session.run) return session.membership.ofAnotherRun(message);
    this.#ofThisRun(message);
  }

  /** @param {Message} message */
  #hello({ sender, heard, reply }) {
    const { session } = this;
    session.links.hello(sender, heard);
    if (reply) session.hello(sender);
    session.reachChanged();
  }

  /** @param {Message} message */
  #status({ sender, run, reply, promised }) {
    const { session } = this;
    if (reply) session.tell([sender], false);
    if (run === session.run) session.saw(promised);
    session.membership.noticed(sender);
  }

  /** @param {Message} message */
  #join({ sender, into }) {
    if (into === this.session.run) this.session.election.join(sender);
  }

  /** @param {Message} message */
  #ofThisRun(message) {
    const { session } = this;
    const { round, election, transfer, membership, phase } = session;
    if (phase === "halted") return;
    if (session.isOver() && !AFTERWARDS.includes(message.kind)) return session.tell([message.sender], false);
    /** @type {Record<string, () => void>} */
    const takers = {
      prepare: () => election.prepare(message),
      promise: () => election.promiseMessage(message),
      refuse: () => election.refused(message),
      view: () => election.view(message),
      accepted: () => election.accepted(message),
      leave: () => election.leave(message),
      fetch: () => transfer.fetch(message),
      welcome: () => transfer.welcome(message),
      state: () => transfer.state(message),
      gradient: () => round.gradient(message),
      held: () => round.heldMessage(message),
      commit: () => round.commit(message),
      repair: () => round.repairMessage(message),
      stop: () => membership.stopped(),
      halt: () => membership.halted(message),
    };
    takers[message.kind]();
  }

  /** Compare with what everyone last said, for the step that was reached just now. */
  compareAll() {
    for (const id of this.session.links.peers.keys()) this.compareHash(id);
  }

  /** Two states at one step stop the run everywhere. @param {string} id */
  compareHash(id) {
    const { session } = this;
    const said = session.links.status(id);
    if (!said || !session.inRun() || session.hash === null || !this.differs(said)) return;
    /** @type {[string, string][]} */
    const hashes = [[session.id, session.hash]];
    for (const [other, { status }] of session.links.peers) {
      if (status?.run === session.run && status.step === session.step && status.hash) {
        hashes.push([other, status.hash]);
      }
    }
    session.halt(`the states after step ${session.step} differ`, minority(hashes));
  }

  /** @param {import("./links.js").Status} said */
  differs({ run, step, hash }) {
    const { session } = this;
    return run === session.run && step === session.step && hash !== null && hash !== session.hash;
  }
}
