/** Light, dark, or as the system has it; the choice is kept on this device, and holds before the first paint. */

(() => {
  const MEDIA = { auto: "(prefers-color-scheme: dark)", light: "not all", dark: "all" };
  const NEXT = { auto: "light", light: "dark", dark: "auto" };
  const KEY = "daisychain.theme";

  /** @returns {"auto" | "light" | "dark"} */
  const kept = () => {
    try {
      const value = localStorage.getItem(KEY);
      return value === "light" || value === "dark" ? value : "auto";
    } catch {
      return "auto"; // a browser may refuse to keep anything
    }
  };
  let theme = kept();

  const show = () => {
    const sheet = /** @type {HTMLLinkElement | null} */ (document.getElementById("dark"));
    if (sheet) sheet.media = MEDIA[theme];
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${theme}`;
    // The widgets' own idea of light and dark follows.
    const quasar = /** @type {any} */ (window).Quasar;
    quasar?.Dark?.set(theme === "auto" ? "auto" : theme === "dark");
    window.dispatchEvent(new Event("daisy-theme"));
  };

  /** @type {any} */ (window).daisyTheme = {
    next() {
      theme = NEXT[theme];
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // then it holds until the page is left
      }
      show();
    },
    show,
  };
  show();
  matchMedia(MEDIA.auto).addEventListener("change", show);
})();
