/** One step in a view: compute, exchange, hold, commit, apply, and repair what was lost. */

import { GRADIENT_TOKENS, RETRY_MS, STEP_PATIENCE_MS } from "../limits.js";
import { checkPayload } from "./compress.js";
import { Gradients, stepsKept } from "./gradients.js";
import { isQuorum, leftBefore } from "./view.js";

/** @typedef {import("./codec.js").Message} Message */
/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./view.js").Content} Content */
/** @typedef {import("./view.js").Held} Held */

export class Round {
  gradients = new Gradients();
  /** What this device has whole for its step. @type {Held | null} */
  held = null;
  /** What was committed for its step. @type {(Content & {last: boolean}) | null} */
  decided = null;
  /** The contents that were proposed for its step: origin and roster. @type {Map<number, string[]>} */
  #proposed = new Map();
  /** Who told the leader that it holds the content. @type {Set<string>} */
  heldBy = new Set();
  /** @type {{job: number, epoch: number, step: number} | null} */
  computing = null;
  /** Since when gradients are waited for. */
  #waitingMs = 0;
  /** The gradients that others were asked for: step, origin and author. @type {Set<string>} */
  #asked = new Set();
  #turn = 0;

  /** @param {Session} session */
  constructor(session) {
    this.session = session;
  }

  /**
   * What the view makes of this device's step.
   * @returns {Content | null} null where the state has to come first
   */
  content() {
    const { view, step, hash, base, adopt } = this.session;
    if (view === null || hash === null || step < base) return null;
    return adopt?.step === step ? adopt : { step, origin: view.epoch, roster: view.roster };
  }

  /** A view was accepted, or a step reached. */
  proposed() {
    const content = this.content();
    if (content) this.#proposed.set(content.origin, content.roster);
    this.heldBy.clear();
  }

  advance() {
    if (this.#apply()) return true;
    const content = this.session.settled() ? this.content() : null;
    if (content === null || this.decided !== null) return false;
    if (content.step >= (this.session.config?.steps ?? 0)) return this.#nothingToDo();
    return this.#compute(content) || this.#hold(content) || this.#commit(content);
  }

  /** A run that began with its last step, to give a model to the group. */
  #nothingToDo() {
    this.session.end("finished", "the model is here, and no step is left to do");
    return true;
  }

  /** @param {Content} content */
  #compute({ step, origin, roster }) {
    const { session } = this;
    const epoch = session.epoch;
    const mine = this.gradients.get(step, origin, session.id) !== undefined;
    const running = this.computing?.epoch === epoch && this.computing.step === step;
    if (origin !== epoch || mine || running) return false;
    const job = session.nextJob();
    this.computing = { job, epoch, step };
    const place = roster.indexOf(session.id);
    session.act({ type: "compute", job, epoch, step, place, rosterSize: roster.length });
    return true;
  }

  /** @param {Extract<import("./types.js").SessionEvent, {type: "computed"}>} event */
  computed({ job, payload, count, loss, probe, tookMs }) {
    if (this.computing?.job !== job) return;
    const { epoch, step } = this.computing;
    const { session } = this;
    this.computing = null;
    const gradient = { payload, count, loss, probe, tookMs };
    this.gradients.add(step, epoch, session.id, gradient, this.held);
    this.#waitingMs = session.nowMs;
    const body = { of: step, origin: epoch, author: session.id, ...gradient };
    session.send(session.others(), "gradient", body);
  }

  /** By way of another device it is taken only if it was asked for. @param {Message} message */
  gradient({ sender, of, origin, author, count, loss, probe, tookMs, payload }) {
    const { session, gradients } = this;
    const { step, hash } = session;
    const timely = hash === null || of === step || of === step + 1;
    if (!timely || (sender !== author && !this.#asked.has(`${of}/${origin}/${author}`))) return;
    const missed = sender !== author && gradients.get(of, origin, author) === undefined;
    if (missed) session.report({ kind: "repair", step: of, missing: [author] });
    const gradient = { payload, count, loss, probe, tookMs };
    gradients.add(of, origin, author, gradient, this.decided ?? this.held);
  }

  /** @param {Content} content */
  complete(content) {
    return this.gradients.missing(content).length === 0;
  }

  /** @param {Content} content */
  #hold(content) {
    const { session } = this;
    if (this.held?.ballot === session.epoch || !this.complete(content)) return false;
    if (!this.#sound(content)) return true;
    this.held = { ...content, ballot: session.epoch };
    if (session.leads()) this.heldBy.add(session.id);
    else this.#tellHeld(content);
    return true;
  }

  /** @param {Content} content */
  #tellHeld({ step, origin }) {
    const leader = this.session.view?.leader;
    if (leader) this.session.send([leader], "held", { of: step, origin });
  }

  /** Refuse what must not be averaged: stops the run. @param {Content} content */
  #sound(content) {
    const { session } = this;
    const parts = this.gradients.parts(content);
    for (const part of parts) {
      const fault = this.#fault(part);
      if (fault === null) continue;
      session.halt(`step ${content.step}: ${fault}`, [part.id]);
      return false;
    }
    const odd = minority(parts.map(({ id, probe }) => [id, probe]));
    if (odd.length > 0) session.halt(`the kernel probes of step ${content.step} differ`, odd);
    return odd.length === 0;
  }

  /** @param {import("./gradients.js").Gradient} gradient */
  #fault({ count, payload }) {
    const { payloadBytes, config } = this.session;
    if (count < 1) return "a gradient counts no tokens";
    if (count > GRADIENT_TOKENS) return `a gradient counts ${count} tokens, more than ${GRADIENT_TOKENS}`;
    if (payload.length !== payloadBytes) return `a gradient has ${payload.length} bytes, not ${payloadBytes}`;
    try {
      checkPayload(payload, config?.gradients ?? "float32");
      return null;
    } catch (error) {
      return /** @type {Error} */ (error).message;
    }
  }

  /** @param {Message} message */
  heldMessage({ sender, epoch, of, origin }) {
    const { session } = this;
    if (session.view?.leader !== session.id || epoch !== session.epoch) return;
    const done = this.decided?.step === of ? this.decided : this.gradients.applied(of);
    if (done) session.send([sender], "commit", { of, origin: done.origin, last: done.last });
    else if (session.settled() && this.#current(of, origin)) this.heldBy.add(sender);
  }

  /** @param {number} of @param {number} origin */
  #current(of, origin) {
    const content = this.content();
    return content?.step === of && content.origin === origin;
  }

  /** @param {Content} content */
  #commit(content) {
    const { session } = this;
    if (!session.leads() || this.held?.ballot !== session.epoch || !this.mayCommit()) return false;
    this.decided = { ...content, last: session.stopping };
    session.committed();
    session.send(session.others(), "commit", {
      of: content.step,
      origin: content.origin,
      last: session.stopping,
    });
    return true;
  }

  /** Whether the roster holds the content, and the rosters before it know of this view. */
  mayCommit() {
    const { session, heldBy } = this;
    const { view, trail } = session;
    if (view === null || !isQuorum(view, (id) => heldBy.has(id))) return false;
    const { acceptedBy, left: gone } = session.election;
    const left = leftBefore([...gone.values()], view.epoch);
    return trail.slice(0, -1).every((before) => isQuorum(before, (id) => acceptedBy.has(id), left));
  }

  /** @param {Message} message */
  commit({ sender, epoch, of, origin, last }) {
    const { session } = this;
    if (epoch === session.epoch && sender === session.view?.leader) session.committed();
    const roster = this.#proposed.get(origin);
    if (of !== session.step || session.hash === null || roster === undefined) return;
    if (this.decided === null) this.#waitingMs = session.nowMs;
    this.decided ??= { step: of, origin, roster, last };
  }

  #apply() {
    const { decided, session } = this;
    if (decided === null || session.job !== null || !this.complete(decided)) return false;
    if (!this.#sound(decided)) return true;
    this.computing = null;
    const parts = this.gradients
      .parts(decided)
      .map(({ id, count, payload }) => ({ id, count, bytes: payload }));
    session.begin("apply", { type: "apply", step: decided.step, origin: decided.origin, parts });
    return true;
  }

  /** The host applied what was decided; true: it was the last. @param {string} hash */
  applied(hash) {
    const { session, gradients } = this;
    const decided = /** @type {Content & {last: boolean}} */ (this.decided);
    const contributions = gradients
      .parts(decided)
      .map(({ id, count, loss, tookMs }) => ({ id, count, loss, tookMs }));
    gradients.retire(decided, decided.last, stepsKept(session.leads()));
    this.reach(session.step + 1, hash);
    const count = contributions.reduce((total, part) => total + part.count, 0);
    const loss = contributions.reduce((total, part) => total + part.loss, 0) / count;
    session.report({ kind: "step", step: session.step, loss, hash, origin: decided.origin, contributions });
    return decided.last;
  }

  /** This device's state is now that of another step. @param {number} step @param {string} hash */
  reach(step, hash) {
    Object.assign(this.session, { step, hash });
    this.held = null;
    this.decided = null;
    this.computing = null;
    this.#proposed.clear();
    this.#asked.clear();
    this.gradients.dropBelow(step);
    this.#waitingMs = this.session.nowMs;
    this.proposed();
    this.session.transfer.applied();
  }

  /** Say again, and ask again for, what may have been lost. */
  retry() {
    const { session } = this;
    const { adopt, view } = session;
    if (view === null || !session.isMember()) return;
    if (!session.leads() && session.settled() && this.decided === null) {
      if (adopt && session.step === adopt.step + 1) this.#tellHeld(adopt);
      if (this.held?.ballot === view.epoch) this.#tellHeld(this.held);
    }
    const content = this.decided ?? (session.settled() ? this.content() : null);
    if (content === null || this.computing !== null || session.job !== null) return;
    if (session.leads() && this.decided === null && session.nowMs - this.#waitingMs >= STEP_PATIENCE_MS) {
      for (const id of this.gradients.missing(content)) session.overdue.add(id);
    }
    if (session.nowMs - this.#waitingMs >= RETRY_MS) this.repair(content);
  }

  /** Ask for the gradients that are missing. @param {Content} content @param {string[]} [holders] */
  repair(content, holders) {
    const { session } = this;
    const missing = this.gradients.missing(content);
    if (missing.length === 0) return;
    const { step, origin } = content;
    for (const author of missing) this.#asked.add(`${step}/${origin}/${author}`);
    for (const [to, authors] of this.#sources(missing, holders)) {
      session.send([to], "repair", { of: step, origin, authors });
    }
  }

  /**
   * Whom to ask for which authors: the leader; the leader itself asks the authors, and for those out of reach the
   * others in turn, as does everyone while there is no leader.
   * @param {string[]} missing @param {string[]} [holders]
   * @returns {[string, string[]][]}
   */
  #sources(missing, holders) {
    const { session } = this;
    const leader = session.view?.leader ?? session.id;
    if (holders === undefined && leader !== session.id && session.alive(leader)) return [[leader, missing]];
    const asked = holders ?? session.aliveIds();
    this.#turn += 1;
    const other = asked[this.#turn % asked.length];
    if (holders !== undefined || other === undefined) return other ? [[other, missing]] : [];
    const near = missing.filter((author) => session.alive(author));
    const far = missing.filter((author) => !session.alive(author));
    /** @type {[string, string[]][]} */
    const sources = near.map((author) => [author, [author]]);
    if (far.length > 0) sources.push([other, far]);
    return sources;
  }

  /** @param {Message} message */
  repairMessage({ sender, of, origin, authors }) {
    for (const author of authors) {
      const gradient = this.gradients.get(of, origin, author);
      if (gradient) this.session.send([sender], "gradient", { of, origin, author, ...gradient });
    }
  }
}

/**
 * Those whose text differs from that of most; all, where no text has more than half.
 * @param {[string, string][]} texts id and text
 */
export function minority(texts) {
  if (texts.every(([, text]) => text === texts[0][1])) return [];
  const most = texts.find(
    ([, text]) => 2 * texts.filter(([, other]) => other === text).length > texts.length,
  );
  return texts.filter(([, text]) => text !== most?.[1]).map(([id]) => id);
}
