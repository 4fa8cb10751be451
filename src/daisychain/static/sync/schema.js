/** Strict checks of parsed JSON: exactly these fields, of exactly these kinds. */

import { ProtocolError } from "../errors.js";

/** @typedef {(value: unknown, name: string) => void} Check throws ProtocolError */

/** @param {string} name @param {unknown} value @param {string} wanted @returns {never} */
export function refuse(name, value, wanted) {
  const shown = `${JSON.stringify(value) ?? value}`.slice(0, 60);
  throw new ProtocolError(`${name} of a message is ${shown}; it has to be ${wanted}.`);
}

/** @type {Check} */
export function u32(value, name) {
  if (typeof value !== "number" || value >>> 0 !== value) refuse(name, value, "a whole number below 2^32");
}

/** @type {Check} */
export function boolean(value, name) {
  if (typeof value !== "boolean") refuse(name, value, "true or false");
}

/** @param {RegExp} pattern @param {string} wanted @returns {Check} */
export function text(pattern, wanted) {
  return (value, name) => {
    if (typeof value !== "string" || !pattern.test(value)) refuse(name, value, wanted);
  };
}

export const id = text(/^[0-9a-f]{16}$/, "an id of 16 hex characters");

/** @param {number} most characters @returns {Check} */
export function words(most) {
  return (value, name) => {
    if (typeof value !== "string" || value.length > most)
      refuse(name, value, `text of at most ${most} characters`);
  };
}

/** @param {...string} options @returns {Check} */
export function oneOf(...options) {
  return (value, name) => {
    if (typeof value !== "string" || !options.includes(value)) refuse(name, value, options.join(" or "));
  };
}

/** @param {Check} check @returns {Check} */
export function orNull(check) {
  return (value, name) => {
    if (value !== null) check(value, name);
  };
}

/** @param {Check} check @param {number} most @returns {Check} */
export function list(check, most) {
  return (value, name) => {
    if (!Array.isArray(value) || value.length > most) refuse(name, value, `a list of at most ${most}`);
    for (const entry of /** @type {unknown[]} */ (value)) check(entry, name);
  };
}

/** A list without repeats. @param {Check} check @param {number} most @returns {Check} */
export function distinct(check, most) {
  const plain = list(check, most);
  return (value, name) => {
    plain(value, name);
    const entries = /** @type {unknown[]} */ (value);
    if (new Set(entries).size !== entries.length) refuse(name, value, "a list without repeats");
  };
}

/** @param {unknown} value @param {string} name @returns {Record<string, unknown>} */
export function plainObject(value, name) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) refuse(name, value, "an object");
  return /** @type {Record<string, unknown>} */ (value);
}

/** @param {Record<string, Check>} fields @returns {Check} */
export function shape(fields) {
  const names = Object.keys(fields);
  return (value, name) => {
    const object = plainObject(value, name);
    const keys = Object.keys(object);
    if (keys.length !== names.length) refuse(name, keys, `an object of ${names.join(", ") || "no fields"}`);
    for (const field of names) fields[field](object[field], `${name}.${field}`);
  };
}
