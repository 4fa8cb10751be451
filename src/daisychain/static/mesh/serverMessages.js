/** What the signalling server says, checked field by field before it is used. */

import { ProtocolError } from "../errors.js";
import { ROOM_NAME_CHARACTERS, SERVER_MESSAGE_CHARACTERS } from "../limits.js";

/** @typedef {{id: string, name: string}} Member */
/**
 * @typedef {object} Welcome
 * @property {string} id of this page
 * @property {boolean} host
 * @property {string | null} room code, null for the group of the network
 * @property {Member[]} members the others
 * @property {{members: number, ping_s: number}} limits
 * @property {RTCIceServer[]} ice
 * @property {string} [notice] why nobody else may be found here
 */
/** @typedef {{id: string}} OfId */
/**
 * @typedef {{welcome: Welcome, waiting: {reason?: string}, denied: {reason: string}, joined: Member, left: OfId,
 *   renamed: Member,
 *   knock: Member, gone: OfId, host: OfId, signal: {from: string, data: unknown}, ping: object,
 *   error: {code: string, message: string}}} ServerMessages
 */
/** @typedef {keyof ServerMessages} ServerType */

/** @param {unknown} value */
const isId = (value) => typeof value === "string" && /^[0-9a-f]{16}$/.test(value);
/** @param {unknown} value */
const isText = (value) => typeof value === "string";
/** @param {unknown} value */
const isName = (value) => typeof value === "string" && [...value].length <= ROOM_NAME_CHARACTERS;
/** @param {any} value */
const isMember = (value) => isId(value?.id) && isName(value.name);
/** @param {unknown} value */
const isTextOrNone = (value) => value === undefined || isText(value);
/** @param {unknown} value */
const isPositive = (value) => typeof value === "number" && value > 0 && value < 1e6;
/** @param {any} value */
const isLimits = (value) => isPositive(value?.members) && isPositive(value.ping_s);
/** @param {any} value */
const isIceServer = (value) =>
  isText(value?.urls) || (Array.isArray(value?.urls) && value.urls.every(isText));

/** @type {Record<string, Record<string, (value: any) => boolean>>} */
const FIELDS = {
  welcome: {
    id: isId,
    host: (value) => typeof value === "boolean",
    room: (value) => value === null || isText(value),
    members: (value) => Array.isArray(value) && value.every(isMember),
    limits: isLimits,
    ice: (value) => Array.isArray(value) && value.every(isIceServer),
    notice: isTextOrNone,
  },
  waiting: { reason: isTextOrNone },
  denied: { reason: isText },
  joined: { id: isId, name: isName },
  left: { id: isId },
  renamed: { id: isId, name: isName },
  knock: { id: isId, name: isName },
  gone: { id: isId },
  host: { id: isId },
  signal: { from: isId, data: (value) => value !== undefined },
  ping: {},
  error: { code: isText, message: isText },
};

/**
 * @param {unknown} text of one WebSocket message
 * @returns {{type: ServerType, content: any}}
 * @throws {ProtocolError}
 */
export function readServerMessage(text) {
  if (typeof text !== "string" || text.length > SERVER_MESSAGE_CHARACTERS) {
    throw new ProtocolError(`the server sent no text of up to ${SERVER_MESSAGE_CHARACTERS} characters`);
  }
  let content;
  try {
    content = JSON.parse(text);
  } catch {
    throw new ProtocolError(`the server sent what is no JSON: ${text.slice(0, 40)}`);
  }
  const type = content?.type;
  if (!Object.hasOwn(FIELDS, String(type))) {
    throw new ProtocolError(`the server sent a message of unknown type ${String(type).slice(0, 40)}`);
  }
  for (const [field, fits] of Object.entries(FIELDS[type])) {
    if (!fits(content[field])) {
      const value = JSON.stringify(content[field])?.slice(0, 80);
      throw new ProtocolError(`the server's "${type}" has ${field} = ${value}`);
    }
  }
  return { type, content };
}
