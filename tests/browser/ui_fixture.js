/** A page with nothing behind it: a scripted worker and a scripted room server, for looking at its states. */

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";

const STATIC = fileURLToPath(new URL("../../src/daisychain/static/", import.meta.url));
const TYPES = /** @type {Record<string, string>} */ ({
  html: "text/html; charset=utf-8",
  js: "text/javascript",
  css: "text/css",
  svg: "image/svg+xml",
});
/** As the room server sends it: nothing inline, nothing from elsewhere. */
const POLICY =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self' blob:; connect-src 'self'; " +
  "style-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** Serves the static files alone. @returns {Promise<{url: string, close: () => void}>} */
export async function serveStatic() {
  const server = createServer(async ({ url }, response) => {
    const { pathname } = new URL(url ?? "/", "http://page");
    if (pathname === "/config.json") {
      response.writeHead(200, { "Content-Type": "application/json" });
      response.end(JSON.stringify({ links: ["http://192.168.1.20:8787/"] }));
      return;
    }
    const name = pathname === "/" ? "index.html" : pathname.replace(/^\/static\//, "");
    try {
      const body = await readFile(STATIC + name);
      const type = TYPES[name.split(".").pop() ?? ""] ?? "application/octet-stream";
      response.writeHead(200, { "Content-Type": type, "Content-Security-Policy": POLICY });
      response.end(body);
    } catch {
      response.writeHead(404);
      response.end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(null)));
  const address = server.address();
  if (!address || typeof address === "string") throw new Error("no port");
  return { url: `http://127.0.0.1:${address.port}/`, close: () => server.close() };
}

/** Runs in the page before its own code: what it sends is kept, what it hears is said by `daisyTest`. */
export function fakes() {
  /** @type {any} */
  const global = globalThis;
  const test = {
    /** @type {any[]} */ toWorker: [],
    /** @type {any[]} */ toServer: [],
    /** @type {any} */ worker: null,
    /** @type {any} */ socket: null,
    fromWorker: (/** @type {any} */ data) => test.worker.dispatchEvent(new MessageEvent("message", { data })),
    fromServer: (/** @type {any} */ data) => test.socket.onmessage({ data: JSON.stringify(data) }),
  };
  global.daisyTest = test;
  global.Worker = class extends EventTarget {
    constructor() {
      super();
      test.worker = this;
    }
    /** @param {any} message */
    postMessage(message) {
      test.toWorker.push(message);
    }
  };
  global.WebSocket = class extends EventTarget {
    readyState = 1;
    onopen = () => {};
    constructor() {
      super();
      test.socket = this;
      setTimeout(() => this.onopen());
    }
    /** @param {string} text */
    send(text) {
      test.toServer.push(JSON.parse(text));
    }
    close() {}
  };
  global.RTCPeerConnection = class {
    constructor() {
      throw new Error("none in this test");
    }
  };
}

const SETTINGS = {
  ...{ width: 32, layers: 2, heads: 4, sequence: 32, batch: 8, steps: 300, rate: 10, seed: 1 },
  ...{ gradients: "float32", source: "auto" },
};
const HASH = "9f2c41d07be83a55c1d6e0f7a2b94c13d8e5f60718293a4b5c6d7e8f90a1b2c3";
export const ID = "0000000000000001";
const PHONE = "0000000000000002";
const SPARE = "0000000000000003";

/** What a server says to a page that is in. */
export const WELCOME = {
  ...{ type: "welcome", id: ID, host: false, room: null, ice: [] },
  members: [{ id: PHONE, name: "Bea’s phone" }],
  limits: { members: 8, ping_s: 3600 },
};
export const JOINED = { type: "joined", id: SPARE, name: "The old laptop in the kitchen" };

/** A curve that falls as a real one does, with noise of a fixed sequence. @param {number} steps */
export function losses(steps) {
  let bits = 1;
  return Array.from({ length: steps }, (_, step) => {
    bits = (bits * 1103515245 + 12345) % 2 ** 31;
    const noise = (bits / 2 ** 31 - 0.5) * 0.35;
    return [step + 1, 5.9 + 3.8 * Math.exp(-step / (steps * 0.16)) + noise];
  });
}

/** @param {number} step @param {object} [changes] */
export function running(step, changes = {}) {
  const device = { step, hash: HASH, equal: true };
  return {
    type: "state",
    state: {
      ...{ phase: "running", reason: "", settings: SETTINGS, step, steps: 300, hash: HASH, leader: ID },
      ...{ loss: 6.412, losses: losses(step), tokensPerS: 48200, stepMs: 38, source: "embedded" },
      ...{ parameters: 554144, model: true },
      devices: [
        { ...device, id: ID, name: "Desktop", backend: "wasm", place: 0, tokensPerS: 24100, link: "self" },
        {
          ...device,
          id: PHONE,
          name: "Bea’s phone",
          backend: "wasm",
          place: 1,
          tokensPerS: 15900,
          link: "up",
        },
        { ...device, id: SPARE, name: JOINED.name, backend: "plain", place: 2, tokensPerS: 8200, link: "up" },
      ],
      ...changes,
    },
  };
}

/** @param {number} from @param {number} count */
export function logLines(from, count) {
  return Array.from({ length: count }, (_, i) => ({
    ...{ type: "log", kind: "step", step: from + i },
    text: `Bea’s phone gave 256 tokens, loss ${(6.5 - i / 1000).toFixed(3)}`,
  }));
}
