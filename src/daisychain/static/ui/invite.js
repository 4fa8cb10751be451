/** How another device gets in: the room link, its QR code, a private room. */

import { ROOM_CODE_CHARACTERS } from "../limits.js";
import { copied, part, say } from "./dom.js";
import { qrCode, qrPath } from "./qr.js";

/** @typedef {import("./state.js").Page} Page */

/** Crockford's base32: no I, L, O or U, which look like others. */
const DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const QUIET_ZONE = 4;
const LOOPBACK = /^(localhost|127\.|\[::1\])/;

/**
 * A code of 65 random bits.
 * @param {(bytes: Uint8Array<ArrayBuffer>) => unknown} fillRandom
 */
export function roomCode(fillRandom) {
  const bytes = new Uint8Array(ROOM_CODE_CHARACTERS);
  fillRandom(bytes);
  return Array.from(bytes, (byte) => DIGITS[byte % DIGITS.length]).join("");
}

/**
 * The link for others: this page's address, or one that works from elsewhere if this one does not.
 * @param {string} here
 * @param {string | null} room
 * @param {string[]} elsewhere links that the server knows of itself
 */
export function roomLink(here, room, elsewhere) {
  const url = new URL(here);
  const other = LOOPBACK.test(url.hostname) ? elsewhere[0] : undefined;
  const link = new URL("/", other ?? url.origin);
  if (room) link.searchParams.set("room", room);
  return link.href;
}

/**
 * @param {object} options
 * @param {string[]} options.links that the server knows of itself
 * @param {boolean} options.secure is this page in a secure context?
 * @param {() => void} options.ownRoom
 * @param {() => void} options.leaveRoom back to the group of the network
 */
export function createInvite({ links, secure, ownRoom, leaveRoom }) {
  const [box, shown, copy] = [
    part("qr", HTMLElement),
    part("link", HTMLInputElement),
    part("link-copy", HTMLButtonElement),
  ];
  const hint = part("link-hint", HTMLElement);
  const https = part("secure", HTMLElement);
  const privately = part("private", HTMLButtonElement);
  https.hidden = secure;
  say(
    https,
    "This page came over plain http. Everything trains without https. With it (start the server with " +
      "--https) the browser would also keep the screen on during a run and copy the link in one press.",
  );
  shown.addEventListener("focus", () => shown.select());
  copy.addEventListener("click", async () => {
    say(copy, (await copied(shown.value, () => shown.select())) ? "Copied" : "Press Ctrl+C");
  });
  let inRoom = false;
  privately.addEventListener("click", () => (inRoom ? leaveRoom() : ownRoom()));

  return {
    /** @param {Page} page */
    render(page) {
      const link = roomLink(location.href, page.room, links);
      inRoom = page.room !== null;
      say(privately, inRoom ? "Leave this room" : "Make a private room");
      say(hint, hintWords(page, LOOPBACK.test(new URL(link).hostname)));
      if (shown.value === link) return;
      shown.value = link;
      say(copy, "Copy");
      box.replaceChildren(drawing(link));
    },
  };
}

/** @param {Page} page @param {boolean} loopback */
function hintWords(page, loopback) {
  if (loopback)
    return "This address works on this device only: open the page by the server’s network address.";
  if (page.room) return "Private room: the host lets each device in.";
  return `Devices on one network meet by themselves, up to ${page.maxMembers} in a group.`;
}

/** @param {string} text */
function drawing(text) {
  const grid = qrCode(text);
  const size = grid.length + 2 * QUIET_ZONE;
  const svg = svgElement("svg", { viewBox: `${-QUIET_ZONE} ${-QUIET_ZONE} ${size} ${size}` });
  svg.setAttribute("shape-rendering", "crispEdges");
  svg.append(
    svgElement("path", { fill: "#fff", d: `M${-QUIET_ZONE} ${-QUIET_ZONE}h${size}v${size}h-${size}z` }),
    svgElement("path", { fill: "#000", d: qrPath(grid) }),
  );
  return svg;
}

/** @param {string} tag @param {Record<string, string>} attributes */
function svgElement(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
