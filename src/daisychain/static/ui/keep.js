/** What the page remembers on this device: the theme and the device's name, nothing else. */

/**
 * What was kept under a key, or null; a browser may forbid storage altogether.
 * @param {string} key
 */
export function kept(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

/** @param {string} key @param {string} value */
export function keep(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // The page works without: only the choice is forgotten.
  }
}
