/** The state on its way: asked for by who is behind, exported by who has it. */

import { FETCH_RETRY_MS } from "../limits.js";

/** @typedef {import("./codec.js").Message} Message */
/** @typedef {import("./session.js").Session} Session */

export class Transfer {
  /** Whom we asked, and when. @type {{from: string, sinceMs: number} | null} */
  asked = null;
  /** Who asked us; true: config and tokens too. @type {Map<string, boolean>} */
  #askers = new Map();
  /** The last export. @type {{step: number, bytes: Uint8Array} | null} */
  #exported = null;
  /** A state that came while the host was busy. @type {Message | null} */
  #arrived = null;

  /** @param {Session} session */
  constructor(session) {
    this.session = session;
  }

  /** Ask for the state, unless that was done and may still be answered. @param {string} from */
  ask(from) {
    const { session } = this;
    if (session.job?.kind === "import" || this.#arrived || !session.alive(from)) return;
    if (this.awaits() && this.asked?.from === from) return;
    this.asked = { from, sinceMs: session.nowMs };
    session.send([from], "fetch", { full: session.config === null });
  }

  /** Whether an answer may still come. */
  awaits() {
    const { session, asked } = this;
    return asked !== null && session.alive(asked.from) && session.nowMs - asked.sinceMs < FETCH_RETRY_MS;
  }

  /** A link came back or went: what was asked over it is lost. @param {string} id */
  linkChanged(id) {
    if (this.asked?.from === id) this.asked = null;
    this.#askers.delete(id);
  }

  advance() {
    const { session } = this;
    if (session.job !== null) return false;
    if (this.#arrived !== null) return this.#import(this.#arrived);
    const behind = session.isMember() && (session.hash === null || session.step < session.base);
    if (behind && session.view) this.ask(session.view.leader);
    if (this.#askers.size === 0 || session.hash === null) return false;
    if (this.#exported?.step === session.step) this.#answer(this.#exported.bytes);
    else session.begin("export", { type: "export" });
    return true;
  }

  /** @param {Message} message */
  fetch({ sender, full }) {
    if (this.session.config !== null) this.#askers.set(sender, full);
  }

  /** @param {Uint8Array} bytes */
  exported(bytes) {
    this.#exported = { step: this.session.step, bytes };
    this.#answer(bytes);
  }

  /** @param {Uint8Array} bytes */
  #answer(bytes) {
    const { config, tokens } = this.session;
    for (const [id, full] of this.#askers) {
      if (full) this.session.send([id], "welcome", { config, tokens });
      this.session.send([id], "state", { bytes });
    }
    this.#askers.clear();
  }

  /** @param {Message} message */
  welcome({ sender, config, tokens }) {
    if (this.asked?.from === sender && this.session.config === null) {
      Object.assign(this.session, { config, tokens });
    }
  }

  /** @param {Message} message */
  state(message) {
    const { session, asked } = this;
    if (asked?.from !== message.sender || session.config === null) return;
    this.asked = null;
    this.#arrived = message;
  }

  /** @param {Message} message */
  #import(message) {
    this.#arrived = null;
    const { session } = this;
    const { step, hash, sender, bytes } = message;
    const news = session.hash === null || step > session.step;
    if (news && hash !== null) session.import(bytes, { step, hash, from: sender });
    return true;
  }

  applied() {
    this.#exported = null;
  }
}
