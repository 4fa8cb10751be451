/** Three Chromium pages and one Firefox page as a full mesh, through the real room server on loopback. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { Browsers, missing, RoomServer, waitFor } from "./harness.js";
import { iceNames, joinMesh, leaveMesh, meshFault, meshView, restartAll, sendToAll } from "./mesh_page.js";

/** @typedef {import("./harness.js").BrowserPage} BrowserPage */

const MESSAGE_BYTES = 3_000_001; // no multiple of a frame
const RECONNECTS = process.env.SOAK === "1" ? 600 : 30;
/** @type {import("./harness.js").Kind[]} */
const KINDS = ["chromium", "chromium", "chromium", "firefox"];
const skip = missing(KINDS);

/** @type {RoomServer} */
let server;
const browsers = new Browsers();
/** @type {BrowserPage[]} */
let pages = [];
/** @type {string[]} */
let ids = [];

before(async () => {
  if (skip) return;
  server = await RoomServer.start();
  pages = await browsers.openPages(KINDS, `${server.url}nothing-here`);
  ids = await Promise.all(pages.map((page, index) => page.run(joinMesh, `${page.kind} ${index}`)));
});

after(async () => {
  await browsers.close();
  await server?.stop();
});

/** @param {BrowserPage} page @param {string} id @param {string} state */
function waitForLink(page, id, state) {
  return waitFor(`link ${state} in ${page.kind}`, async () => (await page.run(meshView)).state[id] === state);
}

function waitForFullMesh() {
  const all = pages.flatMap((page, at) => ids.filter((_, other) => other !== at).map((id) => ({ page, id })));
  return Promise.all(all.map(({ page, id }) => waitForLink(page, id, "up")));
}

test("every page has a link to every other", { skip }, async () => {
  await waitForFullMesh();
  for (const page of pages) {
    const { links } = await page.run(meshView);
    assert.equal(links.length, KINDS.length - 1);
    await waitFor("the path's kind", async () =>
      (await page.run(meshView)).links.every(({ path = "" }) => ["host", "prflx"].includes(path)),
    );
    assert.deepEqual(page.errors, []);
  }
});

test("3 MB arrive unchanged, from all to all at once", { skip }, async () => {
  const sent = await Promise.all(pages.map((page) => page.run(sendToAll, MESSAGE_BYTES)));
  for (const { sent: to } of sent) assert.equal(to.length, KINDS.length - 1);
  for (const [at, page] of pages.entries()) {
    const received = await waitFor("three messages", async () => {
      const { received } = await page.run(meshView);
      return received.length === KINDS.length - 1 ? received : null;
    });
    for (const { from, bytes, digest } of received) {
      assert.equal(bytes, MESSAGE_BYTES);
      assert.equal(digest, sent[ids.indexOf(from)].digest, `${page.kind} ${at}`);
    }
  }
});

test("all links restart at once, from both ends, and go on", { skip }, async () => {
  const before = await Promise.all(pages.map((page) => page.run(iceNames)));
  assert.deepEqual(await Promise.all(pages.map((page) => page.run(restartAll))), [3, 3, 3, 3]);
  for (const [at, page] of pages.entries()) {
    await waitFor("new ICE names", async () =>
      (await page.run(iceNames)).every((name) => name && !before[at].includes(name)),
    );
  }
  // Chromium refuses an answer now and then when both ends restart at once: then the link is made anew.
  await waitForFullMesh();
  const { digest } = await pages[0].run(sendToAll, MESSAGE_BYTES);
  for (const page of pages.slice(1)) {
    await waitFor("a message after the restart", async () =>
      (await page.run(meshView)).received.some((message) => message.digest === digest),
    );
  }
});

for (const [at, other, what] of /** @type {const} */ ([
  [0, 1, "two Chromium pages"],
  [2, 3, "Chromium and Firefox"],
  [3, 0, "Firefox and Chromium"],
])) {
  test(`a broken edge between ${what} heals when it may`, { skip }, async () => {
    await pages[at].run(meshFault, { fault: "breakLink", id: ids[other] });
    await waitForLink(pages[other], ids[at], "down");
    assert.equal((await pages[at].run(meshView)).state[ids[other]], "down");
    await pages[at].run(meshFault, { fault: "releaseLink", id: ids[other] });
    await waitForFullMesh();
  });
}

test(`${RECONNECTS} reconnects in one page`, { skip, timeout: 20 * 60_000 }, async () => {
  for (let turn = 0; turn < RECONNECTS; turn++) {
    await pages[1].run(leaveMesh);
    const id = await pages[1].run(joinMesh, `again ${turn}`);
    // Firefox takes a second for a link; here it comes and goes as it may.
    const chromium = pages.flatMap((page, at) =>
      page.kind === "chromium" && at !== 1 ? [{ page, at }] : [],
    );
    await Promise.all([
      ...chromium.map(({ page }) => waitForLink(page, id, "up")),
      ...chromium.map(({ at }) => waitForLink(pages[1], ids[at], "up")),
    ]);
    ids[1] = id;
  }
  await waitForFullMesh();
  const { links } = await pages[0].run(meshView);
  assert.equal(links.length, KINDS.length - 1, "links to devices that left are kept");
});

test("a page that is closed is noticed by all", { skip }, async () => {
  const [page] = pages.splice(1, 1);
  const [id] = ids.splice(1, 1);
  await page.close();
  await Promise.all(pages.map((other) => waitForLink(other, id, "down")));
  await waitForFullMesh();
});

test("the mesh outlives its server, and the pages come back to it", { skip }, async () => {
  const port = Number(new URL(server.url).port);
  await server.stop();
  const sent = await pages[0].run(sendToAll, MESSAGE_BYTES);
  for (const page of pages.slice(1)) {
    await waitFor("a message without a server", async () =>
      (await page.run(meshView)).received.some(({ digest }) => digest === sent.digest),
    );
  }
  server = await RoomServer.start(undefined, port);
  const late = await browsers.newPage("chromium");
  await late.open(`${server.url}nothing-here`);
  pages.push(late);
  ids.push(await late.run(joinMesh, "late"));
  await waitForFullMesh();
});
