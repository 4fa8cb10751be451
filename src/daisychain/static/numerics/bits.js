/** Floats as their bits, and back. */

const asFloat = new Float32Array(1);
const asInteger = new Int32Array(asFloat.buffer);

/**
 * The bits of a float32, as int32.
 * @param {number} x
 */
export function bitsOf(x) {
  asFloat[0] = x;
  return asInteger[0];
}

/**
 * The float32 of 32 bits.
 * @param {number} bits
 */
export function fromBits(bits) {
  asInteger[0] = bits;
  return asFloat[0];
}

/**
 * `2^exponent`, for exponents within −126…127.
 * @param {number} exponent
 */
export function powerOfTwo(exponent) {
  return fromBits((exponent + 127) << 23);
}
