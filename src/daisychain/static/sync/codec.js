/** Messages ⇄ bytes: one fixed header, then the body of the message's kind (docs/PROTOCOL.md). */

import { ProtocolError } from "../errors.js";
import { PROTOCOL_VERSION } from "../limits.js";
import { BODIES } from "./bodies.js";
import { hexAt, putHex, viewOf } from "./bytes.js";

/**
 * What every message says of its sender: `epoch` is the ballot or view that the message is about, `step` and `hash`
 * the state that the sender has (null: none), `run` its run (null: none).
 * @typedef {{kind: string, sender: string, run: string | null, epoch: number, step: number, hash: string | null}} Header
 */
/** @typedef {Header & Record<string, any>} Message header and the body's fields */

export const HEADER_BYTES = 76;
const MAGIC = 0x4e595344; // "DSYN"
const KINDS = Object.keys(BODIES);
const NO_RUN = "0".repeat(32);
const NO_HASH = "0".repeat(64);

/**
 * @param {Header} header
 * @param {object} body
 * @returns {Uint8Array}
 */
export function encode(header, body = {}) {
  const payload = BODIES[header.kind].encode(body);
  const bytes = new Uint8Array(HEADER_BYTES + payload.length);
  const at = viewOf(bytes);
  at.setUint32(0, MAGIC, true);
  bytes[4] = PROTOCOL_VERSION;
  bytes[5] = KINDS.indexOf(header.kind) + 1;
  putHex(bytes, 8, header.sender);
  putHex(bytes, 16, header.run ?? NO_RUN);
  at.setUint32(32, header.epoch, true);
  at.setUint32(36, header.step, true);
  putHex(bytes, 40, header.hash ?? NO_HASH);
  at.setUint32(72, payload.length, true);
  bytes.set(payload, HEADER_BYTES);
  return bytes;
}

/**
 * Throws ProtocolError for everything that is no message of this version. Long bodies (gradient, state) are views
 * into `bytes`.
 * @param {Uint8Array} bytes
 * @returns {Message}
 */
export function decode(bytes) {
  const size = bytes.length;
  if (size < HEADER_BYTES)
    throw new ProtocolError(`a message of ${size} bytes has no header of ${HEADER_BYTES}.`);
  const at = viewOf(bytes);
  if (at.getUint32(0, true) !== MAGIC || at.getUint16(6, true) !== 0) {
    throw new ProtocolError("a message does not begin like one of this protocol.");
  }
  if (bytes[4] !== PROTOCOL_VERSION) {
    throw new ProtocolError(
      `a message has protocol version ${bytes[4]}, this page ${PROTOCOL_VERSION}; reload both pages.`,
    );
  }
  const kind = KINDS[bytes[5] - 1];
  if (kind === undefined)
    throw new ProtocolError(`a message has kind ${bytes[5]}, of ${KINDS.length} kinds.`);
  const length = at.getUint32(72, true);
  if (length !== size - HEADER_BYTES || length > BODIES[kind].most) {
    const most = BODIES[kind].most;
    throw new ProtocolError(`a ${kind} of ${size} bytes says ${length} for its body, of ${most} at most.`);
  }
  const run = hexAt(bytes, 16, 16);
  const hash = hexAt(bytes, 40, 32);
  return {
    ...BODIES[kind].decode(bytes.subarray(HEADER_BYTES)),
    kind,
    sender: hexAt(bytes, 8, 8),
    run: run === NO_RUN ? null : run,
    epoch: at.getUint32(32, true),
    step: at.getUint32(36, true),
    hash: hash === NO_HASH ? null : hash,
  };
}
