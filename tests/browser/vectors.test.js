/** The golden vectors in both browsers: the mirrors and both sets of kernels give the contract's bits. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import test, { after, before } from "node:test";
import { Browsers, missing, ROOT } from "./harness.js";

const TYPES = /** @type {Record<string, string>} */ ({ ".js": "text/javascript", ".html": "text/html" });
const browsers = new Browsers();
const server = createServer(async ({ url }, response) => {
  const path = normalize(new URL(url ?? "/", "http://page").pathname);
  try {
    const body = path === "/" ? "<!doctype html><title>Vectors</title>" : await readFile(join(ROOT, path));
    response.setHeader("Content-Type", TYPES[extname(path) || ".html"] ?? "application/octet-stream");
    response.end(body);
  } catch {
    response.writeHead(404).end();
  }
});

before(() => new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(null))));
after(async () => {
  await browsers.close();
  server.close();
});

for (const kind of /** @type {const} */ (["chromium", "firefox"])) {
  test(`every vector in ${kind}`, { skip: missing([kind]), timeout: 120_000 }, async () => {
    const address = server.address();
    assert.ok(address && typeof address === "object");
    const page = await browsers.newPage(kind);
    await page.open(`http://127.0.0.1:${address.port}/`);
    const { ran, failed } = await page.run(async (module) => {
      const { everything } = await import(module);
      return everything((/** @type {string} */ path) => fetch(`/${path}`));
    }, "/tests/conformance/js/everything.js");
    assert.deepEqual(failed, []);
    for (const suite of ["mirrors", "wasm", "plain"]) assert.ok(ran[suite] > 30, `${suite}: ${ran[suite]}`);
    assert.deepEqual(page.errors, []);
  });
}
