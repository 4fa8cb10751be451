/** The worker's shell: opens the kernels and the tokenizer, then passes messages between the page and the node. */

import { ConfigError, messageOf } from "../errors.js";
import { openBackend } from "../kernels/registry.js";
import { kitSources } from "../kit/build.js";
import { FETCH_LIMIT_MS, TEXT_BYTES, TICK_MS } from "../limits.js";
import { Tokenizer } from "../model/tokenizer.js";
import { sha256, toHex } from "../numerics/sha256.js";
import { TrainingNode } from "./node.js";

/** @typedef {{addEventListener(type: "message", listener: (event: MessageEvent) => void): void, postMessage(message: any, transfer?: Transferable[]): void}} Scope */
const scope = /** @type {Scope} */ (/** @type {unknown} */ (self));

/** @param {any} message @param {Transferable[]} [transfer] */
const post = (message, transfer = []) => scope.postMessage(message, transfer);

/** @param {string} path */
async function fetched(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(FETCH_LIMIT_MS) }).catch(() => {
    throw new ConfigError(
      `the room server is out of reach, and this needs ${path}: start it again (daisychain room), then try once more.`,
    );
  });
  if (!answer.ok) {
    const said = (await answer.text()).trim();
    throw new ConfigError(`the room server does not give ${path} (${answer.status}): ${said}`);
  }
  return answer;
}

/** @param {string} path */
const bytesOf = async (path) => new Uint8Array(await (await fetched(path)).arrayBuffer());

/** @param {string} source @param {number} seed */
async function text(source, seed) {
  const answer = await fetched(`/data?bytes=${TEXT_BYTES}&seed=${seed}&source=${source}`);
  const said = (/** @type {string} */ name) => answer.headers.get(name) ?? "";
  return { text: await answer.text(), source: said("X-Daisy-Source"), reason: said("X-Daisy-Reason") };
}

/** Messages that come while this waits are handled first; a timer would wait 4 ms, or a minute in a hidden tab. */
function pause() {
  return /** @type {Promise<void>} */ (
    new Promise((resolve) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => {
        port1.close();
        resolve();
      };
      port2.postMessage(null);
    })
  );
}

/** Fetched while the server is there; a kit may be wanted when it is gone. */
function earlyKitSources() {
  const get = () => kitSources((path) => bytesOf(`/static/${path}`));
  const early = get();
  early.catch(() => {}); // then the server is asked again when a kit is wanted
  return () => early.catch(get);
}

async function open() {
  const tokenizerBytes = await bytesOf("/tokenizer.json");
  const wasmBytes = await bytesOf("/static/kernels/kernels.wasm").catch(() => null);
  const report = (/** @type {string} */ said) =>
    post({ type: "log", kind: "kernel", step: null, text: said });
  const { backend, why } = await openBackend({ wasmBytes, report });
  const tokenizer = new Tokenizer(JSON.parse(new TextDecoder().decode(tokenizerBytes)));
  post({ type: "ready", backend: backend.name, why });
  return {
    ...{ backend, tokenizer },
    tokenizerFile: { bytes: tokenizerBytes, digest: toHex(sha256(tokenizerBytes)) },
    ...{ post, pause },
    nowMs: () => performance.now(),
    random: () => crypto.getRandomValues(new Uint32Array(1))[0],
    text,
    kitSources: earlyKitSources(),
  };
}

const opening = open();
/** @type {TrainingNode | null} */
let node = null;
/** What the page said before the node was there. @type {any[]} */
let early = [];
/** Why there will be none. */
let failure = "";
opening.catch((error) => {
  failure = `this device cannot train: ${messageOf(error)} Then reload the page.`;
  early = [];
  post({ type: "error", message: failure });
});

/** @param {{id: string, name: string}} setup */
async function setUp({ id, name }) {
  const parts = await opening;
  node = new TrainingNode({ ...parts, id, name });
  setInterval(() => node?.tick(), TICK_MS);
  for (const message of early) node.receive(message);
  early = [];
}

let settingUp = false;
scope.addEventListener("message", ({ data }) => {
  if (data.type === "setup") {
    // The id is for life: a page that comes back with its session has the same one.
    if (!settingUp) setUp(data).catch(() => {});
    settingUp = true;
  } else if (node) node.receive(data);
  else if (!failure) early.push(data);
  else if (data.type !== "link" && data.type !== "message") post({ type: "error", message: failure });
});
