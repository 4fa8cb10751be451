/** Coming into a run, staying outside of another, and every way of its end. */

import { BEHIND_MS, RETRY_MS, TROUBLE_MS } from "../limits.js";

/** @typedef {import("./codec.js").Message} Message */
/** @typedef {import("./links.js").Status} Status */
/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./types.js").SessionEvent} SessionEvent */

const OVER = /** @type {string[]} */ (["finished", "stopped"]);

export class Membership {
  /** Since when the run does not go on. @type {number | null} */
  #troubleMs = null;
  /** Since when others are ahead. @type {number | null} */
  #behindMs = null;
  #joinedMs = -RETRY_MS;

  /** @param {Session} session */
  constructor(session) {
    this.session = session;
  }

  /** @param {Extract<SessionEvent, {type: "start"}>} event */
  start({ run, config, tokens, state }) {
    const { session } = this;
    if (session.inRun() && session.phase !== "quorum") return;
    session.forget(run);
    Object.assign(session, { config, tokens, phase: "starting" });
    session.trail = [{ epoch: 0, leader: session.id, roster: [session.id] }];
    session.import(state);
  }

  /**
   * @param {{step: number, hash: string, payloadBytes: number}} event
   * @param {import("./memory.js").Expected | undefined} expected
   */
  imported({ step, hash, payloadBytes }, expected) {
    const { session } = this;
    session.payloadBytes = payloadBytes;
    if (expected && (expected.step !== step || expected.hash !== hash)) {
      return this.fault("the state that came in is not the one that was sent");
    }
    session.round.reach(step, hash);
    session.report({ kind: "joined", step, hash });
    session.inbox.compareAll();
    for (const [id, { status }] of session.links.peers) if (status) this.noticed(id);
  }

  /** Whether this device may go over to another run. @param {string} run */
  free(run) {
    const { session } = this;
    if (!session.inRun() || session.phase === "quorum") return true;
    const untouched = session.trail[0].epoch === 0;
    return untouched && session.run !== null && run < session.run;
  }

  /** @param {Message} message */
  ofAnotherRun(message) {
    const { session } = this;
    const { kind, sender, run, epoch } = message;
    if (kind !== "prepare" || run === null) return;
    if (!this.free(run)) return session.send([sender], "refuse", { promised: epoch, why: "run" });
    session.forget(run);
    session.election.prepare(message);
  }

  /** What a device says of itself may show a way in, or the end. @param {string} id */
  noticed(id) {
    const { session } = this;
    const status = /** @type {Status} */ (session.links.status(id));
    if (OVER.includes(status.phase)) this.#overElsewhere(id, status);
    else if (status.phase === "running" && status.leader !== null && this.#outside(status)) {
      if (session.nowMs - this.#joinedMs < RETRY_MS || !session.alive(status.leader)) return;
      this.#joinedMs = session.nowMs;
      session.send([status.leader], "join", { into: status.run });
    }
  }

  /** @param {Status} status */
  #outside({ run, epoch }) {
    const { session } = this;
    if (session.inRun()) return run === session.run && (!session.isMember() || epoch > session.epoch);
    return session.phase !== "halted" && (run !== session.run || session.phase === "idle");
  }

  /** End with the others, or take their last state. @param {string} id @param {Status} status */
  #overElsewhere(id, { run, phase, step, hash }) {
    const { session } = this;
    const blank = session.phase === "idle" && session.hash === null;
    if (blank && run !== session.run && !session.transfer.awaits()) session.forget(run);
    if (run !== session.run || session.isOver() || session.phase === "halted" || session.job !== null) return;
    const here = session.hash !== null;
    if (session.round.decided !== null || hash === null) return;
    if (!here || session.step < step) session.transfer.ask(id);
    else if (session.step === step)
      session.end(/** @type {"finished"} */ (phase), `the run was over after step ${step}`);
  }

  /** Say again what may have been lost. */
  retry() {
    const { session } = this;
    if (session.stopping && session.inRun()) session.send(session.aliveIds(), "stop");
  }

  tick() {
    const { session } = this;
    if (!session.inRun()) return;
    this.#fetchIfBehind();
    const trouble = this.trouble();
    if (trouble === null) return this.going();
    this.#troubleMs ??= session.nowMs;
    const sinceMs = session.nowMs - this.#troubleMs;
    const [sayMs, endMs] = TROUBLE_MS;
    if (sinceMs >= endMs && session.phase !== "quorum") session.end("quorum", trouble);
    else if (sinceMs >= sayMs && session.phase !== "waiting" && session.phase !== "quorum") {
      Object.assign(session, { phase: "waiting", reason: trouble });
      session.report({ kind: "waiting", reason: trouble });
    }
    if (session.stopping && session.phase === "waiting") session.end("quorum", "stopped while it waited");
  }

  /** Nothing is in the way of the run. */
  going() {
    const { session } = this;
    this.#troubleMs = null;
    if (session.hash === null || session.phase === "running") return;
    if (session.phase !== "starting") session.report({ kind: "going" });
    Object.assign(session, { phase: "running", reason: "" });
    session.tell(session.aliveIds(), false);
  }

  /** Why the run does not go on here, or null. */
  trouble() {
    const { session } = this;
    const { view, election } = session;
    if (view === null || view.epoch === 0) return "nobody has answered yet";
    if (!session.isMember()) return "the others went on without this device; it waits to come back in";
    if (!session.leads() && (election.leaderFresh() || this.#leaderIsDone(view.leader))) return null;
    const gone = view.roster.filter((id) => session.gone(id) && id !== session.id);
    const lack = this.#lack();
    const leads = session.leads() && session.promised.epoch === view.epoch && gone.length === 0;
    if (leads && (session.trail.length === 1 || lack === null)) return null;
    return lack ?? "a device is out of reach; the others are about to go on without it";
  }

  /** The run is over at the leader, whose last state is on its way. @param {string} leader */
  #leaderIsDone(leader) {
    const { links, run } = this.session;
    const status = links.status(leader);
    return this.session.alive(leader) && status?.run === run && OVER.includes(status?.phase ?? "");
  }

  /** Why this device's side cannot go on. */
  #lack() {
    const lacking = this.session.election.lacking();
    if (lacking === null) return null;
    const { view, here } = lacking;
    if (view.epoch === 0) return "the device that started the run went before the first step";
    return `${here} of ${view.roster.length} devices are here, and more than half are needed`;
  }

  /** A step that others have and nobody repairs here any more: take the state instead. */
  #fetchIfBehind() {
    const { session } = this;
    const ahead = session.aliveIds().filter((id) => {
      const status = session.links.status(id);
      return status?.run === session.run && status.hash !== null && status.step > session.step;
    });
    if (ahead.length === 0 || session.job !== null || session.hash === null) this.#behindMs = null;
    else {
      this.#behindMs ??= session.nowMs;
      const leader = session.view?.leader ?? "";
      const due = session.nowMs - this.#behindMs >= BEHIND_MS;
      if (due) session.transfer.ask(ahead.includes(leader) ? leader : ahead[0]);
    }
  }

  stop() {
    const { session } = this;
    if (!session.inRun()) return;
    session.stopping = true;
    session.send(session.aliveIds(), "stop");
    if (session.phase === "waiting") session.end("quorum", "stopped while it waited");
  }

  stopped() {
    if (this.session.inRun()) this.session.stopping = true;
  }

  /** This device goes for good; its last word stands in for its promises. */
  leave() {
    const { session } = this;
    session.send([...session.links.peers.keys()], "leave", this.lastWord());
    session.end("left", "this device has left");
  }

  /** What a device that goes says of its promises. A leader that holds its own content has not committed it. */
  lastWord() {
    const { session } = this;
    const { trail, promised, round, epoch } = session;
    const mine = session.leads() && round.decided === null && round.held?.origin === epoch;
    return { trail, held: mine ? null : round.held, promised: promised.epoch };
  }

  /**
   * This device cannot do its part. With a state it stops all; one that has none yet only drops out.
   * @param {string} reason
   */
  fault(reason) {
    const { session } = this;
    session.job = null;
    if (!session.inRun()) return;
    if (session.hash !== null) return session.halt(reason, [session.id]);
    Object.assign(session, { phase: "halted", reason });
    session.act({ type: "halted", reason, culprits: [session.id] });
    session.tell(session.aliveIds(), false);
  }

  /** @param {string} reason @param {string[]} culprits */
  halt(reason, culprits) {
    const { session } = this;
    if (!session.inRun()) return;
    session.send([...session.links.peers.keys()], "halt", { reason, culprits });
    Object.assign(session, { phase: "halted", reason });
    session.job = null;
    session.round.computing = null;
    session.act({ type: "halted", reason, culprits });
  }

  /** @param {Message} message */
  halted({ reason, culprits }) {
    this.halt(reason, culprits);
  }
}
