import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import test from "node:test";
import { ConfigError } from "../../../src/daisychain/static/errors.js";
import { base64, fromBase64 } from "../../../src/daisychain/static/kit/base64.js";
import { filled } from "../../../src/daisychain/static/kit/build.js";
import { collect, importMap } from "../../../src/daisychain/static/kit/modules.js";

const STATIC = new URL("../../../src/daisychain/static/", import.meta.url);

/** @param {Record<string, string>} files */
const reader = (files) => async (/** @type {string} */ path) => {
  assert.ok(path in files, `${path} is asked for`);
  return files[path];
};

/** @param {string} url */
const source = (url) => Buffer.from(url.split(",")[1], "base64").toString();

test("static imports and re-exports are followed, comments and dynamic types are not", async () => {
  const files = {
    "a/entry.js": [
      'import {\n  one,\n  two,\n} from "../b/two.js";',
      'import "./three.js";',
      'export * from "../four.js";',
      '/** @typedef {import("./types.js").Type} Type */',
      'export const name = "./five.js";',
      'const text = `import "./six.js"`;',
    ].join("\n"),
    "b/two.js": 'import { entry } from "../a/entry.js";',
    "a/three.js": "",
    "four.js": "",
  };
  const sources = await collect("a/entry.js", reader(files));
  assert.deepEqual([...sources.keys()].sort(), Object.keys(files).sort());
  const { imports } = importMap(sources);
  const entry = source(imports["daisychain/a/entry.js"]);
  assert.match(entry, /two,\n} from "daisychain\/b\/two.js";\nimport "daisychain\/a\/three.js";/);
  assert.match(entry, /export \* from "daisychain\/four.js";/);
  assert.match(entry, /name = "\.\/five.js"/);
});

test("a module from elsewhere is refused", async () => {
  await assert.rejects(collect("a.js", reader({ "a.js": 'import fs from "node:fs";' })), ConfigError);
});

test("values are put in as they are, and none may be missing", () => {
  assert.equal(filled("<b>{{x}}</b>", { x: "$& {{y}}" }), "<b>$& {{y}}</b>");
  assert.throws(() => filled("{{x}}", {}), ConfigError);
});

test("bytes survive base64", () => {
  const bytes = Uint8Array.from({ length: 70_001 }, (_, i) => (i * 7) % 256);
  assert.deepEqual(fromBase64(base64(bytes)), bytes);
});

test("no file of the kit's page asks for anything from outside", async () => {
  for (const name of ["kit/page.html", "kit/page.css", "index.html"]) {
    const text = await readFile(new URL(name, STATIC), "utf8");
    assert.doesNotMatch(text, /(src|href|url)\s*[=(]\s*["']?(https?:)?\/\//, name);
  }
});
