/** Every bound and default of the page, in one place. A name ends in its unit. */

// The numeric contract (docs/NUMERICS.md); the same numbers as in base/limits.py.
export const CONTRACT_VERSION = 1;
export const BLOCK_LENGTH = 128;
export const EXPONENT_MIN = -60;
export const EXPONENT_MAX = 53;
export const ACCUMULATOR_MAX_K = 131_071;

// The model
export const VOCABULARY = 16_512;
export const MAX_LAYERS = 8;

// Settings of a run: [least, most, default]
export const WIDTH = /** @type {const} */ ([16, 128, 32]);
export const SEQUENCE = /** @type {const} */ ([16, 128, 32]);
export const BATCH_SAMPLES = /** @type {const} */ ([2, 32, 8]);
export const STEPS = /** @type {const} */ ([100, 10_000, 300]);
export const RATE_THOUSANDTHS = /** @type {const} */ ([5, 50, 10]);
export const LAYERS_DEFAULT = 2;
export const HEADS_DEFAULT = 4;

// The group
export const MAX_MEMBERS = 8;
