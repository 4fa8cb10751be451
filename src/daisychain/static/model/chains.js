/**
 * The decoder as chains of operations, which a backend runs in order (docs/NUMERICS.md, rules 16 to 20). A chain is
 * made once for its buffers and sizes; nothing is computed here.
 */

/** @typedef {import("../kernels/memory.js").Buffer} Buffer */
/** @typedef {import("../kernels/memory.js").Op} Op */
/** @typedef {Record<string, Buffer>} Buffers by name */
/** @typedef {{samples: number, sequence: number, width: number, heads: number, vocabulary: number}} Sizes */
/** Numbers that a named buffer needs. @typedef {Record<string, number>} Lengths */

/**
 * What a block's way back needs of its way forward; `x` is what went in.
 * @param {Sizes} sizes
 * @returns {Lengths}
 */
export function traceLengths({ samples, sequence, width, heads }) {
  const rows = samples * sequence;
  return {
    x: rows * width,
    normed1: rows * width,
    inverse1: rows,
    qkv: rows * 3 * width,
    weights: samples * heads * sequence * sequence,
    attended: rows * width,
    a: rows * width,
    normed2: rows * width,
    inverse2: rows,
    hidden: rows * 4 * width,
  };
}

/**
 * What every block may overwrite.
 * @param {Sizes} sizes
 * @returns {Lengths}
 */
export function scratchLengths({ samples, sequence, width }) {
  const rows = samples * sequence;
  return { projected: rows * width, up: rows * 4 * width };
}

/**
 * What the way back may overwrite. `g` is the gradient of what comes out, and in the end of what went in.
 * @param {Sizes} sizes
 * @returns {Lengths}
 */
export function backwardLengths({ samples, sequence, width }) {
  const rows = samples * sequence;
  return {
    g: rows * width,
    da: rows * width,
    dNormed: rows * width,
    dx: rows * width,
    dHidden: rows * 4 * width,
    dUp: rows * 4 * width,
    dqkv: rows * 3 * width,
  };
}

/**
 * a = x + attention_out(attention(query_key_value(norm1(x)))); out = a + mlp_down(relu(mlp_up(norm2(a)))).
 * @param {Buffers} w the block's weights
 * @param {Buffers} trace
 * @param {Buffers} scratch
 * @param {Buffer} out
 * @param {Sizes} sizes
 * @returns {Op[]}
 */
export function blockForward(w, trace, scratch, out, { samples, sequence, width, heads }) {
  const rows = samples * sequence;
  const { x, normed1, inverse1, qkv, weights, attended, a, normed2, inverse2, hidden } = trace;
  const { projected, up } = scratch;
  /** @type {(x: Buffer, w: Buffer, out: Buffer, inner: number, outer: number) => Op} */
  const linear = (x, w, out, inner, outer) => ({ op: "linear", x, w, out, rows, inner, outer });
  return [
    { op: "norm", x, gain: w.norm1, out: normed1, inverse: inverse1, rows, width },
    linear(normed1, w.query_key_value, qkv, width, 3 * width),
    { op: "attention", qkv, weights, out: attended, samples, sequence, heads, width },
    linear(attended, w.attention_out, projected, width, width),
    { op: "add", a: x, b: projected, out: a, length: rows * width },
    { op: "norm", x: a, gain: w.norm2, out: normed2, inverse: inverse2, rows, width },
    linear(normed2, w.mlp_up, up, width, 4 * width),
    { op: "relu", x: up, out: hidden, rows, width: 4 * width },
    linear(hidden, w.mlp_down, projected, 4 * width, width),
    { op: "add", a, b: projected, out, length: rows * width },
  ];
}

/**
 * From the gradient of what came out of a block, in `back.g`, to that of what went in, in the same place; and the
 * gradients of its weights.
 * @param {Buffers} w the block's weights
 * @param {Buffers} d their gradients
 * @param {Buffers} trace
 * @param {Buffers} back
 * @param {Sizes} sizes
 * @returns {Op[]}
 */
export function blockBackward(w, d, trace, back, { samples, sequence, width, heads }) {
  const rows = samples * sequence;
  const length = rows * width;
  const { x, normed1, inverse1, qkv, weights, attended, a, normed2, inverse2, hidden } = trace;
  const { g, da, dNormed, dx, dHidden, dUp, dqkv } = back;
  /** @type {(name: string, g: Buffer, x: Buffer, dx: Buffer, inner: number, outer: number) => Op} */
  const linear = (name, g, x, dx, inner, outer) => ({
    op: "linearBackward",
    ...{ g, x, w: w[name], dx, dw: d[name] },
    ...{ rows, inner, outer, period: sequence },
  });
  /** @type {(name: string, g: Buffer, x: Buffer, inverse: Buffer, dx: Buffer) => Op} */
  const norm = (name, g, x, inverse, dx) => ({
    op: "normBackward",
    ...{ g, x, gain: w[name], inverse, dx, dGain: d[name], rows, width },
  });
  return [
    linear("mlp_down", g, hidden, dHidden, 4 * width, width),
    { op: "reluBackward", g: dHidden, out: hidden, dx: dUp, length: 4 * length },
    linear("mlp_up", dUp, normed2, dNormed, width, 4 * width),
    norm("norm2", dNormed, a, inverse2, dx),
    { op: "add", a: g, b: dx, out: da, length },
    linear("attention_out", da, attended, dNormed, width, width),
    { op: "attentionBackward", g: dNormed, qkv, weights, dqkv, samples, sequence, heads, width },
    linear("query_key_value", dqkv, normed1, dNormed, width, 3 * width),
    norm("norm1", dNormed, x, inverse1, dx),
    { op: "add", a: da, b: dx, out: g, length },
  ];
}
