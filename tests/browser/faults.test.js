/** Faults in real browsers: the run goes on with equal states, or stops with a reason; it never forks. */

import assert from "node:assert/strict";
import test, { afterEach, beforeEach } from "node:test";
import { SETTINGS } from "../virtual_peers.js";
import { missing, waitFor } from "./harness.js";
import { equalHashes, heard, inPhase, Room, reached, tell } from "./room_help.js";

/** @typedef {import("./harness.js").BrowserPage} BrowserPage */

const skip = missing(["chromium"]);
const options = { skip, timeout: 240_000 };
/** Small, so that a run has many steps; long enough that it does not end by itself. */
const RUN = { ...SETTINGS, width: 16, sequence: 16, batch: 2, steps: 5_000, gradients: "int8" };
const FREEZE_MS = 30_000;
const APP = "/static/ui/app.js";
/** @type {Room} */
let room;

beforeEach(async () => {
  room = new Room();
  if (!skip) await room.open();
});
afterEach(() => room.close());

/** Three devices that train; the first leads. */
async function training() {
  for (let i = 0; i < 3; i++) await room.join();
  await tell(room.pages[0], { type: "start", settings: RUN });
  await Promise.all(room.pages.map((page) => reached(page, 5)));
  await rostered(room.pages);
  return room.pages;
}

/** All of these in the roster, as each of them sees it. @param {BrowserPage[]} pages @param {number} [limitMs] */
function rostered(pages, limitMs = 60_000) {
  return Promise.all(
    pages.map((page) =>
      waitFor(`${pages.length} in the roster`, async () => (await rosterOf(page)) === pages.length, limitMs),
    ),
  );
}

/** @param {BrowserPage} page */
async function rosterOf(page) {
  const { state } = await heard(page);
  return state.devices.filter((/** @type {any} */ { place }) => place !== null).length;
}

/** Further on by some steps, all equal; then stop, at one state. @param {BrowserPage[]} pages */
async function goOnAndStop(pages) {
  const { state } = await heard(pages[0]);
  await Promise.all(pages.map((page) => reached(page, state.step + 10)));
  await tell(pages[0], { type: "stop" });
  const states = await Promise.all(pages.map((page) => inPhase(page, ["stopped"])));
  assert.deepEqual(new Set(states.map(({ hash }) => hash)).size, 1);
  await equalHashes(pages);
}

/** The renderer dies at once; the page says no goodbye. @param {BrowserPage} page */
async function kill(page) {
  const session = await page.own.context().newCDPSession(page.own);
  session.send("Page.crash").catch(() => {});
  await waitFor("the crash", () => room.crashed(page));
}

/** @param {BrowserPage} page */
const idOf = async (page) =>
  (await heard(page)).state.devices.find((/** @type {any} */ { link }) => link === "self").id;

test("a follower is killed", options, async () => {
  const [leader, follower, other] = await training();
  await kill(follower);
  await rostered([leader, other]);
  await goOnAndStop([leader, other]);
});

test("the leader is killed", options, async () => {
  const [leader, ...others] = await training();
  await kill(leader);
  await rostered(others);
  await goOnAndStop(others);
});

test("a tab is closed: the others go on without waiting for it", options, async () => {
  const [leader, follower, other] = await training();
  await follower.close();
  await rostered([leader, other]);
  await goOnAndStop([leader, other]);
});

test("the leader of two goes to another page: the other goes on alone", options, async () => {
  const [leader, other] = [await room.join(), await room.join()];
  await tell(leader, { type: "start", settings: RUN });
  await rostered([leader, other]);
  await reached(other, 5);
  await leader.open("about:blank");
  await rostered([other]);
  await goOnAndStop([other]);
});

test("a device joins at step 20", options, async () => {
  await room.join();
  await room.join();
  await tell(room.pages[0], { type: "start", settings: RUN });
  await reached(room.pages[0], 20);
  await room.join();
  await rostered(room.pages);
  await goOnAndStop(room.pages);
  const { hashes } = await heard(room.pages[2]);
  assert.ok(Object.keys(hashes).length >= 10);
});

test("a tab freezes for 30 s, is left out, and comes back", options, async () => {
  const [leader, frozen, other] = await training();
  // An open dialog stops the page's main thread.
  frozen.own.once("dialog", (dialog) => setTimeout(() => dialog.dismiss(), FREEZE_MS));
  const froze = frozen.run(() => alert("frozen"));
  await rostered([leader, other]);
  await froze;
  await rostered([leader, frozen, other]);
  await goOnAndStop([leader, frozen, other]);
});

test("an edge of the mesh breaks: one device is left out, and back when it heals", options, async () => {
  const [leader, one, two] = await training();
  const ids = await Promise.all([one, two].map(idOf));
  const faults = (
    /** @type {BrowserPage} */ page,
    /** @type {"breakLink" | "releaseLink"} */ what,
    /** @type {string} */ id,
  ) =>
    page.run(async ({ path, what, id }) => (await import(path)).app.mesh.faults[what](id), {
      path: APP,
      what,
      id,
    });
  await Promise.all([faults(one, "breakLink", ids[1]), faults(two, "breakLink", ids[0])]);
  await waitFor("a roster of two", async () => (await rosterOf(leader)) === 2, 60_000);
  const { state } = await heard(leader);
  await reached(leader, state.step + 10);
  await Promise.all([faults(one, "releaseLink", ids[1]), faults(two, "releaseLink", ids[0])]);
  await rostered([leader, one, two]);
  await goOnAndStop([leader, one, two]);
});

test("a gradient is lost on the way: it comes by the leader", options, async () => {
  const [leader, one, two] = await training();
  await one.run(
    async ({ path, unlucky }) => {
      const { mesh } = (await import(path)).app;
      const send = mesh.send.bind(mesh);
      let lost = false;
      mesh.send = (/** @type {string} */ id, /** @type {Uint8Array} */ bytes) => {
        if (lost || id !== unlucky || bytes.length < 100_000) return send(id, bytes);
        lost = true;
        return true;
      };
    },
    { path: APP, unlucky: await idOf(two) },
  );
  const repaired = async () => {
    const { log } = await heard(two);
    return log.some((/** @type {any} */ { kind }) => kind === "repair");
  };
  await waitFor("the repair", repaired, 60_000);
  await goOnAndStop([leader, one, two]);
});
