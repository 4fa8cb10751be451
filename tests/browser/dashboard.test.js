/** The dashboard in a real browser, with real runs: what it shows is what the run has written. */

import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Browsers, missing, waitFor } from "./harness.js";
import { daisychain, end, Pages, record, scratch } from "./panel_help.js";

const SEEN_WITHIN_MS = 3_000; // a lost node
const CHART_POINTS = 600;
const browsers = new Browsers();
const { folder, remove } = scratch();
/** @type {Pages} */
let pages;
/** @type {import("node:child_process").ChildProcess[]} */
const children = [];
const skip = missing(["chromium"]);

before(async () => {
  if (!skip) pages = await Pages.start(folder);
});

after(async () => {
  await Promise.all(children.map(end));
  await pages?.stop();
  await browsers.close();
  remove();
});

/** A page that notes every request to another place. @param {string} path @param {object} [options] */
async function open(path, options = {}) {
  const page = await browsers.newPage("chromium", options);
  /** @type {string[]} */
  const elsewhere = [];
  page.own.on("request", (request) => {
    const { protocol, host } = new URL(request.url());
    if (protocol !== "data:" && protocol !== "blob:" && host !== new URL(pages.url).host) {
      elsewhere.push(request.url());
    }
  });
  await page.open(pages.url + path);
  return { page: page.own, errors: page.errors, elsewhere, close: () => page.close() };
}

/** @param {string} name @param {string[]} more */
function train(name, ...more) {
  const child = daisychain(["train", "--nodes", "3", "--name", name, ...more], folder);
  child.stderr?.resume();
  children.push(child);
  return child;
}

/** @param {import("playwright-core").Page} page @param {string} id */
const text = async (page, id) =>
  (await page.getByTestId(id).first().textContent({ timeout: 5_000 }))?.trim() ?? "";

/** @param {import("playwright-core").Page} page @param {string} id */
const value = async (page, id) =>
  Number(await page.getByTestId(id).first().getAttribute("value", { timeout: 5_000 }));

/** @param {import("playwright-core").Page} page @param {string} phase */
const untilPhase = (page, phase) =>
  waitFor(
    `the phase ${phase}`,
    async () => (await page.getByTestId("phase").first().textContent()) === phase,
    60_000,
  );

/** Every figure of a run's view, against the run's record. @param {import("playwright-core").Page} page @param {string} run */
async function compareFigures(page, run) {
  const { last, json } = record(run);
  const row = last();
  const status = json("status.json");
  const want = /** @type {Record<string, number>} */ ({
    step: row.step,
    loss: row.loss,
    "samples-per-s": row.samples_per_s,
    "step-s": row.step_s,
  });
  const samples = row.shares.reduce(
    (/** @type {number} */ sum, /** @type {number} */ share) => sum + share,
    0,
  );
  for (const { rank, device, kernel } of json("nodes.json")) {
    want[`node-${rank}-weight`] = row.shares[rank] / samples;
    want[`node-${rank}-batch`] = row.shares[rank];
    want[`node-${rank}-speed`] = row.node_samples_per_s[rank];
    want[`node-${rank}-compute`] = row.node_compute_s[rank];
    want[`node-${rank}-wait`] = row.node_wait_s[rank];
    want[`node-${rank}-transfer`] = row.node_transfer_s[rank];
    assert.equal(await text(page, `node-${rank}-device`), device);
    assert.equal(await text(page, `node-${rank}-kernel`), kernel);
  }
  for (const [unit, by] of Object.entries(row.unit_invocations)) {
    for (const [backend, count] of Object.entries(by)) want[`unit-${unit}-${backend}`] = count;
  }
  for (const [id, figure] of Object.entries(want)) assert.equal(await value(page, id), figure, id);
  // The words say the same as the values.
  assert.equal(await text(page, "loss"), row.loss.toFixed(4));
  assert.equal(
    await text(page, "step"),
    `${row.step.toLocaleString("en")} of ${row.steps.toLocaleString("en")}`,
  );
  assert.equal(await text(page, "node-1-batch"), `${row.shares[1]} sample${row.shares[1] === 1 ? "" : "s"}`);
  assert.equal(await text(page, "status"), status.text);
  const hashes = status.summary.state_hashes;
  assert.equal(await text(page, "replicas"), `identical on ${hashes.length} of ${hashes.length}`);
  assert.equal(await page.getByTestId("state-hash").getAttribute("data-value"), hashes[0]);
  assert.equal(await text(page, "state-hash"), `${hashes[0].slice(0, 8)}…`);
}

test("a run that starts later is followed by every viewer to its end, figure by figure", {
  skip,
}, async () => {
  const fleet = await open("/");
  const later = await open("/runs/live");
  await fleet.page.getByText("No machine reports here yet").waitFor();
  await fleet.page.getByText("No run yet").waitFor();
  await later.page.getByText("it has not begun yet").waitFor();

  const child = train("live", "--steps", "100000", "--checkpoint-every", "40");
  await Promise.all([untilPhase(fleet.page, "Training"), untilPhase(later.page, "Training")]);
  await waitFor("figures that go on", async () => (await value(later.page, "step")) > 40, 60_000);
  await later.page.reload();
  await waitFor("figures after a reload", async () => (await value(later.page, "step")) > 40);
  const second = await open("/runs/live");
  await waitFor("figures for a second viewer", async () => (await value(second.page, "step")) > 40);

  child.kill("SIGINT");
  await Promise.all([fleet, later, second].map(({ page }) => untilPhase(page, "Stopped")));
  for (const { page, errors, elsewhere } of [fleet, later, second]) {
    await waitFor(
      "the last step",
      async () => (await value(page, "step")) === record(join(folder, "runs/live")).last().step,
    );
    await compareFigures(page, join(folder, "runs/live"));
    assert.deepEqual(errors, []);
    assert.deepEqual(elsewhere, []);
  }
  await download(second.page);
  await Promise.all([fleet, later, second].map(({ close }) => close()));
});

/** The newest checkpoint comes as it lies on the disk. @param {import("playwright-core").Page} page */
async function download(page) {
  const link = page.locator("[data-testid^='file-step-']").first();
  const href = await link.getAttribute("href");
  const [started] = await Promise.all([page.waitForEvent("download"), link.click()]);
  assert.match(started.suggestedFilename(), /^live-step-\d+\.safetensors$/);
  const answer = await fetch(pages.url + href);
  const run = record(join(folder, "runs/live"));
  const event = run
    .lines("events.jsonl")
    .filter(({ kind }) => kind === "checkpoint")
    .pop();
  assert.equal((await answer.arrayBuffer()).byteLength, event.bytes);
  for (const path of ["lock", "status.json", "..%2f..%2fx", "step-1.safetensors", "step-..%2f.safetensors"]) {
    assert.equal((await fetch(`${pages.url}/runs/live/files/${path}`)).status, 404, path);
  }
}

test("a node that is killed is named on the page within three seconds", { skip }, async () => {
  train("killed", "--steps", "100000");
  const { page, close } = await open("/runs/killed");
  await untilPhase(page, "Training");
  await waitFor("some steps", async () => (await value(page, "step")) > 10);
  const { pid } = record(join(folder, "runs/killed")).json("nodes.json")[2];
  process.kill(pid, "SIGKILL");
  await waitFor("the lost node", () => page.getByTestId("node-2-lost").isVisible(), SEEN_WITHIN_MS);
  assert.match(await text(page, "trouble"), /node 2/);
  await close();
});

test("a history of 100,000 steps is thinned, keeps its spike, and can be read point by point", {
  skip,
}, async () => {
  const run = join(folder, "runs/long");
  mkdirSync(join(run, "checkpoints"), { recursive: true });
  const rows = [];
  for (let step = 1; step <= 100_000; step++) {
    const loss = step === 54_321 ? 99 : 3 / (1 + step / 1_000);
    rows.push(
      JSON.stringify({
        step,
        steps: 100_000,
        loss,
        samples_per_s: 1_000,
        step_s: 0.01,
        left_s: 0,
        shares: [4],
      }),
    );
  }
  writeFileSync(join(run, "metrics.jsonl"), `${rows.join("\n")}\n`);
  const { page, close } = await open("/runs/long");
  await waitFor("all steps", async () => (await value(page, "step")) === 100_000);
  const path = await waitFor("the line", () => page.locator(".chart path.line").first().getAttribute("d"));
  const points = path
    .split(/[ML]/)
    .slice(1)
    .map((point) => point.split(" ").map(Number));
  assert.ok(points.length <= CHART_POINTS, `${points.length} points`);
  assert.ok(points.length > CHART_POINTS / 4, `${points.length} points`);
  const top = Math.min(...points.map(([, y]) => y));
  assert.equal(points.filter(([, y]) => y < top + 20).length, 1); // the spike stands alone at the top
  const chart = page.locator(".chart svg");
  await chart.focus();
  await page.keyboard.press("ArrowLeft");
  assert.match((await page.locator(".chart-readout").textContent()) ?? "", /^step 100K · loss 0\.029/);
  await close();
});

test("runs are listed and compared, and a run whose folder goes is said to be gone", { skip }, async () => {
  const { page, errors, close } = await open("/runs");
  await page.getByLabel("Compare live").check();
  await page.getByLabel("Compare long").check();
  await sleep(1_500); // the list is brought up to date meanwhile
  await page.getByRole("button", { name: "Compare ticked runs" }).click();
  await page.waitForURL(/compare\?run=live&run=long|compare\?run=long&run=live/);
  assert.equal(await value(page, "loss-live"), record(join(folder, "runs/live")).last().loss);
  await waitFor(
    "two lines",
    async () => (await page.locator(".chart").first().locator("path.line").count()) === 2,
  );

  await page.goto(`${pages.url}/runs/long`);
  await waitFor("the run", async () => (await value(page, "step")) === 100_000);
  rmSync(join(folder, "runs/long"), { recursive: true });
  await untilPhase(page, "Not there");
  for (const path of [
    "/runs/..%2f..",
    "/runs/.hidden",
    "/compare?runs=../x",
    "/compare",
    "/compare?run=absent",
    "/nowhere",
  ]) {
    assert.equal((await page.goto(pages.url + path))?.status(), 404, path);
  }
  assert.deepEqual(errors, []);
  await close();
});

/** What an agent posts. @param {string} name @param {number} sequence @param {object[]} probes */
const agent = (name, sequence, probes) => ({
  protocol: 1,
  report: {
    name,
    host: name,
    instance: name === "attic" ? "a".repeat(16) : "b".repeat(16),
    sequence,
    version: "0.1.0",
    time_s: Date.now() / 1_000,
    address: name === "attic" ? "192.168.1.20" : "192.168.1.21",
    address_reason: "given",
    probe_port: 29_570,
    cores: 4,
    memory_bytes: 8 * 2 ** 30,
    memory_free_bytes: 5 * 2 ** 30,
    proof: "ready",
    device: "cpu",
    device_reason: "no CUDA device",
    backend: "sgemm",
    backend_reason: "the fastest",
    load: 0.5,
    busy_fraction: 0.25,
    temperature_c: 61,
    interface: "eth0",
    link_mbit_s: 1_000,
  },
  probes,
}); // prettier-ignore

test("machines that report, and the ways between them, are shown for what they are", { skip }, async () => {
  const { page, close } = await open("/", { viewport: { width: 390, height: 844 } });
  const way = { age_s: 0, bandwidth_mb_s: null, latency_s: null };
  const answers = [];
  for (let sequence = 1; sequence <= 4; sequence++) {
    const there = {
      ...way,
      to: "cellar",
      instance: "b".repeat(16),
      outcome: "reached",
      latency_s: 0.0004,
      bandwidth_mb_s: 110,
    };
    const back = { ...way, to: "attic", instance: "a".repeat(16), outcome: "no_answer" };
    for (const body of [agent("attic", sequence, [there]), agent("cellar", sequence, [back])]) {
      const options = {
        method: "POST",
        body: JSON.stringify(body),
        headers: { "content-type": "application/json" },
      };
      answers.push((await fetch(`${pages.url}/agent/report`, options)).status);
    }
    await sleep(300);
  }
  assert.deepEqual([...new Set(answers)], [200]);
  await waitFor("the machines", () => page.getByTestId("machine-attic").isVisible(), 2_000);
  assert.equal(await value(page, "pool-cores"), 8);
  assert.equal(await page.getByTestId("way-attic-cellar").getAttribute("data-state"), "reachable");
  assert.equal(await page.getByTestId("way-cellar-attic").getAttribute("data-state"), "blocked");
  await page.getByTestId("way-cellar-attic").locator("button").click();
  assert.match((await page.locator("#tip").textContent()) ?? "", /cellar cannot reach attic/);
  assert.match(await text(page, "findings"), /firewall/);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `${wide} pixels too wide for a phone`);
  await waitFor(
    "the silence",
    () =>
      page
        .getByText(/silent for/)
        .first()
        .isVisible(),
    10_000,
  );
  const forged = {
    method: "POST",
    body: "{}",
    headers: { "content-type": "application/json", origin: "http://evil.example" },
  };
  assert.equal((await fetch(`${pages.url}/agent/report`, forged)).status, 403);
  await close();
});

test("with a token nothing opens without it, and one link opens everything", { skip }, async () => {
  const token = "a-token-for-tests-0123456789";
  const guarded = await Pages.start(folder, ["--token", token]);
  try {
    const { page, close } = await open("/");
    const refused = await page.goto(`${guarded.url}/`);
    assert.equal(refused?.status(), 403);
    await page.getByText("Open the link that was printed").waitFor();
    assert.equal((await fetch(`${guarded.url}/runs/live/files/config.json`)).status, 403);
    await page.goto(`${guarded.url}/runs/live?token=${token}`);
    await waitFor("the figures", async () => (await value(page, "step")) > 0);
    assert.equal(page.url(), `${guarded.url}/runs/live`);
    await close();
  } finally {
    await guarded.stop();
  }
});
