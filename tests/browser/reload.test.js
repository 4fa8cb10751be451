/** Private rooms in real browsers: who was let in comes back after a reload, and who waits is told the truth. */

import assert from "node:assert/strict";
import test, { afterEach, beforeEach } from "node:test";
import { Browsers, missing, RoomServer, waitFor } from "./harness.js";

/** @typedef {import("./harness.js").BrowserPage} BrowserPage */

const skip = missing(["chromium", "firefox"]);
/** @type {RoomServer} */
let server;
/** @type {Browsers} */
let browsers;
let url = "";

beforeEach(async () => {
  if (skip) return;
  server = await RoomServer.start();
  browsers = new Browsers();
  url = `${server.url}?room=ABCDEFGH01234`;
});
afterEach(async () => {
  await browsers?.close();
  await server?.stop();
});

/** @param {BrowserPage} page @param {string} words */
const shows = (page, words) =>
  waitFor(words, () =>
    page.run((words) => document.getElementById("door-text")?.textContent?.includes(words), words),
  );

/** @param {BrowserPage} page */
const isInside = (page) =>
  waitFor("the room", () => page.run(() => document.getElementById("room")?.hidden === false));

test("a member that reloads is in again without asking", { skip }, async () => {
  const [host, guest] = [await browsers.newPage("chromium"), await browsers.newPage("firefox")];
  await host.open(url);
  await isInside(host);
  await guest.open(url);
  await host.own.click("#knock-list button");
  await isInside(guest);
  await guest.own.reload();
  await isInside(guest);
  assert.equal(await host.run(() => document.getElementById("knocks")?.hidden), true);
  assert.deepEqual([...host.errors, ...guest.errors], []);
});

test("a host that reloads alone is asked again; when it goes, who waits is told", { skip }, async () => {
  const [host, guest] = [await browsers.newPage("chromium"), await browsers.newPage("firefox")];
  await host.open(url);
  await isInside(host);
  await guest.open(url);
  await shows(guest, "has been asked");
  await host.own.reload();
  await host.own.waitForSelector("#knock-list button");
  await shows(guest, "has been asked");
  await host.close();
  await shows(guest, "nobody is there who could let you in");
});
