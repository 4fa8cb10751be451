import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { openBackend } from "../../../src/daisychain/static/kernels/registry.js";
import { conformanceCases } from "./cases.js";
import { decoderOpCases } from "./decoderOps.js";
import { kernelMirrors } from "./kernelCases.js";

/** @param {string} name */
const load = async (name) =>
  JSON.parse(await readFile(new URL(`../../../vectors/${name}.json`, import.meta.url), "utf8"));

const wasmBytes = await readFile(
  new URL("../../../src/daisychain/static/kernels/kernels.wasm", import.meta.url),
);

for (const force of /** @type {const} */ (["wasm", "plain"])) {
  const { backend } = await openBackend({ wasmBytes, force });
  for (const along of [true, false]) {
    for (const { name, run } of await conformanceCases(load, kernelMirrors(backend, along))) {
      test(`${backend.name}, ${along ? "along" : "across"} rows: ${name}`, run);
    }
  }
  for (const { name, run } of decoderOpCases(backend, (await load("decoder")).decoder)) {
    test(`${backend.name}, decoder: ${name}`, run);
  }
}
