/** The binary that is served is what its source compiles to. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const KERNELS = "src/daisychain/static/kernels";

test("kernels.wasm is reproducible, byte for byte", () => {
  const folder = mkdtempSync(join(tmpdir(), "kernels-"));
  try {
    const built = join(folder, "kernels.wasm");
    const asc = "node_modules/assemblyscript/bin/asc.js";
    const source = [`${KERNELS}/assembly/index.ts`, "--config", `${KERNELS}/assembly/asconfig.json`];
    execFileSync(process.execPath, [asc, ...source, "--outFile", built], { cwd: ROOT, timeout: 60_000 });
    assert.ok(
      readFileSync(built).equals(readFileSync(join(ROOT, KERNELS, "kernels.wasm"))),
      "kernels.wasm is not what assembly/ compiles to: npm run build:kernels",
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});
