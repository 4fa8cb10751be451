/**
 * The pictures of the dashboard and the control panel in docs/images, from real runs:
 * `node tests/browser/panel_screenshots.js URL RUN [FOLDER]` with the address of a dashboard (with its ?token=, if it
 * has one) and the name of a run. Each page is taken as a desktop and as a phone, in light and in dark.
 */

import { join } from "node:path";
import { argv, stdout } from "node:process";
import { Browsers, ROOT } from "./harness.js";

const SIZES = {
  desktop: { viewport: { width: 1280, height: 900 } },
  phone: { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true },
};
const SETTLED_MS = { dashboard: 4_000, run: 4_000, panel: 12_000 }; // the panel works out what a model takes

/** @param {string} url @param {string} run @param {string} folder */
async function takeAll(url, run, folder) {
  const browsers = new Browsers();
  const pages = /** @type {const} */ ([
    ["dashboard", "/"],
    ["run", `/runs/${run}`],
    ["panel", "/train"],
  ]);
  for (const [size, options] of Object.entries(SIZES)) {
    for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
      const page = await browsers.newPage("chromium", { reducedMotion: "reduce", colorScheme, ...options });
      await page.open(url);
      for (const [name, path] of pages) {
        await page.open(new URL(path, url).href);
        await page.own.waitForTimeout(SETTLED_MS[name]);
        const file = join(folder, `${name}-${size}-${colorScheme}.png`);
        await page.screenshot(file);
        stdout.write(`${file}\n`);
      }
      await page.close();
    }
  }
  await browsers.close();
}

const [url, run, folder = join(ROOT, "docs/images")] = argv.slice(2);
if (!url || !run)
  throw new Error(
    "Say where a dashboard is and which run to show: node tests/browser/panel_screenshots.js http://127.0.0.1:8080/ first",
  );
await takeAll(url, run, folder);
