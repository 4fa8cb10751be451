/** The kit in real browsers, from file:// : the same tokens as the model it was made of, and nothing fetched. */

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { after } from "node:test";
import { pathToFileURL } from "node:url";
import { writeSafetensors } from "../../src/daisychain/static/checkpoint/checkpoint.js";
import { openBackend } from "../../src/daisychain/static/kernels/registry.js";
import { buildKit, kitSources } from "../../src/daisychain/static/kit/build.js";
import { openModel } from "../../src/daisychain/static/kit/model.js";
import { VOCABULARY } from "../../src/daisychain/static/limits.js";
import { initialWeights } from "../../src/daisychain/static/model/weights.js";
import { sha256, toHex } from "../../src/daisychain/static/numerics/sha256.js";
import { Browsers, missing, ROOT, waitFor } from "./harness.js";

const CONFIG = { vocabulary: VOCABULARY, width: 32, layers: 2, heads: 4, sequence: 32 };
const SETTINGS = { tokens: 24, temperature: 0.8, seed: 7 };
const PROMPT = "Once upon a time, é€😀 ";
const read = async (/** @type {string} */ path) =>
  new Uint8Array(await readFile(join(ROOT, "src/daisychain/static", path)));
const browsers = new Browsers();
const folder = await mkdtemp(join(tmpdir(), "daisychain kit "));

after(async () => {
  await browsers.close();
  await rm(folder, { recursive: true });
});

async function parts() {
  const tokenizer = new Uint8Array(await readFile(join(ROOT, "src/daisychain/data/tokenizer.json")));
  const [weights, digest] = [initialWeights(CONFIG, 3), toHex(sha256(tokenizer))];
  return {
    weights: writeSafetensors({ config: CONFIG, step: 5, tokenizer: digest, weights }),
    tokenizer,
    sources: await kitSources(read),
  };
}

for (const kind of /** @type {const} */ (["chromium", "firefox"])) {
  test(`${kind} writes the model's own text from a file`, { skip: missing([kind]) }, async () => {
    const kit = await parts();
    const file = join(folder, `${kind} kit.html`);
    await writeFile(file, buildKit(kit));
    const { backend } = await openBackend({ wasmBytes: await read("kernels/kernels.wasm"), force: "wasm" });
    const model = await openModel(kit, backend);
    let expected = "";
    for await (const { text } of model.write(PROMPT, SETTINGS)) expected = PROMPT + text;

    const page = await browsers.newPage(kind, { offline: true });
    /** @type {string[]} */
    const asked = [];
    page.own.on("request", (request) => asked.push(request.url()));
    await page.open(pathToFileURL(file).href);
    const status = () => page.run(() => document.getElementById("status")?.textContent);
    await waitFor("the model", async () => (await status()) !== "Loading the model…");
    assert.equal(await status(), "Ready.");
    await page.run(
      ({ prompt, tokens, temperature, seed }) => {
        for (const [id, value] of Object.entries({ prompt, length: tokens, temperature, seed })) {
          /** @type {any} */ (document.getElementById(id)).value = value;
        }
        document.getElementById("write")?.click();
      },
      { prompt: PROMPT, ...SETTINGS },
    );
    await waitFor("the text", () => page.run(() => document.getElementById("stop")?.hidden));
    assert.equal(await page.run(() => document.getElementById("written")?.textContent), expected);
    const facts = await page.run(() => document.getElementById("facts")?.textContent);
    assert.match(facts ?? "", new RegExp(`5 steps.*554,144.*${model.facts.hash}.*WebAssembly`));
    assert.deepEqual(asked.filter((url) => !url.startsWith("data:")).slice(1), []);
    assert.deepEqual(page.errors, []);
    await page.close();
  });
}

test("a kit whose weights were altered says so", { skip: missing(["chromium"]) }, async () => {
  const kit = await parts();
  new DataView(kit.weights.buffer).setUint32(kit.weights.length - 4, 0x7fc00000, true);
  const file = join(folder, "altered.html");
  await writeFile(file, buildKit(kit));
  const page = await browsers.newPage("chromium");
  await page.open(pathToFileURL(file).href);
  const status = () => page.run(() => document.getElementById("status")?.textContent ?? "");
  await waitFor("the refusal", async () => /cannot be used: .*NaN/.test(await status()));
  await page.close();
});
