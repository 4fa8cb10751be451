/** Values of a stranger's file: told apart, and named in a message without running through them. */

const SHOWN_CHARACTERS = 70;
const MAX_AXES = 2; // of a weight

/**
 * A value, short, whatever it is.
 * @param {unknown} value
 * @returns {string}
 */
export function quote(value) {
  if (typeof value === "string") return JSON.stringify(value.slice(0, SHOWN_CHARACTERS));
  return value === null || typeof value !== "object" ? String(value) : "a structure";
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * @param {unknown} value
 * @returns {value is number[]}
 */
export function isCounts(value) {
  return Array.isArray(value) && value.every((count) => Number.isSafeInteger(count) && count >= 0);
}

/**
 * Whether a weight could have this shape.
 * @param {unknown} value
 * @returns {value is number[]}
 */
export function isShape(value) {
  return isCounts(value) && value.length <= MAX_AXES;
}
