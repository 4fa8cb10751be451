/** Light, dark, or as the system has it; the choice is kept on this device. */

import { part, say } from "./dom.js";
import { keep, kept } from "./keep.js";

const MEDIA = { auto: "(prefers-color-scheme: dark)", light: "not all", dark: "all" };
const NEXT = /** @type {const} */ ({ auto: "light", light: "dark", dark: "auto" });
const KEY = "daisychain.theme";

/** @param {() => void} changed told when the colours change */
export function createTheme(changed) {
  const button = part("theme", HTMLButtonElement);
  const dark = part("dark", HTMLLinkElement);
  const before = kept(KEY);
  let theme = before === "light" || before === "dark" ? before : /** @type {keyof typeof NEXT} */ ("auto");

  const show = () => {
    dark.media = MEDIA[theme];
    say(button, `Theme: ${theme}`);
    changed();
  };
  button.addEventListener("click", () => {
    theme = NEXT[theme];
    keep(KEY, theme);
    show();
  });
  matchMedia(MEDIA.auto).addEventListener("change", changed);
  show();
}
