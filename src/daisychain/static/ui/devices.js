/** Who is here: name, what it computes with, speed, link, and whether its weights are equal. */

import { element, nameInput, part, say } from "./dom.js";
import { short } from "./words.js";

/** @typedef {import("./state.js").Page} Page */
/** @typedef {{id: string, name: string, about: string, lamp: "up" | "trouble" | "down", tone: "" | "good" | "bad", badge: string}} Row */

const BACKENDS = /** @type {Record<string, string>} */ ({
  wasm: "WebAssembly",
  plain: "plain JavaScript",
  webgpu: "WebGPU",
});
/** How a second device gets in. */
const MEET = {
  network: "Open this page on another device on the same network, then press Start.",
  room: "Send the room link to another device and let it in, then press Start.",
};
const LAMPS = /** @type {const} */ ({ up: "connected", trouble: "link in trouble", down: "no link" });

/**
 * This device first, then the others in the order in which they came.
 * @param {Page} page
 * @returns {Row[]}
 */
export function deviceRows(page) {
  const self = { id: page.id, name: page.name || "This device" };
  return [self, ...page.members].map(({ id, name }) => row(page, id, name));
}

/**
 * @param {Page} page
 * @param {string} id
 * @param {string} name
 * @returns {Row}
 */
function row(page, id, name) {
  const device = page.run.devices.find((each) => each.id === id);
  const self = id === page.id;
  const link = page.links[id];
  const state = self ? "up" : (device?.link ?? link?.state ?? "trouble");
  const lamp = state === "self" ? "up" : state;
  const backend = device?.backend || (self ? page.backend : "");
  const about = self ? ["this device"] : [];
  if (backend) about.push(BACKENDS[backend] ?? backend);
  if (device?.tokensPerS) about.push(`${short(device.tokensPerS)} tokens/s`);
  if (!self) about.push(device || link ? LAMPS[lamp] : "connecting");
  if (link?.reason && lamp !== "up") about.push(link.reason);
  if (page.run.leader === id) about.push("leads");
  if (page.room && page.hostId === id) about.push("host");
  const equal = device?.place === null ? null : (device?.equal ?? null);
  const tone = equal === null ? "" : equal ? "good" : "bad";
  const badge = equal === null ? "" : equal ? "equal" : "not equal";
  return { id, name, about: about.join(" · "), lamp, tone, badge };
}

/** @param {(name: string) => void} rename */
export function createDevices(rename) {
  const list = part("devices", HTMLUListElement);
  const count = part("devices-count", HTMLElement);
  const empty = part("devices-empty", HTMLElement);
  const hint = part("devices-hint", HTMLElement);
  const name = part("name", HTMLInputElement);
  nameInput(name, rename);
  /** @type {Map<string, ReturnType<typeof item>>} */
  const items = new Map();

  return {
    /** @param {Page} page */
    render(page) {
      const rows = deviceRows(page);
      for (const [id, made] of items) {
        if (rows.some((each) => each.id === id)) continue;
        made.box.remove();
        items.delete(id);
      }
      for (const each of rows) {
        const made = items.get(each.id) ?? item();
        if (!items.has(each.id)) list.append(made.box);
        items.set(each.id, made);
        made.show(each);
      }
      if (document.activeElement !== name) name.value = page.name;
      say(count, `${rows.length} of ${page.maxMembers}`);
      say(empty, page.room === null ? MEET.network : MEET.room);
      empty.hidden = page.members.length > 0 || page.run.phase !== "idle";
      say(hint, page.backendWhy);
    },
  };
}

function item() {
  const lamp = element("span", { "aria-hidden": "true" });
  const name = element("span", { class: "name" });
  const badge = element("span");
  const about = element("span", { class: "about" });
  return {
    box: element("li", {}, lamp, name, badge, about),
    /** @param {Row} row */
    show(row) {
      lamp.className = `lamp ${row.lamp}`;
      say(name, row.name);
      badge.className = `badge ${row.tone}`;
      badge.hidden = !row.badge;
      say(badge, row.badge);
      say(about, row.about);
    },
  };
}
