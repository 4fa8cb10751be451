/** The inference kit: one HTML file with the weights and the code in it, that generates text from file://. */

import { ConfigError } from "../errors.js";
import { base64 } from "./base64.js";
import { collect, importMap, PREFIX } from "./modules.js";

const ENTRY = "kit/entry.js";
const KERNELS = "kernels/kernels.wasm";

/** What every kit holds of static/. @typedef {{page: string, style: string, kernels: Uint8Array, modules: string}} KitSources */

/**
 * Everything of the folder static/ that a kit needs.
 * @param {(path: string) => Promise<Uint8Array>} read
 * @returns {Promise<KitSources>}
 */
export async function kitSources(read) {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const readText = async (/** @type {string} */ path) => decoder.decode(await read(path));
  const [page, style, kernels, sources] = await Promise.all([
    readText("kit/page.html"),
    readText("kit/page.css"),
    read(KERNELS),
    collect(ENTRY, readText),
  ]);
  return { page, style, kernels, modules: JSON.stringify(importMap(sources)) };
}

/**
 * The HTML. `weights` is a safetensors file of DaisyChain, best without the optimizer's state; `tokenizer` the file
 * tokenizer.json.
 * @param {{weights: Uint8Array, tokenizer: Uint8Array, sources: KitSources}} parts
 */
export function buildKit({ weights, tokenizer, sources: { page, style, kernels, modules } }) {
  return filled(page, {
    style,
    modules,
    entry: `import "${PREFIX}${ENTRY}";`,
    tokenizer: base64(tokenizer),
    kernels: base64(kernels),
    weights: base64(weights),
  });
}

/**
 * @param {string} page with each name once, as {{name}}
 * @param {Record<string, string>} values
 */
export function filled(page, values) {
  return page.replace(/\{\{(\w+)\}\}/g, (_, name) => {
    const value = values[name];
    if (value === undefined)
      throw new ConfigError(`the kit's page has a place for ${name}, which is not known.`);
    return value;
  });
}
