/** The page in its main states, with a scripted worker and server: it fits, it can be read, it can be used by keyboard. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { LOG_LINES } from "../../src/daisychain/static/limits.js";
import { Browsers, missing, waitFor } from "./harness.js";
import { fakes, ID, JOINED, logLines, losses, running, serveStatic, WELCOME } from "./ui_fixture.js";

const skip = missing(["chromium"]);
const PHONE = { width: 390, height: 844 };
const NARROW = { width: 320, height: 600 };
const DESKTOP = { width: 1280, height: 900 };
const browsers = new Browsers();
/** @type {Awaited<ReturnType<typeof serveStatic>>} */
let server;

before(async () => {
  if (!skip) server = await serveStatic();
});

after(async () => {
  await browsers.close();
  server?.close();
});

/**
 * A page that has said hello.
 * @param {object} [options] of the context
 * @param {string} [query]
 */
async function openPage(options = {}, query = "") {
  const page = await browsers.newPage("chromium", { reducedMotion: "reduce", ...options });
  page.own.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) page.errors.push(message.text());
  });
  await page.own.addInitScript(fakes);
  await page.open(server.url + query);
  await waitFor("hello", () => page.run(() => /** @type {any} */ (globalThis).daisyTest?.toServer.length));
  const say = (/** @type {string} */ who, /** @type {any[]} */ messages) =>
    page.run(
      ([who, messages]) => {
        for (const message of messages) /** @type {any} */ (globalThis).daisyTest[who](message);
        // What is said shows in the next frame.
        return new Promise((resolve) =>
          requestAnimationFrame(() => requestAnimationFrame(() => resolve(null))),
        );
      },
      /** @type {const} */ ([who, messages]),
    );
  return {
    page,
    own: page.own,
    server: (/** @type {any[]} */ ...messages) => say("fromServer", messages),
    worker: (/** @type {any[]} */ ...messages) => say("fromWorker", messages),
    // Without word of links, which cannot be made here and are tried again and again.
    sent: () =>
      page.run(() => {
        const { toWorker, toServer } = /** @type {any} */ (globalThis).daisyTest;
        const besideLinks = (/** @type {any} */ { type }) => !["link", "signal"].includes(type);
        return { toWorker: toWorker.filter(besideLinks), toServer: toServer.filter(besideLinks) };
      }),
    text: async (/** @type {string} */ id) => (await page.own.locator(`#${id}`).textContent()) ?? "",
  };
}

const READY = { type: "ready", backend: "wasm", why: "" };
const KNOCK = { type: "knock", id: "00000000000000aa", name: "Someone’s tablet with quite a long name" };

/** What the page is brought into, one after the other. @type {Record<string, (opened: Awaited<ReturnType<typeof openPage>>) => Promise<void>>} */
const STATES = {
  alone: async ({ server, worker }) => {
    await server({ ...WELCOME, members: [] });
    await worker(READY);
  },
  running: async ({ server, worker, own }) => {
    await server(WELCOME, JOINED, KNOCK);
    await worker(READY, running(140), ...logLines(0, 30), {
      type: "log",
      kind: "warning",
      step: 1,
      text: "slow",
    });
    await own.locator("details").evaluateAll((all) => {
      for (const details of all) details.setAttribute("open", "");
    });
  },
  halted: async ({ server, worker }) => {
    await server(WELCOME);
    const devices = running(9).state.devices.map((device, at) => ({
      ...device,
      equal: at < 1,
      link: "down",
    }));
    const reason = "Bea’s phone has other weights than this device";
    await worker(READY, running(9, { phase: "halted", devices, reason }), {
      ...{ type: "error", message: "A reason that says what to do." },
    });
  },
  finished: async ({ worker, own }) => {
    await worker(running(300, { phase: "finished" }));
    const beside = await own.locator("#status").evaluate((status) => status.clientWidth);
    assert.ok(beside > 150, "the status has room beside the buttons");
  },
  refused: ({ server }) => server({ type: "error", code: "too_fast", message: "Too many messages at once." }),
  waiting: ({ server }) => server({ type: "waiting" }),
  denied: ({ server }) => server({ type: "denied", reason: "The host did not let you in." }),
};

/** Texts whose contrast is below AA: 4.5, or 3 where large. Runs in the page. */
function faint() {
  const numbers = (/** @type {string} */ colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const light = (/** @type {number[]} */ [r, g, b]) => {
    const [x, y, z] = [r, g, b].map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (/** @type {Element | null} */ from) => {
    for (let at = from; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent?.trim());
    const box = element.getBoundingClientRect();
    if (!(own || element.matches("input, textarea, select")) || box.width < 2 || box.height < 2) continue;
    const style = getComputedStyle(element);
    const [one, two] = [light(numbers(style.color)), light(ground(element))].sort((a, b) => b - a);
    const contrast = (one + 0.05) / (two + 0.05);
    if (contrast < 4.5)
      found.push(`${element.tagName} "${element.textContent?.slice(0, 30)}" ${contrast.toFixed(2)}`);
  }
  return found;
}

for (const [size, viewport] of Object.entries({ phone: PHONE, desktop: DESKTOP, narrow: NARROW })) {
  for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
    test(`${size}, ${colorScheme}: every state fits and can be read`, { skip }, async () => {
      const opened = await openPage({ viewport, colorScheme });
      for (const [name, enter] of Object.entries(STATES)) {
        await enter(opened);
        const wide = await opened.page.run(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${name} is ${wide} pixels too wide`);
        assert.deepEqual(await opened.page.run(faint), [], name);
        assert.deepEqual(opened.page.errors, [], name);
      }
      await opened.page.close();
    });
  }
}

test("the keyboard reaches everything in the order of the page, and shows where it is", {
  skip,
}, async () => {
  const { page, own, server, worker } = await openPage({ viewport: DESKTOP });
  await server({ ...WELCOME, members: [] });
  await worker(READY);
  const seen = [];
  for (let i = 0; i < 60; i++) {
    await own.keyboard.press("Tab");
    const { id, outline, place } = await page.run(() => {
      const focused = document.activeElement ?? document.body;
      const all = [...document.querySelectorAll("*")];
      const style = getComputedStyle(focused);
      return { id: focused.id || focused.tagName, outline: style.outlineStyle, place: all.indexOf(focused) };
    });
    if (id === "BODY") break;
    assert.notEqual(outline, "none", id);
    seen.push({ id, place });
  }
  const places = seen.map(({ place }) => place);
  assert.deepEqual(
    places,
    [...places].sort((a, b) => a - b),
  );
  for (const id of [
    "theme",
    "name",
    "link",
    "private",
    "setting-width",
    "start",
    "chart",
    "prompt",
    "upload",
    "log",
  ]) {
    assert.ok(
      seen.some((one) => one.id === id),
      `${id} is reached`,
    );
  }
  assert.deepEqual(page.errors, []);
  await page.close();
});

test("every control has a name", { skip }, async () => {
  const { own, server, worker, page } = await openPage({ viewport: DESKTOP });
  await server(WELCOME, JOINED, KNOCK);
  await worker(READY, running(20));
  const nameless = await own
    .locator("button, input, select, textarea, canvas, progress, [role=region]")
    .evaluateAll((all) =>
      all
        .filter((element) => {
          const labels = "labels" in element ? /** @type {any} */ (element).labels : null;
          const name = element.getAttribute("aria-label") || element.textContent?.trim() || labels?.length;
          return !name && element.getClientRects().length > 0;
        })
        .map((element) => element.outerHTML),
    );
  assert.deepEqual(nameless, []);
  await page.close();
});

test("start sends the settings that are shown; a follower sees the leader's and cannot stop", {
  skip,
}, async () => {
  const { page, own, server, worker, sent, text } = await openPage({ viewport: DESKTOP });
  await server(WELCOME);
  await worker(READY);
  await own.locator("#setting-width").fill("64");
  assert.match(await text("settings"), /1,157,\d{3} parameters/);
  await own.locator("#start").click();
  const { toWorker } = await sent();
  assert.deepEqual(toWorker.slice(0, 1), [{ type: "setup", id: ID, name: toWorker[0].name, room: null }]);
  const started = toWorker.find((/** @type {any} */ { type }) => type === "start").settings;
  assert.deepEqual(
    [started.width, started.steps, started.gradients, started.source],
    [64, 300, "float32", "auto"],
  );

  const settings = { ...started, width: 96, steps: 500 };
  await worker(running(20, { leader: WELCOME.members[0].id, settings }));
  assert.equal(await own.locator("#setting-width").inputValue(), "96");
  assert.ok(await own.locator("#setting-width").isDisabled());
  assert.ok(await own.locator("#stop").isHidden());
  assert.match(await text("status"), /Led by Bea’s phone\. Only Bea’s phone can stop it/);
  await worker(running(20, { leader: ID }));
  await own.locator("#stop").click();
  assert.equal((await sent()).toWorker.at(-1).type, "stop");
  await worker(running(21, { phase: "stopped" }));
  await own.locator("#go-on").click();
  assert.equal((await sent()).toWorker.at(-1).settings.goOn, true);
  assert.deepEqual(page.errors, []);
  await page.close();
});

test("a model that is in no file goes only after a question", { skip }, async () => {
  const { page, own, server, worker, sent, text } = await openPage({ viewport: DESKTOP });
  const finished = running(300, { phase: "finished" });
  await server(WELCOME);
  await worker(READY, finished);
  const types = async () => (await sent()).toWorker.slice(1).map((/** @type {any} */ { type }) => type);
  const asked = own.getByRole("dialog", { name: "Save the model first?" });
  await own.locator("#start").press("Enter");
  await asked.waitFor();
  assert.match(await text("ask-text"), /300 steps/);
  await own.keyboard.press("Escape");
  await asked.waitFor({ state: "hidden" });
  assert.deepEqual(await types(), []);
  await own.locator("#upload-file").setInputFiles({ name: "a.pt", mimeType: "", buffer: Buffer.from("a") });
  await asked.waitFor();
  await own.locator("#ask-cancel").click();
  assert.deepEqual(await types(), []);

  await own.locator("#start").click();
  await own.locator("#ask-save").click();
  await waitFor("the file", async () => (await types()).includes("checkpoint"));
  await worker({ type: "error", message: "No memory." });
  assert.deepEqual(await types(), ["checkpoint"], "what could not be saved stays");
  await own.locator("#start").click();
  await own.locator("#ask-save").click();
  await waitFor("the second try", async () => (await types()).length === 2);
  await worker({ type: "file", name: "a.safetensors", bytes: new ArrayBuffer(1), mime: "" });
  assert.deepEqual(await types(), ["checkpoint", "checkpoint", "start"]);
  assert.deepEqual([await text("fact-step"), await text("fact-loss")], ["–", "–"]);
  await worker({ type: "error", message: "No text." });
  assert.equal(await text("fact-step"), "300 of 300");
  await own.locator("#start").click();
  await waitFor("a start without a question", async () => (await types()).length === 4);
  assert.deepEqual(page.errors, []);
  await page.close();
});

test("a page that would take its model along is closed only after a question", { skip }, async () => {
  const { page, own, server, worker } = await openPage();
  /** @type {string[]} */
  const dialogs = [];
  own.on("dialog", (dialog) => {
    dialogs.push(dialog.type());
    dialog.accept();
  });
  await server({ ...WELCOME, members: [] });
  await worker(READY);
  await own.locator("#prompt").fill("A page that was touched");
  await own.reload();
  assert.deepEqual(dialogs, []);
  await waitFor("hello", () => page.run(() => /** @type {any} */ (globalThis).daisyTest?.toServer.length));
  await page.run((message) => /** @type {any} */ (globalThis).daisyTest.fromWorker(message), running(9));
  await own.locator("#prompt").fill("A page that was touched");
  await own.reload();
  assert.deepEqual(dialogs, ["beforeunload"]);
  await page.close();
});

test("the focus goes from Start to Stop and back", { skip }, async () => {
  const { page, own, server, worker } = await openPage();
  const focused = () => page.run(() => document.activeElement?.id);
  await server({ ...WELCOME, members: [] });
  await worker(READY);
  await own.locator("#start").press("Enter");
  await worker({ ...running(0, { phase: "idle", hash: "", model: false, losses: [] }) });
  assert.equal(await focused(), "start");
  await worker(running(0, { phase: "starting", hash: "", model: false, losses: [] }));
  assert.equal(await focused(), "stop");
  await own.keyboard.press("Enter");
  await worker(running(20, { phase: "stopped" }));
  assert.equal(await focused(), "go-on");
  await page.close();
});

test("what is said aloud and in the title is what the page shows", { skip }, async () => {
  const { page, own, server, worker, sent, text } = await openPage({}, "?room=0123456789ABC");
  await worker(READY);
  await server({ type: "waiting" });
  assert.match(await text("announce"), /^Waiting to be let in\. The host/);
  await own.locator("#door-name").fill("Bea");
  await own.locator("#door-name").press("Enter");
  assert.deepEqual((await sent()).toServer.at(-1), { type: "rename", name: "Bea" });
  await server({ type: "denied", reason: "The host said no." });
  assert.match(await text("announce"), /^Not let in\. The host said no\.$/);
  assert.equal(await text("door-action"), "Ask again");
  await page.close();
  const host = await openPage({}, "?room=0123456789ABC");
  await host.server({ ...WELCOME, members: [], room: "0123456789ABC", host: true });
  assert.match(await host.text("devices-empty"), /^Send the room link/);
  await host.server(KNOCK);
  assert.equal(await host.own.title(), `${KNOCK.name} wants in – DaisyChain room`);
  await host.server({ type: "gone", id: KNOCK.id });
  assert.equal(await host.own.title(), "DaisyChain room");
  await host.page.close();
  assert.deepEqual([...page.errors, ...host.page.errors], []);
});

test("knocks wait for the host's answer, one by one", { skip }, async () => {
  const { page, own, server, sent } = await openPage({}, "?room=0123456789ABC");
  assert.equal((await sent()).toServer[0].room, "0123456789ABC");
  await server({ ...WELCOME, room: "0123456789ABC", host: true }, KNOCK, {
    ...KNOCK,
    id: "00000000000000ab",
    name: "Two",
  });
  assert.equal(await own.locator("#knock-list li").count(), 2);
  await own.locator("#knock-list li").first().getByRole("button", { name: "Accept" }).click();
  await own.locator("#knock-list li").first().getByRole("button", { name: "Deny" }).click();
  await own.locator("#knocks").waitFor({ state: "hidden" });
  assert.deepEqual((await sent()).toServer.slice(1), [
    { type: "accept", id: KNOCK.id },
    { type: "deny", id: "00000000000000ab" },
  ]);
  await page.close();
});

test("10,000 steps draw few columns, the log stays bounded and where the reader is", { skip }, async () => {
  const { page, own, server, worker, text } = await openPage({ viewport: PHONE });
  await server(WELCOME);
  await worker(
    READY,
    running(10_000, { steps: 10_000, losses: losses(10_000) }),
    ...logLines(0, LOG_LINES + 50),
  );
  const log = own.locator("#log");
  assert.equal(await log.locator("li").count(), LOG_LINES);
  const scroll = () => log.evaluate((list) => list.scrollHeight - list.scrollTop - list.clientHeight);
  assert.ok((await scroll()) < 2, "the newest line is in view");
  await log.evaluate((list) => {
    list.scrollTop = 2000;
  });
  await own.locator("#log-follow").waitFor();
  const reading = () =>
    log.evaluate((list) => {
      const { left, top } = list.getBoundingClientRect();
      return document.elementFromPoint(left + 100, top + 20)?.textContent;
    });
  await log.scrollIntoViewIfNeeded();
  const before = await reading();
  await worker(...logLines(LOG_LINES + 50, 7));
  assert.equal(await reading(), before);
  await own.locator("#log-follow").click();
  await waitFor("the newest line", async () => (await scroll()) < 2);
  await own.locator("#chart").focus();
  await own.keyboard.press("ArrowRight");
  await waitFor("the readout", async () => (await text("chart-readout")).startsWith("Step "));
  assert.match((await own.locator("#chart").getAttribute("aria-label")) ?? "", /over 10,000 steps/);
  assert.deepEqual(page.errors, []);
  await page.close();
});

test("text appears as it comes and writing can be stopped", { skip }, async () => {
  const { page, own, server, worker, sent, text } = await openPage();
  await server(WELCOME);
  await worker(READY, running(20));
  await own.locator("#prompt").fill("Bees ");
  await own.locator("#prompt").press("Tab");
  await own.locator("#write").click();
  const { type, prompt, tokens, seed, temperature } = (await sent()).toWorker.at(-1);
  assert.deepEqual([type, prompt, tokens, seed, temperature], ["generate", "Bees ", 64, 1, 0.8]);
  await worker({ type: "generated", text: "are <b>bold</b>", ids: [], done: false });
  assert.equal(await text("written"), "Bees are <b>bold</b>");
  await own.locator("#write-stop").click();
  assert.equal((await sent()).toWorker.at(-1).type, "stopGenerating");
  await worker({ type: "generated", text: "are <b>bold</b>.", ids: [], done: true });
  await own.locator("#written-copy").waitFor();
  assert.equal(await text("written-by"), "");
  await worker(running(21, { hash: "ab" }));
  assert.match(await text("written-by"), /^Written after step 20;/);
  const line = { type: "generated", text: "and bees\n".repeat(16), ids: [], done: true };
  await worker(line);
  const clipped = await own.locator("#written").evaluate((box) => box.scrollHeight - box.clientHeight);
  assert.ok(clipped <= 0, `${clipped} pixels of the text are clipped`);
  assert.ok(await own.locator("#write").isVisible());
  await page.close();
});

test("a file is checked, then handed over; the reason of a refusal is shown", { skip }, async () => {
  const { page, own, server, worker, sent, text } = await openPage();
  await server(WELCOME);
  await worker(READY);
  const choose = (/** @type {string} */ name) =>
    own.locator("#upload-file").setInputFiles({ name, mimeType: "", buffer: Buffer.from("abc") });
  await choose("cat.jpg");
  await waitFor("the reason", async () =>
    (await text("files-status")).includes("cat.jpg is no .safetensors"),
  );
  await choose("model.safetensors");
  await waitFor("the file", async () => (await sent()).toWorker.at(-1).type === "load");
  await worker({ type: "error", message: "model.safetensors was refused: it is cut." });
  assert.equal(await text("files-status"), "model.safetensors was refused: it is cut.");
  assert.ok(await own.locator("#notice").isHidden());
  await page.close();
});

test("the theme is kept", { skip }, async () => {
  const { page, own } = await openPage({ colorScheme: "light" });
  const ground = () => page.run(() => getComputedStyle(document.body).backgroundColor);
  const day = await ground();
  await own.locator("#theme").click();
  await own.locator("#theme").click();
  assert.equal(await own.locator("#theme").textContent(), "Theme: dark");
  const night = await ground();
  assert.notEqual(night, day);
  await own.reload();
  assert.equal(await ground(), night);
  await page.close();
});
