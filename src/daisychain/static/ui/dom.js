/** Small helpers for the page's elements. */

import { ROOM_NAME_CHARACTERS } from "../limits.js";

/**
 * The element of an id that index.html is known to have.
 * @template {Element} T
 * @param {string} id
 * @param {new () => T} kind
 * @returns {T}
 */
export function part(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new TypeError(`index.html has no ${kind.name} #${id}`);
  return found;
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, string | number | boolean>} [attributes] false or nothing leaves one out
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== "") made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children);
  return made;
}

/**
 * Where a device is given its name.
 * @param {HTMLInputElement} input
 * @param {(name: string) => void} rename
 */
export function nameInput(input, rename) {
  input.maxLength = ROOM_NAME_CHARACTERS;
  input.addEventListener("change", () => rename(input.value.trim()));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") input.blur();
  });
}

/**
 * Copies a text. Without a secure context there is no clipboard to write to, only the selection.
 * @param {string} text
 * @param {() => void} select selects the text on the page
 */
export async function copied(text, select) {
  select();
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else return document.execCommand("copy");
    return true;
  } catch {
    return false;
  }
}

/**
 * Sets a text only where it changed, so that a screen reader is not told twice.
 * @param {Element} target
 * @param {string} text
 */
export function say(target, text) {
  if (target.textContent !== text) target.textContent = text;
}
