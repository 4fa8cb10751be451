import assert from "node:assert/strict";
import test from "node:test";
import { LOG_LINES } from "../../../src/daisychain/static/limits.js";
import { takenOver } from "../../../src/daisychain/static/ui/settings.js";
import {
  addPoints,
  asShown,
  DEFAULT_SETTINGS,
  fromServer,
  fromWorker,
  isUnsaved,
  linkChanged,
  mayLose,
  newPage,
  serverLost,
} from "../../../src/daisychain/static/ui/state.js";
import { equalWords, goOnWords, statusWords } from "../../../src/daisychain/static/ui/words.js";

/** @typedef {import("../../../src/daisychain/static/ui/state.js").Page} Page */

const [ME, BEA, CARL] = ["0000000000000001", "0000000000000002", "0000000000000003"];
const start = () => newPage({ name: "Desk", room: null });

/** @param {Page} page @param {any[]} messages */
const served = (page, ...messages) => messages.reduce(fromServer, page);

const welcome = {
  ...{ type: "welcome", id: ME, host: false, room: null, ice: [] },
  members: [{ id: BEA, name: "Bea" }],
  limits: { members: 5, ping_s: 15 },
};

test("members come, are renamed and go", () => {
  let page = served(start(), welcome, { type: "joined", id: CARL, name: "Carl" });
  assert.equal(page.door, "open");
  assert.equal(page.maxMembers, 5);
  assert.deepEqual(page.members, [
    { id: BEA, name: "Bea" },
    { id: CARL, name: "Carl" },
  ]);
  page = linkChanged(page, BEA, "up", "");
  page = served(page, { type: "renamed", id: CARL, name: "Karl" }, { type: "left", id: BEA });
  assert.deepEqual(page.members, [{ id: CARL, name: "Karl" }]);
  assert.deepEqual(page.links, {});
});

test("a second welcome replaces the members and opens the door again", () => {
  const lost = serverLost(served(start(), welcome));
  assert.match(lost.notice?.title ?? "", /out of reach/);
  const back = served(lost, { ...welcome, members: [] });
  assert.equal(back.notice, null);
  assert.deepEqual(back.members, []);
});

test("knocks queue, once each, until they go or are let in", () => {
  const knock = (/** @type {string} */ id, /** @type {string} */ name) => ({ type: "knock", id, name });
  let page = served(start(), welcome, knock(BEA, "B"), knock(CARL, "C"), knock(BEA, "Bea"));
  assert.deepEqual(
    page.knocks.map(({ name }) => name),
    ["C", "Bea"],
  );
  page = served(page, { type: "gone", id: CARL }, { type: "joined", id: BEA, name: "Bea" });
  assert.deepEqual(page.knocks, []);
});

test("the host's role passes on", () => {
  const page = served(start(), welcome, { type: "host", id: BEA });
  assert.equal(page.host, false);
  assert.equal(served(page, { type: "host", id: ME }).host, true);
});

test("a refusal shuts the door with its reason, and losing the socket then changes nothing", () => {
  const full = served(start(), { type: "error", code: "full", message: "It holds 8 devices." });
  assert.equal(full.door, "closed");
  assert.equal(full.doorReason, "It holds 8 devices.");
  assert.equal(serverLost(full), full);
  assert.equal(served(full, welcome).door, "open", "it is tried again");
});

test("a device that is in stays in when the server refuses it", () => {
  const page = served(start(), welcome, { type: "error", code: "too_fast", message: "Too many messages." });
  assert.equal(page.door, "open");
  assert.equal(page.notice?.text, "Too many messages.");
});

test("points of a step that is issued again replace the old ones", () => {
  const points = addPoints(
    [],
    [
      [1, 9],
      [2, 8],
      [3, 7],
    ],
  );
  assert.deepEqual(addPoints(points, [[2, 8.5]]), [
    [1, 9],
    [2, 8.5],
  ]);
  assert.deepEqual(addPoints(points, [[4, 6]]).length, 4);
  assert.equal(addPoints(points, []), points);
  assert.equal(points.length, 3);
});

/** @param {object} changes */
const state = (changes) => ({
  type: "state",
  state: {
    ...{
      id: "1",
      phase: "running",
      reason: "",
      settings: null,
      step: 1,
      steps: 300,
      loss: 9,
      losses: [[1, 9]],
    },
    ...{ tokensPerS: 0, stepMs: 0, hash: "ab", leader: BEA, source: "", parameters: 0, devices: [] },
    ...{ model: true, ...changes },
  },
});

test("a new run begins a new curve, also where it joins at a later step", () => {
  let page = fromWorker(
    start(),
    state({
      losses: [
        [1, 9],
        [2, 8],
      ],
    }),
  );
  page = fromWorker(page, state({ phase: "finished", losses: [] }));
  assert.equal(page.losses.length, 2);
  page = fromWorker(page, state({ id: "2", phase: "starting", losses: [] }));
  page = fromWorker(page, state({ id: "2", losses: [[20, 7]] }));
  assert.deepEqual(page.losses, [[20, 7]]);
});

test("a run that goes on from the model goes on with the curve", () => {
  let page = fromWorker(
    start(),
    state({
      losses: [
        [299, 6],
        [300, 5],
      ],
    }),
  );
  page = fromWorker(page, state({ id: "2", phase: "starting", step: 300, losses: [] }));
  page = fromWorker(page, state({ id: "2", losses: [[301, 4]] }));
  assert.deepEqual(
    page.losses.map(([step]) => step),
    [299, 300, 301],
  );
});

test("what was asked for is waited for until it comes or fails", () => {
  /** @type {Page} */
  const asked = { ...start(), asked: "anew" };
  assert.match(statusWords(asked), /Fetching/);
  assert.equal(fromWorker(asked, state({ phase: "idle", losses: [] })).asked, "anew");
  assert.equal(fromWorker(asked, state({ phase: "starting", losses: [] })).asked, "");
  assert.equal(fromWorker(asked, { type: "error", message: "No text." }).asked, "");
});

test("the log is bounded and its lines keep their numbers", () => {
  let page = start();
  for (let i = 0; i < LOG_LINES + 5; i++)
    page = fromWorker(page, { type: "log", kind: "step", step: i, text: "" });
  assert.equal(page.log.length, LOG_LINES);
  assert.equal(page.log[0].number, 5);
  assert.equal(page.logged, LOG_LINES + 5);
});

test("an error stands with the file that is waited for, else at the top", () => {
  const waiting = { ...start(), file: { busy: true, bad: false, text: "Checking…" } };
  const refused = fromWorker(waiting, { type: "error", message: "It holds NaN." });
  assert.deepEqual(refused.file, { busy: false, bad: true, text: "It holds NaN." });
  assert.equal(refused.notice, null);
  const writing = { ...start(), written: { ...start().written, busy: true } };
  const failed = fromWorker(writing, { type: "error", message: "No model." });
  assert.equal(failed.notice?.text, "No model.");
  assert.equal(failed.written.busy, false);
});

test("weights are called equal only when every rostered device says so", () => {
  const device = { id: ME, name: "", backend: "wasm", step: 1, hash: "ab", tokensPerS: 1, link: "up" };
  const words = (/** @type {(boolean | null)[]} */ ...equal) => {
    const devices = equal.map((each, place) => ({ ...device, place, equal: each }));
    return equalWords(fromWorker(start(), state({ devices }))).text;
  };
  assert.equal(words(true, true, true), "Equal on all 3 devices");
  assert.equal(words(true, null), "Comparing weights");
  assert.equal(words(true, false, null), "Weights differ");
  assert.equal(words(true), "One device");
  assert.equal(equalWords(start()).text, "No weights yet");
});

test("the status names the leader and the reason", () => {
  const page = served(start(), welcome);
  assert.equal(statusWords(fromWorker(page, state({}))), "Training. Led by Bea.");
  const halted = fromWorker(page, state({ phase: "halted", step: 7, reason: "Bea sent NaN" }));
  assert.match(statusWords(halted), /^Halted at step 7.* Bea sent NaN\.$/);
});

/** @param {Page} page @param {any[]} messages */
const worked = (page, ...messages) => messages.reduce(fromWorker, page);
const over = (/** @type {object} */ changes = {}) =>
  state({ phase: "finished", step: 300, losses: [], ...changes });
const CURVE = Array.from({ length: 300 }, (_, i) => [i + 1, 9 - i / 100]);

test("a model is unsaved until its own weights are in a file", () => {
  const page = worked(start(), state({ losses: CURVE }), over({ hash: "ab" }));
  assert.ok(isUnsaved(page));
  const saved = fromWorker({ ...page, saving: "ab" }, { type: "file", name: "a.safetensors" });
  assert.ok(!isUnsaved(saved));
  assert.ok(isUnsaved(fromWorker(saved, over({ hash: "cd", step: 301 }))));
  assert.ok(!isUnsaved(start()));
});

test("a model that came from a file here is no loss, until it is trained", () => {
  const loaded = worked(start(), state({ phase: "starting", step: 0, hash: "", losses: [] }), {
    ...{ type: "loaded", description: "it" },
  });
  const there = worked(loaded, over({ hash: "ef" }));
  assert.ok(!isUnsaved(there));
  assert.ok(isUnsaved(worked(there, state({ step: 301, losses: [[301, 5]], hash: "gh" }))));
});

test("who leads or is alone loses a run with the page; who follows does not", () => {
  const page = served(start(), welcome);
  assert.ok(!mayLose(page));
  assert.ok(!mayLose(fromWorker(page, state({ leader: BEA }))));
  assert.ok(mayLose(fromWorker(page, state({ leader: ME }))));
  assert.ok(mayLose(fromWorker(served(page, { type: "left", id: BEA }), state({ leader: BEA }))));
});

test("nothing of the last run is beside a new one", () => {
  const done = worked(start(), state({ losses: CURVE, tokensPerS: 5, stepMs: 9 }), over({ tokensPerS: 5 }));
  const asked = asShown({ ...done, asked: "anew" });
  assert.deepEqual([asked.losses, asked.run.loss, asked.run.tokensPerS, asked.run.steps], [[], null, 0, 0]);
  const began = worked(
    { ...done, asked: "anew" },
    state({ id: "2", phase: "starting", step: 0, hash: "", tokensPerS: 5, losses: [] }),
  );
  assert.deepEqual([began.losses, began.run.loss, began.run.tokensPerS], [[], null, 0]);
  const other = worked(
    done,
    state({ id: "2", phase: "starting", step: 0, hash: "", losses: [] }),
    state({ id: "2", step: 0, losses: [] }),
  );
  assert.deepEqual([other.losses, other.run.loss], [[], null], "started elsewhere");
  const on = worked(
    { ...done, asked: "go on" },
    state({ id: "2", phase: "starting", step: 0, hash: "", losses: [] }),
    state({ id: "2", step: 300, loss: 6, losses: [] }),
  );
  assert.deepEqual([on.losses.length, on.run.loss], [300, 6]);
});

test("after a run the others offer its settings, but what a person chose stays", () => {
  const settings = { ...DEFAULT_SETTINGS, width: 16, batch: 4, steps: 300, rate: 20 };
  const page = { ...worked(start(), state({ losses: CURVE, settings }), over({ settings })), id: ME };
  assert.deepEqual(takenOver(DEFAULT_SETTINGS, page, new Set()), settings);
  const chosen = { ...DEFAULT_SETTINGS, rate: 30 };
  assert.equal(takenOver(chosen, page, new Set(/** @type {const} */ (["rate"]))).rate, 30);
  const led = { ...page, run: { ...page.run, leader: ME } };
  assert.deepEqual(takenOver(DEFAULT_SETTINGS, led, new Set()), { ...DEFAULT_SETTINGS, width: 16 });
  const longer = { ...settings, steps: 700 };
  const on = worked(
    page,
    state({ id: "2", phase: "starting", step: 300, losses: [] }),
    state({ id: "2", step: 301, losses: [[301, 5]], settings: longer }),
    over({ id: "2", step: 700, settings: longer }),
  );
  assert.equal(takenOver(DEFAULT_SETTINGS, on, new Set()).steps, 400);
});

test("what Train on trains is said", () => {
  const page = fromWorker(start(), over({ settings: { ...DEFAULT_SETTINGS, width: 16 } }));
  assert.equal(
    goOnWords(page, { ...DEFAULT_SETTINGS, width: 16 }),
    "Train on: 300 more steps of the model here (width 16, 2 layers, 4 heads, sequence 32), " +
      "with the batch, rate and text of the settings.",
  );
  assert.match(goOnWords(page, DEFAULT_SETTINGS), /Start anew: a new model \(width 32, /);
});
