/** Text from a model: the same token everywhere for a seed (docs/NUMERICS.md, rule 22). */

import { ConfigError, NonFiniteError } from "../errors.js";
import { GENERATED_TOKENS_MAX, SAMPLING_TOP_K, TEMPERATURE, VOCABULARY } from "../limits.js";
import { exp, laneSum } from "../numerics/functions.js";
import { fround, max } from "../numerics/numbers.js";
import { randomBits, streamKey } from "./weights.js";

/** What goes before a text that has no beginning: a model needs something to go on. */
export const EMPTY_PROMPT = "\n";

/**
 * `tokens` ids that go on from the ids of a prompt, one by one. Throws ConfigError for bad arguments, at once.
 * @param {{config: {sequence: number}, logits(ids: number[]): Promise<Float32Array>}} model
 * @param {ArrayLike<number>} prompt
 * @param {{tokens: number, temperature: number, seed: number}} settings
 * @returns {AsyncGenerator<number>}
 */
export function generate(model, prompt, { tokens, temperature, seed }) {
  checkWhole("tokens", tokens, 0, GENERATED_TOKENS_MAX);
  checkWhole("seed", seed, 0, 2 ** 32 - 1);
  const [coolest, hottest] = TEMPERATURE;
  if (temperature !== 0 && !(temperature >= coolest && temperature <= hottest)) {
    throw new ConfigError(`temperature ${temperature} must be 0, or from ${coolest} to ${hottest}.`);
  }
  if (prompt.length < 1) {
    throw new ConfigError("the prompt has no tokens; give the model something to go on.");
  }
  return goOn(model, Array.from(prompt), tokens, temperature, streamKey(seed, 0));
}

/**
 * @param {Parameters<typeof generate>[0]} model
 * @param {number[]} context
 * @param {number} tokens
 * @param {number} temperature
 * @param {number} key
 */
async function* goOn(model, context, tokens, temperature, key) {
  for (let i = 0; i < tokens; i++) {
    context = context.slice(-model.config.sequence);
    const token = pick(await model.logits(context), temperature, randomBits(key, i) * 2 ** -24);
    context.push(token);
    yield token;
  }
}

/**
 * @param {string} name
 * @param {number} value
 * @param {number} least
 * @param {number} most
 */
function checkWhole(name, value, least, most) {
  if (!Number.isInteger(value) || value < least || value > most) {
    throw new ConfigError(`${name} ${value} must be a whole number from ${least} to ${most}.`);
  }
}

/**
 * One of the tokens from logits and a random `fraction` in [0, 1). Temperature 0: the likeliest.
 * @param {Float32Array} logits
 * @param {number} temperature
 * @param {number} fraction
 * @param {number} [topK] how many of the likeliest are chosen from
 */
export function pick(logits, temperature, fraction, topK = SAMPLING_TOP_K) {
  if (!logits.every(Number.isFinite)) {
    throw new NonFiniteError("the model's logits are NaN or infinite; its training has diverged.");
  }
  const largest = logits.reduce((a, b) => max(a, b));
  if (temperature === 0) return logits.indexOf(largest);
  checkWhole("topK", topK, 1, VOCABULARY);
  const kept = likeliest(logits, topK);
  const divisor = fround(temperature);
  const exponentials = Float32Array.from(kept, (i) => exp(fround(fround(logits[i] - largest) / divisor)));
  const total = laneSum(exponentials);
  let cumulative = 0;
  for (const [place, exponential] of exponentials.entries()) {
    cumulative = fround(cumulative + fround(exponential / total));
    if (cumulative > fraction) return kept[place];
  }
  // Rounding can leave the sum just below 1: then the last token that has a share of its own.
  return kept[exponentials.findLastIndex((exponential) => exponential > 0)];
}

/**
 * The places of the `count` largest, in order of place; of equal ones the first.
 * @param {Float32Array} logits
 * @param {number} count
 */
function likeliest(logits, count) {
  const least = logits.slice().sort()[max(0, logits.length - count)];
  let ties = count - logits.filter((value) => value > least).length;
  const kept = [];
  for (const [i, value] of logits.entries()) {
    if (value > least || (value === least && ties-- > 0)) kept.push(i);
  }
  return kept;
}
