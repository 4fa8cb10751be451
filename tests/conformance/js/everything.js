/** Every vector through the mirrors and through both sets of kernels; runs where there is no test runner: in a page. */

import { openBackend } from "../../../src/daisychain/static/kernels/registry.js";
import { conformanceCases } from "./cases.js";
import { decoderCases } from "./decoder.js";
import { decoderOpCases } from "./decoderOps.js";
import { kernelMirrors } from "./kernelCases.js";

/**
 * How many cases ran on each, and what failed.
 * @param {(path: string) => Promise<Response>} get a file of the repository
 */
export async function everything(get) {
  const load = async (/** @type {string} */ name) => (await get(`vectors/${name}.json`)).json();
  const { decoder } = await load("decoder");
  const wasmBytes = new Uint8Array(
    await (await get("src/daisychain/static/kernels/kernels.wasm")).arrayBuffer(),
  );
  /** @type {Record<string, {name: string, run: () => void | Promise<void>}[]>} */
  const suites = { mirrors: await conformanceCases(load) };
  for (const force of /** @type {const} */ (["wasm", "plain"])) {
    const { backend } = await openBackend({ wasmBytes, force });
    suites[force] = [
      ...(await conformanceCases(load, kernelMirrors(backend, true))),
      ...(await conformanceCases(load, kernelMirrors(backend, false))),
      ...decoderOpCases(backend, decoder),
      ...decoderCases(backend, decoder),
    ];
  }
  /** @type {string[]} */
  const failed = [];
  for (const [suite, cases] of Object.entries(suites)) {
    for (const { name, run } of cases) {
      try {
        await run();
      } catch (error) {
        failed.push(`${suite}: ${name}: ${error}`);
      }
    }
  }
  const ran = Object.fromEntries(Object.entries(suites).map(([suite, cases]) => [suite, cases.length]));
  return { ran, failed };
}
