/** What a backend refuses, that it then leaves weights and memory as they were, and how it is chosen. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import test from "node:test";
import {
  AccumulatorBoundError,
  BlockRangeError,
  ConfigError,
  KernelError,
  NonFiniteError,
} from "../../../src/daisychain/static/errors.js";
import { slice } from "../../../src/daisychain/static/kernels/memory.js";
import { openBackend } from "../../../src/daisychain/static/kernels/registry.js";
import { sha256, toHex } from "../../../src/daisychain/static/numerics/sha256.js";

const wasmBytes = await readFile(
  new URL("../../../src/daisychain/static/kernels/kernels.wasm", import.meta.url),
);
const SIZE = 6;

/** @param {"wasm" | "plain"} force */
async function opened(force) {
  const { backend } = await openBackend({ wasmBytes, force });
  const held = (/** @type {number[]} */ values) => {
    const buffer = backend.f32(values.length);
    backend.write(buffer, values);
    return buffer;
  };
  const ones = () => held(Array.from({ length: SIZE * SIZE }, () => 1));
  const adam = (/** @type {any} */ w, /** @type {any} */ g) => ({
    op: "adam",
    ...{ w, g, m: backend.f32(w.length), v: backend.f32(w.length), length: w.length, root: 1, size: 0.5 },
  });
  const sizes = { rows: SIZE, inner: SIZE, outer: SIZE };
  return { backend, held, ones, adam, sizes };
}

for (const force of /** @type {const} */ (["wasm", "plain"])) {
  test(`${force}: a number that is not finite stops the chain; weights stay`, async () => {
    for (const bad of [Number.NaN, Number.NEGATIVE_INFINITY]) {
      const { backend, ones, adam, sizes } = await opened(force);
      const [x, w, out] = [ones(), ones(), ones()];
      backend.write(x, [bad, 1, bad], 7);
      const before = backend.memory.bytes.slice();
      const chain = [{ op: "linear", x, w, out, ...sizes }, adam(w, out)];
      await assert.rejects(backend.run(chain), (error) => {
        assert.ok(error instanceof NonFiniteError);
        assert.match(error.message, /^linear: 2 of 36 values are NaN or infinite, the first at \(1, 1\)/);
        return true;
      });
      const weights = await backend.read(w);
      assert.ok(weights.every((value) => value === 1));
      assert.equal(before.length, backend.memory.bytes.length);
    }
  });

  test(`${force}: a gradient that is not finite changes nothing`, async () => {
    const { backend, ones, adam } = await opened(force);
    const [w, g] = [ones(), ones()];
    backend.write(g, [Number.POSITIVE_INFINITY], 35);
    const op = adam(w, g);
    assert.equal(backend.checkFinite(g), false);
    assert.equal(backend.checkFinite(slice(g, 0, 35)), true);
    await assert.rejects(backend.run([op]), /1 of 36 numbers of the gradient .* first at 35/);
    const states = await Promise.all([w, op.m, op.v].map((buffer) => backend.read(buffer)));
    states.forEach((state, i) => {
      assert.ok(state.every((value) => value === [1, 0, 0][i]));
    });
  });

  test(`${force}: what no block holds is refused`, async () => {
    const { backend, ones, sizes } = await opened(force);
    const [x, w, out] = [ones(), ones(), ones()];
    backend.write(w, [127.5 * 2 ** 53], 3);
    await assert.rejects(backend.run([{ op: "linear", x, w, out, ...sizes }]), BlockRangeError);
    await assert.rejects(
      backend.run([{ op: "relu", x: w, out, rows: SIZE, width: SIZE }]),
      /^BlockRangeError: relu: 1 of 36/,
    );
  });

  test(`${force}: a contraction that is too long is refused at every product's entry`, async () => {
    const { backend } = await opened(force);
    const long = 131_072;
    const [x, w] = [backend.f32(long), backend.f32(long)];
    const out = backend.f32(1);
    const row = { x, w, out, rows: 1, inner: long, outer: 1 };
    await assert.rejects(backend.run([{ op: "linear", ...row }]), AccumulatorBoundError);
    await assert.rejects(backend.run([{ op: "linear3", ...row }]), AccumulatorBoundError);
    const column = { g: x, x: w, w: out, dx: x, dw: out, rows: long, inner: 1, outer: 1 };
    await assert.rejects(backend.run([{ op: "linearBackward", ...column }]), AccumulatorBoundError);
    await backend.run([{ op: "linear", ...row, inner: long - 1 }]);
  });

  test(`${force}: refusals give their memory back`, async () => {
    const { backend, ones, sizes } = await opened(force);
    const [x, w, out] = [ones(), ones(), ones()];
    backend.write(x, [Number.NaN]);
    const before = backend.memory.allocate(16);
    backend.memory.release(before);
    await assert.rejects(backend.run([{ op: "linear", x, w, out, ...sizes }]), NonFiniteError);
    assert.equal(backend.memory.allocate(16), before);
  });

  test(`${force}: operations that do not fit are refused by name`, async () => {
    const { backend, ones, held, sizes } = await opened(force);
    const [x, w, out] = [ones(), ones(), held([1, 2])];
    await assert.rejects(backend.run([{ op: "convolve" }]), /ConfigError: operation convolve is not known/);
    await assert.rejects(
      backend.run([{ op: "linear", x, w, out, ...sizes }]),
      /linear: out holds 2 numbers, not 36/,
    );
    await assert.rejects(backend.run([{ op: "linear", x, w, out }]), ConfigError);
    const ids = backend.u16(2);
    backend.write(ids, [5, 6]);
    const embed = { op: "embed", ids, tokens: w, positions: x, out: x, rows: 2, sequence: 2, width: SIZE };
    await assert.rejects(backend.run([embed]), /embed: ids\[1\] is 6, not below 6/);
    assert.throws(() => slice(out, 1, 2), ConfigError);
    assert.throws(() => backend.write(out, [1, 2, 3]), ConfigError);
  });

  test(`${force}: hashes`, async () => {
    const { backend, held } = await opened(force);
    const buffer = held([1, 2, 3]);
    const head = Uint8Array.of(9, 8, 7);
    const bytes = new Uint8Array(Float32Array.of(1, 2, 3).buffer);
    assert.equal(toHex(await backend.digest(buffer, head)), toHex(sha256(head, bytes)));
  });
}

test("the probe is the same on every right kernel, and not on a wrong one", async () => {
  const [wasm, plain] = [await opened("wasm"), await opened("plain")].map(({ backend }) => backend);
  assert.equal(toHex(wasm.probe()), toHex(plain.probe()));
  assert.equal(toHex(wasm.probe(7)), toHex(plain.probe(7)));
  assert.notEqual(toHex(wasm.probe(7)), toHex(wasm.probe(8)));
  const right = plain.primitives;
  plain.audit = null;
  plain.products.primitives = {
    ...right,
    product(a, sa, m, ...rest) {
      right.product(a, sa, m, ...rest);
      plain.memory.floats[rest[4] >> 2] += 1;
    },
  };
  assert.notEqual(toHex(wasm.probe()), toHex(plain.probe()));
});

test("the registry says what it took and why", async () => {
  const names = async (
    /** @type {import("../../../src/daisychain/static/kernels/registry.js").Opening} */ opening,
  ) => {
    const { backend, why } = await openBackend(opening);
    return [backend.name, why];
  };
  assert.deepEqual((await names({ wasmBytes }))[0], "wasm");
  assert.match(`${await names({ wasmBytes: null })}`, /^plain,plain JavaScript, .*: the kernels could not/);
  const broken = Uint8Array.from(wasmBytes).fill(0, 100, 200);
  assert.match(`${await names({ wasmBytes: broken })}`, /^plain,.*cannot run the kernels/);
  await assert.rejects(openBackend({ wasmBytes: broken, force: "wasm" }), KernelError);
  await assert.rejects(openBackend({ wasmBytes, force: /** @type {any} */ ("gpu") }), ConfigError);
});

test("without WebAssembly, or with a file cut short, plain JavaScript works", async () => {
  const whole = globalThis.WebAssembly;
  try {
    Reflect.deleteProperty(globalThis, "WebAssembly");
    const { backend, why } = await openBackend({ wasmBytes });
    assert.equal(backend.name, "plain");
    assert.match(why, /no WebAssembly/);
  } finally {
    globalThis.WebAssembly = whole;
  }
  const { why } = await openBackend({ wasmBytes: wasmBytes.subarray(0, 5000) });
  assert.match(why, /cannot run the kernels/);
});

test("a binary with a wrong number is kept out", async () => {
  // ln 2 − 355/512 and its neighbour, as the four bytes of a constant.
  const [right, wrong] = [-0.00021219444170128554, -0.00021219442714937031].map((value) =>
    Buffer.from(Float32Array.of(value).buffer),
  );
  const at = wasmBytes.indexOf(right ?? "");
  assert.ok(at > 0);
  const patched = Buffer.from(wasmBytes);
  for (let i = at; i >= 0; i = patched.indexOf(right ?? "", i + 1)) wrong?.copy(patched, i);
  const { backend, why } = await openBackend({ wasmBytes: patched });
  assert.equal(backend.name, "plain");
  assert.match(why, /a kernel gave a wrong bit \(exponentials/);
});
