import assert from "node:assert/strict";
import test from "node:test";
import {
  chartWords,
  columns,
  lossRange,
  nearest,
  readoutWords,
  ticks,
} from "../../../src/daisychain/static/ui/chartData.js";
import { deviceRows } from "../../../src/daisychain/static/ui/devices.js";
import { doorWords } from "../../../src/daisychain/static/ui/door.js";
import { parametersOf, stepBytes } from "../../../src/daisychain/static/ui/estimate.js";
import { refusal } from "../../../src/daisychain/static/ui/files.js";
import { writtenWords } from "../../../src/daisychain/static/ui/generate.js";
import { roomCode, roomLink } from "../../../src/daisychain/static/ui/invite.js";
import { newLines } from "../../../src/daisychain/static/ui/log.js";
import { fitted, SLIDERS, sizeWords } from "../../../src/daisychain/static/ui/settings.js";
import { DEFAULT_SETTINGS, newPage } from "../../../src/daisychain/static/ui/state.js";
import { firstName, inBytes, inTime, leftWords, short } from "../../../src/daisychain/static/ui/words.js";

/** @typedef {import("../../../src/daisychain/static/ui/state.js").Point} Point */

test("10,000 points become as many columns as fit, and none is left out", () => {
  const points = Array.from({ length: 10_000 }, (_, i) => /** @type {Point} */ ([i + 1, 10 - i / 2000]));
  points[4319] = [4320, 99];
  const drawn = columns(points, 250);
  assert.equal(drawn.length, 250);
  assert.equal(drawn[249].step, 10_000);
  assert.equal(Math.max(...drawn.map(({ high }) => high)), 99);
  assert.equal(
    nearest(drawn, 4322),
    drawn.findIndex(({ high }) => high === 99),
  );
  assert.deepEqual(
    columns(
      [
        [1, 5],
        [2, 7],
      ],
      1,
    ),
    [{ step: 2, low: 5, high: 7, mean: 6 }],
  );
  assert.deepEqual(columns([], 250), []);
});

test("ticks are round and lie within the range", () => {
  assert.deepEqual(ticks(0, 300, 8), [0, 50, 100, 150, 200, 250, 300]);
  assert.deepEqual(ticks(5.7, 9.8, 5), [6, 7, 8, 9]);
  assert.deepEqual(ticks(3, 3, 5), [3]);
});

test("a flat curve still has a range", () => {
  const [low, high] = lossRange(columns([[1, 5]], 10));
  assert.ok(low < 5 && high > 5);
});

test("the chart in words", () => {
  assert.match(
    chartWords([
      [1, 9.7],
      [2, 5.5],
      [3, 6],
    ]),
    /from 9.70 at step 1 to 6.00 at step 3; lowest 5.50 at step 2/,
  );
  assert.match(chartWords([]), /No steps yet/);
  assert.equal(readoutWords({ step: 1200, low: 5, high: 5, mean: 5 }), "Step 1,200: loss 5.000");
});

test("the default config's size is the contract's", () => {
  // 16,512 · 32 + 32 · 32 + 2 · (12 · 32² + 2 · 32) + 32
  assert.equal(parametersOf(DEFAULT_SETTINGS), 554_144);
  assert.equal(stepBytes(DEFAULT_SETTINGS), 4 * 554_144);
  assert.equal(stepBytes({ ...DEFAULT_SETTINGS, gradients: "int8" }), 554_144 + 4330);
  assert.match(sizeWords(DEFAULT_SETTINGS, 3), /554,144 parameters.*2\.22 MB.*768 tokens/);
});

test("a typed number is brought into range and onto the step", () => {
  const width = SLIDERS[0];
  assert.deepEqual(
    [7, 16, 35, 37, 500, Number.NaN].map((value) => fitted(value, width)),
    [16, 16, 32, 40, 128, 32],
  );
});

test("room codes use the 13 characters' whole alphabet, from random bytes alone", () => {
  const code = roomCode((bytes) => bytes.set(bytes.map((_, i) => i * 20 + 11)));
  assert.match(code, /^[0-9A-HJKMNP-TV-Z]{13}$/);
  const seen = new Set();
  for (let value = 0; value < 256; value++) seen.add(roomCode((bytes) => bytes.fill(value))[0]);
  assert.equal(seen.size, 32);
});

test("the link for others is no loopback address where the server knows a better one", () => {
  const lan = ["http://192.168.1.20:8787/"];
  assert.equal(roomLink("http://localhost:8787/", null, lan), "http://192.168.1.20:8787/");
  assert.equal(roomLink("http://127.0.0.1:8787/?room=A", "A", lan), "http://192.168.1.20:8787/?room=A");
  assert.equal(roomLink("https://room.example/?x=1", "A", lan), "https://room.example/?room=A");
  assert.equal(roomLink("http://localhost:8787/", null, []), "http://localhost:8787/");
});

test("each device has a row; this one is first", () => {
  const page = newPage({ name: "Desk", room: null });
  const devices = deviceRows({
    ...page,
    id: "a",
    backend: "wasm",
    members: [{ id: "b", name: "Bea" }],
    links: { b: { state: "down", reason: "the network refuses" } },
  });
  assert.deepEqual(
    devices.map(({ name, about, lamp }) => [name, about, lamp]),
    [
      ["Desk", "this device · WebAssembly", "up"],
      ["Bea", "no link · the network refuses", "down"],
    ],
  );
});

test("who cannot come in is told what to do", () => {
  const page = newPage({ name: "Desk", room: "A" });
  assert.equal(doorWords(page), null);
  assert.match(doorWords({ ...page, door: "waiting" })?.title ?? "", /Waiting/);
  assert.equal(doorWords({ ...page, door: "denied", doorReason: "No." })?.text, "No.");
  assert.equal(doorWords({ ...page, door: "denied" })?.action, "ask again");
  assert.match(doorWords({ ...page, door: "waiting" })?.text ?? "", /^The host of this room/);
  assert.equal(doorWords({ ...page, door: "closed", doorCode: "full" })?.action, "own room");
  assert.equal(doorWords({ ...page, door: "closed", doorCode: "too_fast" })?.action, "reload");
  assert.equal(doorWords({ ...page, doorReason: "lost" })?.action, "reload");
  assert.equal(doorWords({ ...page, id: "a", doorReason: "lost" }), null);
});

test("files that can be no checkpoint are refused unread", () => {
  assert.equal(refusal({ name: "model.safetensors", size: 2_000_000 }), "");
  assert.equal(refusal({ name: "model.PT", size: 10 }), "");
  assert.match(refusal({ name: "cat.jpg", size: 10 }), /no \.safetensors/);
  assert.match(refusal({ name: "big.pt", size: 2 ** 30 }), /1,074 MB; a room.s model has at most/);
  assert.match(refusal({ name: "a.pt", size: 0 }), /empty/);
});

test("only lines that are not shown yet are added to the log", () => {
  const log = [4, 5, 6].map((number) => ({ number, kind: "", step: null, text: "" }));
  assert.deepEqual(newLines(log, 6), [log[2]]);
  assert.deepEqual(newLines(log, 0), log);
});

test("of eight devices, two rarely have the same name", () => {
  const names = new Set(Array.from({ length: 10_000 }, (_, random) => firstName("", random)));
  const pairs = 28;
  assert.ok(pairs / names.size < 0.01, `${names.size} names`);
});

test("a text says which weights wrote it only once they are others", () => {
  const page = newPage({ name: "", room: null });
  const written = { ...page.written, text: "Bees", hash: "ab", step: 121 };
  assert.equal(writtenWords({ written, run: { ...page.run, hash: "ab" } }), "");
  assert.match(writtenWords({ written, run: { ...page.run, hash: "cd" } }), /after step 121/);
});

test("numbers in words", () => {
  assert.deepEqual([24.4, 1280, 48_200].map(short), ["24", "1,280", "48.2K"]);
  assert.deepEqual([999, 2_216_576, 12_345, 1_073_741_824].map(inBytes), [
    "999 B",
    "2.22 MB",
    "12.3 kB",
    "1,074 MB",
  ]);
  assert.deepEqual([5.4, 61, 3725].map(inTime), ["5 s", "1 min 1 s", "1 h 2 min"]);
  const page = newPage({ name: "", room: null });
  assert.equal(leftWords(page), "–");
  assert.equal(
    leftWords({ ...page, run: { ...page.run, phase: "running", step: 100, steps: 300, stepMs: 50 } }),
    "10 s",
  );
  assert.equal(
    firstName("Mozilla/5.0 (Linux; Android 14; Pixel) Mobile Safari", 36),
    "Clover 11 · Android phone",
  );
});
