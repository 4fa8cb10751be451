/** One seed: a group, what befalls it, and whether it comes to an end. */

import {
  baseStep,
  contentToAdopt,
  enoughPromised,
  isQuorum,
  openViews,
} from "../../src/daisychain/static/sync/view.js";
import { Violation } from "./judge.js";
import { Simulator } from "./simulator.js";

/** @typedef {import("./simulator.js").Device} Device */
/** @typedef {import("./simulator.js").Mutation} Mutation */

const MAX_HERE = 8;

/** @type {Record<string, (sim: Simulator) => void>} */
const FAULTS = {
  cut(sim) {
    const [a, b] = two(sim);
    if (!b) return;
    cutFor(sim, [[a, b]], sim.chance.between(500, 25_000));
  },
  deafen(sim) {
    const [a, b] = two(sim);
    if (!b) return;
    sim.network.deafen(a.id, b.id);
    sim.agenda.after(sim.chance.between(500, 40_000), () => sim.network.undeafen(a.id, b.id));
  },
  partition(sim) {
    const side = sim.here().filter(() => sim.chance.happens(0.5));
    const apart = pairs(sim).filter(([a, b]) => side.includes(a) !== side.includes(b));
    cutFor(sim, apart, sim.chance.between(1000, sim.chance.happens(0.2) ? 90_000 : 20_000));
  },
  scatter(sim) {
    cutFor(
      sim,
      pairs(sim).filter(() => sim.chance.happens(0.35)),
      sim.chance.between(8000, 30_000),
    );
    sim.agenda.after(sim.chance.between(5000, 11_000), () => FAULTS.partition(sim));
  },
  crash: (sim) => someone(sim, (device) => sim.crash(device)),
  crashLeader: (sim) => leader(sim, (device) => sim.crash(device)),
  vanish: (sim) => someone(sim, (device) => sim.vanish(device)),
  leave: (sim) => someone(sim, (device) => sim.leave(device)),
  leaveLeader: (sim) => leader(sim, (device) => sim.leave(device)),
  freeze: (sim) => someone(sim, (device) => sim.freeze(device, sim.chance.between(1000, 40_000))),
  freezeLeader: (sim) => leader(sim, (device) => sim.freeze(device, sim.chance.between(1000, 40_000))),
  join(sim) {
    if (sim.here().length < MAX_HERE) sim.add(slowness(sim));
  },
};

/**
 * Faults at the worst moments: when a leader has proposed a view, or set about to apply what it committed.
 * @param {Simulator} sim
 */
function ambush(sim) {
  const sparse = sim.chance.happens(0.05);
  let left = sparse || sim.chance.happens(0.3) ? 1 + sim.chance.below(3) : 0;
  if (sparse)
    sim.agenda.after(sim.chance.between(3000, 6000), () => {
      cutFor(
        sim,
        pairs(sim).filter(() => sim.chance.happens(0.4)),
        40_000,
      );
    });
  sim.watch = (device, action) => {
    const { session } = device;
    if (left === 0 || sim.agenda.nowMs > 40_000 || !session.leads() || session.epoch < 2) return;
    const views = action.type === "report" && action.report.kind === "roster";
    const roster = session.view?.roster ?? [];
    const thin = views && !isQuorum(session.trail[0], (id) => roster.includes(id));
    if (!thin && !(views ? sim.chance.happens(0.5) : action.type === "apply" && sim.chance.happens(0.1)))
      return;
    left -= 1;
    const mine = views ? roster : [device.id];
    const inside = (/** @type {Device} */ { id }) => mine.includes(id);
    const apart = pairs(sim).filter(([a, b]) => inside(a) !== inside(b) && sim.chance.happens(0.9));
    cutFor(sim, apart, sim.chance.between(5000, 50_000));
    if (!views && sim.chance.happens(0.5)) sim.crash(device);
  };
}

/** @param {Simulator} sim */
function slowness(sim) {
  return sim.chance.happens(0.05) ? 30 : 1;
}

/** @param {Simulator} sim @returns {Device[][]} */
function pairs(sim) {
  const all = sim.here();
  return all.flatMap((a) => all.filter((b) => a.id < b.id).map((b) => [a, b]));
}

/** @param {Simulator} sim @param {Device[][]} edges @param {number} forMs */
function cutFor(sim, edges, forMs) {
  for (const [a, b] of edges) sim.network.cut(a.id, b.id);
  sim.agenda.after(forMs, () => {
    for (const [a, b] of edges) if (a.here && b.here) sim.network.connect(a.id, b.id);
  });
}

/** @param {Simulator} sim @returns {Device[]} */
function two(sim) {
  const all = sim.here();
  const a = sim.chance.pick(all);
  return all.length < 2 ? [a] : [a, sim.chance.pick(all.filter((b) => b !== a))];
}

/** @param {Simulator} sim @param {(device: Device) => void} act */
function someone(sim, act) {
  if (sim.here().length > 1) act(sim.chance.pick(sim.here()));
}

/** @param {Simulator} sim @param {(device: Device) => void} act */
function leader(sim, act) {
  const leads = sim.here().filter(({ session }) => session.leads());
  if (sim.here().length > 1 && leads.length > 0) act(sim.chance.pick(leads));
}

/** @param {Simulator} sim @param {number} number */
function start(sim, number) {
  const run = (number + 1).toString(16).padStart(2, "0").repeat(16);
  const device = sim.chance.pick(sim.here());
  const steps = sim.chance.happens(0.05) ? 0 : 8 + sim.chance.below(20);
  const config = { steps, gradients: /** @type {const} */ ("float32") };
  sim.give(device.id, { type: "start", run, config, tokens: Uint16Array.of(1, 2, 3), state: null });
}

/** @param {Simulator} sim */
function calm(sim) {
  const all = sim.here();
  for (const device of all) if (device.frozen) sim.thaw(device);
  for (const [a, b] of pairs(sim)) sim.network.connect(a.id, b.id);
  sim.network.weather.drop = 0;
}

/** @param {Device} device */
function isOver({ session }) {
  return ["finished", "stopped", "left", "halted"].includes(session.phase);
}

/**
 * Play one seed. Throws Violation.
 * @param {number} seed
 * @param {Mutation} [mutation]
 * @param {((line: string) => void) | null} [log]
 */
export function play(seed, mutation = {}, log = null) {
  const sim = new Simulator(seed, mutation);
  sim.log = log;
  const { chance, agenda } = sim;
  const count = 1 + chance.below(6);
  for (let i = 0; i < count; i++) sim.add(slowness(sim));
  agenda.after(chance.between(500, 2500), () => start(sim, 0));
  if (chance.happens(0.1)) agenda.after(chance.between(500, 4000), () => start(sim, 1));
  if (chance.happens(0.1)) agenda.after(chance.between(2000, 9000), () => stop(sim));
  ambush(sim);
  const quiet = chance.happens(0.1);
  const faults = quiet ? 0 : 1 + chance.below(7);
  for (let i = 0; i < faults; i++) {
    const fault = chance.pick(Object.keys(FAULTS));
    agenda.after(chance.between(600, 14_000), () => {
      log?.(`${agenda.nowMs.toFixed(0)} --- ${fault}`);
      FAULTS[fault](sim);
    });
  }
  const allOver = () => sim.here().every(isOver);
  sim.run(chance.happens(0.8) ? 45_000 : 100_000, () => agenda.nowMs > 16_000 && allOver());
  log?.("--- calm");
  calm(sim);
  const settledMs = agenda.nowMs + 2000;
  sim.run(agenda.nowMs + 400_000, () => agenda.nowMs > settledMs && (allOver() || hopeless(sim)));
  if (sim.halts.length > 0) throw new Violation(`a sound run was halted: ${sim.halts[0].reason}`);
  judgeEnd(sim);
  return sim;
}

/** @param {Simulator} sim */
function stop(sim) {
  const inRun = sim.here().filter(({ session, frozen }) => session.inRun() && !frozen);
  if (inRun.length > 0) sim.give(sim.chance.pick(inRun).id, { type: "stop" });
}

/** Everyone still in a run has given it up, and nobody could bring it back. @param {Simulator} sim */
function hopeless(sim) {
  const given = (/** @type {Device} */ { session }) => session.phase === "quorum" || session.phase === "idle";
  return sim.here().every((device) => isOver(device) || given(device)) && sim.agenda.nowMs > 150_000;
}

/** Who is here has finished, or may not go on, or has nothing to join. @param {Simulator} sim */
function judgeEnd(sim) {
  const here = sim.here();
  for (const { id, session } of here) {
    const { phase, step, reason } = session;
    const mates = here.filter((other) => other.session.run === session.run);
    const over = phase === "finished" || phase === "stopped";
    const givenUp = phase === "quorum" && !couldGoOn(mates);
    const alone = phase === "idle" && here.every((other) => ["idle", "quorum"].includes(other.session.phase));
    if (!over && !givenUp && !alone) throw new Violation(`${id} stalls: ${phase} at step ${step}, ${reason}`);
  }
}

/** By the quorum rule, with what one of them knows of those that left. @param {Device[]} devices of one run */
function couldGoOn(devices) {
  const promises = devices.map(({ session }) => {
    const { id, step, hash, trail, round, promised } = session;
    return { id, step, hash, trail, held: round.held, links: [], promised: promised.epoch, left: false };
  });
  return devices.some(({ session }) => {
    const all = [...promises, ...session.election.left.values()];
    const open = openViews(all);
    const { content, holders } = contentToAdopt(all, open);
    const base = baseStep(all);
    const hasState = promises.some(({ step, hash }) => hash !== null && step === base);
    const adoptable = content === null || holders.length > 0;
    return (
      session.hash !== null && enoughPromised(open, all, Number.POSITIVE_INFINITY) && hasState && adoptable
    );
  });
}
