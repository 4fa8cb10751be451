/** Seeded faults: no fork, no partial average, no stall; every seed replays. SOAK=1 plays ten times as many. */

import assert from "node:assert/strict";
import test from "node:test";
import { Violation } from "./judge.js";
import { MUTATIONS } from "./mutations.js";
import { play } from "./scenario.js";

const SEEDS = process.env.SOAK ? 20_000 : 2_000;
const SEEDS_PER_MUTATION = 600;

/** @param {number} seed @param {import("./simulator.js").Mutation} [mutation] */
function violation(seed, mutation) {
  try {
    play(seed, mutation);
    return null;
  } catch (error) {
    if (error instanceof Violation) return error.message;
    throw new Error(`seed ${seed}`, { cause: error });
  }
}

test(`${SEEDS} seeds of faults`, (context) => {
  const failed = [];
  /** @type {Record<string, number>} */
  const ends = {};
  for (let seed = 0; seed < SEEDS && failed.length < 5; seed++) {
    try {
      for (const { session } of play(seed).here()) ends[session.phase] = (ends[session.phase] ?? 0) + 1;
    } catch (error) {
      failed.push(
        `seed ${seed}: ${error instanceof Violation ? error.message : /** @type {Error} */ (error).stack}`,
      );
    }
  }
  context.diagnostic(`devices by their end: ${JSON.stringify(ends)}`);
  assert.deepEqual(failed, []);
  assert.ok(ends.finished > ends.quorum, "most runs finish in spite of their faults");
});

test("a seed replays exactly, and another is another", () => {
  const traces = [3, 3, 4].map((seed) => play(seed).trace);
  assert.equal(traces[0], traces[1]);
  assert.notEqual(traces[0], traces[2]);
});

for (const [name, mutation] of Object.entries(MUTATIONS)) {
  test(`caught: ${name}`, (context) => {
    const { from = 0 } = mutation;
    let caught = null;
    let seed = from;
    for (; caught === null && seed < from + SEEDS_PER_MUTATION; seed++) caught = violation(seed, mutation);
    assert.ok(caught !== null, `not caught by seeds ${from} to ${seed}`);
    context.diagnostic(`seed ${seed - 1}: ${caught}`);
  });
}
