/** A decoder's weights in a backend, and what they say may follow a text. */

import { ConfigError } from "../errors.js";
import { slice } from "../kernels/memory.js";
import { blockForward, scratchLengths, traceLengths } from "./chains.js";
import { checkConfig, parameterCount, parameterShapes } from "./weights.js";

/** @typedef {import("./weights.js").DecoderConfig} DecoderConfig */
/** @typedef {import("../kernels/memory.js").Backend} Backend */
/** @typedef {import("./chains.js").Buffers} Buffers */
/** @typedef {import("./chains.js").Sizes} Sizes */
/** @typedef {import("../kernels/memory.js").Buffer} Buffer */
/** @typedef {import("../kernels/memory.js").Op} Op */

/** The model for going on with a text; Decoder trains it. */
export class Inference {
  /**
   * Room for `samples` sequences at once. Throws ConfigError for a config outside the limits.
   * @param {Backend} backend
   * @param {DecoderConfig} config
   * @param {number} [samples]
   */
  constructor(backend, config, samples = 1) {
    this.backend = backend;
    this.config = checkConfig(config);
    this.length = parameterCount(config);
    /** @type {Buffer[]} */
    this.allocated = [];
    this.weights = this.floats(this.length);
    this.named = this.byName(this.weights);
    /** @type {Sizes} */
    this.sizes = { samples, ...this.config };
    const rows = samples * config.sequence;
    this.ids = backend.u16(rows);
    this.allocated.push(this.ids);
    this.traces = Array.from({ length: config.layers }, () => this.all(traceLengths(this.sizes)));
    this.scratch = this.all(scratchLengths(this.sizes));
    this.last = this.all({ x: rows * config.width, normed: rows * config.width, inverse: rows });
    /** @type {Buffer | undefined} */
    this.row = undefined;
  }

  /**
   * What may follow the last of `ids` (1 … sequence of them): [vocabulary].
   * @param {ArrayLike<number>} ids
   * @returns {Promise<Float32Array>}
   */
  async logits(ids) {
    const { backend, named, last } = this;
    const { width, vocabulary, sequence } = this.config;
    if (ids.length < 1 || ids.length > sequence) {
      throw new ConfigError(`${ids.length} tokens must be between 1 and the sequence, ${sequence}.`);
    }
    this.row ??= this.floats(vocabulary);
    backend.write(this.ids, Uint16Array.from(ids));
    for (const chain of this.forward({ ...this.sizes, samples: 1, sequence: ids.length })) {
      await backend.run(chain);
    }
    const x = slice(last.x, (ids.length - 1) * width, width);
    await backend.run([
      { op: "norm", x, gain: named.norm, out: last.normed, inverse: last.inverse, rows: 1, width },
      {
        op: "linear",
        x: last.normed,
        w: named.tokens,
        out: this.row,
        rows: 1,
        inner: width,
        outer: vocabulary,
      },
    ]);
    return backend.read(this.row);
  }

  /** Give the memory back; the model is used up. */
  free() {
    for (const buffer of this.allocated) this.backend.free(buffer);
    this.allocated = [];
  }

  /**
   * The chains from ids to what the last block gives, in `last.x`: one for the embedding and one a block.
   * @param {Sizes} sizes
   * @returns {Op[][]}
   */
  forward(sizes) {
    const { ids, named, traces, scratch } = this;
    const rows = sizes.samples * sizes.sequence;
    const outs = [...traces.map(({ x }) => x), this.last.x];
    const { tokens, positions } = named;
    return [
      [
        {
          op: "embed",
          ids,
          tokens,
          positions,
          out: outs[0],
          rows,
          sequence: sizes.sequence,
          width: sizes.width,
        },
      ],
      ...traces.map((trace, i) => blockForward(ofBlock(named, i), trace, scratch, outs[i + 1], sizes)),
    ];
  }

  /** @param {number} length */
  floats(length) {
    const buffer = this.backend.f32(length);
    this.allocated.push(buffer);
    return buffer;
  }

  /**
   * @param {import("./chains.js").Lengths} lengths
   * @returns {Buffers}
   */
  all(lengths) {
    return Object.fromEntries(Object.entries(lengths).map(([name, length]) => [name, this.floats(length)]));
  }

  /**
   * The tensors of a flat vector.
   * @param {Buffer} flat
   * @returns {Buffers}
   */
  byName(flat) {
    const parts = parameterShapes(this.config);
    return Object.fromEntries(parts.map(({ name, at, length }) => [name, slice(flat, at, length)]));
  }
}

/**
 * The tensors of a block, by their names within it.
 * @param {Buffers} named
 * @param {number} i
 * @returns {Buffers}
 */
export function ofBlock(named, i) {
  const prefix = `blocks.${i}.`;
  const mine = Object.entries(named).filter(([name]) => name.startsWith(prefix));
  return Object.fromEntries(mine.map(([name, buffer]) => [name.slice(prefix.length), buffer]));
}
