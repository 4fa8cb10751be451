/** The decoder's parameters: names, shapes, their places in the flat vector, seeded beginnings (rule 16). */

import { ConfigError } from "../errors.js";
import { MAX_LAYERS, SEQUENCE, VOCABULARY, WIDTH } from "../limits.js";
import { fround, sqrt } from "../numerics/numbers.js";
import { mix } from "../numerics/roster.js";

/** @typedef {{vocabulary: number, width: number, layers: number, heads: number, sequence: number}} DecoderConfig */
/** One tensor: `at` is where it begins in the flat vector, `length` how many numbers it has.
 * @typedef {{name: string, shape: number[], at: number, length: number}} Parameter */

const EMBEDDING_BOUND = fround(0.02 * sqrt(3)); // a standard deviation of 0.02
const EMBEDDINGS = ["tokens", "positions"];
const GOLDEN = 0x9e3779b9;
const SEEDS = 2 ** 32;

/**
 * The five numbers of a config, and nothing else. Throws ConfigError for one outside the limits.
 * @param {DecoderConfig} config
 * @returns {DecoderConfig}
 */
export function checkConfig({ vocabulary, width, layers, heads, sequence }) {
  const bounds = /** @type {const} */ ([
    ["vocabulary", vocabulary, VOCABULARY],
    ["width", width, WIDTH[1]],
    ["layers", layers, MAX_LAYERS],
    ["heads", heads, width],
    ["sequence", sequence, SEQUENCE[1]],
  ]);
  for (const [name, value, most] of bounds) {
    if (!Number.isInteger(value) || value < 1 || value > most) {
      throw new ConfigError(`${name} ${value} must be a whole number from 1 to ${most}.`);
    }
  }
  if (width % heads) throw new ConfigError(`width ${width} is not a multiple of heads ${heads}.`);
  return { vocabulary, width, layers, heads, sequence };
}

/**
 * Every parameter, in the order of the flat vector. Matrices are [outer, inner].
 * @param {DecoderConfig} config
 * @returns {Parameter[]}
 */
export function parameterShapes({ vocabulary, width, layers, sequence }) {
  /** @type {[string, number[]][]} */
  const shapes = [
    ["tokens", [vocabulary, width]],
    ["positions", [sequence, width]],
  ];
  for (let i = 0; i < layers; i++) {
    shapes.push(
      [`blocks.${i}.norm1`, [width]],
      [`blocks.${i}.query_key_value`, [3 * width, width]],
      [`blocks.${i}.attention_out`, [width, width]],
      [`blocks.${i}.norm2`, [width]],
      [`blocks.${i}.mlp_up`, [4 * width, width]],
      [`blocks.${i}.mlp_down`, [width, 4 * width]],
    );
  }
  shapes.push(["norm", [width]]);
  let at = 0;
  return shapes.map(([name, shape]) => {
    const length = shape.reduce((a, b) => a * b);
    at += length;
    return { name, shape, at: at - length, length };
  });
}

/**
 * The length of the flat vector.
 * @param {DecoderConfig} config
 */
export function parameterCount(config) {
  return parameterShapes(config).reduce((total, { length }) => total + length, 0);
}

/**
 * The key of one of a seed's independent streams.
 * @param {number} seed u32
 * @param {number} stream
 */
export function streamKey(seed, stream) {
  return mix(mix(seed + GOLDEN) + stream);
}

/**
 * Number `i` of the stream `key`: 24 random bits, 0 … 2^24 − 1.
 * @param {number} key
 * @param {number} i
 */
export function randomBits(key, i) {
  return mix(mix(i + key)) >>> 8;
}

/**
 * The flat vector that a run of this seed begins with. Throws ConfigError for a seed that is no u32.
 * @param {DecoderConfig} config
 * @param {number} seed
 */
export function initialWeights(config, seed) {
  if (!Number.isInteger(seed) || seed < 0 || seed >= SEEDS) {
    throw new ConfigError(`seed ${seed} must be a whole number from 0 to ${SEEDS - 1}.`);
  }
  const flat = new Float32Array(parameterCount(config)).fill(1);
  parameterShapes(config).forEach(({ name, shape, at, length }, place) => {
    if (shape.length === 1) return;
    const key = streamKey(seed, place);
    const bound = EMBEDDINGS.includes(name) ? EMBEDDING_BOUND : fround(1 / fround(sqrt(shape[1])));
    for (let i = 0; i < length; i++) flat[at + i] = (randomBits(key, i) - 2 ** 23) * 2 ** -23 * bound;
  });
  return flat;
}
