/** Time and chance, passed in so that tests make their own. */

/**
 * @typedef {object} Clock
 * @property {() => number} now milliseconds, never going back
 * @property {(action: () => void, waitMs: number) => any} setTimeout
 * @property {(timer: any) => void} clearTimeout
 * @property {() => number} random in [0, 1)
 */

/** @type {Clock} */
export const systemClock = {
  now: () => performance.now(),
  setTimeout: (action, waitMs) => globalThis.setTimeout(action, waitMs),
  clearTimeout: (timer) => globalThis.clearTimeout(timer),
  random: () => crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32,
};

/**
 * The wait before a try: doubling, and spread over its upper half so that devices do not come back at once.
 * @param {number} failures since the last success
 * @param {readonly [number, number]} rangeMs first and longest wait
 * @param {Clock} clock
 */
export function retryWaitMs(failures, [firstMs, longestMs], clock) {
  let waitMs = firstMs;
  for (let i = 1; i < failures && waitMs < longestMs; i++) waitMs *= 2;
  if (waitMs > longestMs) waitMs = longestMs;
  return waitMs * (0.5 + clock.random() / 2);
}
