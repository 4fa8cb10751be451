/** Devices of a group in one process of Node: the page's own worker code, linked in memory. */

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { openBackend } from "../src/daisychain/static/kernels/registry.js";
import { kitSources } from "../src/daisychain/static/kit/build.js";
import { Tokenizer } from "../src/daisychain/static/model/tokenizer.js";
import { sha256, toHex } from "../src/daisychain/static/numerics/sha256.js";
import { TrainingNode } from "../src/daisychain/static/worker/node.js";

const PACKAGE = join(dirname(fileURLToPath(import.meta.url)), "../src/daisychain");
const bytesOf = (/** @type {string} */ path) => new Uint8Array(readFileSync(join(PACKAGE, path)));

/** @type {import("../src/daisychain/static/worker/host.js").RunSettings & {source: string}} */
export const SETTINGS = {
  ...{ vocabulary: 16_512, width: 32, layers: 2, heads: 4, sequence: 32 },
  ...{ batch: 8, steps: 100, rate: 10, seed: 1, gradients: "float32", source: "embedded" },
};

/**
 * A device, and everything that it has told its page: states (the last), log lines, states' hashes by step, files.
 */
export class VirtualPeer {
  /** @type {any} */
  state = null;
  /** @type {any[]} */
  log = [];
  /** @type {Map<number, string>} */
  hashes = new Map();
  /** @type {any[]} */
  messages = [];
  /** @type {TrainingNode} */
  node = /** @type {any} */ (null);

  /** @param {string} id @param {string} name */
  constructor(id, name) {
    this.id = id;
    this.name = name;
  }

  /** @param {any} message */
  take(message) {
    if (message.type === "state") this.state = message.state;
    else if (message.type === "log") {
      this.log.push(message);
      if (message.hash) this.hashes.set(message.step, message.hash);
    } else this.messages.push(message);
  }
}

/** Devices that are linked to each other, in the order in which they came. */
export class VirtualGroup {
  /** @type {Map<string, VirtualPeer>} */
  peers = new Map();
  #nowMs = 0;
  #random;

  /** @param {string} text that whoever starts gets @param {number} seed */
  constructor(text, seed = 1) {
    this.text = text;
    this.#random = seed;
    const bytes = bytesOf("data/tokenizer.json");
    this.tokenizerFile = { bytes, digest: toHex(sha256(bytes)) };
    this.tokenizer = new Tokenizer(JSON.parse(new TextDecoder().decode(bytes)));
  }

  /**
   * @param {"wasm" | "plain"} [force]
   * @param {boolean} [linked] to all others, and heard by them, at once
   */
  async join(force, linked = true) {
    const { backend } = await openBackend({ wasmBytes: bytesOf("static/kernels/kernels.wasm"), force });
    const id = (this.peers.size + 1).toString(16).padStart(16, "0");
    const peer = new VirtualPeer(id, `peer ${this.peers.size + 1}`);
    peer.node = new TrainingNode({
      ...{ id, name: peer.name, backend },
      ...{ tokenizer: this.tokenizer, tokenizerFile: this.tokenizerFile },
      post: (message) => (message.type === "send" ? this.#deliver(id, message.messages) : peer.take(message)),
      pause: () => new Promise((resolve) => setImmediate(resolve)),
      nowMs: () => this.#nowMs++,
      random: () => {
        this.#random = (Math.imul(this.#random, 1_664_525) + 1_013_904_223) >>> 0;
        return this.#random;
      },
      text: async () => ({ text: this.text, source: "embedded", reason: "" }),
      kitSources: () => kitSources(async (path) => bytesOf(`static/${path}`)),
    });
    this.peers.set(id, peer);
    if (linked) await this.linkToAll(peer);
    return peer;
  }

  /** @param {VirtualPeer} peer */
  async linkToAll(peer) {
    const others = [...this.peers.values()].filter((other) => other !== peer);
    for (const other of others) this.link(peer, other);
    const heard = () =>
      peer.node.session.facts().devices.filter(({ linked }) => linked).length >= others.length;
    await this.until("links", heard);
  }

  /** @param {VirtualPeer} a @param {VirtualPeer} b @param {"up" | "down"} [state] */
  link(a, b, state = "up") {
    a.node.receive({ type: "link", id: b.id, name: b.name, state });
    b.node.receive({ type: "link", id: a.id, name: a.name, state });
  }

  /** @param {string} from @param {{to: string, bytes: ArrayBuffer}[]} messages */
  #deliver(from, messages) {
    for (const { to, bytes } of messages) {
      setImmediate(() => this.peers.get(to)?.node.receive({ type: "message", from, bytes }));
    }
  }

  /**
   * Let time pass until `check` holds.
   * @param {string} what
   * @param {() => boolean} check
   * @param {number} [limitMs] of real time
   */
  async until(what, check, limitMs = 60_000) {
    const end = performance.now() + limitMs;
    for (let turn = 0; !check(); turn++) {
      if (performance.now() > end) {
        const logs = [...this.peers.values()].map((peer) => JSON.stringify(peer.log.slice(-3)));
        throw new Error(`waited ${limitMs / 1000} s for ${what}; ${logs.join("\n")}`);
      }
      if (turn % 50 === 0) {
        this.#nowMs += 50;
        for (const peer of this.peers.values()) peer.node.tick();
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}
