/**
 * How fast is a whole training step of the page, against the same model in TensorFlow.js on its own best CPU backend?
 * Default config (width 32, 2 layers, 4 heads, sequence 32, vocabulary 16,512, batch 8), both in one Chromium page, on
 * the same batch, alternating. The page is cross-origin isolated, so that TensorFlow.js may use its threads.
 *
 *     (cd benchmarks && npm ci) && node benchmarks/browser_step.js
 *
 * A step of ours is all that a device does in a run of one: gradient, mean, DaisyAdam, state hash, kernel audit.
 * Prints one JSON line: the median milliseconds and tokens per second of both sides, and the ratio.
 */

import { createReadStream, existsSync } from "node:fs";
import { createServer } from "node:http";
import { delimiter, dirname, extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const HERE = dirname(fileURLToPath(import.meta.url));
const FOLDERS = /** @type {Record<string, string>} */ ({
  "/src/daisychain/static/": join(HERE, "../src/daisychain/static"),
  "/modules/": join(HERE, "node_modules"),
  "/benchmarks/": HERE,
});
const TYPES = /** @type {Record<string, string>} */ ({
  ".js": "text/javascript",
  ".wasm": "application/wasm",
  ".html": "text/html",
});

/** @returns {Promise<import("node:http").Server>} */
function serve() {
  const server = createServer((request, response) => {
    const path = normalize(new URL(request.url ?? "/", "http://localhost").pathname);
    response.setHeader("Cross-Origin-Opener-Policy", "same-origin");
    response.setHeader("Cross-Origin-Embedder-Policy", "require-corp");
    const prefix = Object.keys(FOLDERS).find((folder) => path.startsWith(folder));
    const file = prefix && join(FOLDERS[prefix], path.slice(prefix.length));
    if (path === "/")
      response.setHeader("Content-Type", "text/html").end("<!doctype html><title>Benchmark</title>");
    else if (!file || !existsSync(file)) response.writeHead(404).end();
    else {
      response.setHeader("Content-Type", TYPES[extname(file)] ?? "application/octet-stream");
      createReadStream(file).pipe(response);
    }
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

function program() {
  const folders = (process.env.PATH ?? "").split(delimiter);
  return folders.map((folder) => join(folder, "chromium")).find((path) => existsSync(path));
}

/** @param {number} port */
async function measure(port) {
  const browser = await chromium.launch({ executablePath: program(), args: ["--no-sandbox"] });
  try {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${port}/`);
    for (const script of ["tfjs/dist/tf.min.js", "tfjs-backend-wasm/dist/tf-backend-wasm.min.js"]) {
      await page.addScriptTag({ url: `/modules/@tensorflow/${script}` });
    }
    const module = "/benchmarks/browser_step_page.js";
    return await page.evaluate(async (path) => (await import(path)).measure(), module);
  } finally {
    await browser.close();
  }
}

const server = await serve();
const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
try {
  const claim = "a training step of the page against TensorFlow.js, both on the CPU";
  process.stdout.write(`${JSON.stringify({ claim, ...(await measure(port)) })}\n`);
} finally {
  server.close();
}
