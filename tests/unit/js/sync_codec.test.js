/** Messages: round trips, and a hundred thousand mutated ones. */

import assert from "node:assert/strict";
import test from "node:test";
import { ProtocolError } from "../../../src/daisychain/static/errors.js";
import { BODIES } from "../../../src/daisychain/static/sync/bodies.js";
import { decode, encode, HEADER_BYTES } from "../../../src/daisychain/static/sync/codec.js";
import { Session } from "../../../src/daisychain/static/sync/session.js";
import { chanceOf } from "../../sim/world.js";

const A = "00000000000000aa";
const B = "00000000000000bb";
const RUN = "0123456789abcdef".repeat(2);
const HASH = "fedcba98".repeat(8);
const MUTATED = 100_000;

const view = { epoch: 3, leader: A, roster: [A, B] };
const content = { step: 7, origin: 2, roster: [B, A] };
const trail = [{ ...view, epoch: 1 }, view];
/** One body of every kind. @type {Record<string, object>} */
const SAMPLES = {
  hello: { heard: true, reply: false },
  status: { reply: true, phase: "running", leader: A, promised: 3, links: [A], backend: "wasm" },
  join: { into: RUN },
  prepare: {},
  promise: { trail, held: { ...content, ballot: 3 }, links: [A] },
  refuse: { promised: 9, why: "leader" },
  view: { trail, base: 7, adopt: content },
  accepted: {},
  fetch: { full: true },
  welcome: { config: { steps: 9, gradients: "int8", width: 32 }, tokens: Uint16Array.of(1, 2, 65_535) },
  state: { bytes: Uint8Array.of(1, 2, 3) },
  gradient: {
    ...{ of: 7, origin: 3, author: B, count: 12, loss: 1.5, probe: HASH, tookMs: 40 },
    payload: new Uint8Array(Float32Array.of(1, 2).buffer),
  },
  held: { of: 7, origin: 3 },
  commit: { of: 7, origin: 3, last: true },
  repair: { of: 7, origin: 3, authors: [A, B] },
  stop: {},
  halt: { reason: "because", culprits: [B] },
  leave: { trail, held: null, promised: 3 },
};
const HEADER = { sender: A, run: RUN, epoch: 3, step: 7, hash: HASH };
const MESSAGES = Object.entries(SAMPLES).map(([kind, body]) => encode({ kind, ...HEADER }, body));

/** @param {Uint8Array} bytes @param {ReturnType<typeof chanceOf>} chance */
function mutate(bytes, chance) {
  let out = bytes.slice();
  for (let i = 1 + chance.below(3); i > 0; i--) {
    const at = chance.below(out.length || 1);
    const how = chance.below(6);
    if (how === 0) out[at] ^= 1 << chance.below(8);
    else if (how === 1) out[at] = chance.pick([0, 1, 127, 255]);
    else if (how === 2) out = out.slice(0, at);
    else if (how === 3) out = Uint8Array.of(...out, ...out.slice(at, at + 16));
    else if (how === 4) out.copyWithin(at, chance.below(out.length || 1));
    else if (out.length >= HEADER_BYTES) {
      new DataView(out.buffer).setUint32(
        72,
        chance.happens(0.5) ? out.length - HEADER_BYTES : 0xffff_ffff,
        true,
      );
    }
  }
  return out;
}

test("every kind comes back as it was", () => {
  assert.deepEqual(Object.keys(SAMPLES), Object.keys(BODIES));
  Object.entries(SAMPLES).forEach(([kind, body], i) => {
    const { ...back } = decode(MESSAGES[i]);
    assert.deepEqual(back, { ...body, kind, ...HEADER });
  });
  const blank = decode(encode({ kind: "stop", ...HEADER, run: null, hash: null }));
  assert.deepEqual([blank.run, blank.hash], [null, null]);
});

test("numbers are unsigned and little-endian", () => {
  const bytes = encode(
    { kind: "held", ...HEADER, epoch: 0xffff_fffe, step: 0x0102_0304 },
    { of: 0xffff_ffff, origin: 1 },
  );
  assert.deepEqual([...bytes.slice(36, 40)], [4, 3, 2, 1]);
  const { epoch, of } = decode(bytes);
  assert.deepEqual([epoch, of], [0xffff_fffe, 0xffff_ffff]);
});

test(`${MUTATED} mutated messages: a refusal with a reason, or a whole message`, () => {
  const chance = chanceOf(20_241);
  let whole = 0;
  for (let i = 0; i < MUTATED; i++) {
    const bytes = mutate(chance.pick(MESSAGES), chance);
    let message;
    try {
      message = decode(bytes);
    } catch (error) {
      assert.ok(error instanceof ProtocolError, `seed 20241, message ${i}: ${error}`);
      continue;
    }
    whole += 1;
    const body = { ...message };
    for (const field of ["kind", "sender", "run", "epoch", "step", "hash"]) delete body[field];
    assert.deepEqual(decode(encode(message, body)), message, `message ${i}`);
    for (const long of [message.payload, message.bytes]) {
      if (long) assert.equal(long.buffer, bytes.buffer, "long bodies are not copied");
    }
    if (message.tokens) assert.ok(2 * message.tokens.length < bytes.length);
  }
  assert.ok(whole > MUTATED / 100 && whole < MUTATED / 2, `${whole} whole`);
});

test("lengths beyond the bounds are refused before anything is made of them", () => {
  const long = new Uint8Array(HEADER_BYTES + BODIES.status.most + 1);
  long.set(MESSAGES[1].subarray(0, HEADER_BYTES));
  new DataView(long.buffer).setUint32(72, BODIES.status.most + 1, true);
  assert.throws(() => decode(long), ProtocolError);
  const other = MESSAGES[0].slice();
  other[4] = 9;
  assert.throws(() => decode(other), /protocol version 9, this page 1; reload/);
});

/** What a session knows. @param {Session} session */
function known(session) {
  const {
    phase,
    run,
    config,
    step,
    hash,
    trail: views,
    promised,
    seenEpoch,
    round,
    links,
    election,
  } = session;
  const { held, decided, heldBy } = round;
  const ballots = [election.ballot, [...election.left], [...election.joiners], [...election.acceptedBy]];
  const state = { phase, run, config, step, hash, views, promised, seenEpoch, held, decided, ballots };
  return JSON.stringify([state, [...heldBy], [...links.peers]]);
}

/** A leader of two in the middle of a step. */
function leader() {
  const session = new Session({ id: B, nowMs: 0, seed: 1 });
  session.handle({ type: "link_up", id: A });
  session.handle({
    type: "message",
    id: A,
    bytes: encode({ kind: "hello", ...HEADER, run: null, hash: null }, SAMPLES.hello),
  });
  const config = /** @type {const} */ ({ steps: 100, gradients: "float32" });
  session.handle({ type: "start", run: RUN, config, tokens: Uint16Array.of(1), state: null });
  session.handle({ type: "imported", job: 1, step: 7, hash: HASH, payloadBytes: 8 });
  const promise = { kind: "promise", ...HEADER, epoch: 1, hash: null };
  session.handle({ type: "message", id: A, bytes: encode(promise, { trail: [], held: null, links: [B] }) });
  assert.deepEqual(session.view, { epoch: 1, leader: B, roster: [B, A] });
  return session;
}

test("a refused message leaves the session as it was; no message throws", () => {
  const chance = chanceOf(7);
  let session = leader();
  let refused = 0;
  for (let i = 0; i < 20_000; i++) {
    if (!session.inRun()) session = leader();
    const bytes = mutate(chance.pick(MESSAGES), chance);
    const before = i % 10 === 0 ? known(session) : null;
    const actions = session.handle({ type: "message", id: A, bytes });
    if (!actions.some((action) => action.type === "report" && action.report.kind === "refused")) continue;
    refused += 1;
    if (before !== null) assert.equal(known(session), before, `seed 7, message ${i}`);
  }
  assert.ok(refused > 100, `${refused} refused`);
});

test("a message in another's name is refused", () => {
  const session = leader();
  const before = known(session);
  const bytes = encode({ kind: "stop", ...HEADER, sender: "00000000000000cc" });
  const actions = session.handle({ type: "message", id: A, bytes });
  assert.match(JSON.stringify(actions), /says that it is of 00000000000000cc/);
  assert.equal(known(session), before);
});

test("gradients of strangers, and too many, are not kept", () => {
  const session = leader();
  const sample = /** @type {any} */ (SAMPLES.gradient);
  const send = (/** @type {object} */ body) => {
    session.handle({
      type: "message",
      id: A,
      bytes: encode({ kind: "gradient", ...HEADER }, { ...sample, ...body }),
    });
  };
  send({ author: "00000000000000cc" });
  assert.equal(session.round.gradients.get(7, 3, "00000000000000cc"), undefined);
  for (let origin = 1; origin <= 50; origin++) send({ author: A, origin });
  const kept = Array.from({ length: 51 }, (_, origin) => session.round.gradients.get(7, origin, A)).filter(
    Boolean,
  );
  assert.equal(kept.length, 3);
});
