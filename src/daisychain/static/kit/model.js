/** The model in a kit: its files opened and checked, and the text it writes. */

import { readCheckpoint } from "../checkpoint/validate.js";
import { VOCABULARY } from "../limits.js";
import { EMPTY_PROMPT, generate } from "../model/generate.js";
import { Inference } from "../model/inference.js";
import { Tokenizer } from "../model/tokenizer.js";
import { parameterCount, parameterShapes } from "../model/weights.js";
import { sha256, toHex } from "../numerics/sha256.js";
import { stateHash } from "../numerics/stateHash.js";

/**
 * @param {{weights: Uint8Array, tokenizer: Uint8Array}} files
 * @param {import("../model/inference.js").Backend} backend
 */
export async function openModel(files, backend) {
  const tokenizer = new Tokenizer(JSON.parse(new TextDecoder().decode(files.tokenizer)));
  const digest = toHex(sha256(files.tokenizer));
  const known = { digest, vocabulary: VOCABULARY };
  const { config, step, weights } = readCheckpoint(files.weights, "in this file", known);
  const model = new Inference(backend, config);
  backend.write(model.weights, weights);
  const hash = toHex(stateHash(tensors(config, new Uint8Array(weights.buffer)), step));
  return {
    facts: { ...config, step, parameters: parameterCount(config), hash, backend: backend.name },
    /**
     * The text so far after each token.
     * @param {string} prompt
     * @param {{tokens: number, temperature: number, seed: number}} settings
     */
    async *write(prompt, settings) {
      const ids = [];
      for await (const id of generate(model, tokenizer.encode(prompt || EMPTY_PROMPT), settings)) {
        ids.push(id);
        yield { text: tokenizer.decode(ids), ids };
      }
    },
  };
}

/**
 * @param {import("../model/inference.js").DecoderConfig} config
 * @param {Uint8Array} bytes of the flat vector
 * @returns {[string, import("../numerics/stateHash.js").Tensor][]}
 */
function tensors(config, bytes) {
  return parameterShapes(config).map(({ name, shape, at, length }) => [
    name,
    { type: "<f4", shape, bytes: bytes.subarray(4 * at, 4 * (at + length)) },
  ]);
}
