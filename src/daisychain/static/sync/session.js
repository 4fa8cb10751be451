/**
 * The group's protocol as a state machine without clock, network or randomness (docs/PROTOCOL.md): events go in,
 * actions come out (types.js). What belongs together is in its parts: round.js (a step), election.js (a change of
 * view), transfer.js (the state), links.js (who can be reached), membership.js (coming in and giving up).
 */

import { RETRY_MS, SYNC_TEXT_CHARACTERS, TICK_COUNTS_MS } from "../limits.js";
import { max, min } from "../numerics/numbers.js";
import { mix } from "../numerics/roster.js";
import { encode } from "./codec.js";
import { Election } from "./election.js";
import { factsOf } from "./facts.js";
import { Inbox } from "./inbox.js";
import { Links } from "./links.js";
import { Membership } from "./membership.js";
import { Memory } from "./memory.js";
import { Round } from "./round.js";
import { Transfer } from "./transfer.js";

/** @typedef {import("./types.js").SessionEvent} SessionEvent */
/** @typedef {import("./types.js").Action} Action */
/** @typedef {import("./types.js").View} View */
/** @typedef {import("./view.js").Content} Content */

export class Session extends Memory {
  /** The session's own clock: a freeze hardly counts. */
  nowMs = 0;
  links = new Links();
  inbox = new Inbox(this);
  round = new Round(this);
  election = new Election(this);
  transfer = new Transfer(this);
  membership = new Membership(this);
  /** Devices that kept a step waiting beyond all patience, until their link is made anew. @type {Set<string>} */
  overdue = new Set();
  #jobs = 0;
  #draws = 0;
  #tickMs;
  #retriedMs = 0;
  #reach = "";
  /** @type {Action[]} */
  #actions = [];

  /**
   * @param {{id: string, nowMs: number, seed: number, backend?: string}} options `seed`: for waits, another on every
   *   device; `backend`: what the device computes with, for the others' pages
   */
  constructor({ id, nowMs, seed, backend = "" }) {
    super();
    this.id = id;
    this.backend = backend;
    this.seed = seed;
    this.#tickMs = nowMs;
  }

  /** Be in this run, knowing nothing of it. @param {string | null} run */
  forget(run) {
    Object.assign(this, new Memory(), { run });
    this.round = new Round(this);
    this.election = new Election(this);
    this.transfer = new Transfer(this);
    this.membership = new Membership(this);
  }

  get view() {
    return this.trail.at(-1) ?? null;
  }

  get epoch() {
    return this.view?.epoch ?? 0;
  }

  /**
   * Take in an event; what the host has to do now, in order.
   * @param {SessionEvent} event
   * @returns {Action[]}
   */
  handle(event) {
    if (this.phase !== "left") {
      this.#take(event);
      while (this.#advance());
    }
    const actions = this.#actions;
    this.#actions = [];
    return actions;
  }

  #advance() {
    if (!this.inRun()) return this.run !== null && this.phase !== "halted" && this.transfer.advance();
    if (this.#isDone()) {
      this.end("finished", `all ${this.step} steps are done`);
      return true;
    }
    return this.election.advance() || this.round.advance() || this.transfer.advance();
  }

  /** Nothing is left to compute: after the last step, or where a run only hands round a finished model. */
  #isDone() {
    const steps = this.config?.steps ?? 0;
    return this.hash !== null && this.epoch > 0 && this.step >= steps && this.job === null;
  }

  /** @param {SessionEvent} event */
  #take(event) {
    switch (event.type) {
      case "link_up":
        this.links.up(event.id, this.nowMs);
        this.overdue.delete(event.id);
        this.transfer.linkChanged(event.id);
        return this.hello(event.id);
      case "link_down":
        this.links.down(event.id, this.nowMs);
        this.transfer.linkChanged(event.id);
        return this.reachChanged();
      case "message":
        return this.inbox.message(event.id, event.bytes);
      case "tick":
        return this.#tick(event.nowMs);
      case "start":
        return this.membership.start(event);
      case "computed":
        return this.round.computed(event);
      case "fault":
        return this.membership.fault(event.reason);
      case "stop":
        return this.membership.stop();
      case "leave":
        return this.membership.leave();
      default:
        return this.#jobDone(event);
    }
  }

  /** @param {Extract<SessionEvent, {type: "applied" | "exported" | "imported"}>} event */
  #jobDone(event) {
    const { job } = this;
    if (job?.job !== event.job) return;
    this.job = null;
    if (event.type === "exported") this.transfer.exported(event.bytes);
    else if (event.type === "applied") this.#applied(event.hash);
    else this.membership.imported(event, job.expected);
  }

  /** @param {string} hash */
  #applied(hash) {
    const last = this.round.applied(hash);
    this.membership.going();
    if (last && !this.#isDone()) this.end("stopped", `stopped after step ${this.step}`);
    this.inbox.compareAll();
  }

  /** @param {number} nowMs */
  #tick(nowMs) {
    this.nowMs += max(0, min(nowMs - this.#tickMs, TICK_COUNTS_MS));
    this.#tickMs = nowMs;
    this.reachChanged();
    if (this.nowMs - this.#retriedMs >= RETRY_MS) {
      this.#retriedMs = this.nowMs;
      const up = [...this.links.peers.keys()].filter((id) => this.links.peers.get(id)?.up);
      for (const id of up) if (!this.links.mutual(id)) this.hello(id);
      this.tell(up, true);
      if (this.inRun()) this.round.retry();
      this.membership.retry();
    }
    if (this.inRun()) this.election.tick();
    this.membership.tick();
  }

  /** Tell the others at once when who can be reached has changed. */
  reachChanged() {
    const reach = this.aliveIds();
    if (reach.join() === this.#reach) return;
    this.#reach = reach.join();
    this.tell(reach, false);
  }

  /** In a run that may go on. */
  inRun() {
    return this.trail.length > 0 && ["starting", "running", "waiting", "quorum"].includes(this.phase);
  }

  /** The run came to its end here. */
  isOver() {
    return this.phase === "finished" || this.phase === "stopped";
  }

  isMember() {
    return this.inRun() && this.view?.roster.includes(this.id) === true;
  }

  leads() {
    return this.inRun() && this.view?.leader === this.id;
  }

  /** Takes part in its view: a member with the state that has promised no other. */
  settled() {
    const importing = this.job?.kind === "import" || this.job?.kind === "apply";
    return (
      this.isMember() &&
      this.hash !== null &&
      this.epoch > 0 &&
      this.promised.epoch === this.epoch &&
      !importing
    );
  }

  others() {
    return (this.view?.roster ?? []).filter((id) => id !== this.id);
  }

  /** @param {string} id */
  alive(id) {
    return this.links.alive(id, this.nowMs) && !this.election.left.has(id);
  }

  aliveIds() {
    return this.links.aliveIds(this.nowMs).filter((id) => !this.election.left.has(id));
  }

  /** Given up as a member. @param {string} id */
  gone(id) {
    const status = this.links.status(id);
    const elsewhere = status !== null && status.run !== null && status.run !== this.run;
    const over = status !== null && ["finished", "stopped", "halted"].includes(status.phase);
    return (
      this.links.gone(id, this.nowMs) ||
      this.election.left.has(id) ||
      this.overdue.has(id) ||
      elsewhere ||
      over
    );
  }

  /** @param {number} epoch @param {string} to */
  promise(epoch, to) {
    this.promised = { epoch, to, sinceMs: this.nowMs };
    this.round.computing = null;
  }

  /** Go over to a view. @param {{view: View, trail: View[], base: number, adopt: Content | null}} accepted */
  accept({ view, trail, base, adopt }) {
    Object.assign(this, { trail: [...trail], base, adopt });
    this.round.proposed();
    if (!this.inRun()) this.phase = "starting";
    this.election.accepting();
    this.report({ kind: "roster", ...view });
    this.tell(this.aliveIds(), false);
  }

  /** The view at hand has committed a step: no earlier one counts any more. */
  committed() {
    this.trail.splice(0, this.trail.length - 1);
  }

  nextJob() {
    this.#jobs += 1;
    return this.#jobs;
  }

  /**
   * @param {"apply" | "export" | "import"} kind
   * @param {Record<string, any>} action
   * @param {import("./memory.js").Expected} [expected]
   */
  begin(kind, action, expected) {
    this.job = { job: this.nextJob(), kind, expected };
    this.act(/** @type {Action} */ ({ ...action, job: this.job.job }));
  }

  /** @param {Uint8Array | null} bytes @param {import("./memory.js").Expected} [expected] */
  import(bytes, expected) {
    const { run, config, tokens } = this;
    this.round.computing = null;
    this.begin("import", { type: "import", run, config, tokens, bytes }, expected);
  }

  /** @param {string} reason @param {string[]} culprits */
  halt(reason, culprits) {
    this.membership.halt(reason.slice(0, SYNC_TEXT_CHARACTERS), culprits);
  }

  /** @param {import("./types.js").Ending} ending @param {string} reason */
  end(ending, reason) {
    this.phase = ending;
    this.reason = reason;
    this.act({ type: "ended", ending, reason });
    this.tell(this.aliveIds(), false);
  }

  /** A number below `most`, another on every device and every time. @param {number} most */
  draw(most) {
    this.#draws += 1;
    return (mix(this.seed + this.#draws) / 2 ** 32) * most;
  }

  /** @param {Action} action */
  act(action) {
    this.#actions.push(action);
  }

  /** @param {import("./types.js").Report} report */
  report(report) {
    this.act({ type: "report", report });
  }

  /** Say whether we hear; asks back until both do. @param {string} id */
  hello(id) {
    const heard = this.links.peers.get(id)?.hears === true;
    this.send([id], "hello", { heard, reply: !this.links.mutual(id) });
  }

  /** Say who and where this device is. @param {string[]} to @param {boolean} reply whether they should, too */
  tell(to, reply) {
    const { phase, promised, backend } = this;
    const leader = this.view?.leader ?? null;
    const links = this.aliveIds();
    this.send(to, "status", { reply, phase, leader, promised: promised.epoch, links, backend });
  }

  /**
   * @param {string[]} to
   * @param {string} kind
   * @param {object} [body]
   * @param {number} [epoch]
   */
  send(to, kind, body = {}, epoch = this.epoch) {
    const up = to.filter((id) => this.links.peers.get(id)?.up);
    if (up.length === 0) return;
    const bytes = this.#encoded(kind, body, epoch);
    for (const id of up) this.act({ type: "send", to: id, bytes });
  }

  /** @param {string} kind @param {object} body @param {number} epoch */
  #encoded(kind, body, epoch) {
    const { id: sender, run, step, hash } = this;
    return encode({ kind, sender, run, epoch, step, hash }, body);
  }

  /**
   * What `leave` would send now, and to whom. A page that is closing has no time to ask: it sends the farewell that came
   * with the last actions it carried out, and carries out none after it.
   */
  farewell() {
    const to = [...this.links.peers].filter(([, peer]) => peer.up).map(([id]) => id);
    return { to, bytes: this.#encoded("leave", this.membership.lastWord(), this.epoch) };
  }

  /** What the page shows. */
  facts() {
    return factsOf(this);
  }
}
