/** Who holds which part of the linear memory. */

import assert from "node:assert/strict";
import test from "node:test";
import { KernelError } from "../../../src/daisychain/static/errors.js";
import {
  HEAP_START,
  Memory,
  PlainMemory,
  wasmMemory,
} from "../../../src/daisychain/static/kernels/memory.js";
import { KERNEL_MEMORY_BYTES, MEMORY_MAX_BYTES } from "../../../src/daisychain/static/limits.js";
import { mix } from "../../../src/daisychain/static/numerics/roster.js";

/** @type {[string, () => Memory][]} */
const MEMORIES = [
  ["plain", () => new Memory(new PlainMemory())],
  ["wasm", () => new Memory(wasmMemory())],
];

for (const [name, make] of MEMORIES) {
  test(`${name}: parts never overlap, and all comes back`, () => {
    const memory = make();
    /** @type {Map<number, number>} */
    const held = new Map();
    for (let turn = 0; turn < 3000; turn++) {
      const draw = mix(turn);
      if (draw % 3 && held.size < 60) {
        const bytes = draw % 50_000;
        const offset = memory.allocate(bytes);
        assert.equal(offset % 16, 0);
        assert.ok(offset >= HEAP_START && offset + bytes <= memory.bytes.length - 64);
        for (const [other, size] of held) {
          assert.ok(offset + bytes <= other || other + size <= offset, `turn ${turn}: overlap`);
        }
        held.set(offset, bytes);
      } else if (held.size) {
        const offset = [...held.keys()][draw % held.size] ?? 0;
        held.delete(offset);
        memory.release(offset);
      }
    }
    for (const offset of held.keys()) memory.release(offset);
    assert.equal(memory.allocate(KERNEL_MEMORY_BYTES - HEAP_START - 64), HEAP_START);
  });

  test(`${name}: growing keeps what is held`, () => {
    const memory = make();
    const offset = memory.allocate(8);
    memory.floats.set([1.5, -0], offset >> 2);
    const large = memory.allocate(2 * KERNEL_MEMORY_BYTES);
    assert.ok(large + 2 * KERNEL_MEMORY_BYTES <= memory.bytes.length);
    assert.deepEqual([...memory.floats.subarray(offset >> 2, (offset >> 2) + 2)], [1.5, -0]);
  });

  test(`${name}: too much, and what is not held, are refused`, () => {
    const memory = make();
    assert.throws(() => memory.allocate(MEMORY_MAX_BYTES), KernelError);
    assert.throws(() => memory.release(HEAP_START), KernelError);
    const offset = memory.scratch(100);
    memory.releaseScratch();
    assert.throws(() => memory.release(offset), KernelError);
  });
}
