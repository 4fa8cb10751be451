/** The change of view: a candidate collects promises, takes over what may be committed, and proposes a roster. */

import {
  ELECTION_MS,
  LINK_GRACE_MS,
  PROMISES_WAIT_MS,
  STAGGER_MS,
  START_WAIT_MS,
  TRAIL_VIEWS,
} from "../limits.js";
import { max } from "../numerics/numbers.js";
import { Edges } from "./edges.js";
import * as views from "./view.js";

/** @typedef {import("./codec.js").Message} Message */
/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./types.js").View} View */
/** @typedef {import("./view.js").Promised} Promised */

export class Election {
  /** The ballot that this device stands for. @type {number | null} */
  ballot = null;
  /** @type {Map<string, Promised>} */
  #promises = new Map();
  /** Devices that left for good: their last word counts as their promise in every ballot. @type {Map<string, Promised>} */
  left = new Map();
  /** @type {Set<string>} */
  #asked = new Set();
  /** Newcomers. @type {Set<string>} */
  joiners = new Set();
  /** Who accepted the view that this device leads. @type {Set<string>} */
  acceptedBy = new Set();
  #sinceMs = 0;
  #retryMs = 0;
  #tries = 0;
  #unfit = false;
  /** Since when the leader is out of reach. @type {number | null} */
  #leaderlessMs = null;

  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    this.edges = new Edges(session);
  }

  advance() {
    if (this.ballot !== null) return this.#conclude();
    if (!this.#wanted() || this.session.nowMs < this.#retryMs) return false;
    return this.#stand();
  }

  /** Whether this device, as the leader, wants another view now. */
  #wanted() {
    const { session } = this;
    const { view } = session;
    if (!session.leads() || session.hash === null || view === null || session.job !== null) return false;
    const another = session.promised.epoch > view.epoch && session.promised.to !== session.id;
    if (another && !this.#promiseStale()) return false;
    if (view.epoch === 0 || this.#unfit || view.roster.some((id) => this.left.has(id))) return true;
    return this.atBoundary() && [...this.joiners].some((id) => this.edges.fits(id, view));
  }

  /** The candidate that this device promised had its time. */
  #promiseStale() {
    return this.session.nowMs >= this.session.promised.sinceMs + ELECTION_MS;
  }

  /** Between two steps: nothing of the next is computed yet. */
  atBoundary() {
    const { round, epoch, step, id } = this.session;
    return round.computing === null && round.decided === null && !round.gradients.get(step, epoch, id);
  }

  /** Ask for promises under a new ballot. */
  #stand() {
    const { session } = this;
    if (!this.reachesQuorum()) return false;
    this.ballot = max(session.promised.epoch, session.seenEpoch) + 1;
    session.promise(this.ballot, session.id);
    this.#promises.clear();
    this.#asked.clear();
    this.#sinceMs = session.nowMs;
    this.#tries += 1;
    const everyone = session.epoch === 0 ? session.aliveIds() : [];
    this.#ask([...session.trail.flatMap(({ roster }) => roster), ...this.joiners, ...everyone]);
    return true;
  }

  /** Whether enough of the devices that count could promise. */
  reachesQuorum() {
    return this.lacking() === null;
  }

  /** A view of which too few could promise, and how many could. @returns {{view: View, here: number} | null} */
  lacking() {
    const { session } = this;
    const present = (/** @type {string} */ id) => id === session.id || session.alive(id);
    const known = [this.#own(), ...this.left.values()];
    const left = views.leftBefore(known, Number.POSITIVE_INFINITY);
    const view = views.openViews(known).find((each) => !views.isQuorum(each, present, left));
    return view ? { view, here: view.roster.filter(present).length } : null;
  }

  /** @param {string[]} ids */
  #ask(ids) {
    const fresh = [...new Set(ids)].filter((id) => this.session.alive(id) && !this.#asked.has(id));
    for (const id of fresh) this.#asked.add(id);
    this.session.send(fresh, "prepare", {}, this.ballot ?? 0);
  }

  /** @returns {Promised} */
  #own() {
    const { id, step, hash, trail, round, promised } = this.session;
    const links = this.session.aliveIds();
    return { id, step, hash, trail, held: round.held, links, promised: promised.epoch, left: false };
  }

  /** @param {Message} message */
  prepare({ sender, epoch }) {
    const { session } = this;
    const { promised } = session;
    const again = promised.epoch === epoch && promised.to === sender;
    if (epoch < promised.epoch || (epoch === promised.epoch && !again)) {
      return session.send([sender], "refuse", { promised: promised.epoch, why: "promised" });
    }
    const follows = session.isMember() && promised.epoch === session.epoch && sender !== session.view?.leader;
    if (!again && follows && this.leaderFresh()) {
      return session.send([sender], "refuse", { promised: promised.epoch, why: "leader" });
    }
    this.withdraw();
    session.promise(epoch, sender);
    const { trail, held, links } = this.#own();
    session.send([sender], "promise", { trail, held, links }, epoch);
  }

  /** A view was accepted: its leader has its time to show itself. */
  accepting() {
    this.#leaderlessMs = null;
    this.edges.forget();
  }

  /** Stop standing. */
  withdraw() {
    this.ballot = null;
  }

  /** The leader is in reach, and leads. */
  leaderFresh() {
    const { session } = this;
    const leader = session.view?.leader;
    if (leader === undefined || this.left.has(leader)) return false;
    if (leader === session.id) return !this.#unfit && session.phase === "running";
    const status = session.links.status(leader);
    if (!session.alive(leader) || status === null || status.run !== session.run) return false;
    return status.leader === leader && (status.phase === "running" || status.phase === "starting");
  }

  /** @param {Message} message */
  promiseMessage({ sender, epoch, step, hash, trail, held, links }) {
    if (epoch !== this.ballot || !this.#asked.has(sender)) return;
    this.#promises.set(sender, { id: sender, step, hash, trail, held, links, promised: epoch, left: false });
    this.#ask(this.#openViews().flatMap(({ roster }) => roster));
  }

  /** @param {Message} message */
  refused({ sender, promised, why }) {
    if (this.ballot === null || !this.#asked.has(sender)) return;
    this.session.saw(promised);
    this.#asked.delete(sender);
    if (why === "promised" && promised > this.ballot) this.#giveUp();
  }

  /** Try again after a while that grows. */
  #giveUp() {
    this.withdraw();
    this.#retryMs = this.session.nowMs + this.session.draw(STAGGER_MS * max(1, this.#tries - 1));
  }

  #all() {
    return [this.#own(), ...this.#promises.values(), ...this.left.values()];
  }

  #openViews() {
    return views.openViews(this.#all());
  }

  /** With enough promises, and all that has to be taken over at hand: the new view. */
  #conclude() {
    const { session } = this;
    const promises = this.#all();
    const open = this.#openViews();
    if (!this.enoughPromised(open, promises) || session.job !== null || open.length >= TRAIL_VIEWS)
      return false;
    const answered = [...this.#asked].every((id) => this.#promises.has(id) || !session.alive(id));
    const waitMs = session.epoch === 0 ? START_WAIT_MS : PROMISES_WAIT_MS;
    if (!answered && session.nowMs - this.#sinceMs < waitMs) return false;
    const base = views.baseStep(promises);
    if (session.hash === null || session.step < base) return this.#catchUp(base);
    const { content, holders } = this.toAdopt(promises, open);
    if (session.round.decided && session.round.decided.origin !== content?.origin) return false;
    if (content && !session.round.complete(content)) return this.#collect(content, holders);
    this.#propose(open, content);
    return true;
  }

  /** @param {View[]} open @param {Promised[]} promises */
  enoughPromised(open, promises) {
    return views.enoughPromised(open, promises, /** @type {number} */ (this.ballot));
  }

  /** @param {Promised[]} promises @param {View[]} open */
  toAdopt(promises, open) {
    return views.contentToAdopt(promises, open);
  }

  /** @param {number} base */
  #catchUp(base) {
    const ahead = [...this.#promises.values()].find(({ id, step, hash }) => {
      return hash !== null && step === base && this.session.alive(id);
    });
    if (ahead) this.session.transfer.ask(ahead.id);
    return false;
  }

  #collectedMs = -1;

  /** @param {import("./view.js").Content} content @param {string[]} holders */
  #collect(content, holders) {
    const { nowMs } = this.session;
    if (this.#collectedMs !== nowMs) {
      this.#collectedMs = nowMs;
      this.session.round.repair(
        content,
        holders.filter((id) => this.session.alive(id)),
      );
    }
    return false;
  }

  /** @param {View[]} open @param {import("./view.js").Held | null} held */
  #propose(open, held) {
    const { session } = this;
    const roster = this.#roster(open);
    const view = { epoch: /** @type {number} */ (this.ballot), leader: session.id, roster };
    const adopt = held && { step: held.step, origin: held.origin, roster: held.roster };
    this.withdraw();
    this.#tries = 0;
    this.#unfit = false;
    this.acceptedBy = new Set([session.id]);
    for (const id of roster) this.joiners.delete(id);
    session.accept({ view, trail: [...open, view], base: session.step, adopt });
    this.#announce(session.trail.flatMap((each) => each.roster));
  }

  /** @param {string[]} ids */
  #announce(ids) {
    const { session } = this;
    const to = [...new Set(ids)].filter((id) => !this.acceptedBy.has(id) && session.alive(id));
    session.send(to, "view", { trail: session.trail, base: session.base, adopt: session.adopt });
  }

  /** The largest roster of linked devices that promised: survivors in their order, then newcomers. @param {View[]} open */
  #roster(open) {
    const { session } = this;
    const before = /** @type {View} */ (open.at(-1)).roster;
    const promised = [...this.#promises.keys()].filter((id) => session.alive(id)).sort();
    const survivors = before.filter((id) => id === session.id || promised.includes(id));
    const order = [...survivors, ...promised.filter((id) => !before.includes(id))];
    const links = new Map([...this.#promises].map(([id, promise]) => [id, promise.links]));
    links.set(session.id, session.aliveIds());
    const linked = (/** @type {string} */ a, /** @type {string} */ b) => {
      return links.get(a)?.includes(b) === true && links.get(b)?.includes(a) === true;
    };
    const others = order.filter((id) => id !== session.id);
    const clique = views.largestClique(session.id, others, linked);
    return [...new Set([...order, session.id])].filter((id) => clique.includes(id));
  }

  /** @param {Message} message */
  view(message) {
    const { sender, epoch, trail, base, adopt } = message;
    const { session } = this;
    const view = /** @type {View | undefined} */ (trail.at(-1));
    if (view?.leader !== sender || view?.epoch !== epoch || !this.mayAccept(epoch, sender)) return;
    if (epoch !== session.epoch) {
      this.withdraw();
      session.promise(epoch, sender);
      session.accept({ view, trail, base, adopt });
    }
    session.send([sender], "accepted");
  }

  /** @param {number} epoch @param {string} sender */
  mayAccept(epoch, sender) {
    const { promised } = this.session;
    return epoch > promised.epoch || (epoch === promised.epoch && promised.to === sender);
  }

  /** @param {Message} message */
  accepted({ sender, epoch }) {
    if (this.session.leads() && epoch === this.session.epoch) this.acceptedBy.add(sender);
  }

  /** @param {string} id */
  join(id) {
    const { session } = this;
    const inside = session.view?.roster.includes(id) || session.overdue.has(id);
    if (session.leads() && !inside) this.joiners.add(id);
  }

  /** @param {Message} message */
  leave({ sender, step, hash, trail, held, promised }) {
    const { session } = this;
    session.saw(promised);
    this.left.set(sender, { id: sender, step, hash, trail, held, links: [], promised, left: true });
    this.#promises.delete(sender);
    this.joiners.delete(sender);
  }

  /** On every tick: who is gone, whether to stand, what to say again. */
  tick() {
    const { session } = this;
    if (session.view === null) return;
    this.#unfit = session.leads() && this.edges.unfit(session.view);
    if (this.ballot !== null) this.#retryBallot();
    else if (session.leads() && session.settled())
      this.#announce(session.trail.flatMap(({ roster }) => roster));
    else if (this.#mayStand(session.view)) this.#stand();
  }

  #retryBallot() {
    const { session } = this;
    const waiting = [...this.#asked].filter((id) => !this.#promises.has(id) && session.alive(id));
    session.send(waiting, "prepare", {}, /** @type {number} */ (this.ballot));
    const fetching = session.job !== null || session.transfer.awaits();
    if (!fetching && session.nowMs - this.#sinceMs > ELECTION_MS) this.#giveUp();
  }

  /**
   * Who is in a view that may count stands when the leader is gone, one after the other: the roster first.
   * @param {View} view
   */
  #mayStand(view) {
    const { session } = this;
    const inLine = [...new Set([view, ...session.trail].flatMap(({ roster }) => roster))];
    if (this.leaderFresh() || !inLine.includes(session.id) || session.hash === null) {
      this.#leaderlessMs = null;
      return false;
    }
    this.#leaderlessMs ??= session.nowMs;
    if (session.promised.epoch > view.epoch && !this.#promiseStale()) return false;
    const before = inLine.slice(0, inLine.indexOf(session.id));
    const rank = before.filter((id) => id !== view.leader && session.alive(id)).length;
    const graceMs = this.left.has(view.leader) ? 0 : LINK_GRACE_MS;
    const due = max(this.#leaderlessMs + graceMs + rank * STAGGER_MS, this.#retryMs);
    return session.nowMs >= due && session.job === null;
  }
}
