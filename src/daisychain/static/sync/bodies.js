/** The body of each kind of message ⇄ bytes (docs/PROTOCOL.md). */

import { ProtocolError } from "../errors.js";
import * as limits from "../limits.js";
import { checkLength, hexAt, putHex, viewOf } from "./bytes.js";
import * as schema from "./schema.js";

const { MAX_MEMBERS, SYNC_JSON_BYTES, SYNC_TEXT_CHARACTERS } = limits;
const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** Name and bounds of a body: `most` bytes, and both ways of the conversion. A body has no field of the header.
 * @typedef {{most: number, encode: (body: any) => Uint8Array, decode: (bytes: Uint8Array) => object}} BodyCodec */

const ids = schema.distinct(schema.id, MAX_MEMBERS);
const view = schema.shape({ epoch: schema.u32, leader: schema.id, roster: ids });
const trail = schema.list(view, limits.TRAIL_VIEWS);
const content = { step: schema.u32, origin: schema.u32, roster: ids };
const held = schema.orNull(schema.shape({ ...content, ballot: schema.u32 }));
const PHASES = /** @type {const} */ ([
  "idle",
  "starting",
  "running",
  "waiting",
  "finished",
  "stopped",
  "left",
  "quorum",
  "halted",
]);

/** @param {Uint8Array} bytes @param {string} name @returns {unknown} */
function parse(bytes, name) {
  try {
    return JSON.parse(decoder.decode(bytes));
  } catch {
    throw new ProtocolError(`${name} of a message is no JSON in UTF-8; it has ${bytes.length} bytes.`);
  }
}

/** @param {Record<string, schema.Check>} fields @returns {BodyCodec} */
function json(fields) {
  const check = schema.shape(fields);
  return {
    most: SYNC_JSON_BYTES,
    encode: (body) => encoder.encode(JSON.stringify(body)),
    decode(bytes) {
      const body = parse(bytes, "the body");
      check(body, "the body");
      return /** @type {object} */ (body);
    },
  };
}

/** @type {BodyCodec} */
const empty = {
  most: 0,
  encode: () => new Uint8Array(0),
  decode(bytes) {
    checkLength(bytes, 0, "the body");
    return {};
  },
};

/** One byte, 0 or 1, for each name. @param {...string} names @returns {BodyCodec} */
function flags(...names) {
  return {
    most: names.length,
    encode: (body) => Uint8Array.from(names, (name) => (body[name] ? 1 : 0)),
    decode(bytes) {
      checkLength(bytes, names.length, "the body");
      return Object.fromEntries(names.map((name, i) => [name, bit(bytes[i], name)]));
    },
  };
}

/** @param {number} byte @param {string} name */
function bit(byte, name) {
  if (byte > 1) schema.refuse(name, byte, "0 or 1");
  return byte === 1;
}

/** @type {BodyCodec} step u32, origin u32 */
const heldBody = {
  most: 8,
  encode: ({ of, origin }) => new Uint8Array(Uint32Array.of(of, origin).buffer),
  decode(bytes) {
    checkLength(bytes, 8, "the body");
    const at = viewOf(bytes);
    return { of: at.getUint32(0, true), origin: at.getUint32(4, true) };
  },
};

/** @type {BodyCodec} step u32, origin u32, last u8 */
const commitBody = {
  most: 9,
  encode: (body) => Uint8Array.of(...heldBody.encode(body), body.last ? 1 : 0),
  decode(bytes) {
    checkLength(bytes, 9, "the body");
    return { ...heldBody.decode(bytes.subarray(0, 8)), last: bit(bytes[8], "last") };
  },
};

/** @type {BodyCodec} step u32, origin u32, authors 8 bytes each */
const repairBody = {
  most: 8 + 8 * MAX_MEMBERS,
  encode(body) {
    const bytes = new Uint8Array(8 + 8 * body.authors.length);
    bytes.set(heldBody.encode(body));
    for (let i = 0; i < body.authors.length; i++) putHex(bytes, 8 + 8 * i, body.authors[i]);
    return bytes;
  },
  decode(bytes) {
    const count = (bytes.length - 8) / 8;
    if (!Number.isInteger(count) || count < 1)
      schema.refuse("the body's length", bytes.length, "8 + 8 per author");
    const authors = Array.from({ length: count }, (_, i) => hexAt(bytes, 8 + 8 * i, 8));
    ids(authors, "authors");
    return { ...heldBody.decode(bytes.subarray(0, 8)), authors };
  },
};

const GRADIENT_HEAD_BYTES = 64;

/** @type {BodyCodec} step u32, origin u32, author 8, count u32, loss f64, probe 32, tookMs u32, then the gradient */
const gradientBody = {
  most: GRADIENT_HEAD_BYTES + limits.GRADIENT_BYTES,
  encode(body) {
    const bytes = new Uint8Array(GRADIENT_HEAD_BYTES + body.payload.length);
    const at = viewOf(bytes);
    bytes.set(heldBody.encode(body));
    putHex(bytes, 8, body.author);
    at.setUint32(16, body.count, true);
    at.setFloat64(20, body.loss, true);
    putHex(bytes, 28, body.probe);
    at.setUint32(60, body.tookMs, true);
    bytes.set(body.payload, GRADIENT_HEAD_BYTES);
    return bytes;
  },
  decode(bytes) {
    if (bytes.length < GRADIENT_HEAD_BYTES) {
      schema.refuse("the body's length", bytes.length, `${GRADIENT_HEAD_BYTES} or more`);
    }
    const at = viewOf(bytes);
    const loss = at.getFloat64(20, true);
    if (!(loss >= 0 && loss < Number.POSITIVE_INFINITY))
      schema.refuse("the loss", loss, "0 or more, and finite");
    return {
      ...heldBody.decode(bytes.subarray(0, 8)),
      author: hexAt(bytes, 8, 8),
      count: at.getUint32(16, true),
      loss,
      probe: hexAt(bytes, 28, 32),
      tookMs: at.getUint32(60, true),
      payload: bytes.subarray(GRADIENT_HEAD_BYTES),
    };
  },
};

/** @type {schema.Check} */
function checkConfig(value, name) {
  const config = schema.plainObject(value, name);
  const entries = Object.entries(config);
  if (entries.length > limits.CONFIG_ENTRIES) schema.refuse(name, entries.length, "a few entries");
  for (const [key, entry] of entries) {
    if (typeof entry === "string") schema.words(64)(entry, `${name}.${key}`);
    else schema.u32(entry, `${name}.${key}`);
  }
  schema.oneOf("float32", "int8")(config.gradients, `${name}.gradients`);
  schema.u32(config.steps, `${name}.steps`);
}

/** @type {BodyCodec} length u32 of the config, the config, then the tokens as uint16 */
const welcomeBody = {
  most: 4 + SYNC_JSON_BYTES + limits.TEXT_TOKENS_BYTES,
  encode({ config, tokens }) {
    const words = encoder.encode(JSON.stringify(config));
    const bytes = new Uint8Array(4 + words.length + 2 * tokens.length);
    const at = viewOf(bytes);
    at.setUint32(0, words.length, true);
    bytes.set(words, 4);
    for (let i = 0; i < tokens.length; i++) at.setUint16(4 + words.length + 2 * i, tokens[i], true);
    return bytes;
  },
  decode(bytes) {
    const at = viewOf(bytes);
    const length = bytes.length < 4 ? 0 : at.getUint32(0, true);
    const rest = bytes.length - 4 - length;
    if (length > SYNC_JSON_BYTES || rest < 0 || rest % 2 || rest > limits.TEXT_TOKENS_BYTES) {
      schema.refuse("the body's length", [bytes.length, length], "4 + the config's + 2 per token");
    }
    const config = parse(bytes.subarray(4, 4 + length), "the config");
    checkConfig(config, "config");
    const tokens = new Uint16Array(rest / 2);
    for (let i = 0; i < tokens.length; i++) tokens[i] = at.getUint16(4 + length + 2 * i, true);
    return { config, tokens };
  },
};

/** @type {BodyCodec} */
const stateBody = {
  most: limits.STATE_BYTES,
  encode: ({ bytes }) => bytes,
  decode: (bytes) => ({ bytes }),
};

/** The kinds in the order of their numbers, from 1.
 * @type {Record<string, BodyCodec>} */
export const BODIES = {
  hello: flags("heard", "reply"),
  status: json({
    reply: schema.boolean,
    phase: schema.oneOf(...PHASES),
    leader: schema.orNull(schema.id),
    promised: schema.u32,
    links: ids,
    backend: schema.words(limits.BACKEND_CHARACTERS),
  }),
  join: json({ into: schema.text(/^[0-9a-f]{32}$/, "a run of 32 hex characters") }),
  prepare: empty,
  promise: json({ trail, held, links: ids }),
  refuse: json({ promised: schema.u32, why: schema.oneOf("promised", "leader", "run") }),
  view: json({ trail, base: schema.u32, adopt: schema.orNull(schema.shape(content)) }),
  accepted: empty,
  fetch: flags("full"),
  welcome: welcomeBody,
  state: stateBody,
  gradient: gradientBody,
  held: heldBody,
  commit: commitBody,
  repair: repairBody,
  stop: empty,
  halt: json({ reason: schema.words(SYNC_TEXT_CHARACTERS), culprits: ids }),
  leave: json({ trail, held, promised: schema.u32 }),
};
