/** Errors with a reason a person can act on: what it was about, its value, what to do. */

export class DaisyError extends Error {
  /** @param {string} message */
  constructor(message) {
    super(message);
    this.name = this.constructor.name;
  }
}

/** A number is NaN or infinite where the contract needs finite ones. */
export class NonFiniteError extends DaisyError {}

/** A number is too large for the block format. */
export class BlockRangeError extends DaisyError {}

/** A contraction is too long for a 32-bit accumulator. */
export class AccumulatorBoundError extends DaisyError {}

/** A setting or a shape does not fit. */
export class ConfigError extends DaisyError {}

/** A kernel gave a wrong bit, or cannot run here. */
export class KernelError extends DaisyError {}

/** A kernel gave a wrong bit while it worked. */
export class KernelFault extends KernelError {}

/** A message of another device breaks the protocol. */
export class ProtocolError extends DaisyError {}

/** A file is no checkpoint that can be used. */
export class CheckpointError extends DaisyError {}

/** What to say of whatever was thrown. @param {unknown} error */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}
