/** Pages of a real room, and what their workers say. */

import assert from "node:assert/strict";
import { Browsers, RoomServer, waitFor } from "./harness.js";

/** @typedef {import("./harness.js").BrowserPage} BrowserPage */
/** @typedef {import("./harness.js").Kind} Kind */

/** Runs in the page before its own code: keeps the worker, and all that it says but messages to others. */
function record() {
  const scope = /** @type {any} */ (globalThis);
  const Own = scope.Worker;
  scope.heard = { hashes: {}, log: [], state: null, files: [], generated: null };
  scope.Worker = class extends Own {
    /** @param {string} url @param {object} options */
    constructor(url, options) {
      super(url, options);
      scope.trainer = this;
      this.addEventListener("message", (/** @type {MessageEvent} */ { data }) => {
        if (data.type === "state") scope.heard.state = { ...data.state, losses: [] };
        if (data.type === "generated") scope.heard.generated = data;
        if (data.type === "file")
          scope.heard.files.push({ name: data.name, bytes: new Uint8Array(data.bytes) });
        if (data.type !== "log") return;
        scope.heard.log.push(data);
        if (data.hash) scope.heard.hashes[data.step] = data.hash;
      });
    }
  };
}

/** A room server and the browsers that open it. */
export class Room {
  browsers = new Browsers();
  /** @type {BrowserPage[]} */
  pages = [];
  /** @type {Set<BrowserPage>} */
  #crashed = new Set();
  /** @type {RoomServer} */
  server = /** @type {any} */ (null);

  async open() {
    this.server = await RoomServer.start();
  }

  /** Another device, linked to all that are there. @param {Kind} kind */
  async join(kind = "chromium") {
    const page = await this.browsers.newPage(kind);
    if (kind === "firefox") await /** @type {any} */ (page.own).evaluateOnNewDocument(record);
    else await page.own.addInitScript(record);
    page.own.on("crash", () => this.#crashed.add(page));
    await page.open(this.server.url);
    this.pages.push(page);
    await this.linked(this.pages);
    return page;
  }

  /** @param {BrowserPage[]} pages */
  async linked(pages) {
    for (const page of pages) {
      await waitFor("links", async () => {
        const { state } = await heard(page);
        return (
          state?.devices.filter((/** @type {any} */ { link }) => link === "up").length === pages.length - 1
        );
      });
    }
  }

  /** @param {BrowserPage} page */
  crashed(page) {
    return this.#crashed.has(page);
  }

  async close() {
    await this.browsers.close();
    await this.server?.stop();
  }
}

/** What a page's worker has said. @param {BrowserPage} page @returns {Promise<any>} */
export function heard(page) {
  return page.run(() => {
    const { files, ...rest } = /** @type {any} */ (globalThis).heard;
    return { ...rest, files: files.map((/** @type {any} */ { name }) => name) };
  });
}

/**
 * A file that a page's worker makes.
 * @param {BrowserPage} page @param {any} message that asks for it
 */
export async function saved(page, message) {
  const before = (await heard(page)).files.length;
  await tell(page, message);
  await waitFor("a file", async () => (await heard(page)).files.length > before);
  const text = await page.run(() => {
    const { bytes } = /** @type {any} */ (globalThis).heard.files.at(-1);
    return new Promise((resolve) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.readAsDataURL(new Blob([bytes]));
    });
  });
  return Buffer.from(String(text).split(",")[1], "base64");
}

/** Say something to a page's worker. @param {BrowserPage} page @param {any} message */
export function tell(page, message) {
  return page.run((message) => /** @type {any} */ (globalThis).trainer.postMessage(message), message);
}

/** @param {BrowserPage} page @param {number} step @param {number} [limitMs] */
export function reached(page, step, limitMs = 180_000) {
  return waitFor(`step ${step}`, async () => ((await heard(page)).state?.step ?? 0) >= step, limitMs);
}

/** @param {BrowserPage} page @param {string[]} phases @param {number} [limitMs] */
export function inPhase(page, phases, limitMs = 180_000) {
  return waitFor(
    phases.join(" or "),
    async () => {
      const { state } = await heard(page);
      return phases.includes(state?.phase) && state;
    },
    limitMs,
  );
}

/** Every state that any two devices had at one step is the same; the hashes of each, by step. @param {BrowserPage[]} pages */
export async function equalHashes(pages) {
  const all = await Promise.all(pages.map(async (page) => (await heard(page)).hashes));
  const seen = new Map();
  for (const [step, hash] of all.flatMap((hashes) => Object.entries(hashes))) {
    assert.equal(hash, seen.get(step) ?? hash, `step ${step}`);
    seen.set(step, hash);
  }
  return all;
}
