/** Whole runs in real browsers: equal to the last bit, whoever comes, goes, freezes or loses a link. */

import assert from "node:assert/strict";
import test, { afterEach, beforeEach } from "node:test";
import { SETTINGS, VirtualGroup } from "../virtual_peers.js";
import { missing, waitFor } from "./harness.js";
import { equalHashes, heard, inPhase, Room, reached, tell } from "./room_help.js";

const skip = missing(["chromium", "firefox"]);
const RUN = { ...SETTINGS, steps: 200 };
/** @type {Room} */
let room;

beforeEach(async () => {
  room = new Room();
  if (!skip) await room.open();
});
afterEach(() => room.close());

/** @param {any} page */
async function losses(page) {
  const { log } = await heard(page);
  const steps = log.filter((/** @type {any} */ { kind }) => kind === "step");
  return steps.map((/** @type {any} */ { text }) => Number(text.match(/loss ([\d.]+)/)[1]));
}

/** @param {any[]} pages */
const allFinished = (pages) => Promise.all(pages.map((page) => inPhase(page, ["finished"])));

test("three Chromium pages, 200 steps: equal at every step, the loss falls, the model writes", {
  skip,
  timeout: 240_000,
}, async () => {
  for (let i = 0; i < 3; i++) await room.join();
  await tell(room.pages[1], { type: "start", settings: RUN });
  await allFinished(room.pages);
  const all = await equalHashes(room.pages);
  assert.deepEqual(
    all.map((hashes) => Object.keys(hashes).length),
    [200, 200, 200],
  );
  const values = await losses(room.pages[0]);
  const last = values.slice(-20).reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b) / 20;
  assert.ok(values[0] - last >= 1.5, `${values[0]} → ${last}`);
  await tell(room.pages[2], { type: "generate", prompt: "The ", tokens: 20, temperature: 0.8, seed: 1 });
  await waitFor("text", async () => (await heard(room.pages[2])).generated?.done);
  assert.equal((await heard(room.pages[2])).generated.ids.length, 20);
});

test("Chromium and Firefox, and four virtual peers in Node: the same hashes", {
  skip,
  timeout: 240_000,
}, async () => {
  for (const kind of /** @type {const} */ (["chromium", "chromium", "firefox"])) await room.join(kind);
  await tell(room.pages[0], { type: "start", settings: { ...RUN, steps: 50 } });
  await allFinished(room.pages);
  await equalHashes(room.pages);
  const fourth = await room.join();
  await reached(fourth, 50);
  await tell(room.pages[0], { type: "start", settings: { ...RUN, steps: 20 } });
  await waitFor("the second run", async () => (await heard(room.pages[0])).state.steps === 20);
  await allFinished(room.pages);
  const [{ hashes }] = await Promise.all(room.pages.map(heard));
  const query = "data?bytes=524288&seed=1&source=embedded";
  const group = new VirtualGroup(await (await fetch(room.server.url + query)).text());
  const first = await group.join();
  for (let i = 0; i < 3; i++) await group.join();
  await first.node.receive({ type: "start", settings: { ...RUN, steps: 20 } });
  await group.until("the end", () => first.state?.phase === "finished");
  for (let step = 1; step <= 20; step++) assert.equal(first.hashes.get(step), hashes[step], `step ${step}`);
});
