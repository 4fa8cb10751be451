/** The page's line to the signalling server: who is here, and signals to them. It comes back by itself. */

import { MISSED_PINGS, SOCKET_OPEN_MS, SOCKET_RETRY_MS, WAITING_SILENCE_MS } from "../limits.js";
import { retryWaitMs, systemClock } from "./clock.js";
import { readServerMessage } from "./serverMessages.js";

/** @typedef {import("./clock.js").Clock} Clock */
/** @typedef {import("./serverMessages.js").ServerMessages} ServerMessages */
/** @typedef {import("./serverMessages.js").Welcome} Welcome */
/** @typedef {import("./serverMessages.js").Member} Member */

/** @typedef {"closed" | "connecting" | "waiting" | "open"} SignallingState */
/**
 * Beside the server's messages: "members", the others whenever they change, and "state", with a reason when
 * the line is not open.
 * @typedef {ServerMessages & {members: Member[], state: {state: SignallingState, reason: string}}} Events
 */

/**
 * @typedef {object} SignallingOptions
 * @property {string} url of the WebSocket
 * @property {string} name of this device
 * @property {string} session 32 hex digits of this page; the same session gets the same id again
 * @property {string} [pass] 32 hex digits by which a room that let this device in knows a later page of it
 * @property {string} [room] code of a private room
 * @property {(url: string) => WebSocket} [open]
 * @property {Clock} [clock]
 */

/** Errors after which the same hello would only fail again. */
const FINAL_ERRORS = ["bad_room", "bad_message", "too_large", "replaced"];

const SECRET = /^[0-9a-f]{32}$/;
const PASS_KEY = "daisychain.pass";

/** 128 random bits in hex. @param {(bytes: Uint8Array<ArrayBuffer>) => Uint8Array<ArrayBuffer>} random */
export function newSecret(random) {
  return Array.from(random(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * The pass that this tab keeps over reloads; of this page alone where the browser forbids storage.
 * @param {() => Storage} storage throws where it is forbidden @param {Parameters<typeof newSecret>[0]} random
 */
export function keptPass(storage, random) {
  try {
    const kept = storage().getItem(PASS_KEY) ?? "";
    const pass = SECRET.test(kept) ? kept : newSecret(random);
    storage().setItem(PASS_KEY, pass);
    return pass;
  } catch {
    return newSecret(random);
  }
}

export class Signalling {
  #options;
  #clock;
  /** @type {Map<string, Set<(content: any) => void>>} */
  #listeners = new Map();
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {SignallingState} */
  #state = "closed";
  /** @type {Map<string, string>} */
  #members = new Map();
  #failures = 0;
  #heardAtMs = 0;
  /** Silence that means a dead socket; before the welcome, the time a connection may take. */
  #silenceMs = SOCKET_OPEN_MS;
  #closeReason = "";
  /** @type {any} */
  #timer = null;

  /** @param {SignallingOptions} options */
  constructor(options) {
    this.#options = { open: (/** @type {string} */ url) => new WebSocket(url), ...options };
    this.#clock = options.clock ?? systemClock;
  }

  get state() {
    return this.#state;
  }

  /**
   * @template {keyof Events} T
   * @param {T} type @param {(content: Events[T]) => void} listener
   * @returns {() => void} takes the listener away
   */
  on(type, listener) {
    const listeners = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, listeners.add(listener));
    return () => listeners.delete(listener);
  }

  /** Opens the line, and opens it again whenever it breaks, until `close`. */
  connect() {
    this.#dropSocket();
    this.#become("connecting", "");
    this.#heardAtMs = this.#clock.now();
    this.#silenceMs = SOCKET_OPEN_MS;
    this.#closeReason = "";
    const socket = this.#options.open(this.#options.url);
    this.#socket = socket;
    socket.onopen = () => {
      const { name, session, pass, room } = this.#options;
      this.#send({ type: "hello", name, session, ...(room ? { room, pass } : {}) });
    };
    socket.onmessage = ({ data }) => this.#heard(data);
    socket.onclose = () => this.#lost(this.#closeReason || "the room server does not answer");
    this.#watchSilence();
  }

  /** The page shows again or the network is back: a broken or silent line is opened at once. */
  wake() {
    if (this.#state === "closed") return;
    const silentMs = this.#clock.now() - this.#heardAtMs;
    if (this.#socket && silentMs < this.#silenceMs / 2) return;
    this.#failures = 0;
    this.connect();
  }

  /**
   * @param {string} to id of a member @param {unknown} data
   * @returns {boolean} false when the line is not open
   */
  signal(to, data) {
    return this.#state === "open" && this.#send({ type: "signal", to, data });
  }

  /** The host's answer to a knock. @param {string} id */
  accept(id) {
    return this.#send({ type: "accept", id });
  }

  /** @param {string} id */
  deny(id) {
    return this.#send({ type: "deny", id });
  }

  /** @param {string} name */
  rename(name) {
    this.#options.name = name;
    return this.#send({ type: "rename", name });
  }

  close() {
    this.#dropSocket();
    this.#become("closed", "");
  }

  /** @param {object} message */
  #send(message) {
    if (this.#socket?.readyState !== 1) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  /** @param {unknown} text */
  #heard(text) {
    this.#heardAtMs = this.#clock.now();
    let message;
    try {
      message = readServerMessage(text);
    } catch (error) {
      this.#emit("error", { code: "bad_server", message: `${error}` });
      this.#lost("the room server and this page do not fit; reload the page");
      return;
    }
    const { type, content } = message;
    if (type === "ping") this.#send({ type: "pong" });
    else if (type === "welcome") this.#welcomed(content);
    else if (type === "waiting") this.#waits(content);
    else if (type === "joined" || type === "renamed") this.#members.set(content.id, content.name);
    else if (type === "left") this.#members.delete(content.id);
    this.#emit(type, content);
    if (["welcome", "joined", "left", "renamed"].includes(type)) this.#emitMembers();
    if (type === "denied") this.#give(content.reason);
    if (type === "error") this.#refused(content);
  }

  /** @param {Welcome} welcome */
  #welcomed({ id, members, limits }) {
    this.#failures = 0;
    this.#silenceMs = limits.ping_s * 1000 * MISSED_PINGS;
    this.#members = new Map(members.filter((member) => member.id !== id).map((m) => [m.id, m.name]));
    this.#become("open", "");
  }

  /** @param {{reason?: string}} waiting */
  #waits({ reason }) {
    this.#failures = 0;
    this.#silenceMs = WAITING_SILENCE_MS;
    this.#become("waiting", reason ?? "the host has not answered yet");
  }

  /** @param {{code: string, message: string}} error */
  #refused({ code, message }) {
    if (FINAL_ERRORS.includes(code)) {
      this.#give(message);
      return;
    }
    this.#closeReason = message; // the server closes next
    this.#failures = Number.POSITIVE_INFINITY; // full or throttled: the longest wait
  }

  /** No further try. @param {string} reason */
  #give(reason) {
    this.#dropSocket();
    this.#become("closed", reason);
  }

  /** @param {string} reason */
  #lost(reason) {
    this.#dropSocket();
    this.#failures += 1;
    this.#become("connecting", reason);
    const waitMs = retryWaitMs(this.#failures, SOCKET_RETRY_MS, this.#clock);
    this.#timer = this.#clock.setTimeout(() => this.connect(), waitMs);
  }

  #watchSilence() {
    const leftMs = this.#heardAtMs + this.#silenceMs - this.#clock.now();
    if (leftMs <= 0) this.#lost("the room server has gone silent");
    else this.#timer = this.#clock.setTimeout(() => this.#watchSilence(), leftMs);
  }

  #dropSocket() {
    this.#clock.clearTimeout(this.#timer);
    const socket = this.#socket;
    if (!socket) return;
    this.#socket = null;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  /** @param {SignallingState} state @param {string} reason */
  #become(state, reason) {
    this.#state = state;
    this.#emit("state", { state, reason });
  }

  #emitMembers() {
    this.#emit(
      "members",
      [...this.#members].map(([id, name]) => ({ id, name })),
    );
  }

  /** @template {keyof Events} T @param {T} type @param {Events[T]} content */
  #emit(type, content) {
    for (const listener of this.#listeners.get(type) ?? []) listener(content);
  }
}
