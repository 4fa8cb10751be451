/** Whole runs by the worker's code in Node: equal on every device, and the same as before. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { SETTINGS, VirtualGroup } from "../../virtual_peers.js";

const ROOT = new URL("../../../", import.meta.url);
const TEXT = ["README.md", "docs/NUMERICS.md", "docs/CLUSTER.md", "docs/NOTES.md"]
  .map((name) => readFileSync(new URL(name, ROOT), "utf8"))
  .join("\n");
const SMALL = { ...SETTINGS, width: 16, sequence: 16, batch: 2, steps: 12 };

/** @param {VirtualGroup} group */
function assertEqual(group) {
  const [first, ...others] = [...group.peers.values()];
  for (const other of others) {
    for (const [step, hash] of other.hashes) {
      if (first.hashes.has(step)) assert.equal(hash, first.hashes.get(step), `step ${step}`);
    }
  }
}

/** @param {VirtualGroup} group */
const finished = (group) => () => [...group.peers.values()].every(({ state }) => state?.phase === "finished");

test("three devices train one model, one of them without WebAssembly; all states equal", async () => {
  const group = new VirtualGroup(TEXT);
  const [first] = [await group.join(), await group.join(), await group.join("plain")];
  await first.node.receive({ type: "start", settings: { ...SMALL, steps: 3 } });
  await group.until("the end", finished(group));
  assert.deepEqual(
    [...group.peers.values()].map(({ hashes }) => hashes.size),
    [3, 3, 3],
  );
  assertEqual(group);
  assert.equal(first.state.devices.length, 3);
  assert.ok(first.state.devices.every((/** @type {any} */ device) => device.equal !== false));
});

for (const gradients of /** @type {const} */ (["float32", "int8"])) {
  test(`the loss falls, a late device gets everything, the model writes (${gradients})`, async () => {
    const group = new VirtualGroup(TEXT);
    const first = await group.join();
    await group.join();
    const late = await group.join("wasm", false);
    await first.node.receive({ type: "start", settings: { ...SMALL, steps: 60, gradients } });
    await group.until("step 10", () => (first.state?.step ?? 0) >= 10);
    await group.linkToAll(late);
    await group.until("the end", finished(group));
    assertEqual(group);
    assert.ok(late.hashes.size > 5 && late.hashes.size < 60, `the late device saw ${late.hashes.size} steps`);
    const losses = first.log
      .filter(({ kind }) => kind === "step")
      .map(({ text }) => Number(text.match(/loss ([\d.]+)/)[1]));
    assert.ok(losses[0] - Math.min(...losses) > 1, `${losses[0]} → ${losses.at(-1)}`);
    for (const peer of [first, late]) {
      await peer.node.receive({ type: "generate", prompt: "The ", tokens: 8, temperature: 0.8, seed: 3 });
    }
    const written = [first, late].map(({ messages }) => messages.findLast(({ done }) => done));
    assert.equal(written[0].ids.length, 8);
    assert.deepEqual(written[0].ids, written[1].ids);
  });
}

test("a checkpoint goes to the whole group, and training goes on from it", async () => {
  const group = new VirtualGroup(TEXT);
  const first = await group.join();
  await first.node.receive({ type: "start", settings: SMALL });
  await group.until("the end", finished(group));
  await first.node.receive({ type: "checkpoint", format: "safetensors" });
  const { bytes } = first.messages.findLast(({ type }) => type === "file");
  const other = new VirtualGroup(TEXT);
  const [one, two] = [await other.join(), await other.join("plain")];
  await two.node.receive({ type: "start", settings: { ...SMALL, steps: 2, seed: 7 } });
  await other.until("a model of their own", finished(other));
  assert.deepEqual(one.state.devices.map((/** @type {any} */ { backend }) => backend).sort(), [
    "plain",
    "wasm",
  ]);
  await one.node.receive({ type: "load", bytes, name: "mine.safetensors" });
  await other.until("the model on both", () => two.state.hash === first.state.hash && finished(other)());
  assert.equal(two.state.hash, first.state.hash);
  assert.equal(two.state.step, SMALL.steps);
  await two.node.receive({ type: "start", settings: { ...SMALL, goOn: true } });
  await other.until("more steps", () => finished(other)() && two.state.step === 2 * SMALL.steps);
  assertEqual(other);
});

test("a hostile checkpoint is refused, and the group is untouched", async () => {
  const group = new VirtualGroup(TEXT);
  const first = await group.join();
  await first.node.receive({ type: "start", settings: SMALL });
  await group.until("the end", finished(group));
  const { hash } = first.state;
  await first.node.receive({ type: "load", bytes: new ArrayBuffer(100), name: "zeros.pt" });
  assert.match(first.messages.at(-1).message, /zeros\.pt was refused/);
  first.node.tick();
  assert.equal(first.state.hash, hash);
});

test("stop ends the run for all, at one step", async () => {
  const group = new VirtualGroup(TEXT);
  const [first, second] = [await group.join(), await group.join()];
  await first.node.receive({ type: "start", settings: { ...SMALL, steps: 100 } });
  await group.until("step 3", () => (second.state?.step ?? 0) >= 3);
  await second.node.receive({ type: "stop" });
  await group.until("the stop", () => [first, second].every(({ state }) => state.phase === "stopped"));
  assert.equal(first.state.step, second.state.step);
  assert.equal(first.state.hash, second.state.hash);
});

test("without the room server training goes on with the last text, and a kit is made all the same", async () => {
  const group = new VirtualGroup(TEXT);
  const first = await group.join();
  await first.node.receive({ type: "start", settings: SMALL });
  await group.until("the end", finished(group));
  first.node.parts.text = async () => {
    throw new Error("the room server is out of reach");
  };
  await first.node.receive({ type: "start", settings: SMALL });
  assert.match(first.messages.at(-1).message, /out of reach/);
  await first.node.receive({ type: "start", settings: { ...SMALL, goOn: true } });
  await group.until("more steps", () => first.state.step === 2 * SMALL.steps);
  assert.ok(first.log.some(({ text }) => /text of the last run once more/.test(text)));
  await first.node.receive({ type: "kit" });
  const file = first.messages.findLast(({ type }) => type === "file");
  assert.match(new TextDecoder().decode(file.bytes), /<!doctype html>/i);
});
