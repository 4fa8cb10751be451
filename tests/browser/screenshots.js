/**
 * The pictures in docs/images, from a real run: `node tests/browser/screenshots.js URL [FOLDER]` with the address
 * of a room server. Opens a page as a desktop and one as a phone, trains on both, and takes each in light and dark.
 */

import { join } from "node:path";
import { argv, stdout } from "node:process";
import { Browsers, ROOT, waitFor } from "./harness.js";

const STEPS = 150;
const RUN_LIMIT_MS = 300_000;
const SIZES = {
  desktop: { viewport: { width: 1280, height: 1000 }, name: "Kitchen desktop" },
  phone: { viewport: { width: 390, height: 844 }, name: "Bea’s phone", deviceScaleFactor: 2, hasTouch: true },
};

/** @param {string} url @param {string} folder */
async function takeAll(url, folder) {
  const browsers = new Browsers();
  const pages = [];
  for (const [size, { name, ...options }] of Object.entries(SIZES)) {
    const page = await browsers.newPage("chromium", { reducedMotion: "reduce", ...options });
    await page.open(url);
    await page.own.locator("#name").fill(name);
    await page.own.locator("#name").press("Enter");
    pages.push({ size, own: page.own });
  }
  const [{ own: leader }, { own: follower }] = pages;
  const ready = (/** @type {import("playwright-core").Page} */ page) =>
    page.locator("#devices .about", { hasText: "connected" }).first().waitFor({ timeout: RUN_LIMIT_MS });
  await Promise.all([ready(leader), ready(follower)]);
  await leader.locator("#start").click();
  await waitFor(
    `step ${STEPS}`,
    async () => Number.parseInt((await follower.locator("#fact-step").textContent()) ?? "", 10) >= STEPS,
    RUN_LIMIT_MS,
  );
  await leader.locator("#write").click();
  await leader.locator("#write").waitFor({ timeout: RUN_LIMIT_MS });
  for (const { size, own } of pages) {
    for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
      await own.emulateMedia({ colorScheme });
      await own.locator(size === "phone" ? "#training" : "header").evaluate((part) => part.scrollIntoView());
      const path = join(folder, `room-${size}-${colorScheme}.png`);
      await own.screenshot({ path });
      stdout.write(`${path}\n`);
    }
  }
  await browsers.close();
}

const [url, folder = join(ROOT, "docs/images")] = argv.slice(2);
if (!url)
  throw new Error("Say where the room server is: node tests/browser/screenshots.js http://localhost:8787/");
await takeAll(url, folder);
