/** Pure questions about views: who is a quorum, who can be a roster, and what a new view has to take over. */

import { MAX_MEMBERS } from "../limits.js";
import { max } from "../numerics/numbers.js";

/** @typedef {import("./types.js").View} View */
/** The gradients that make a step: those of `roster`, computed at this step under epoch `origin`.
 * @typedef {{step: number, origin: number, roster: string[]}} Content */
/** A content that a device has whole, and the last view (`ballot`) under which it had it.
 * @typedef {Content & {ballot: number}} Held */
/** What a device says when it promises: its state, the views it knows (the first committed steps; the last is the one
 * it accepted; none: it knows nothing of the run), and what it holds for its step.
 * @typedef {{id: string, step: number, hash: string | null, trail: View[], held: Held | null, links: string[],
 *   promised: number, left: boolean}} Promised */

/**
 * More than half, or half with the leader, of those that have not left; with the first of them where the leader left.
 * Any two quorums of a view share a member that is still there.
 * @param {View} view
 * @param {(id: string) => boolean} present
 * @param {(id: string) => boolean} left
 */
export function isQuorum({ leader, roster }, present, left = () => false) {
  const rest = roster.filter((id) => !left(id));
  const twice = 2 * rest.filter(present).length;
  const first = rest.includes(leader) ? leader : rest[0];
  return twice > rest.length || (twice === rest.length && rest.length > 0 && present(first));
}

/**
 * The largest group of mutually linked devices with `first`; among equals the one with the earlier devices.
 * @param {string} first
 * @param {string[]} others in order of preference
 * @param {(a: string, b: string) => boolean} linked
 * @returns {string[]} in the order of `others`, `first` before them
 */
export function largestClique(first, others, linked) {
  const near = others.filter((id) => linked(first, id)).slice(0, 2 * MAX_MEMBERS);
  /** @type {string[]} */
  let best = [];
  /** @param {string[]} chosen @param {number} from */
  const extend = (chosen, from) => {
    if (chosen.length > best.length) best = chosen;
    if (best.length === MAX_MEMBERS - 1) return;
    for (let i = from; i < near.length && chosen.length + near.length - i > best.length; i++) {
      if (chosen.every((id) => linked(id, near[i]))) extend([...chosen, near[i]], i + 1);
    }
  };
  extend([], 0);
  return [first, ...best];
}

/**
 * The views that may have committed steps, as far as these devices know: the latest that surely did, and later ones
 * that may have. A view whose leader promises without having committed anything in it never will: it drops out.
 * @param {Promised[]} promises
 * @returns {View[]} in order of epoch
 */
export function openViews(promises) {
  const committed = promises.reduce((latest, { trail }) => max(latest, trail[0]?.epoch ?? 0), 0);
  /** @type {Map<number, View>} */
  const views = new Map();
  for (const { trail } of promises) for (const view of trail) views.set(view.epoch, view);
  const leaderGaveUp = (/** @type {View} */ view) =>
    promises.some(({ id, trail }) => id === view.leader && trail.length > 0 && trail[0].epoch < view.epoch);
  return [...views.values()]
    .filter((view) => view.epoch === committed || (view.epoch > committed && !leaderGaveUp(view)))
    .sort((a, b) => a.epoch - b.epoch);
}

/**
 * Who left for good, and may be left out of account under this ballot: whoever promised a later one may have been
 * needed for that.
 * @param {Promised[]} promises
 * @param {number} ballot
 * @returns {(id: string) => boolean}
 */
export function leftBefore(promises, ballot) {
  return (id) => promises.some((promise) => promise.id === id && promise.left && promise.promised <= ballot);
}

/**
 * Whether enough devices that know the run have promised.
 * @param {View[]} views
 * @param {Promised[]} promises
 * @param {number} ballot
 */
export function enoughPromised(views, promises, ballot) {
  const knowing = new Set(
    promises.filter(({ trail, left }) => trail.length > 0 && !left).map(({ id }) => id),
  );
  const left = leftBefore(promises, ballot);
  return views.length > 0 && views.every((view) => isQuorum(view, (id) => knowing.has(id), left));
}

/**
 * The step that a new view begins with.
 * @param {Promised[]} promises
 */
export function baseStep(promises) {
  return promises.reduce((most, { step, hash }) => (hash !== null && step > most ? step : most), 0);
}

/**
 * The content that the new view has to complete first, because an earlier view may have committed it: the one held
 * under the highest ballot. What only devices hold that have left is needed too, unless it was proposed by that
 * ballot's leader itself and the leader says that it does not hold it: then it committed nothing.
 * @param {Promised[]} promises
 * @param {View[]} views
 * @returns {{content: Held | null, holders: string[]}} `holders`: those still here
 */
export function contentToAdopt(promises, views) {
  const base = baseStep(promises);
  const atBase = promises.filter(({ held, step }) => step === base && held?.step === base);
  const order = [...atBase].sort((a, b) => (b.held?.ballot ?? 0) - (a.held?.ballot ?? 0));
  for (const { held } of order) {
    if (held === null) continue;
    const holding = atBase.filter((promise) => promise.held?.origin === held.origin);
    const holders = holding.filter(({ left }) => !left).map(({ id }) => id);
    const leader = views.find(({ epoch }) => epoch === held.ballot)?.leader;
    const refuted =
      holders.length === 0 &&
      held.origin === held.ballot &&
      promises.some(({ id, trail }) => id === leader && trail.length > 0) &&
      !holding.some(({ id }) => id === leader);
    if (!refuted) return { content: held, holders };
  }
  return { content: null, holders: [] };
}
