/** A group of devices in a seeded world: every run of one seed is the same, to the last event. */

import { mix } from "../../src/daisychain/static/numerics/roster.js";
import { decode } from "../../src/daisychain/static/sync/codec.js";
import { Session } from "../../src/daisychain/static/sync/session.js";
import { Judge } from "./judge.js";
import { hashOf, Toy } from "./toy.js";
import { Agenda, chanceOf, Network } from "./world.js";

/** @typedef {import("../../src/daisychain/static/sync/types.js").SessionEvent} SessionEvent */
/** @typedef {import("../../src/daisychain/static/sync/types.js").Action} Action */
/** @typedef {{id: string, session: Session, toy: Toy, freeMs: number, slowness: number,
 *   here: boolean, frozen: SessionEvent[] | null, thawedMs: number}} Device */
/** A deliberate fault: of the protocol in a session, or of the host's model.
 * @typedef {{session?: (session: Session) => void, toy?: (toy: Toy) => void}} Mutation */

const TICK_MS = 500;
/** Who hears nothing for so long, while awake, is in no new roster. */
const DEAF_MS = 20_000;
const BULK = new Set([10, 11, 12]); // welcome, state, gradient

export class Simulator {
  agenda = new Agenda();
  judge = new Judge();
  /** @type {Map<string, Device>} */
  devices = new Map();
  trace = 0;
  events = 0;
  /** @type {{reason: string, culprits: string[]}[]} */
  halts = [];
  /** @type {((line: string) => void) | null} */
  log = null;
  /** Called when a device has acted. @type {(device: Device, action: Action) => void} */
  watch = () => {};

  /** @param {number} seed @param {Mutation} [mutation] */
  constructor(seed, mutation = {}) {
    this.mutation = mutation;
    this.chance = chanceOf(mix(seed + 1));
    const harsh = this.chance.happens(0.3);
    const weather = {
      drop: harsh ? this.chance.between(0, 0.05) : 0,
      repeat: harsh ? this.chance.between(0, 0.1) : 0,
      delayMs: this.chance.between(2, 150),
      bulkMs: this.chance.between(5, 600),
    };
    this.network = new Network(this.agenda, this.chance, (to, event) => this.give(to, event), weather);
  }

  here() {
    return [...this.devices.values()].filter(({ here }) => here);
  }

  /** A new device, linked with all. @param {number} [slowness] */
  add(slowness = 1) {
    const id =
      (this.devices.size + 1).toString(16).padStart(2, "0") +
      mix(this.devices.size).toString(16).padStart(14, "0");
    const session = new Session({ id, nowMs: this.agenda.nowMs, seed: this.chance.below(2 ** 32) });
    const toy = new Toy();
    this.#mutate(session);
    this.mutation.toy?.(toy);
    const device = { id, session, toy, freeMs: 0, slowness, here: true, frozen: null, thawedMs: 0 };
    for (const other of this.here()) this.network.connect(id, other.id);
    this.devices.set(id, device);
    this.agenda.after(this.chance.between(0, TICK_MS), () => this.#tick(device));
    return device;
  }

  /** The parts of a session are new in every run. @param {Session} session */
  #mutate(session) {
    const mutate = this.mutation.session;
    if (!mutate) return;
    const forget = session.forget.bind(session);
    session.forget = (run) => {
      forget(run);
      mutate(session);
    };
    mutate(session);
  }

  /** @param {Device} device */
  #tick(device) {
    if (!device.here) return;
    if (!device.frozen) this.give(device.id, { type: "tick", nowMs: this.agenda.nowMs });
    this.agenda.after(TICK_MS, () => this.#tick(device));
  }

  /** @param {string} id @param {SessionEvent} event */
  give(id, event) {
    const device = this.devices.get(id);
    if (!device?.here) return;
    if (device.frozen) {
      device.frozen.push(event);
      return;
    }
    this.#note(device, event);
    for (const action of device.session.handle(event)) {
      this.#carryOut(device, action);
      this.watch(device, action);
    }
  }

  /** @param {Device} device @param {SessionEvent} event */
  #note(device, event) {
    this.events += 1;
    const what = event.type === "message" ? event.bytes[5] + 256 * event.bytes[32] : event.type.length;
    this.trace = mix(this.trace ^ mix(this.agenda.nowMs * 64 + what + device.id.charCodeAt(1)));
    this.log?.(`${this.agenda.nowMs.toFixed(0)} ${name(device.id)} < ${describe(event)}`);
  }

  /** @param {Device} device @param {Action} action */
  #carryOut(device, action) {
    if (!device.here) return undefined;
    if (action.type !== "send")
      this.log?.(`${this.agenda.nowMs.toFixed(0)} ${name(device.id)} > ${describe(action)}`);
    switch (action.type) {
      case "send":
        return this.network.send(device.id, action.to, action.bytes, BULK.has(action.bytes[5]));
      case "compute":
      case "apply":
      case "export":
      case "import":
        return this.#work(device, action);
      case "report":
        if (action.report.kind === "roster") this.#judgeView(device, action.report);
        return undefined;
      case "halted":
        this.halts.push(action);
        return undefined;
      default:
        return undefined;
    }
  }

  /** @param {Device} device @param {import("../../src/daisychain/static/sync/types.js").View} report */
  #judgeView(device, { epoch, leader, roster }) {
    const awakeMs = (/** @type {string} */ id) => {
      const at = this.devices.get(id);
      return at?.frozen ? 0 : this.agenda.nowMs - (at?.thawedMs ?? 0);
    };
    const deaf = (/** @type {string} */ a, /** @type {string} */ b) => {
      return Math.min(awakeMs(a), awakeMs(leader), this.network.deafFor(a, b)) > DEAF_MS;
    };
    this.judge.view(device.session.run ?? "", { epoch, leader, roster }, deaf);
  }

  /** The host does one thing after the other; each takes its time. @param {Device} device
   * @param {Extract<Action, {type: "compute" | "apply" | "export" | "import"}>} action */
  #work(device, action) {
    const most = { compute: 300, apply: 60, export: 60, import: 60 }[action.type];
    const startMs = Math.max(device.freeMs, this.agenda.nowMs);
    device.freeMs = startMs + this.chance.between(1, most) * device.slowness;
    const { run } = device.session;
    this.agenda.after(device.freeMs - this.agenda.nowMs, () => {
      if (!device.here) return;
      this.give(
        device.id,
        /** @type {SessionEvent} */ ({ job: action.job, ...this.#done(device, run ?? "", action) }),
      );
    });
  }

  /** @param {Device} device @param {string} run
   * @param {Extract<Action, {type: "compute" | "apply" | "export" | "import"}>} action */
  #done({ id, toy }, run, action) {
    switch (action.type) {
      case "compute":
        return { type: "computed", ...toy.compute(action) };
      case "apply":
        this.judge.require(
          toy.state.step === action.step,
          `step ${action.step} is applied at step ${toy.state.step}`,
        );
        this.judge.set(run, action.origin, action.parts, toy.state);
        toy.apply(id, action);
        this.judge.state(run, toy.state);
        this.judge.require(toy.balanced(), `the residual of ${id} does not balance`);
        return { type: "applied", hash: hashOf(toy.state) };
      case "export":
        return { type: "exported", bytes: toy.export() };
      default:
        toy.import(action.bytes);
        this.judge.state(action.run, toy.state);
        return { type: "imported", step: toy.state.step, hash: hashOf(toy.state), payloadBytes: 8 };
    }
  }

  /** Gone, and its links say nothing of it. @param {Device} device */
  vanish(device) {
    device.here = false;
  }

  /** @param {Device} device */
  crash(device) {
    this.vanish(device);
    for (const other of this.here()) this.network.cut(device.id, other.id);
  }

  /** @param {Device} device */
  leave(device) {
    this.give(device.id, { type: "leave" });
    this.agenda.after(200, () => this.crash(device));
  }

  /** @param {Device} device @param {number} forMs */
  freeze(device, forMs) {
    if (device.frozen) return;
    device.frozen = [];
    this.agenda.after(forMs, () => this.thaw(device));
  }

  /** @param {Device} device */
  thaw(device) {
    const missed = device.frozen ?? [];
    device.frozen = null;
    device.thawedMs = this.agenda.nowMs;
    for (const event of missed) this.give(device.id, event);
  }

  /** @param {number} untilMs @param {() => boolean} [enough] */
  run(untilMs, enough = () => false) {
    while (this.agenda.nowMs < untilMs && !enough() && this.agenda.next());
  }
}

/** @param {string} id */
export function name(id) {
  return id.slice(0, 2);
}

/** @param {any} thing an event or an action */
function describe(thing) {
  if (thing.type === "message") {
    const { kind, epoch, step, hash, sender, run, ...rest } = decode(thing.bytes);
    return `${kind} of ${name(sender)} epoch ${epoch} step ${step}${hash ? "" : " blank"} ${brief(rest)}`;
  }
  return brief(thing);
}

/** @param {object} thing */
function brief(thing) {
  const text = JSON.stringify(thing, (_, value) =>
    value instanceof Uint8Array ? `${value.length} bytes` : value,
  );
  return text
    .replace(/([0-9a-f]{2})[0-9a-f]{14}/g, "$1")
    .replace(/([0-9a-f])\1{20,}/g, "$1…")
    .slice(0, 260);
}
