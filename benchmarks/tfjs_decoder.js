/** The page's transformer as a user of TensorFlow.js would write it; the other side of browser_step.js. */

/**
 * Rows of a table. The gradient adds rows up by scatterND: gather's own needs a kernel that the wasm backend lacks.
 *
 * @param {any} tf @param {any} table @param {any} ids
 */
function lookUp(tf, table, ids) {
  return tf.customGrad((/** @type {any} */ rows) => ({
    value: tf.gather(rows, ids),
    gradFunc: (/** @type {any} */ g) => tf.scatterND(ids.expandDims(1), g, rows.shape),
  }))(table);
}

/** @param {any} tf @param {any} x @param {any} gain */
function norm(tf, x, gain) {
  return tf.mul(tf.mul(x, tf.rsqrt(tf.add(tf.mean(tf.square(x), -1, true), 1e-5))), gain);
}

/** A training step on whatever backend `tf` has. */
export class TfDecoder {
  /**
   * @param {any} tf
   * @param {{vocabulary: number, width: number, layers: number, heads: number, sequence: number}} config
   * @param {number} samples a step
   * @param {number} rate
   */
  constructor(tf, config, samples, rate) {
    this.tf = tf;
    this.config = config;
    this.samples = samples;
    const { vocabulary, width, layers, sequence } = config;
    const uniform = (/** @type {number[]} */ shape, /** @type {number} */ bound) =>
      tf.variable(tf.randomUniform(shape, -bound, bound));
    const matrix = (/** @type {number} */ inner, /** @type {number} */ outer) =>
      uniform([inner, outer], 1 / Math.sqrt(inner));
    const gain = () => tf.variable(tf.ones([width]));
    this.tokens = uniform([vocabulary, width], 0.035);
    this.positions = uniform([sequence, width], 0.035);
    this.blocks = Array.from({ length: layers }, () => ({
      norm1: gain(),
      queryKeyValue: matrix(width, 3 * width),
      attentionOut: matrix(width, width),
      norm2: gain(),
      mlpUp: matrix(width, 4 * width),
      mlpDown: matrix(4 * width, width),
    }));
    this.norm = gain();
    this.optimizer = tf.train.adam(rate);
    this.mask = tf.tidy(() => {
      const seen = tf.linalg.bandPart(tf.ones([sequence, sequence]), -1, 0);
      return tf.mul(tf.sub(1, seen), -1e9);
    });
  }

  /** @param {any} x @param {any} block */
  attention(x, { queryKeyValue, attentionOut }) {
    const { tf, samples } = this;
    const { sequence, heads, width } = this.config;
    const shape = [samples, sequence, 3, heads, width / heads];
    const [q, k, v] = tf.unstack(tf.matMul(x, queryKeyValue).reshape(shape).transpose([2, 0, 3, 1, 4]));
    const scale = 1 / Math.sqrt(width / heads);
    const weights = tf.softmax(tf.add(tf.mul(tf.matMul(q, k, false, true), scale), this.mask));
    const context = tf.matMul(weights, v).transpose([0, 2, 1, 3]).reshape([-1, width]);
    return tf.matMul(context, attentionOut);
  }

  /** @param {any} ids @param {any} targets */
  loss(ids, targets) {
    const { tf, samples } = this;
    const { vocabulary, sequence, width } = this.config;
    const embedded = lookUp(tf, this.tokens, ids).reshape([samples, sequence, width]);
    let x = embedded.add(this.positions).reshape([samples * sequence, width]);
    for (const block of this.blocks) {
      x = tf.add(x, this.attention(norm(tf, x, block.norm1), block));
      x = tf.add(x, tf.matMul(tf.relu(tf.matMul(norm(tf, x, block.norm2), block.mlpUp)), block.mlpDown));
    }
    const logits = tf.matMul(norm(tf, x, this.norm), this.tokens, false, true);
    return tf.losses.softmaxCrossEntropy(tf.oneHot(targets, vocabulary), logits);
  }

  /** One step; the loss. @param {Int32Array} ids @param {Int32Array} targets @returns {number} */
  step(ids, targets) {
    const { tf } = this;
    return tf.tidy(() => {
      const [i, t] = [tf.tensor1d(ids, "int32"), tf.tensor1d(targets, "int32")];
      return this.optimizer.minimize(() => this.loss(i, t), true).dataSync()[0];
    });
  }
}
