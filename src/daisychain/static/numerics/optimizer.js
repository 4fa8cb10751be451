/**
 * DaisyAdam and DaisySGD: separate correctly rounded operations in a pinned order (docs/NUMERICS.md, rule 12).
 *
 * Storing into a Float32Array rounds to float32 once; what is not stored goes through fround.
 */

import { fround, sqrt } from "./numbers.js";

/**
 * What one DaisyAdam step needs, each rounded to float32 once.
 * @typedef {object} AdamScalars
 * @property {number} keep 1 − rate·decay
 * @property {number} beta1
 * @property {number} rest1 1 − β1
 * @property {number} beta2
 * @property {number} rest2 1 − β2
 * @property {number} root 1 / √(1 − β2^t)
 * @property {number} size rate / (1 − β1^t)
 * @property {number} epsilon
 */

/** The scalars of DaisyAdam's steps. The powers of β are running float64 products, the same everywhere. */
export class AdamSchedule {
  /** @param {{beta1?: number, beta2?: number, epsilon?: number, weightDecay?: number}} [constants] */
  constructor({ beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weightDecay = 0 } = {}) {
    this.beta1 = beta1;
    this.beta2 = beta2;
    this.epsilon = epsilon;
    this.weightDecay = weightDecay;
    this.power1 = 1;
    this.power2 = 1;
  }

  /**
   * Advance the powers by one step and give this step's scalars.
   * @param {number} rate
   * @returns {AdamScalars}
   */
  scalars(rate) {
    this.power1 *= this.beta1;
    this.power2 *= this.beta2;
    return {
      keep: fround(1 - rate * this.weightDecay),
      beta1: fround(this.beta1),
      rest1: fround(1 - this.beta1),
      beta2: fround(this.beta2),
      rest2: fround(1 - this.beta2),
      root: fround(1 / sqrt(1 - this.power2)),
      size: fround(rate / (1 - this.power1)),
      epsilon: fround(this.epsilon),
    };
  }
}

/**
 * One step in place. The order of operations is the contract.
 * @param {Float32Array} weights
 * @param {Float32Array} gradient
 * @param {Float32Array} mean
 * @param {Float32Array} square
 * @param {AdamScalars} s
 */
export function adamUpdate(weights, gradient, mean, square, s) {
  for (let i = 0; i < weights.length; i++) {
    const g = gradient[i];
    mean[i] = fround(mean[i] * s.beta1) + fround(g * s.rest1);
    square[i] = fround(square[i] * s.beta2) + fround(fround(g * g) * s.rest2);
    const divisor = fround(fround(fround(sqrt(square[i])) * s.root) + s.epsilon);
    const change = fround(fround(mean[i] / divisor) * s.size);
    if (s.keep !== 1) weights[i] *= s.keep;
    weights[i] -= change;
  }
}

/** Adam with decoupled weight decay over one flat parameter vector of `size` numbers. */
export class DaisyAdam extends AdamSchedule {
  /**
   * @param {number} size
   * @param {ConstructorParameters<typeof AdamSchedule>[0]} [constants]
   */
  constructor(size, constants) {
    super(constants);
    this.mean = new Float32Array(size);
    this.square = new Float32Array(size);
  }

  /**
   * Update `weights` in place from the mean gradient.
   * @param {Float32Array} weights
   * @param {Float32Array} gradient
   * @param {number} rate
   */
  step(weights, gradient, rate) {
    adamUpdate(weights, gradient, this.mean, this.square, this.scalars(rate));
  }
}

/** SGD with momentum over one flat parameter vector of `size` numbers. */
export class DaisySGD {
  /**
   * @param {number} size
   * @param {number} [momentum]
   */
  constructor(size, momentum = 0.9) {
    this.momentum = momentum;
    this.velocity = new Float32Array(size);
  }

  /**
   * Update `weights` in place from the mean gradient: u = u·μ + g, w = w − u·rate.
   * @param {Float32Array} weights
   * @param {Float32Array} gradient
   * @param {number} rate
   */
  step(weights, gradient, rate) {
    const [momentum, size] = [fround(this.momentum), fround(rate)];
    for (let i = 0; i < weights.length; i++) {
      this.velocity[i] = fround(this.velocity[i] * momentum) + gradient[i];
      weights[i] -= fround(this.velocity[i] * size);
    }
  }
}
