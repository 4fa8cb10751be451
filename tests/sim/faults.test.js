/** One device at fault: all stop, name it, and keep the state of the step before. */

import assert from "node:assert/strict";
import test from "node:test";
import { Simulator } from "./simulator.js";

/** @typedef {import("./simulator.js").Device} Device */
/** @typedef {import("../../src/daisychain/static/sync/session.js").Session} Session */

const CONFIG = { steps: 12, gradients: /** @type {const} */ ("float32") };
const FAULT_STEP = 4;

/** A run that a device starts when links had time to form. @param {Simulator} sim @param {Device} device
 * @param {import("../../src/daisychain/static/sync/types.js").RunConfig} config */
function start(sim, device, config) {
  sim.run(2000);
  sim.give(device.id, {
    type: "start",
    run: "ab".repeat(16),
    config,
    tokens: Uint16Array.of(1),
    state: null,
  });
}

/** Two devices in calm weather, at a run that does not end by itself. */
function longRun() {
  const sim = new Simulator(2);
  Object.assign(sim.network.weather, { drop: 0, repeat: 0 });
  const [one, two] = [sim.add(), sim.add()];
  start(sim, one, { ...CONFIG, steps: 1000 });
  return { sim, one, two };
}

/** Four devices in calm weather; `spoil` makes one of them faulty. @param {(device: Device) => void} spoil
 * @param {(session: Session) => void} [mutate] */
function run(spoil, mutate) {
  const sim = new Simulator(1, { session: mutate });
  Object.assign(sim.network.weather, { drop: 0, repeat: 0 });
  sim.judge.state = () => {};
  const devices = [sim.add(), sim.add(), sim.add(), sim.add()];
  spoil(devices[2]);
  start(sim, devices[0], CONFIG);
  sim.run(60_000);
  return { devices, halts: sim.halts };
}

/** @param {Device[]} devices @param {RegExp} reason @param {number} step where all stop */
function assertHalted(devices, reason, step) {
  for (const { session, toy } of devices) {
    assert.equal(session.phase, "halted");
    assert.match(session.reason, reason);
    assert.equal(session.step, step);
    assert.equal(toy.state.step, step, "the state is that of the last step");
  }
}

/** @param {Device} device @param {(done: any) => object} change */
function atFaultStep({ toy }, change) {
  const compute = toy.compute.bind(toy);
  toy.compute = (of) => {
    const done = compute(of);
    return of.step === FAULT_STEP ? { ...done, ...change(done) } : done;
  };
}

/** @param {Device} device */
function otherState({ toy }) {
  const apply = toy.apply.bind(toy);
  toy.apply = (id, set) => {
    apply(id, set);
    if (toy.state.step === FAULT_STEP) toy.state.w ^= 1;
  };
}

test("without a fault the run finishes", () => {
  for (const { session } of run(() => {}).devices) assert.equal(session.phase, "finished");
});

test("two states at one step stop all, and the odd one is named", () => {
  const { devices, halts } = run(otherState);
  assert.ok(halts.every(({ culprits }) => culprits.includes(devices[2].id)));
  assertHalted(devices, /the states after step 4 differ/, FAULT_STEP);
});

test("it is the comparison of hashes that stops them", () => {
  const blind = (/** @type {Session} */ session) => {
    session.inbox.differs = () => false;
  };
  for (const { session } of run(otherState, blind).devices) assert.equal(session.phase, "finished");
});

test("a gradient with NaN or infinity", () => {
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
    const payload = new Uint8Array(Float32Array.of(value, 1).buffer);
    const { devices } = run((device) => atFaultStep(device, () => ({ payload })));
    assertHalted(devices, /step 4: the gradient has 1 numbers that are NaN or infinite/, FAULT_STEP);
  }
});

test("a gradient of another length, or of no tokens", () => {
  const { devices: short } = run((device) => atFaultStep(device, () => ({ payload: new Uint8Array(4) })));
  assertHalted(short, /has 4 bytes, not 8/, FAULT_STEP);
  const { devices: none } = run((device) => atFaultStep(device, () => ({ count: 0 })));
  assertHalted(none, /counts no tokens/, FAULT_STEP);
});

test("a kernel probe that differs", () => {
  const { devices } = run((device) => atFaultStep(device, () => ({ probe: "8".repeat(64) })));
  assertHalted(devices, /kernel probes of step 4 differ/, FAULT_STEP);
});

test("a device that cannot compute", () => {
  const { sim, one, two } = longRun();
  sim.run(10_000);
  sim.give(two.id, { type: "fault", reason: "out of memory" });
  sim.run(20_000);
  for (const { session } of [one, two]) {
    assert.equal(session.phase, "halted");
    assert.equal(session.reason, "out of memory");
  }
});

test("a newcomer that has no room for the state drops out alone", () => {
  const { sim, one, two } = longRun();
  sim.run(3500);
  const late = sim.add();
  const handle = late.session.handle.bind(late.session);
  late.session.handle = (event) =>
    handle(event.type === "imported" ? { type: "fault", reason: "no room" } : event);
  sim.run(30_000);
  assert.equal(late.session.phase, "halted");
  for (const { session } of [one, two]) {
    assert.equal(session.phase, "running");
    assert.deepEqual([...(session.view?.roster ?? [])].sort(), [one.id, two.id].sort());
  }
});

test("an epoch that no honest device can have come to is refused", () => {
  const { sim, one, two } = longRun();
  sim.run(3500);
  const { epoch, seenEpoch } = one.session;
  two.session.send([one.id], "status", {
    ...{ reply: false, phase: "running", leader: null, promised: 2 ** 32 - 1, links: [], backend: "" },
  });
  for (const action of two.session.handle({ type: "tick", nowMs: sim.agenda.nowMs })) {
    if (action.type === "send") sim.give(action.to, { type: "message", id: two.id, bytes: action.bytes });
  }
  sim.run(5000);
  assert.ok(one.session.seenEpoch < seenEpoch + 100);
  assert.ok(one.session.epoch < epoch + 100);
});

test("a slow device that is alive stays in the roster", () => {
  const sim = new Simulator(3);
  const [one, two] = [sim.add(), sim.add(200)];
  start(sim, one, { ...CONFIG, steps: 3 });
  sim.run(400_000, () => two.session.phase === "finished");
  assert.equal(two.session.phase, "finished");
  assert.deepEqual(one.session.view?.roster, [one.id, two.id]);
  assert.equal(one.session.epoch, 1);
});
