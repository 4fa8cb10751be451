/** What a page that works in the hand needs: a screen that stays on, and word when the page is back. */

/**
 * Keeps the screen on, and takes the lock again whenever the page shows.
 * @param {Navigator} navigator @param {Document} document
 * @returns {() => void} lets the screen sleep again
 */
export function keepAwake(navigator, document) {
  /** @type {WakeLockSentinel | null} */
  let lock = null;
  let wanted = true;
  const take = async () => {
    if (!wanted || document.visibilityState !== "visible" || (lock && !lock.released)) return;
    // Absent on plain HTTP, refused on a low battery: the run goes on, only the screen may sleep.
    lock = (await navigator.wakeLock?.request("screen").catch(() => null)) ?? null;
    if (!wanted) lock?.release();
  };
  document.addEventListener("visibilitychange", take);
  take();
  return () => {
    wanted = false;
    document.removeEventListener("visibilitychange", take);
    lock?.release();
  };
}

/**
 * Calls `wake` when the page shows again or the network is back.
 * @param {() => void} wake @param {Window} window
 * @returns {() => void} stops
 */
export function onReturn(wake, window) {
  const shown = () => {
    if (window.document.visibilityState === "visible") wake();
  };
  window.document.addEventListener("visibilitychange", shown);
  window.addEventListener("online", wake);
  return () => {
    window.document.removeEventListener("visibilitychange", shown);
    window.removeEventListener("online", wake);
  };
}
