/** The page: signalling and mesh, the worker that trains, and the views of what they say. */

import { keepAwake, onReturn } from "../mesh/awake.js";
import { Mesh } from "../mesh/mesh.js";
import { keptPass, newSecret, Signalling } from "../mesh/signalling.js";
import { createAsk } from "./ask.js";
import { createChart } from "./chart.js";
import { createDevices } from "./devices.js";
import { createDoor, createKnocks, createNotice } from "./door.js";
import { createFiles, download } from "./files.js";
import { createGenerate } from "./generate.js";
import { createInvite, roomCode } from "./invite.js";
import { keep, kept } from "./keep.js";
import { createLog } from "./log.js";
import { createSettings } from "./settings.js";
import {
  asShown,
  fromServer,
  fromWorker,
  isUnsaved,
  linkChanged,
  mayLose,
  newPage,
  serverLost,
  withNotice,
} from "./state.js";
import { createTheme } from "./theme.js";
import { createTraining } from "./training.js";
import { firstName, isBusy, many } from "./words.js";

/** @typedef {import("./state.js").Page} Page */

const NAME_KEY = "daisychain.name";
const SERVER_MESSAGES = /** @type {const} */ ([
  "welcome",
  "waiting",
  "denied",
  "joined",
  "left",
  "renamed",
  "knock",
  "gone",
  "host",
  "error",
]);
/** Wide enough for two columns: then the folded cards stand open. */
const WIDE = "(min-width: 60rem)";

const random = (/** @type {Uint8Array<ArrayBuffer>} */ bytes) => crypto.getRandomValues(bytes);

class App {
  /** @type {{render(page: Page): void}[]} */
  #views = [];
  #drawing = false;
  #id = "";
  #gone = false;
  /** @type {{to: string[], bytes: Uint8Array} | null} */
  #farewell = null;
  #ask = createAsk();
  /** What waits until the model is saved. @type {(() => void) | null} */
  #afterSave = null;

  /** @param {{links: string[], secure: boolean}} config */
  constructor(config) {
    const name = kept(NAME_KEY) ?? newName();
    keep(NAME_KEY, name);
    const room = new URLSearchParams(location.search).get("room");
    /** @type {Page} */
    this.page = newPage({ name, room });
    this.worker = new Worker("/static/worker/worker.js", { type: "module" });
    this.signalling = new Signalling({
      url: socketAddress(),
      name,
      session: newSecret(random), // a new one for every page: with it comes the id, and an id never comes twice
      pass: keptPass(() => sessionStorage, random),
      room: room ?? "",
    });
    // Before the mesh: the worker hears of this device first, then of its links.
    this.#listen();
    this.mesh = new Mesh({
      signalling: this.signalling,
      connect: (configuration) => new RTCPeerConnection(configuration),
      onMessage: (from, bytes) => this.worker.postMessage({ type: "message", from, bytes }, [bytes]),
      onLink: (id, state, reason) => this.#link(id, state, reason),
    });
    this.#show(config);
    this.signalling.connect();
  }

  /** @param {Page} page */
  change(page) {
    this.page = page;
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      const shown = asShown(this.page);
      for (const view of this.#views) view.render(shown);
    });
  }

  #listen() {
    for (const type of SERVER_MESSAGES) {
      this.signalling.on(type, (message) => {
        this.change(fromServer(this.page, { ...message, type }));
        if (type === "welcome" || type === "joined") this.#meet();
      });
    }
    this.signalling.on("renamed", ({ id, name }) => this.worker.postMessage({ type: "renamed", id, name }));
    this.signalling.on("state", ({ state, reason }) => {
      if (state === "connecting" && reason) this.change(serverLost(this.page));
    });
    onReturn(() => this.signalling.wake(), window);
    this.worker.addEventListener("message", ({ data }) => this.#worker(data));
    this.worker.addEventListener("error", () => {
      const text = "Reload the page; if it stays, this browser is too old for it.";
      this.change(withNotice(this.page, { bad: true, title: "The part that trains has stopped.", text }));
    });
    addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
    addEventListener("beforeunload", (event) => {
      if (mayLose(this.page)) event.preventDefault();
    });
    addEventListener("pagehide", () => this.#leave());
  }

  /** @param {{links: string[], secure: boolean}} config */
  #show({ links, secure }) {
    const { worker } = this;
    const redraw = () => this.change(this.page);
    const settings = createSettings(redraw);
    const ownRoom = () => {
      location.search = `?room=${roomCode(random)}`;
    };
    const leaveRoom = () => {
      location.href = location.pathname;
    };
    for (const id of ["invite", "settings-card"]) {
      document.getElementById(id)?.toggleAttribute("open", matchMedia(WIDE).matches);
    }
    this.#views = [
      createDoor(ownRoom, (name) => this.#rename(name)),
      createKnocks((id, accepted) => this.#answer(id, accepted)),
      createNotice(() => this.change(withNotice(this.page, null))),
      createDevices((name) => this.#rename(name)),
      createInvite({ links, secure, ownRoom, leaveRoom }),
      settings,
      createTraining(
        settings.read,
        (goOn) => this.#start({ ...settings.read(), goOn }),
        () => worker.postMessage({ type: "stop" }),
      ),
      createChart(redraw),
      createGenerate(
        (request) => this.#write(request),
        () => worker.postMessage({ type: "stopGenerating" }),
      ),
      createFiles(
        (format) => this.#save(format),
        (name, bytes) => this.#load(name, bytes),
        (text) => this.change({ ...this.page, file: { busy: false, bad: true, text } }),
      ),
      createLog(),
      createAwake(),
    ];
    createTheme(redraw);
  }

  /** Tells the worker who this device is, once, and the names of the others. */
  #meet() {
    const { id, name, room } = this.page;
    if (id === this.#id) return;
    this.#id = id;
    this.worker.postMessage({ type: "setup", id, name, room });
  }

  /** @param {string} id @param {"up" | "down" | "trouble"} state @param {string} reason */
  #link(id, state, reason) {
    const name = this.page.members.find((member) => member.id === id)?.name ?? "";
    this.worker.postMessage({ type: "link", id, name, state, reason });
    this.change(linkChanged(this.page, id, state, reason));
  }

  /** @param {{messages: {to: string, bytes: ArrayBuffer}[], farewell: {to: string[], bytes: Uint8Array}}} sent */
  #forward({ messages, farewell }) {
    if (this.#gone) return;
    for (const { to, bytes } of messages) this.mesh.send(to, new Uint8Array(bytes));
    this.#farewell = farewell;
  }

  /** The page is closing: the last word that fits what was sent, and nothing after it. */
  #leave() {
    this.#gone = true;
    const { to, bytes } = this.#farewell ?? { to: [], bytes: new Uint8Array() };
    for (const id of to) this.mesh.send(id, bytes);
  }

  /** @param {any} message */
  #worker(message) {
    if (message.type === "send") return this.#forward(message);
    if (message.type === "file") download(message.name, message.bytes, message.mime);
    const next = this.#afterSave;
    const failed = message.type === "error" && this.page.file.busy;
    if (message.type === "file" || failed) this.#afterSave = null;
    this.change(fromWorker(this.page, message));
    if (message.type === "file") next?.();
  }

  /**
   * Does what ends the model that is here, once it is saved or may go.
   * @param {{save: string, go: string}} words
   * @param {() => void} act
   */
  async #end(words, act) {
    const { step } = this.page.run;
    const text = `The model after ${many(step, "step")} is not saved from this page. The next one takes its place on every device.`;
    const answer = isUnsaved(this.page) ? await this.#ask({ text, ...words }) : "go";
    // Meanwhile another device may have begun a run.
    const unlessBusy = () => isBusy(this.page) || act();
    if (answer === "go") unlessBusy();
    if (answer !== "save") return;
    this.#save("safetensors");
    this.#afterSave = unlessBusy;
  }

  /** @param {string} id @param {boolean} accepted */
  #answer(id, accepted) {
    if (accepted) this.signalling.accept(id);
    else this.signalling.deny(id);
    this.change(fromServer(this.page, { type: "gone", id }));
  }

  /** @param {string} wanted */
  #rename(wanted) {
    const name = wanted || newName();
    keep(NAME_KEY, name);
    this.signalling.rename(name);
    this.worker.postMessage({ type: "renamed", id: this.page.id, name });
    this.change({ ...this.page, name });
  }

  /** @param {import("./state.js").Settings & {goOn: boolean}} settings */
  #start(settings) {
    const begin = () => {
      this.worker.postMessage({ type: "start", settings });
      this.change({ ...this.page, asked: settings.goOn ? "go on" : "anew" });
    };
    if (settings.goOn) begin();
    else this.#end({ save: "Save and start", go: "Start anew" }, begin);
  }

  /** @param {import("./generate.js").Request} request */
  #write(request) {
    this.worker.postMessage({ type: "generate", ...request });
    const { hash, step } = this.page.run;
    this.change({ ...this.page, written: { prompt: request.prompt, text: "", busy: true, hash, step } });
  }

  /** @param {"safetensors" | "pt" | "kit"} format */
  #save(format) {
    this.worker.postMessage(format === "kit" ? { type: "kit" } : { type: "checkpoint", format });
    // An offline page cannot be loaded again.
    const saving = format === "kit" ? this.page.saved : this.page.run.hash;
    this.change({ ...this.page, saving, file: { busy: true, bad: false, text: "Making the file…" } });
  }

  /** @param {string} name @param {ArrayBuffer} bytes */
  #load(name, bytes) {
    const load = () => {
      this.worker.postMessage({ type: "load", bytes, name }, [bytes]);
      this.change({ ...this.page, file: { busy: true, bad: false, text: `Checking ${name}…` } });
    };
    this.#end({ save: "Save and load", go: "Load the file" }, load);
  }
}

/** Keeps the screen on while a run goes on: a phone that sleeps drops out of the group. */
function createAwake() {
  /** @type {(() => void) | null} */
  let release = null;
  return {
    /** @param {Page} page */
    render(page) {
      if (isBusy(page) === (release !== null)) return;
      if (release) release();
      release = release ? null : keepAwake(navigator, document);
    },
  };
}

const newName = () => firstName(navigator.userAgent, crypto.getRandomValues(new Uint32Array(1))[0]);

function socketAddress() {
  const url = new URL("/ws", location.href);
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}

/** What the server knows of itself; the page works without. */
async function serverLinks() {
  try {
    const answer = await fetch("/config.json");
    return answer.ok ? (await answer.json()).links : [];
  } catch {
    return [];
  }
}

export const app = new App({ links: await serverLinks(), secure: isSecureContext });
