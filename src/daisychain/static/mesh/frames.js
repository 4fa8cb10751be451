/**
 * A message as frames, and back.
 *
 * Frame: message number, frame index, frame count, message bytes (u32 little-endian each), then the payload.
 * All frames of a message but the last carry the same number of bytes, and come in order; frames of different
 * messages may alternate.
 */

import { ProtocolError } from "../errors.js";
import { FRAME_BYTES, MESSAGE_BYTES, MESSAGES_IN_FLIGHT, REASSEMBLY_BYTES } from "../limits.js";
import { ceil, max, min } from "../numerics/numbers.js";

export const HEADER_BYTES = 16;

/**
 * The frames of a message, one at a time, each with its own copy of its part.
 * @param {Uint8Array} message
 * @param {number} number of the message, u32; messages in flight on one link have different numbers
 * @param {number} [frameBytes] largest frame, header included
 * @returns {Generator<Uint8Array<ArrayBuffer>, void>}
 * @throws {ProtocolError} when the message is too large to be taken by the other side
 */
export function* split(message, number, frameBytes = FRAME_BYTES) {
  if (message.length > MESSAGE_BYTES) {
    throw new ProtocolError(`a message has ${message.length} bytes, more than ${MESSAGE_BYTES}`);
  }
  const part = min(frameBytes, FRAME_BYTES) - HEADER_BYTES;
  if (!(part > 0)) throw new ProtocolError(`frames of ${frameBytes} bytes have no room beside their header`);
  const count = max(1, ceil(message.length / part));
  for (let index = 0; index < count; index++) {
    const payload = message.subarray(index * part, (index + 1) * part);
    const frame = new Uint8Array(HEADER_BYTES + payload.length);
    const header = new DataView(frame.buffer);
    header.setUint32(0, number, true);
    header.setUint32(4, index, true);
    header.setUint32(8, count, true);
    header.setUint32(12, message.length, true);
    frame.set(payload, HEADER_BYTES);
    yield frame;
  }
}

/**
 * @typedef {object} Open A message whose frames are still coming.
 * @property {Uint8Array<ArrayBuffer>} bytes
 * @property {number} part bytes of every frame but the last
 * @property {number} count frames
 * @property {number} next index of the frame that comes next
 */

/** Puts the frames of one link together. Holds at most REASSEMBLY_BYTES, whatever the other side sends. */
export class Reassembly {
  /** @type {Map<number, Open>} the one that grew last is the last */
  #open = new Map();
  #heldBytes = 0;
  /** Messages given up because their frames stopped coming while others began. */
  dropped = 0;

  get heldBytes() {
    return this.#heldBytes;
  }

  get inFlight() {
    return this.#open.size;
  }

  /**
   * @param {ArrayBuffer} frame
   * @returns {ArrayBuffer | null} the message that this frame completes
   * @throws {ProtocolError} for a frame that fits nothing; what is held stays as it was
   */
  accept(frame) {
    const { number, index, count, total, payload } = readFrame(frame);
    if (index === 0) this.#begin(number, count, total, payload.length);
    const open = this.#open.get(number);
    if (!open) throw new ProtocolError(`frame ${index} belongs to message ${number}, which has not begun`);
    checkPlace(open, number, index, count, total, payload.length);
    open.bytes.set(payload, index * open.part);
    open.next = index + 1;
    this.#open.delete(number);
    if (open.next < count) {
      this.#open.set(number, open);
      return null;
    }
    this.#heldBytes -= total;
    return open.bytes.buffer;
  }

  /** @param {number} number @param {number} count @param {number} total @param {number} part */
  #begin(number, count, total, part) {
    if (this.#open.has(number)) throw new ProtocolError(`message ${number} begins a second time`);
    const fits = count === 1 ? part === total : part > 0 && part < total && count === ceil(total / part);
    if (!fits) {
      throw new ProtocolError(`message ${number} of ${total} bytes is no ${count} frame(s) of ${part} bytes`);
    }
    if (this.#open.size === MESSAGES_IN_FLIGHT) this.#dropStalest();
    if (this.#heldBytes + total > REASSEMBLY_BYTES) {
      throw new ProtocolError(
        `message ${number} of ${total} bytes does not fit: ${this.#heldBytes} of ${REASSEMBLY_BYTES} are held`,
      );
    }
    this.#open.set(number, { bytes: new Uint8Array(total), part, count, next: 0 });
    this.#heldBytes += total;
  }

  #dropStalest() {
    const [number, open] = /** @type {[number, Open]} */ (this.#open.entries().next().value);
    this.#open.delete(number);
    this.#heldBytes -= open.bytes.length;
    this.dropped += 1;
  }
}

/** @param {ArrayBuffer} frame */
function readFrame(frame) {
  if (frame.byteLength < HEADER_BYTES || frame.byteLength > FRAME_BYTES) {
    throw new ProtocolError(`a frame has ${frame.byteLength} bytes, not ${HEADER_BYTES} to ${FRAME_BYTES}`);
  }
  const header = new DataView(frame);
  const [number, index, count, total] = [0, 4, 8, 12].map((at) => header.getUint32(at, true));
  if (total > MESSAGE_BYTES) {
    throw new ProtocolError(`message ${number} has ${total} bytes, more than ${MESSAGE_BYTES}`);
  }
  return { number, index, count, total, payload: new Uint8Array(frame, HEADER_BYTES) };
}

/**
 * @param {Open} open @param {number} number @param {number} index @param {number} count
 * @param {number} total @param {number} payloadBytes
 */
function checkPlace(open, number, index, count, total, payloadBytes) {
  if (index !== open.next || count !== open.count || total !== open.bytes.length) {
    throw new ProtocolError(
      `message ${number} goes on with frame ${index} of ${count}, ${total} bytes; ` +
        `expected frame ${open.next} of ${open.count}, ${open.bytes.length} bytes`,
    );
  }
  const expectedBytes = index + 1 < count ? open.part : total - index * open.part;
  if (payloadBytes !== expectedBytes) {
    throw new ProtocolError(
      `frame ${index} of message ${number} carries ${payloadBytes} bytes, not ${expectedBytes}`,
    );
  }
}
