import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { openBackend } from "../../../src/daisychain/static/kernels/registry.js";
import { decoderCases } from "./decoder.js";

/** @param {string} path */
const file = (path) => readFile(new URL(`../../../${path}`, import.meta.url));

const vectors = JSON.parse((await file("vectors/decoder.json")).toString());
const wasmBytes = await file("src/daisychain/static/kernels/kernels.wasm");

for (const force of /** @type {const} */ (["plain", "wasm"])) {
  const { backend } = await openBackend({ wasmBytes, force });
  for (const { name, run } of decoderCases(backend, vectors.decoder)) test(`${force}: ${name}`, run);
}
