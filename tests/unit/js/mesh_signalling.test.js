/** The line to the room server on fake sockets: coming back, giving up, and what the server may say. */

import assert from "node:assert/strict";
import test from "node:test";
import {
  MISSED_PINGS,
  SERVER_MESSAGE_CHARACTERS,
  SOCKET_OPEN_MS,
  SOCKET_RETRY_MS,
} from "../../../src/daisychain/static/limits.js";
import { keepAwake, onReturn } from "../../../src/daisychain/static/mesh/awake.js";
import { keptPass, newSecret, Signalling } from "../../../src/daisychain/static/mesh/signalling.js";
import { FakeClock, settle } from "./mesh_help.js";

const ID = "00112233445566ff";
const OTHER = "ffeeddccbbaa9988";
const SESSION = "0123456789abcdef0123456789abcdef";
const PASS = "fedcba9876543210fedcba9876543210";
const PING_S = 15;
const WELCOME = {
  type: "welcome",
  id: ID,
  host: false,
  room: null,
  members: [{ id: OTHER, name: "Ana" }],
  limits: { members: 8, ping_s: PING_S },
  ice: [{ urls: ["stun:host:3478"] }],
};

class FakeSocket {
  readyState = 0;
  /** @type {any[]} */
  sent = [];
  /** @type {any} */ onopen = null;
  /** @type {any} */ onmessage = null;
  /** @type {any} */ onclose = null;

  /** @param {string} text */
  send(text) {
    this.sent.push(JSON.parse(text));
  }

  close() {
    this.readyState = 3;
  }

  open() {
    this.readyState = 1;
    this.onopen();
  }

  /** @param {unknown} message */
  say(message) {
    this.onmessage?.({ data: typeof message === "string" ? message : JSON.stringify(message) });
  }

  break() {
    this.readyState = 3;
    this.onclose?.();
  }
}

/** @param {object} [options] */
function lineOnFakes(options = {}) {
  const clock = new FakeClock();
  /** @type {FakeSocket[]} */
  const sockets = [];
  /** @type {[string, any][]} */
  const events = [];
  const line = new Signalling({
    url: "ws://room/ws",
    name: "Bo",
    session: SESSION,
    pass: PASS,
    clock,
    open: () => {
      sockets.push(new FakeSocket());
      return /** @type {any} */ (sockets.at(-1));
    },
    ...options,
  });
  for (const type of /** @type {const} */ ([
    "welcome",
    "members",
    "state",
    "signal",
    "knock",
    "error",
    "host",
  ])) {
    line.on(type, (content) => events.push([type, content]));
  }
  const socket = () => /** @type {FakeSocket} */ (sockets.at(-1));
  const open = () => {
    socket().open();
    socket().say(WELCOME);
  };
  line.connect();
  const last = (/** @type {string} */ type) => events.findLast(([each]) => each === type)?.[1];
  return { clock, sockets, socket, open, line, events, last };
}

test("says hello, is welcomed, knows the members, answers pings", () => {
  const { socket, open, line, last } = lineOnFakes({ room: "ABC" });
  assert.equal(line.state, "connecting");
  assert.equal(line.signal(OTHER, 1), false);
  open();
  assert.deepEqual(socket().sent, [{ type: "hello", name: "Bo", session: SESSION, room: "ABC", pass: PASS }]);
  assert.equal(line.state, "open");
  assert.equal(last("welcome").id, ID);
  assert.deepEqual(last("members"), [{ id: OTHER, name: "Ana" }]);
  socket().say({ type: "joined", id: "1111111111111111", name: "Cy" });
  socket().say({ type: "renamed", id: OTHER, name: "Anna" });
  assert.deepEqual(
    last("members").map((/** @type {any} */ { name }) => name),
    ["Anna", "Cy"],
  );
  socket().say({ type: "left", id: OTHER });
  assert.equal(last("members").length, 1);
  socket().say({ type: "ping" });
  line.signal(OTHER, { link: 1 });
  line.accept(OTHER);
  line.deny(OTHER);
  line.rename("Bob");
  assert.deepEqual(socket().sent.slice(1), [
    { type: "pong" },
    { type: "signal", to: OTHER, data: { link: 1 } },
    { type: "accept", id: OTHER },
    { type: "deny", id: OTHER },
    { type: "rename", name: "Bob" },
  ]);
});

test("comes back with the same session, after waits that grow to their limit", async () => {
  const { clock, sockets, socket, open } = lineOnFakes();
  open();
  /** @type {number[]} */
  const waitsMs = [];
  for (let turn = 0; turn < 9; turn++) {
    socket().break();
    const [before, fromMs] = [sockets.length, clock.now()];
    while (sockets.length === before) await clock.pass(50);
    waitsMs.push(clock.now() - fromMs);
    assert.ok(turn === 0 || waitsMs[turn] >= waitsMs[turn - 1]);
  }
  assert.ok(waitsMs[0] <= SOCKET_RETRY_MS[0] && waitsMs[8] <= SOCKET_RETRY_MS[1]);
  assert.ok(waitsMs[8] > 20 * waitsMs[0]);
  open();
  assert.equal(socket().sent[0].session, SESSION);
  assert.ok(!("pass" in socket().sent[0]), "a pass is for rooms only");
  socket().break();
  await clock.pass(SOCKET_RETRY_MS[0]);
  assert.equal(sockets.length, 11, "a welcome begins anew with short waits");
});

test("a server that does not open, or falls silent, is left and tried again", async () => {
  const { clock, sockets, socket, open, last } = lineOnFakes();
  await clock.pass(SOCKET_OPEN_MS + SOCKET_RETRY_MS[0]);
  assert.equal(sockets.length, 2);
  assert.equal(sockets[0].readyState, 3);
  open();
  for (let turn = 0; turn < 5; turn++) {
    await clock.pass(PING_S * 1000);
    socket().say({ type: "ping" });
  }
  assert.equal(sockets.length, 2);
  await clock.pass(MISSED_PINGS * PING_S * 1000);
  assert.match(last("state").reason, /gone silent/);
  await clock.pass(SOCKET_RETRY_MS[0]);
  assert.equal(sockets.length, 3);
});

test("a page that shows again comes back at once, and leaves a sound line alone", async () => {
  const { clock, sockets, socket, open, line } = lineOnFakes();
  open();
  line.wake();
  assert.equal(sockets.length, 1);
  socket().break();
  line.wake();
  assert.equal(sockets.length, 2);
  open();
  await clock.pass(PING_S * 1000 * 2);
  line.wake();
  assert.equal(sockets.length, 3, "a line that has been silent is not trusted");
  line.close();
  line.wake();
  assert.equal(sockets.length, 3);
});

test("a denial and errors that would repeat end it; others wait for long", async () => {
  for (const [message, again] of /** @type {const} */ ([
    [{ type: "denied", reason: "The host did not let you in." }, false],
    [{ type: "error", code: "bad_room", message: "no room code" }, false],
    [{ type: "error", code: "replaced", message: "opened elsewhere" }, false],
    [{ type: "error", code: "full", message: "The group is full." }, true],
    [{ type: "error", code: "throttled", message: "wait 5 s" }, true],
  ])) {
    const { clock, sockets, socket, line, last } = lineOnFakes();
    socket().open();
    socket().say(message);
    socket().break();
    assert.ok(last("state").reason, JSON.stringify(message));
    assert.equal(line.state, again ? "connecting" : "closed");
    await clock.pass(SOCKET_RETRY_MS[1] / 2 - 1);
    assert.equal(sockets.length, 1);
    await clock.pass(SOCKET_RETRY_MS[1]);
    assert.equal(sockets.length > 1, again);
    line.close();
    assert.equal(clock.pending, 0);
  }
});

test("a tab keeps its pass; a browser that forbids storage has one for the page", () => {
  let next = 0;
  const random = (/** @type {Uint8Array<ArrayBuffer>} */ bytes) => {
    next += 1;
    return bytes.fill(next);
  };
  const values = new Map();
  const storage = /** @type {any} */ ({
    getItem: (/** @type {string} */ key) => values.get(key) ?? null,
    setItem: (/** @type {string} */ key, /** @type {string} */ value) => values.set(key, value),
  });
  assert.equal(newSecret(random), "01".repeat(16));
  assert.equal(
    keptPass(() => storage, random),
    "02".repeat(16),
  );
  assert.equal(
    keptPass(() => storage, random),
    "02".repeat(16),
  );
  values.set([...values.keys()][0], "x");
  assert.equal(
    keptPass(() => storage, random),
    "03".repeat(16),
  );
  const forbidden = () => {
    throw new Error("SecurityError");
  };
  assert.equal(keptPass(forbidden, random), "04".repeat(16));
});

test("waits for the host without giving up", async () => {
  const { clock, sockets, socket, line, last } = lineOnFakes({ room: "ABC" });
  socket().open();
  socket().say({ type: "waiting" });
  assert.equal(line.state, "waiting");
  for (let turn = 0; turn < 20; turn++) {
    await clock.pass(PING_S * 1000);
    socket().say({ type: "ping" });
  }
  assert.equal(sockets.length, 1);
  socket().say({ type: "waiting", reason: "The host has left." });
  assert.deepEqual(last("state"), { state: "waiting", reason: "The host has left." });
  socket().say({ ...WELCOME, room: "ABC" });
  assert.equal(last("state").state, "open");
});

test("what no room server says is refused and named, and the line is made anew", async () => {
  const changed = (/** @type {object} */ change) => ({ ...WELCOME, ...change });
  for (const message of [
    "no JSON",
    "null",
    "[]",
    '{"type":"constructor"}',
    { type: "toString" },
    { type: 7 },
    "x".repeat(SERVER_MESSAGE_CHARACTERS + 1),
    changed({ id: "short" }),
    changed({ host: 1 }),
    changed({ room: 5 }),
    changed({ members: {} }),
    changed({ members: [{ id: OTHER }] }),
    changed({ limits: { members: 8, ping_s: 0 } }),
    changed({ limits: { members: 8, ping_s: "15" } }),
    changed({ ice: [{ urls: 5 }] }),
    { type: "joined", id: OTHER, name: "x".repeat(41) },
    { type: "signal", from: OTHER },
    { type: "signal", from: 5, data: 1 },
    { type: "error", code: "full" },
    { type: "waiting", reason: 5 },
  ]) {
    const { clock, sockets, socket, open, last, events } = lineOnFakes();
    open();
    const before = events.filter(([type]) => type === "members" || type === "signal").length;
    socket().say(message);
    assert.equal(last("error")?.code, "bad_server", JSON.stringify(message).slice(0, 80));
    assert.match(last("error").message, /^ProtocolError: the server/);
    assert.equal(events.filter(([type]) => type === "members" || type === "signal").length, before);
    await clock.pass(SOCKET_RETRY_MS[0]);
    assert.equal(sockets.length, 2);
  }
});

test("the screen lock is taken when the page shows, and again after it was hidden", async () => {
  const document = Object.assign(new EventTarget(), { visibilityState: "visible" });
  /** @type {{released: boolean, release: () => void}[]} */
  const locks = [];
  const wakeLock = {
    request: async () => {
      const lock = { released: false, release: () => Object.assign(lock, { released: true }) };
      locks.push(lock);
      return lock;
    },
  };
  const show = (/** @type {string} */ visibilityState) => {
    Object.assign(document, { visibilityState });
    document.dispatchEvent(new Event("visibilitychange"));
  };
  const release = keepAwake(/** @type {any} */ ({ wakeLock }), /** @type {any} */ (document));
  await settle();
  locks[0].released = true; // the browser takes it from a hidden page
  show("hidden");
  await settle();
  assert.equal(locks.length, 1);
  show("visible");
  await settle();
  assert.equal(locks.length, 2);
  release();
  assert.equal(locks[1].released, true);
  show("visible");
  await settle();
  assert.equal(locks.length, 2);
  keepAwake(/** @type {any} */ ({}), /** @type {any} */ (document))(); // plain HTTP has no locks
});

test("a return is a page that shows or a network that is back", () => {
  const document = Object.assign(new EventTarget(), { visibilityState: "hidden" });
  const window = Object.assign(new EventTarget(), { document });
  let returns = 0;
  const stop = onReturn(
    () => {
      returns += 1;
    },
    /** @type {any} */ (window),
  );
  document.dispatchEvent(new Event("visibilitychange"));
  assert.equal(returns, 0);
  document.visibilityState = "visible";
  document.dispatchEvent(new Event("visibilitychange"));
  window.dispatchEvent(new Event("online"));
  assert.equal(returns, 2);
  stop();
  window.dispatchEvent(new Event("online"));
  assert.equal(returns, 2);
});
