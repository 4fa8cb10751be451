/** What two devices say to each other through the signalling server, checked before it is used. */

import { ProtocolError } from "../errors.js";
import { SIGNAL_CHARACTERS } from "../limits.js";

/**
 * `link` is the number of the link that a signal is about, chosen by the device that offers.
 * `again` asks the offering device for a new link in place of that number, 0 if there is none.
 * @typedef {{link: number, description: {type: "offer" | "answer", sdp: string}}} DescriptionSignal
 * @typedef {{link: number, candidate: RTCIceCandidateInit}} CandidateSignal
 * @typedef {{again: number}} AgainSignal
 * @typedef {DescriptionSignal | CandidateSignal | AgainSignal} Signal
 */

/**
 * @param {any} data
 * @returns {Signal}
 * @throws {ProtocolError}
 */
export function readSignal(data) {
  const { link, again, description, candidate } = Object(data);
  if (isNumber(again)) return { again };
  if (isNumber(link) && description) {
    const { type, sdp } = description;
    if ((type === "offer" || type === "answer") && isText(sdp)) return { link, description: { type, sdp } };
  }
  if (isNumber(link) && candidate) return { link, candidate: readCandidate(candidate) };
  throw new ProtocolError(
    `a signal with the fields ${Object.keys(Object(data)).slice(0, 8)} is none of ours`,
  );
}

/** @param {any} data @returns {RTCIceCandidateInit} */
function readCandidate({ candidate, sdpMid = null, sdpMLineIndex = null, usernameFragment = null }) {
  const fits =
    isText(candidate) &&
    (sdpMid === null || isText(sdpMid)) &&
    (sdpMLineIndex === null || isNumber(sdpMLineIndex)) &&
    (usernameFragment === null || isText(usernameFragment));
  if (!fits) throw new ProtocolError("a signal's candidate has a field of the wrong type");
  return { candidate, sdpMid, sdpMLineIndex, usernameFragment };
}

/** @param {unknown} value */
function isNumber(value) {
  return Number.isSafeInteger(value) && /** @type {number} */ (value) >= 0;
}

/** @param {unknown} value */
function isText(value) {
  return typeof value === "string" && value.length <= SIGNAL_CHARACTERS;
}
