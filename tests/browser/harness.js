/**
 * Real browsers and a real room server for tests.
 *
 * A browser that is not installed is a named skip for a person and a failure when CI=true. Everything that is
 * started here is ended by its own handle; nothing else is touched.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import puppeteer from "puppeteer-core";

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../..");
export const LIMIT_MS = 30_000;

/** @typedef {"chromium" | "firefox"} Kind */
/** @typedef {import("playwright-core").Browser} Chromium */
/** @typedef {import("puppeteer-core").Browser} Firefox */

/** @type {Record<Kind, string[]>} names on PATH, first choice first */
const PROGRAMS = { chromium: ["chromium", "chromium-browser"], firefox: ["firefox-esr", "firefox"] };
const CHROMIUM_FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** @param {string[]} names @returns {string | null} full path of the first that is on PATH */
function find(names) {
  for (const name of names) {
    for (const folder of (process.env.PATH ?? "").split(delimiter)) {
      const path = join(folder, name);
      if (existsSync(path)) return path;
    }
  }
  return null;
}

/**
 * Why a test that needs these browsers is skipped; false if it is not. For the `skip` option of a test.
 * @param {Kind[]} kinds
 * @returns {string | false}
 */
export function missing(kinds) {
  const absent = [...new Set(kinds)].filter((kind) => !find(PROGRAMS[kind]));
  if (!absent.length) return false;
  const text = `not installed: ${absent.join(", ")}`;
  if (process.env.CI === "true") throw new Error(`CI needs every browser; ${text}`);
  return text;
}

/**
 * @template T
 * @param {string} what is waited for, for the failure
 * @param {() => Promise<T> | T} check
 * @param {number} [limitMs]
 * @returns {Promise<NonNullable<T>>} the first truthy value of `check`
 */
export async function waitFor(what, check, limitMs = LIMIT_MS) {
  const endMs = performance.now() + limitMs;
  for (;;) {
    const value = await check();
    if (value) return value;
    if (performance.now() > endMs) assert.fail(`waited ${limitMs / 1000} s for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** @returns {Promise<number>} a port of loopback that was free a moment ago */
export async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(null)));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === "object" && address ? address.port : 0;
}

/** A `daisychain room` on loopback. */
export class RoomServer {
  /** @param {import("node:child_process").ChildProcess} child @param {string} url with a slash at its end */
  constructor(child, url) {
    this.child = child;
    this.url = url;
  }

  /** @param {string[]} [options] of `daisychain room` @param {number} [port] */
  static async start(options = ["--data", "embedded"], port) {
    const at = port ?? (await freePort());
    const url = `http://127.0.0.1:${at}/`;
    const path = [join(ROOT, ".venv/bin"), process.env.PATH].join(delimiter);
    const args = ["room", "--host", "127.0.0.1", "--port", String(at), ...options];
    const child = spawn("daisychain", args, {
      env: { ...process.env, PATH: path },
      stdio: ["ignore", "ignore", "pipe"],
    });
    let said = "";
    child.stderr.on("data", (data) => {
      said += data;
    });
    await waitFor("the room server", async () => {
      assert.equal(child.exitCode, null, `the room server ended:\n${said}`);
      return fetch(`${url}config.json`).then(
        ({ ok }) => ok,
        () => false,
      );
    });
    return new RoomServer(child, url);
  }

  async stop() {
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    if (this.child.exitCode !== null) return;
    this.child.kill("SIGTERM");
    const timer = setTimeout(() => this.child.kill("SIGKILL"), 5_000);
    await ended;
    clearTimeout(timer);
  }
}

/** A page of either browser. */
export class BrowserPage {
  /** What went wrong in the page by itself. @type {string[]} */
  errors = [];
  #page;
  #leave;

  /**
   * @param {Kind} kind
   * @param {import("playwright-core").Page | import("puppeteer-core").Page} page
   * @param {() => Promise<void>} leave closes the page's context
   */
  constructor(kind, page, leave) {
    this.kind = kind;
    this.#page = /** @type {import("playwright-core").Page} */ (page);
    this.#leave = leave;
    this.#page.on("pageerror", (error) => this.errors.push(String(error)));
  }

  /** @param {string} url */
  async open(url) {
    await this.#page.goto(url, { timeout: LIMIT_MS });
  }

  /**
   * Runs a function in the page. It sees nothing of this side but its argument.
   * @template A, R
   * @param {(argument: A) => R} action
   * @param {A} [argument]
   * @returns {Promise<Awaited<R>>}
   */
  async run(action, argument) {
    return /** @type {any} */ (this.#page).evaluate(action, argument);
  }

  /** @param {string} path */
  async screenshot(path) {
    await this.#page.screenshot({ path });
  }

  /** The page of the browser's own library, for what the two do not share. */
  get own() {
    return this.#page;
  }

  async close() {
    await this.#leave();
  }
}

/** One Chromium and one Firefox at most, each with a fresh profile; started when first used. */
export class Browsers {
  /** @type {Promise<Chromium> | null} */
  #chromium = null;
  /** @type {Promise<Firefox> | null} */
  #firefox = null;

  /** @param {Kind} kind @param {object} [options] of Playwright's context (Chromium only) */
  async newPage(kind, options = {}) {
    if (kind === "firefox") {
      this.#firefox ??= puppeteer.launch({
        browser: "firefox",
        executablePath: find(PROGRAMS.firefox) ?? "",
        headless: true,
        timeout: LIMIT_MS,
      });
      const context = await (await this.#firefox).createBrowserContext();
      return new BrowserPage(kind, await context.newPage(), () => context.close());
    }
    this.#chromium ??= chromium.launch({
      executablePath: find(PROGRAMS.chromium) ?? "",
      args: CHROMIUM_FLAGS,
      timeout: LIMIT_MS,
    });
    const context = await (await this.#chromium).newContext(options);
    return new BrowserPage(kind, await context.newPage(), () => context.close());
  }

  /** @param {Kind[]} kinds @param {string} url @returns {Promise<BrowserPage[]>} one page each, opened */
  async openPages(kinds, url) {
    return Promise.all(
      kinds.map(async (kind) => {
        const page = await this.newPage(kind);
        await page.open(url);
        return page;
      }),
    );
  }

  async close() {
    await Promise.all([this.#chromium, this.#firefox].map(async (browser) => (await browser)?.close()));
  }
}
