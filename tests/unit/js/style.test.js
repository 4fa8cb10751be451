/** Small rules of style that a reader of static/ would otherwise have to watch; test_style.py's other half. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, posix, relative } from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../../..");
const STATIC = join(ROOT, "src/daisychain/static");
const FILE_LINES = 400;
const FUNCTION_LINES = 60;

/** What each folder may import beside itself and the shared files at the top (limits.js, errors.js). */
/** @type {Record<string, string[]>} */
const BELOW = {
  ui: ["worker", "mesh", "sync", "model", "checkpoint", "kit", "kernels", "numerics"],
  worker: ["kit", "sync", "model", "checkpoint", "kernels", "numerics"],
  kit: ["model", "checkpoint", "kernels", "numerics"],
  mesh: ["sync", "numerics"],
  checkpoint: ["model", "kernels", "numerics"],
  sync: ["numerics"],
  model: ["kernels", "numerics"],
  kernels: ["numerics"],
  numerics: [],
};

/** @typedef {{name: string, text: string}} Module */

/** @returns {Module[]} every module of the page, named from static/ */
function modules() {
  return readdirSync(STATIC, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".js"))
    .sort()
    .map((name) => ({
      name: relative(STATIC, join(STATIC, name)),
      text: readFileSync(join(STATIC, name), "utf8"),
    }));
}

/** @param {Module} module */
function imports({ name, text }) {
  const found = [
    ...text.matchAll(/^(?:import|export)\s[^;]*?from\s+"([^"]+)"/gm),
    ...text.matchAll(/\bimport\("([^"]+)"\)/g),
  ];
  return found.map(([, to = ""]) => (to.startsWith(".") ? posix.join(posix.dirname(name), to) : to));
}

test("imports go downward only, and to nothing that has to be installed", () => {
  const wrong = [];
  for (const module of modules()) {
    const folder = module.name.includes("/") ? module.name.split("/")[0] : "";
    for (const to of imports(module)) {
      const target = to.includes("/") ? to.split("/")[0] : "";
      const shared = ["limits.js", "errors.js"].includes(to);
      const below = BELOW[folder ?? ""] ?? [];
      if (!shared && target !== folder && !below.includes(target ?? "")) wrong.push(`${module.name} → ${to}`);
    }
  }
  assert.deepEqual(wrong, []);
});

test("files are short", () => {
  assert.deepEqual(
    modules()
      .filter(({ text }) => text.split("\n").length > FILE_LINES)
      .map(({ name }) => name),
    [],
  );
});

test("functions are short", () => {
  const wrong = [];
  for (const { name, text } of modules()) {
    /** @type {number[]} */
    const starts = [];
    for (const [index, line] of text.split("\n").entries()) {
      // Formatted code: a function's last line is a brace at the indent of its first.
      if (
        /^(export )?(default )?(async )?function\b|^ {2}(static |async |get |set |\*)*#?\w+\(.*\{$/.test(line)
      )
        starts.push(index);
      if (/^( {2})?\}$/.test(line) && starts.length) {
        const start = starts.pop() ?? 0;
        if (index - start >= FUNCTION_LINES) wrong.push(`${name}:${start + 1}`);
      }
    }
  }
  assert.deepEqual(wrong, []);
});

test("every module says what it holds", () => {
  assert.deepEqual(
    modules()
      .filter(({ text }) => !text.startsWith("/**"))
      .map(({ name }) => name),
    [],
  );
});

test("every limit is used", () => {
  const all = modules();
  const limits = all.find(({ name }) => name === "limits.js");
  const names = [...(limits?.text ?? "").matchAll(/^export const ([A-Z0-9_]+)/gm)].map(
    ([, name = ""]) => name,
  );
  const code = all
    .filter((module) => module !== limits)
    .map(({ text }) => text)
    .join("\n");
  assert.ok(names.length > 10);
  assert.deepEqual(
    names.filter((name) => !new RegExp(`\\b${name}\\b`).test(code)),
    [],
  );
});
