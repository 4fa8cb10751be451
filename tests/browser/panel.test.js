/** The control panel as a person uses it, in a real browser, with real trainers and a stand-in of the Hub. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { Browsers, missing, ROOT, waitFor } from "./harness.js";
import { end, Pages, record, scratch } from "./panel_help.js";

const RUN_LIMIT_MS = 240_000; // of a machine that has much else to do
const TOKEN = "hf_demonstration";
const SMALL = { layers: 1, heads: 1, sequence: 32, batch: 2, checkpoint_every: 1000 };
const browsers = new Browsers();
const { folder, remove } = scratch();
const skip = missing(["chromium"]);
/** @type {Record<string, string>} */
let env;
/** @type {Pages} */
let panel;
/** @type {{ child: import("node:child_process").ChildProcess, url: string }} */
let hub;

/** @template T @param {string} what @param {() => Promise<T> | T} check */
const until = (what, check) => waitFor(what, check, RUN_LIMIT_MS);

/** @returns {Promise<typeof hub>} the stand-in, with faults that can be healed */
async function startHub() {
  const child = spawn(
    join(ROOT, ".venv/bin/python"),
    [join(ROOT, "tests/hub_server.py"), "--healthy", "14"],
    {
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  let said = "";
  child.stdout.on("data", (data) => {
    said += data;
  });
  const url = await until("the hub's stand-in", () => said.match(/http:\S+/)?.[0]);
  return { child, url };
}

before(async () => {
  if (skip) return;
  hub = await startHub();
  // Minutes of patience with a hub are right for a night's run, and too long for a test.
  mkdirSync(join(folder, "site"));
  const patient = "from daisychain.base import limits\nlimits.HUB_PATIENCE_S = 2.0\n";
  writeFileSync(join(folder, "site/sitecustomize.py"), patient);
  env = {
    HF_ENDPOINT: hub.url,
    HF_HOME: join(folder, "hf"),
    HF_TOKEN: "",
    XDG_DATA_HOME: join(folder, "data"),
    XDG_CACHE_HOME: join(folder, "cache"),
    PYTHONPATH: join(folder, "site"),
  };
  panel = await start();
});

/** A trainer outlives its panel, and its test, too. */
function endTrainers() {
  for (const { pid } of jobs()) process.kill(pid, "SIGKILL");
  return until("the end of all trainers", () => !jobs().length);
}

afterEach(async () => {
  if (!skip) await endTrainers();
});

after(async () => {
  await panel?.stop();
  if (hub) await end(hub.child);
  await browsers.close();
  remove();
});

/** @param {string} [runs] @param {Record<string, string>} [more] */
const start = (runs = "runs", more = {}) =>
  Pages.start(folder, ["--runs", join(folder, runs)], "panel", { ...env, ...more });

/** Trainers that do not run any more are left out. @returns {{ name: string, pid: number }[]} */
function jobs() {
  const found = [];
  for (const runs of readdirSync(folder).filter((name) => name.startsWith("runs"))) {
    for (const name of readdirSync(join(folder, runs))) {
      const path = join(folder, runs, name, "job.json");
      if (!existsSync(path)) continue;
      const { pid } = JSON.parse(readFileSync(path, "utf8"));
      if (isTrainer(pid)) found.push({ name, pid });
    }
  }
  return found;
}

/** @param {number} pid */
function isTrainer(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("--node-lock");
  } catch {
    return false;
  }
}

/** @param {Pages} [on] @param {object} [options] @returns {Promise<import("playwright-core").Page>} */
async function open(on = panel, options = {}) {
  const page = await browsers.newPage("chromium", options);
  page.own.setDefaultTimeout(RUN_LIMIT_MS);
  await page.open(`${on.url}/train`);
  return page.own;
}

/** @param {import("playwright-core").Page} page @param {Record<string, number | string>} values */
async function set(page, values) {
  for (const [id, value] of Object.entries(values)) {
    const field = page.getByTestId(id);
    await field.fill(String(value));
    await field.press("Enter");
    await field.blur();
  }
}

/** @param {import("playwright-core").Page} page @param {string} id @returns {Promise<number>} */
const value = async (page, id) =>
  Number((await page.getByTestId(id).first().getAttribute("value")) || Number.NaN);

/** @param {import("playwright-core").Page} page */
async function press(page, id = "start") {
  const button = page.getByTestId(id);
  await until(`${id} to be possible`, () => button.isEnabled());
  await button.click();
}

/** @param {import("playwright-core").Page} page @param {number} step */
const untilStep = (page, step) => until(`step ${step}`, async () => (await value(page, "step")) >= step);

/** @param {import("playwright-core").Page} page @param {string} phase */
async function untilEnded(page, phase) {
  await page.getByTestId("ending").waitFor();
  const text = (await page.getByTestId("ending").textContent()) ?? "";
  assert.match(text, new RegExp(`^${phase}`), text);
  return text;
}

/** The folder of the newest run. */
function newest(runs = "runs") {
  const names = readdirSync(join(folder, runs)).filter((name) => !name.startsWith("."));
  const born = (/** @type {string} */ name) =>
    JSON.parse(readFileSync(join(folder, runs, name, "job.json"), "utf8")).started_s;
  return join(folder, runs, names.sort((a, b) => born(b) - born(a))[0]);
}

test("sliders, Start, a falling loss, Stop, another size, Start again, and a text", { skip }, async () => {
  const page = await open();
  await until("an estimate", async () => (await value(page, "parameters")) > 0);
  const before = { parameters: await value(page, "parameters"), memory: await value(page, "memory") };
  await page.getByTestId("width-slider").fill("512");
  await until("another estimate", async () => (await value(page, "parameters")) > 4 * before.parameters);
  assert.ok((await value(page, "memory")) > before.memory);
  await set(page, { batch: 1024, sequence: 512, layers: 16 });
  await page.getByTestId("unfit").waitFor();
  assert.match((await page.getByTestId("unfit").textContent()) ?? "", /would take .* free here/);
  assert.equal(await page.getByTestId("start").isDisabled(), true);

  await page.getByTestId("preset-tiny").click({ force: true });
  await set(page, { ...SMALL, steps: 5000 });
  await press(page);
  await page.getByTestId("stop").waitFor();
  const second = await open();
  await untilStep(page, 40);
  await untilStep(second, 40); // another tab found it by itself
  const run = newest();
  const losses = record(run)
    .lines("metrics.jsonl")
    .map(({ loss }) => loss);
  assert.ok(
    losses[losses.length - 1] < losses[0] - 0.3,
    `the loss fell from ${losses[0]} to ${losses.at(-1)}`,
  );
  await page.getByTestId("stop").click();
  await untilEnded(page, "Stopped");
  await untilEnded(second, "Stopped");
  const step = String(record(run).last().step).padStart(8, "0");
  assert.ok(existsSync(join(run, `checkpoints/step-${step}.safetensors`)), "the last step is kept");
  await second.context().close();

  await page.getByTestId("back").click();
  await page.getByTestId("steps").waitFor();
  assert.equal(await page.getByTestId("steps").inputValue(), "5,000");
  await set(page, { width: 64, steps: 4 });
  await until("the larger model", async () => (await value(page, "parameters")) > 1.5e6);
  await page.reload();
  await page.getByTestId("steps").waitFor();
  assert.equal(await page.getByTestId("width").inputValue(), "64");
  await press(page);
  await untilEnded(page, "Finished");
  assert.equal(record(newest()).json("config.json").width, 64);

  await set(page, { tokens: 12 });
  await page.getByTestId("prompt").fill("The quiet");
  await press(page, "write");
  const written = page.getByTestId("written");
  await until("a text", async () => (await written.getAttribute("data-writing")) === "no");
  const text = (await written.textContent()) ?? "";
  assert.ok(text.startsWith("The quiet") && text.length > "The quiet".length, text);
  const link = await page.getByTestId("download").getAttribute("href");
  const answer = await page.request.get(panel.url + link);
  assert.equal((await answer.body()).length, readFileSync(join(newest(), "model.safetensors")).length);
  await page.context().close();
});

test("a data set of the Hub: searched, looked at, trained on; one that needs a token; one that fails", {
  skip,
}, async () => {
  const page = await open();
  await page.getByTestId("where-hub").click({ force: true });
  await set(page, { search: "stories" });
  await page.getByTestId("dataset").selectOption("demo/stories");
  await until("its columns", async () => (await page.getByTestId("column").inputValue()) === "text");
  await press(page, "preview");
  await page.getByTestId("preview-rows").waitFor();
  assert.match((await page.getByTestId("preview-rows").textContent()) ?? "", /\[0\] The /);
  await set(page, { ...SMALL, steps: 3 });
  await press(page);
  await untilEnded(page, "Finished");
  assert.equal(record(newest()).json("config.json").dataset, "demo/stories");

  // Gated: refused with what to do, and nothing to start.
  await page.getByTestId("back").click();
  await set(page, { search: "gated" });
  await page.getByTestId("dataset").selectOption("demo/gated");
  await page.getByTestId("hub-said").waitFor();
  assert.match(
    (await page.getByTestId("hub-said").textContent()) ?? "",
    /gated: accept its terms .*HF_TOKEN/,
  );
  await press(page);
  assert.match(await untilEnded(page, "(Failed|Paused)"), /gated: accept its terms/);

  // Fails half way: the run is paused, says why, and goes on once the Hub is well.
  await page.getByTestId("back").click();
  await set(page, { search: "broken" });
  await page.getByTestId("dataset").selectOption("demo/broken");
  await until("its columns", async () => (await page.getByTestId("column").inputValue()) === "text");
  await set(page, { sequence: 128, batch: 128, steps: 6 });
  await press(page);
  assert.match(await untilEnded(page, "Paused"), /the hub answered 503/);
  await fetch(`${hub.url}/_stand-in/heal`, { method: "POST" });
  await set(page, { "more-steps": 6 });
  await press(page, "go-on");
  await page.getByTestId("stop").waitFor();
  await untilEnded(page, "Finished");
  assert.equal(record(newest()).last().step, 6);
  await page.context().close();

  const known = await start("runs", { HF_TOKEN: TOKEN });
  try {
    const other = await open(known);
    await other.getByTestId("where-hub").click({ force: true });
    await set(other, { search: "demo/secret" });
    await other.getByTestId("dataset").selectOption("demo/secret");
    await until("its columns", async () => (await other.getByTestId("column").inputValue()) === "text");
    await press(other, "preview");
    await other.getByTestId("preview-rows").waitFor();
    await other.context().close();
  } finally {
    await known.stop();
  }
});

test("a table that is brought: its columns, and a run that predicts one of them", { skip }, async () => {
  const page = await open();
  await page.getByTestId("task-table").click({ force: true });
  await page.getByTestId("where-upload").click({ force: true });
  const rows = Array.from({ length: 60 }, (_, i) => `${i},${i % 7},${i % 2 ? "odd" : "even"}`);
  const file = { name: "../evil name.csv", mimeType: "text/csv" };
  await page.getByTestId("upload").setInputFiles({ ...file, buffer: Buffer.from("just one column\n1\n") });
  await until("a refusal", async () =>
    /two columns/.test((await page.getByTestId("upload-said").textContent()) ?? ""),
  );
  const buffer = Buffer.from(`number,rest,kind\n${rows.join("\n")}\n`);
  await page.getByTestId("upload").setInputFiles({ ...file, buffer });
  await until("the columns", async () => (await page.getByTestId("target").inputValue()) === "kind");
  await page.getByTestId("target").selectOption("rest");
  await set(page, { steps: 10 });
  await press(page);
  await untilEnded(page, "Finished");
  const { task, target, data } = record(newest()).json("config.json");
  assert.deepEqual([task, target], ["table", "rest"]);
  assert.match(data, /runs\/\.uploads\/[0-9a-f]{16}\.csv$/);
  await page.context().close();
});

test("a panel that is killed finds its run again, and no second panel starts another", { skip }, async () => {
  const page = await open();
  await page.getByTestId("task-spikewhale").click({ force: true });
  await page.getByTestId("where-embedded").click({ force: true });
  await set(page, { ...SMALL, steps: 100_000 });
  await press(page);
  await untilStep(page, 3);
  const run = newest();
  panel.child.kill("SIGKILL");
  await until("its end", () => panel.child.signalCode);
  await page.context().close();
  const seen = record(run).last().step;
  const other = await start("runs-of-another");
  try {
    const there = await open(other);
    await there.getByTestId("why").waitFor();
    const why = (await there.getByTestId("why").textContent()) ?? "";
    assert.ok(why.includes(run.split("/").at(-1) ?? "?"), why);
    assert.equal(await there.getByTestId("start").isDisabled(), true);
    panel = await start();
    const again = await open();
    await untilStep(again, seen + 1); // it went on meanwhile
    await again.getByTestId("stop").click();
    await untilEnded(again, "Stopped");
    await until("the machine to be free", () => there.getByTestId("start").isEnabled());
    await again.context().close();
    await there.context().close();
  } finally {
    await other.stop();
  }
});

/** Values that no slider sends, sent as the page sends them. @param {import("playwright-core").Page} page */
async function sendHostile(page) {
  return page.evaluate(async () => {
    const { socket } = /** @type {any} */ (window);
    const send = socket.emit.bind(socket);
    /** @type {any} */
    let sent = null;
    socket.emit = (/** @type {any[]} */ ...args) => {
      if (args[0] === "event") sent = args[1];
      return send(...args);
    };
    const field = /** @type {HTMLInputElement} */ (document.querySelector('[data-testid="width"]'));
    field.value = "96";
    field.dispatchEvent(new Event("change"));
    await new Promise((resolve) => setTimeout(resolve, 500));
    const values = [
      "1e999",
      "-64",
      "33",
      "null",
      "true",
      '"64; rm -rf /"',
      "[64]",
      '{"a":1}',
      `"${"x".repeat(50_000)}"`,
      "1e308",
    ];
    for (const value of values) send("event", { ...sent, args: [value] });
    await new Promise((resolve) => setTimeout(resolve, 500));
    return values.length;
  });
}

/** @param {string} path @param {Record<string, string>} headers @param {string} body @returns {Promise<{ status: number, text: string }>} */
const post = (path, headers, body = "a,b\n1,2\n") =>
  new Promise((resolve, reject) => {
    const sent = request(`${panel.url}${path}`, { method: "POST", headers, agent: false }, (answer) => {
      let text = "";
      answer.on("data", (data) => {
        text += data;
      });
      answer.on("end", () => resolve({ status: answer.statusCode ?? 0, text }));
    });
    sent.on("error", reject);
    sent.end(body);
  });

/**
 * Sends more than an upload may have, a piece at a time.
 * @param {string} path @param {Record<string, string>} headers @returns {Promise<number | null>} null where the server hung up
 */
const stream = (path, headers) =>
  new Promise((resolve) => {
    const chunked = { ...headers, "Transfer-Encoding": "chunked" };
    const sent = request(
      `${panel.url}${path}`,
      { method: "POST", headers: chunked, agent: false },
      (answer) => {
        resolve(answer.statusCode ?? 0);
        sent.destroy();
      },
    );
    sent.on("error", () => resolve(null));
    const piece = "a,b\n".repeat(1 << 16);
    let left = 400;
    const more = () => {
      if (left-- > 0) sent.write(piece, more);
      else sent.end();
    };
    more();
  });

test("hostile values, uploads that are too large, other origins: refused, and nothing is started", {
  skip,
}, async () => {
  const before = readdirSync(join(folder, "runs")).length;
  const page = await open();
  await page.getByTestId("width").waitFor();
  assert.ok((await sendHostile(page)) > 5);
  const hint = page.locator(".field", { has: page.getByTestId("width") }).locator(".hint");
  await until("the reason", async () =>
    /takes a whole number|must be/.test((await hint.textContent()) ?? ""),
  );
  await page.reload();
  await page.getByTestId("width").waitFor();
  assert.equal(await page.getByTestId("width").inputValue(), "96"); // the last that can be
  await page.context().close();

  const upload = "/train/upload?kind=csv&name=x.csv";
  const own = { Origin: panel.url };
  assert.equal((await post(upload, {})).status, 403);
  assert.equal((await post(upload, { Origin: "http://evil.example" })).status, 403);
  assert.equal((await post(upload, { ...own, Host: "evil.example" })).status, 403);
  const large = await post(upload, { ...own, "Content-Length": "200000000" }).catch(() => null);
  if (large) assert.equal(large.status, 413);
  assert.ok([413, null].includes(await stream(upload, own)), "more than 64 MiB, whatever was announced");
  assert.equal((await post("/train/upload?kind=exe&name=x", own)).status, 400);
  assert.equal((await post("/train/upload?kind=../csv&name=../../x", own)).status, 400);
  assert.equal((await post(upload, own, "\0\0\0")).status, 400);
  const kept = readdirSync(join(folder, "runs/.uploads")).filter((name) => name.endsWith(".csv"));
  assert.equal(kept.length, 1); // the table of the test before
  assert.equal(readdirSync(join(folder, "runs")).length, before);
  assert.deepEqual(jobs(), []);
});
