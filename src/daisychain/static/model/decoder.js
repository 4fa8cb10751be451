/** The decoder in training: gradient of a batch, update by a roster's gradients, state and its hash. */

import { ConfigError } from "../errors.js";
import { fround } from "../numerics/numbers.js";
import { AdamSchedule } from "../numerics/optimizer.js";
import { combineDigests, tensorHead } from "../numerics/stateHash.js";
import { backwardLengths, blockBackward } from "./chains.js";
import { Inference, ofBlock } from "./inference.js";
import { parameterShapes } from "./weights.js";

/** @typedef {import("../kernels/memory.js").Op} Op */
/**
 * Everything that a device needs to go on from step `step`: flat vectors, and DaisyAdam's running powers of β.
 * @typedef {{weights: Float32Array, mean: Float32Array, square: Float32Array}} Vectors
 * @typedef {Vectors & {step: number, power1: number, power2: number}} State
 */

export class Decoder extends Inference {
  /**
   * A model that trains on `samples` sequences at a time; `load` gives it its weights.
   * @param {import("./inference.js").Backend} backend
   * @param {import("./weights.js").DecoderConfig} config
   * @param {number} samples
   */
  constructor(backend, config, samples) {
    super(backend, config, samples);
    this.step = 0;
    this.schedule = new AdamSchedule();
    this.mean = this.floats(this.length);
    this.square = this.floats(this.length);
    this.gradients = this.floats(this.length);
    this.average = this.floats(this.length);
    /** @type {import("../kernels/memory.js").Buffer[]} */
    this.parts = [];
    this.count = samples * config.sequence;
    this.targets = backend.u16(this.count);
    this.allocated.push(this.targets);
    this.losses = this.floats(this.count);
    this.noPositions = new Float32Array(config.sequence * config.width);
    this.back = this.all(backwardLengths(this.sizes));
    this.derivatives = this.byName(this.gradients);
    this.chains = [...this.forward(this.sizes), ...this.backward()];
  }

  /**
   * The gradient of a batch's summed loss, into `gradients`. `ids` and `targets` are whole sequences, one after
   * the other. Throws NonFiniteError or BlockRangeError if training has diverged.
   * @param {Uint16Array} ids [samples · sequence]
   * @param {Uint16Array} targets
   * @param {() => Promise<void>} [pause] awaited after every chain
   * @returns {Promise<{lossSum: number, count: number}>} loss in nats, over `count` tokens
   */
  async gradient(ids, targets, pause) {
    const { backend, count } = this;
    if (ids.length !== count || targets.length !== count) {
      throw new ConfigError(
        `a batch of ${ids.length} tokens and ${targets.length} targets; it takes ${count}.`,
      );
    }
    backend.write(this.ids, ids);
    backend.write(this.targets, targets);
    backend.write(this.derivatives.positions, this.noPositions);
    for (const chain of this.chains) {
      await backend.run(chain);
      await pause?.();
    }
    let lossSum = 0;
    for (const loss of await backend.read(this.losses)) lossSum += loss;
    return { lossSum, count };
  }

  /** The last gradient, a copy of the flat vector. */
  readGradient() {
    return this.backend.read(this.gradients);
  }

  /**
   * One step of DaisyAdam by the mean of a roster's gradients. A gradient of another length or with NaN or
   * infinity is refused, and nothing has changed.
   * @param {Float32Array[]} parts per-sample-sum gradients in roster order
   * @param {number} count Σ of the tokens that they are over
   * @param {number} rateThousandths
   */
  async update(parts, count, rateThousandths) {
    const { backend, length, average } = this;
    parts.forEach((part, place) => {
      if (part.length !== length) {
        throw new ConfigError(`gradient ${place} has ${part.length} numbers; the model has ${length}.`);
      }
      this.parts[place] ??= this.floats(length);
      backend.write(this.parts[place], part);
    });
    await backend.run([
      { op: "mean", parts: this.parts.slice(0, parts.length), out: average, length, count: fround(count) },
    ]);
    const { power1, power2 } = this.schedule;
    try {
      const scalars = this.schedule.scalars(rateThousandths / 1000);
      await backend.run([
        { op: "adam", w: this.weights, g: average, m: this.mean, v: this.square, length, ...scalars },
      ]);
    } catch (error) {
      Object.assign(this.schedule, { power1, power2 });
      throw error;
    }
    this.step += 1;
  }

  /** @returns {Promise<State>} copies */
  async state() {
    const { backend, step } = this;
    const { power1, power2 } = this.schedule;
    const [weights, mean, square] = await Promise.all(
      [this.weights, this.mean, this.square].map((buffer) => backend.read(buffer)),
    );
    return { step, weights, mean, square, power1, power2 };
  }

  /**
   * Go on from a state. From weights and a step alone the optimiser begins anew. Throws ConfigError for a vector of
   * another length, and nothing has changed.
   * @param {{weights: Float32Array, step: number} & Partial<State>} state
   */
  load({ weights, step, mean, square, power1 = 1, power2 = 1 }) {
    const none = new Float32Array(this.length);
    const vectors = { weights, mean: mean ?? none, square: square ?? none };
    for (const [name, { length }] of Object.entries(vectors)) {
      if (length !== this.length) {
        throw new ConfigError(`${name} has ${length} numbers; the model has ${this.length}.`);
      }
    }
    this.backend.write(this.weights, vectors.weights);
    this.backend.write(this.mean, vectors.mean);
    this.backend.write(this.square, vectors.square);
    Object.assign(this.schedule, { power1, power2 });
    this.step = step;
  }

  /**
   * The chains from what the last block gave to the flat gradient: the head's, one a block, and the embedding's.
   * @returns {Op[][]}
   */
  backward() {
    const { named, derivatives: d, last, back, ids, sizes } = this;
    const { width, vocabulary, sequence } = this.config;
    const rows = this.count;
    /** @type {Op[]} */
    const head = [
      { op: "norm", x: last.x, gain: named.norm, out: last.normed, inverse: last.inverse, rows, width },
      {
        op: "headLoss",
        ...{ x: last.normed, tokens: named.tokens, targets: this.targets, dx: back.dNormed },
        ...{ dTokens: d.tokens, losses: this.losses, rows, sequence, width, vocabulary },
      },
      {
        op: "normBackward",
        ...{ g: back.dNormed, x: last.x, gain: named.norm, inverse: last.inverse },
        ...{ dx: back.g, dGain: d.norm, rows, width },
      },
    ];
    const blocks = this.traces.map((trace, i) =>
      blockBackward(ofBlock(named, i), ofBlock(d, i), trace, back, sizes),
    );
    const { tokens: dTokens, positions: dPositions } = d;
    /** @type {Op[]} */
    const embedding = [{ op: "embedBackward", ids, g: back.g, dTokens, dPositions, rows, sequence, width }];
    return [head, ...blocks.reverse(), embedding];
  }

  /** The state hash of the weights (rule 14): 32 bytes. */
  async hash() {
    const { backend, config, named, step } = this;
    /** @type {[string, Uint8Array][]} */
    const digests = [];
    for (const { name, shape } of parameterShapes(config)) {
      digests.push([name, await backend.digest(named[name], tensorHead("<f4", shape))]);
    }
    return combineDigests(digests, step, (...parts) => backend.hash(...parts));
  }
}
