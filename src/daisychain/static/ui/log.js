/** The live log: bounded, and it stays where the reader scrolled to. */

import { element, part } from "./dom.js";

/** @typedef {import("./state.js").Page} Page */
/** @typedef {import("./state.js").Line} Line */

/** How near to the end still counts as reading the newest line. */
const END_PX = 24;
const TONES = /** @type {Record<string, string>} */ ({
  halted: "bad",
  refused: "warn",
  repair: "warn",
  waiting: "warn",
  kernel: "warn",
});

/**
 * The lines that are not on the page yet.
 * @param {Line[]} log in order of number
 * @param {number} next the number of the next line to show
 */
export const newLines = (log, next) => log.filter((line) => line.number >= next);

export function createLog() {
  const list = part("log", HTMLOListElement);
  const follow = part("log-follow", HTMLButtonElement);
  let next = 0;
  let following = true;

  list.addEventListener("scroll", () => {
    following = list.scrollHeight - list.scrollTop - list.clientHeight < END_PX;
    follow.hidden = following;
  });
  follow.addEventListener("click", () => {
    list.scrollTop = list.scrollHeight;
    list.focus();
  });

  return {
    /** @param {Page} page */
    render({ log, logged }) {
      if (logged === next) return;
      const before = list.scrollHeight;
      for (const { kind, step, text } of newLines(log, next)) {
        const tone = TONES[kind] ?? "";
        const number = element("span", {}, step === null ? "" : String(step));
        list.append(element("li", { class: tone || false }, number, element("span", {}, text)));
      }
      next = logged;
      const grown = list.scrollHeight - before;
      while (list.childElementCount > log.length) list.firstElementChild?.remove();
      if (following) list.scrollTop = list.scrollHeight;
      else list.scrollTop -= before + grown - list.scrollHeight;
    },
  };
}
