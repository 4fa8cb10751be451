/** ES modules for a page that cannot fetch: all that an entry imports, as an import map of data: URLs. Pure. */

import { ConfigError } from "../errors.js";
import { base64 } from "./base64.js";

/** What stands before a module's path where it is imported: relative names mean nothing inside a data: URL. */
export const PREFIX = "daisychain/";

/** A static import or re-export at the start of a line: what stands before its name, the quote, the name. */
const IMPORT = /^((?:import|export)\b(?:[^;"'()]*?\bfrom)?\s*)(["'])([^"']+)\2/gm;

/**
 * @param {string} importer path of a module
 * @param {string} name that it imports
 */
function resolved(importer, name) {
  if (!/^\.\.?\//.test(name)) {
    throw new ConfigError(
      `${importer} imports ${name}, which is no file of DaisyChain: a kit cannot hold it.`,
    );
  }
  const base = "https://daisychain.invalid/";
  return new URL(name, base + importer).href.slice(base.length);
}

/**
 * The sources of a module and of everything below it.
 * @param {string} entry path
 * @param {(path: string) => Promise<string>} read
 * @returns {Promise<Map<string, string>>} by path
 */
export async function collect(entry, read) {
  const sources = new Map();
  const wanted = [entry];
  for (let path = wanted.pop(); path !== undefined; path = wanted.pop()) {
    if (sources.has(path)) continue;
    const source = await read(path);
    sources.set(path, source);
    for (const [, , , name] of source.matchAll(IMPORT)) wanted.push(resolved(path, name));
  }
  return sources;
}

/**
 * @param {Map<string, string>} sources by path
 * @returns {{imports: Record<string, string>}} for a `<script type="importmap">`
 */
export function importMap(sources) {
  const encoder = new TextEncoder();
  const entries = [...sources].map(([path, source]) => {
    const bare = source.replace(
      IMPORT,
      (_, before, quote, name) => `${before}${quote}${PREFIX}${resolved(path, name)}${quote}`,
    );
    return [PREFIX + path, `data:text/javascript;base64,${base64(encoder.encode(bare))}`];
  });
  return { imports: Object.fromEntries(entries) };
}
