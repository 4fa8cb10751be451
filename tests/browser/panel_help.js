/** The dashboard or the control panel, and runs, as real processes for browser tests. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { freePort, ROOT, waitFor } from "./harness.js";

const START_LIMIT_MS = 60_000;

/** @param {string[]} args @param {string} folder @param {Record<string, string>} [env] */
export function daisychain(args, folder, env = {}) {
  const path = [join(ROOT, ".venv/bin"), process.env.PATH].join(delimiter);
  return spawn("daisychain", args, {
    cwd: folder,
    env: { ...process.env, PATH: path, OMP_NUM_THREADS: "1", ...env },
    stdio: ["ignore", "ignore", "pipe"],
  });
}

/** Ends a process, by force if it must be. @param {import("node:child_process").ChildProcess} child */
export async function end(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGINT");
  const timer = setTimeout(() => child.kill("SIGKILL"), 8_000);
  await ended;
  clearTimeout(timer);
}

/** A folder that is gone afterwards. */
export function scratch() {
  const folder = mkdtempSync(join(tmpdir(), "daisychain-"));
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }) };
}

/** `daisychain dashboard` (or another command of the pages) on loopback. */
export class Pages {
  /** @param {import("node:child_process").ChildProcess} child @param {string} url @param {() => string} said */
  constructor(child, url, said) {
    this.child = child;
    this.url = url;
    this.said = said;
  }

  /** @param {string} folder in which runs/ lies @param {string[]} [options] @param {string} [command] @param {Record<string, string>} [env] */
  static async start(folder, options = [], command = "dashboard", env = {}) {
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const child = daisychain([command, "--port", String(port), ...options], folder, env);
    let said = "";
    child.stderr?.on("data", (data) => {
      said += data;
    });
    await waitFor(
      "the pages",
      async () => {
        assert.equal(child.exitCode, null, `the pages ended:\n${said}`);
        return said.includes("Ctrl-C closes the pages");
      },
      START_LIMIT_MS,
    );
    return new Pages(child, url, () => said);
  }

  async stop() {
    await end(this.child);
  }
}

/** What a run has written. @param {string} run its folder */
export const record = (run) => ({
  /** @returns {any} */
  last() {
    const lines = readFileSync(join(run, "metrics.jsonl"), "utf8").trimEnd().split("\n");
    return JSON.parse(lines[lines.length - 1]);
  },
  /** @param {string} name @returns {any[]} */
  lines(name) {
    return readFileSync(join(run, name), "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
  },
  /** @param {string} name @returns {any} */
  json(name) {
    return JSON.parse(readFileSync(join(run, name), "utf8"));
  },
});
