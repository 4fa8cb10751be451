/** Deliberate faults, one each, that the simulator has to catch. */

import { isQuorum } from "../../src/daisychain/static/sync/view.js";

/** @typedef {import("./simulator.js").Mutation} Mutation */
/** @typedef {import("../../src/daisychain/static/sync/session.js").Session} Session */

/** @type {Record<string, Mutation & {from?: number}>} `from`: the seed to begin with, where few seeds show the fault */
export const MUTATIONS = {
  "the average takes what is there": {
    session({ round }) {
      const { gradients } = round;
      const whole = gradients.parts.bind(gradients);
      const there = (/** @type {any} */ content) => {
        const missing = gradients.missing(content);
        return content.roster.filter((/** @type {string} */ id) => !missing.includes(id));
      };
      gradients.parts = (content) => whole({ ...content, roster: there(content) });
      round.complete = (content) => 2 * there(content).length > content.roster.length;
    },
  },
  "gradients of another epoch are taken": {
    session({ round: { gradients } }) {
      const add = gradients.add.bind(gradients);
      const get = gradients.get.bind(gradients);
      gradients.add = (of, _, author, gradient, kept) => add(of, 0, author, gradient, kept);
      gradients.get = (of, _, author) => get(of, 0, author);
    },
  },
  "a late answer of the host is taken for the current one": {
    session({ round }) {
      const computed = round.computed.bind(round);
      round.computed = (event) => computed({ ...event, job: round.computing?.job ?? event.job });
    },
  },
  "the leader commits without a quorum": {
    session({ round }) {
      round.mayCommit = () => true;
    },
  },
  "a new view commits before the old roster knows of it": {
    session(session) {
      const { round } = session;
      round.mayCommit = () => session.view !== null && isQuorum(session.view, (id) => round.heldBy.has(id));
    },
  },
  "a view needs no promises": {
    session({ election }) {
      election.enoughPromised = () => true;
      election.reachesQuorum = () => true;
    },
  },
  "who left has promised everyone": {
    from: 300,
    session({ election }) {
      election.enoughPromised = (open, promises) => {
        const knowing = new Set(promises.filter(({ trail }) => trail.length > 0).map(({ id }) => id));
        return open.every((view) => isQuorum(view, (id) => knowing.has(id)));
      };
      election.reachesQuorum = () => true;
    },
  },
  "what may be committed is not taken over": {
    session({ election }) {
      election.toAdopt = () => ({ content: null, holders: [] });
    },
  },
  "a promise is not kept": {
    session(session) {
      const { election } = session;
      const prepare = election.prepare.bind(election);
      election.prepare = (message) => {
        const { epoch, to, sinceMs } = session.promised;
        if (message.epoch === epoch) session.promised = { epoch: epoch - 1, to, sinceMs };
        prepare(message);
      };
      election.mayAccept = () => true;
      session.settled = () =>
        session.isMember() && session.hash !== null && session.epoch > 0 && session.job === null;
    },
  },
  "gradients are averaged in order of arrival": {
    session({ round: { gradients } }) {
      const whole = gradients.parts.bind(gradients);
      /** @type {Map<string, number>} */
      const arrived = new Map();
      const add = gradients.add.bind(gradients);
      gradients.add = (of, origin, author, gradient, kept) => {
        const key = `${of}/${origin}/${author}`;
        if (!arrived.has(key)) arrived.set(key, arrived.size);
        add(of, origin, author, gradient, kept);
      };
      gradients.parts = (content) => {
        const at = (/** @type {string} */ id) => arrived.get(`${content.step}/${content.origin}/${id}`) ?? 0;
        return whole(content).sort((a, b) => at(a.id) - at(b.id));
      };
    },
  },
  "a repeated commit is applied again": {
    session(session) {
      const { round } = session;
      const commit = round.commit.bind(round);
      round.commit = (message) => {
        const again = round.gradients.applied(message.of);
        if (!again || again.origin !== message.origin || session.job !== null) return commit(message);
        const parts = [...again.parts].map(([id, { count, payload }]) => ({ id, count, bytes: payload }));
        round.decided = {
          step: message.of,
          origin: again.origin,
          roster: [...again.parts.keys()],
          last: false,
        };
        session.begin("apply", { type: "apply", step: message.of, origin: again.origin, parts });
      };
    },
  },
  "nothing is repaired": {
    session({ round }) {
      round.repair = () => {};
    },
  },
  "a link counts that is heard on one side only": {
    session({ links }) {
      links.mutual = (id) => links.peers.get(id)?.up === true;
      links.alive = (id) => links.mutual(id);
    },
  },
  "a device that fell silent stays in the roster": {
    session({ links }) {
      const gone = links.gone.bind(links);
      links.alive = (id) => links.mutual(id);
      links.gone = (id, nowMs) => !links.mutual(id) && gone(id, nowMs);
    },
  },
  "the optimiser is forgotten at a join": {
    toy(toy) {
      const whole = toy.export.bind(toy);
      toy.export = () => {
        toy.state = { ...toy.state };
        const kept = toy.state.m;
        toy.state.m = 1;
        const bytes = whole();
        toy.state.m = kept;
        return bytes;
      };
    },
  },
  "the residual goes on though the set was not applied": {
    toy(toy) {
      const compute = toy.compute.bind(toy);
      toy.compute = (of) => {
        const done = compute(of);
        const [raw, sent] = /** @type {number[]} */ (toy.pending.get(`${of.epoch}/${of.step}`));
        toy.residual += raw - sent;
        toy.pending.set(`${of.epoch}/${of.step}`, [raw, sent]);
        const apply = toy.apply.bind(toy);
        toy.apply = (id, set) => {
          const before = toy.residual;
          apply(id, set);
          toy.residual = before;
          toy.apply = apply;
        };
        return done;
      };
    },
  },
};
