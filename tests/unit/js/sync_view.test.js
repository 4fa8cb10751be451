/** Quorums and rosters, on all small cases. */

import assert from "node:assert/strict";
import test from "node:test";
import {
  contentToAdopt,
  isQuorum,
  largestClique,
  openViews,
} from "../../../src/daisychain/static/sync/view.js";

const IDS = ["a", "b", "c", "d", "e"];

/** @param {string[]} ids @returns {string[][]} */
function subsets(ids) {
  return Array.from({ length: 2 ** ids.length }, (_, mask) => ids.filter((_id, i) => mask & (1 << i)));
}

test("any two quorums share a member that is still there, whoever has left", () => {
  for (let n = 1; n <= IDS.length; n++) {
    const roster = IDS.slice(0, n);
    const view = { epoch: 1, leader: roster[n - 1], roster };
    for (const later of subsets(roster)) {
      for (const earlier of subsets(later)) {
        const with_ = (/** @type {string[]} */ left) => {
          return subsets(roster).filter((some) =>
            isQuorum(
              view,
              (id) => some.includes(id),
              (id) => left.includes(id),
            ),
          );
        };
        for (const before of with_(earlier)) {
          if (before.some((id) => later.includes(id))) continue; // its last word tells of it
          for (const after of with_(later)) {
            const shared = before.filter((id) => after.includes(id) && !later.includes(id));
            assert.ok(shared.length > 0, `${roster}: ${before} and ${after}, left ${later}`);
          }
        }
      }
    }
  }
});

test("half is enough with the leader, and nobody is no quorum", () => {
  const view = { epoch: 1, leader: "a", roster: ["a", "b"] };
  assert.ok(isQuorum(view, (id) => id === "a"));
  assert.ok(!isQuorum(view, (id) => id === "b"));
  assert.ok(
    isQuorum(
      view,
      (id) => id === "b",
      (id) => id === "a",
    ),
  );
  assert.ok(
    !isQuorum(
      view,
      () => true,
      () => true,
    ),
  );
});

test("the roster is the largest group of mutual links, earlier devices first", () => {
  const broken = new Set(["b c", "c b"]);
  const linked = (/** @type {string} */ a, /** @type {string} */ b) => !broken.has(`${a} ${b}`);
  assert.deepEqual(largestClique("a", ["b", "c", "d"], linked), ["a", "b", "d"]);
  assert.deepEqual(largestClique("a", ["c", "b", "d"], linked), ["a", "c", "d"]);
  assert.deepEqual(largestClique("a", [], linked), ["a"]);
  const many = Array.from({ length: 12 }, (_, i) => `x${i}`);
  assert.equal(largestClique("a", many, () => true).length, 8);
});

const base = { step: 3, hash: "h", links: [], promised: 9, left: false };
const one = { epoch: 1, leader: "a", roster: ["a", "b", "c"] };
const two = { epoch: 2, leader: "b", roster: ["b", "c"] };

test("a view counts until its leader gives it up or a later one has committed", () => {
  const promise = (/** @type {string} */ id, /** @type {any[]} */ trail) => ({
    ...base,
    id,
    trail,
    held: null,
  });
  assert.deepEqual(openViews([promise("c", [one, two])]), [one, two]);
  assert.deepEqual(openViews([promise("c", [one, two]), promise("b", [one, two])]), [one]);
  assert.deepEqual(openViews([promise("c", [one, two]), promise("a", [two])]), [two]);
});

test("the content of the highest ballot is taken over; one that its leader denies is not", () => {
  const old = { step: 3, origin: 1, ballot: 1, roster: one.roster };
  const newer = { step: 3, origin: 2, ballot: 2, roster: two.roster };
  const holds = (/** @type {string} */ id, /** @type {any} */ held, left = false) => {
    return { ...base, id, trail: [one, two], held, left };
  };
  assert.equal(contentToAdopt([holds("a", old), holds("c", newer)], [one, two]).content, newer);
  assert.deepEqual(contentToAdopt([holds("a", old)], [one]).holders, ["a"]);
  assert.equal(contentToAdopt([holds("b", null), holds("c", newer, true)], [one, two]).content, null);
  assert.equal(contentToAdopt([holds("a", null), holds("c", newer, true)], [one, two]).content, newer);
  const behind = { ...holds("c", newer), step: 2 };
  assert.equal(contentToAdopt([holds("a", null), behind], [one, two]).content, null);
});
