/** Whole runs in real browsers: equal to the last bit, whoever comes, goes, freezes or loses a link. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { afterEach, beforeEach } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { SETTINGS, VirtualGroup } from "../virtual_peers.js";
import { missing, ROOT, waitFor } from "./harness.js";
import { equalHashes, heard, inPhase, Room, reached, saved, tell } from "./room_help.js";

const run = promisify(execFile);
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

/** The kit, offline, and Python write the same from what the page saves. @param {any} page @param {string} expected */
async function sameTextElsewhere(page, expected) {
  const folder = await mkdtemp(join(tmpdir(), "daisychain-room-"));
  try {
    const kit = join(folder, "kit.html");
    await writeFile(kit, await saved(page, { type: "kit" }));
    const reader = await room.browsers.newPage("chromium", { offline: true });
    await reader.open(pathToFileURL(kit).href);
    for (const [id, value] of Object.entries({
      prompt: "The ",
      length: "20",
      temperature: "0.8",
      seed: "1",
    })) {
      await reader.own.fill(`#${id}`, value);
    }
    await reader.own.click("#write:enabled");
    await waitFor("the kit's text", () => reader.run(() => document.getElementById("stop")?.hidden));
    assert.equal(await reader.own.textContent("#written"), expected);
    for (const format of ["safetensors", "pt"]) {
      const file = join(folder, `model.${format}`);
      await writeFile(file, await saved(page, { type: "checkpoint", format }));
      const options = ["--prompt", "The ", "--tokens", "20", "--temperature", "0.8", "--seed", "1"];
      const { stdout } = await run(join(ROOT, ".venv/bin/daisychain"), ["generate", file, ...options]);
      assert.equal(stdout.trimEnd(), expected.trimEnd());
    }
  } finally {
    await rm(folder, { recursive: true });
  }
}

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
  const { generated } = await heard(room.pages[2]);
  assert.equal(generated.ids.length, 20);
  await sameTextElsewhere(room.pages[1], `The ${generated.text}`);
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
  const [{ hashes, log }] = await Promise.all(room.pages.map(heard));
  const begin = log.findLast((/** @type {any} */ { kind, step }) => kind === "step" && step === 1);
  assert.equal(begin.text.match(/tokens/g).length, 4, `all four from the first step: ${begin.text}`);
  const query = "data?bytes=524288&seed=1&source=embedded";
  const group = new VirtualGroup(await (await fetch(room.server.url + query)).text());
  const first = await group.join();
  for (let i = 0; i < 3; i++) await group.join();
  await first.node.receive({ type: "start", settings: { ...RUN, steps: 20 } });
  await group.until("the end", () => first.state?.phase === "finished");
  for (let step = 1; step <= 20; step++) assert.equal(first.hashes.get(step), hashes[step], `step ${step}`);
});
