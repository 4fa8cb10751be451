/** A device of a group: the session decides, the host computes, and the page is told. No DOM, clock or network. */

import { writePt, writeSafetensors } from "../checkpoint/checkpoint.js";
import { readCheckpoint } from "../checkpoint/validate.js";
import { ConfigError, messageOf } from "../errors.js";
import { buildKit } from "../kit/build.js";
import { BATCH_SAMPLES, CONTRACT_VERSION, RATE_THOUSANDTHS, STATE_EVERY_MS, VOCABULARY } from "../limits.js";
import { EMPTY_PROMPT, generate } from "../model/generate.js";
import { sampleCount } from "../model/samples.js";
import { checkConfig } from "../model/weights.js";
import { ceil } from "../numerics/numbers.js";
import { Session } from "../sync/session.js";
import { Account } from "./account.js";
import { checkSettings, Host, shapeOf } from "./host.js";

/** @typedef {import("../sync/types.js").SessionEvent} SessionEvent */
/** @typedef {import("../sync/types.js").Action} Action */
/** @typedef {import("./host.js").RunSettings} RunSettings */
/**
 * What a device is made of, and how it reaches the world. `text` is asked for the text of a run that starts here.
 * @typedef {object} Parts
 * @property {string} id 16 hex characters
 * @property {string} name
 * @property {import("../kernels/cpu.js").CpuBackend} backend
 * @property {import("../model/tokenizer.js").Tokenizer} tokenizer
 * @property {{bytes: Uint8Array, digest: string}} tokenizerFile
 * @property {(message: any, transfer?: Transferable[]) => void} post to the page
 * @property {() => Promise<void>} pause lets messages in: computing alone would never
 * @property {() => number} nowMs
 * @property {() => number} random 0 … 2^32 − 1
 * @property {(source: string, seed: number) => Promise<{text: string, source: string, reason: string}>} text
 * @property {() => Promise<import("../kit/build.js").KitSources>} kitSources
 */

export class TrainingNode {
  #computing = 0;
  #statedMs = -STATE_EVERY_MS;
  #generating = 0;

  /** @param {Parts} parts */
  constructor(parts) {
    this.parts = parts;
    this.host = new Host(parts.backend, parts.tokenizerFile.digest, parts.pause);
    const { id, name, backend } = parts;
    this.session = new Session({ id, nowMs: parts.nowMs(), seed: parts.random(), backend: backend.name });
    this.account = new Account(id, name);
  }

  /** A message of the page. @param {any} message */
  async receive(message) {
    try {
      await this.#answer(message);
    } catch (error) {
      this.parts.post({ type: "error", message: messageOf(error) });
    }
  }

  /** @param {any} message */
  async #answer(message) {
    switch (message.type) {
      case "link":
        return this.#link(message);
      case "renamed":
        return this.account.rename(message.id, message.name);
      case "message":
        return this.handle({ type: "message", id: message.from, bytes: new Uint8Array(message.bytes) });
      case "start":
        return this.start(message.settings);
      case "stop":
        return this.handle({ type: "stop" });
      case "generate":
        return this.#generate(message);
      case "stopGenerating":
        this.#generating += 1;
        return undefined;
      case "checkpoint":
        return this.#save(message.format);
      case "kit":
        return this.#kit();
      case "load":
        return this.#load(new Uint8Array(message.bytes), message.name);
      default:
        throw new ConfigError(`a message of type ${message.type} is not known; reload the page.`);
    }
  }

  tick() {
    this.handle({ type: "tick", nowMs: this.parts.nowMs() });
    this.#state();
  }

  /**
   * Messages go to the page all at once and with the last word that fits them: it may have to say it without us.
   * @param {SessionEvent} event
   */
  handle(event) {
    const actions = this.session.handle(event);
    for (const action of actions) if (action.type !== "send") this.#carryOut(action);
    const messages = actions.flatMap((action) =>
      action.type === "send" ? [{ to: action.to, bytes: action.bytes.slice().buffer }] : [],
    );
    if (messages.length === 0) return;
    const transfer = messages.map(({ bytes }) => /** @type {ArrayBuffer} */ (bytes));
    this.parts.post({ type: "send", messages, farewell: this.session.farewell() }, transfer);
  }

  /** @param {{id: string, name: string, state: "up" | "down" | "trouble"}} link */
  #link({ id, name, state }) {
    this.account.link(id, name, state);
    if (state !== "trouble") this.handle({ type: state === "up" ? "link_up" : "link_down", id });
    this.#state();
  }

  /** @param {Action} action */
  #carryOut(action) {
    const { parts, host } = this;
    switch (action.type) {
      case "compute":
        this.#computing = action.job;
        return this.#work(async () => {
          if (this.#computing !== action.job) return null; // overtaken
          const startMs = parts.nowMs();
          const done = await host.compute(action);
          return { type: "computed", job: action.job, ...done, tookMs: ceil(parts.nowMs() - startMs) };
        });
      case "apply":
        this.#computing = 0;
        return this.#work(async () => ({ type: "applied", job: action.job, hash: await host.apply(action) }));
      case "export":
        return this.#work(async () => ({ type: "exported", job: action.job, bytes: await host.export() }));
      case "import": {
        this.#computing = 0;
        const settings = /** @type {RunSettings} */ (/** @type {unknown} */ (action.config));
        return this.#work(async () => ({
          type: "imported",
          job: action.job,
          ...(await host.import(settings, action.tokens, action.bytes)),
        }));
      }
      case "report":
        this.#log(this.account.report(action.report, parts.nowMs(), this.session.facts()));
        return this.#state(action.report.kind !== "step");
      case "halted":
        this.#log({ kind: "halted", step: null, text: `Stopped on every device: ${action.reason}` });
        return this.#state(true);
      case "ended":
        this.#log({ kind: "ended", step: null, text: `The run is over: ${action.reason}` });
        return this.#state(true);
      default:
        throw new ConfigError(`action ${/** @type {any} */ (action).type} is not known.`);
    }
  }

  /** @param {() => Promise<SessionEvent | null>} work */
  #work(work) {
    const { pause } = this.parts;
    const done = this.host.turn(async () => {
      const event = await work();
      await pause();
      return event;
    });
    done.then(
      (event) => event && this.handle(event),
      (error) => this.handle({ type: "fault", reason: messageOf(error) }),
    );
  }

  /**
   * Start a run for the whole group; with `goOn` from the model that is here.
   * @param {RunSettings & {source: string, goOn?: boolean}} settings
   */
  async start(settings) {
    const { host } = this;
    this.#checkFree();
    const { source: wanted, goOn = false, steps, gradients, batch, rate, seed } = settings;
    const { tokens, source } = await this.#text(wanted, seed, goOn);
    const state = goOn ? await host.turn(() => host.export()) : null;
    const config = {
      ...shapeOf({ ...(goOn && host.decoder ? host.decoder.config : settings), vocabulary: VOCABULARY }),
      ...{ steps: steps + (goOn ? (host.decoder?.step ?? 0) : 0), gradients, batch, rate, seed, source },
    };
    checkConfig(config);
    checkSettings({ ...config, contract: CONTRACT_VERSION });
    this.#checkFree();
    if (!sampleCount(tokens, config.sequence)) {
      throw new ConfigError(
        `a text of ${tokens.length} tokens is too short for a sequence of ${config.sequence}.`,
      );
    }
    this.#begin(config, tokens, state);
  }

  #checkFree() {
    if (this.session.inRun() && this.session.phase !== "quorum") {
      throw new ConfigError("a run is going on in this group: stop it, or wait for its end.");
    }
  }

  /**
   * The text to train on; where none can be had, that of the last run serves for going on with it.
   * @param {string} wanted
   * @param {number} seed
   * @param {boolean} goOn
   */
  async #text(wanted, seed, goOn) {
    const { tokens: last, config } = this.session;
    try {
      const { text, source, reason } = await this.parts.text(wanted, seed);
      const tokens = this.parts.tokenizer.encode(text);
      this.#log({ kind: "text", step: null, text: `Text: ${source}, ${tokens.length} tokens. ${reason}` });
      return { tokens, source };
    } catch (error) {
      if (!goOn || !last?.length) throw error;
      const why = messageOf(error);
      this.#log({ kind: "text", step: null, text: `The text of the last run once more: ${why}` });
      return { tokens: last, source: String(config?.source ?? "") };
    }
  }

  /**
   * @param {import("../sync/types.js").RunConfig} config
   * @param {Uint16Array} tokens
   * @param {Uint8Array | null} state
   */
  #begin(config, tokens, state) {
    const run = Array.from({ length: 4 }, () => this.parts.random().toString(16).padStart(8, "0")).join("");
    const whole = { ...config, contract: CONTRACT_VERSION };
    this.handle({ type: "start", run, config: whole, tokens, state });
    this.#state(true);
  }

  /** @param {{prompt: string, tokens: number, temperature: number, seed: number}} wanted */
  async #generate({ prompt, ...settings }) {
    const { tokenizer, post } = this.parts;
    const config = this.#config();
    this.#generating += 1;
    const turn = this.#generating;
    /** @type {number[]} */
    const ids = [];
    const model = { config, logits: (/** @type {number[]} */ context) => this.host.logits(context) };
    for await (const id of generate(model, tokenizer.encode(prompt || EMPTY_PROMPT), settings)) {
      if (turn !== this.#generating) break;
      ids.push(id);
      post({ type: "generated", text: tokenizer.decode(ids), ids, done: false });
    }
    post({ type: "generated", text: tokenizer.decode(ids), ids, done: true });
  }

  /** @param {"safetensors" | "pt"} format */
  async #save(format) {
    const step = this.#step();
    const checkpoint = await this.host.turn(() => this.host.checkpoint());
    const bytes = format === "pt" ? writePt(checkpoint) : writeSafetensors(checkpoint);
    this.#file(`daisychain-step-${step}.${format}`, bytes, "application/octet-stream");
  }

  async #kit() {
    const step = this.#step();
    const { optimizer, ...checkpoint } = await this.host.turn(() => this.host.checkpoint());
    const html = buildKit({
      weights: writeSafetensors(checkpoint),
      tokenizer: this.parts.tokenizerFile.bytes,
      sources: await this.parts.kitSources(),
    });
    this.#file(`daisychain-step-${step}.html`, new TextEncoder().encode(html), "text/html");
  }

  /** @param {string} name @param {Uint8Array<ArrayBuffer>} bytes @param {string} mime */
  #file(name, bytes, mime) {
    this.parts.post({ type: "file", name, bytes: bytes.buffer, mime }, [bytes.buffer]);
  }

  /**
   * Check a checkpoint, then give it to the whole group: a run that begins at its step and has no more to do.
   * @param {Uint8Array} bytes
   * @param {string} name
   */
  #load(bytes, name) {
    this.#checkFree();
    const checkpoint = readCheckpoint(bytes, name, this.host.known());
    const { config, step, optimizer } = checkpoint;
    const [batch, rate] = [BATCH_SAMPLES[2], RATE_THOUSANDTHS[2]];
    const settings = {
      ...config,
      steps: step,
      gradients: /** @type {const} */ ("float32"),
      batch,
      rate,
      seed: 1,
    };
    this.#begin(settings, new Uint16Array(), writeSafetensors(checkpoint));
    const { width, layers } = config;
    const how = optimizer ? "with" : "without";
    const description = `${name}: ${layers} layers of width ${width} after ${step} steps, ${how} its optimiser`;
    this.parts.post({ type: "loaded", description });
  }

  #config() {
    const { decoder } = this.host;
    if (!decoder) throw new ConfigError("there is no model on this device yet: train one, or load a file.");
    return decoder.config;
  }

  #step() {
    this.#config();
    return this.host.decoder?.step;
  }

  /** @param {{kind: string, step: number | null, text: string} | null} line */
  #log(line) {
    if (line) this.parts.post({ type: "log", ...line });
  }

  /** Tell the page how things stand; unless `now`, not too often. @param {boolean} [now] */
  #state(now = false) {
    const nowMs = this.parts.nowMs();
    if (!now && nowMs - this.#statedMs < STATE_EVERY_MS) return;
    this.#statedMs = nowMs;
    const state = this.account.state(this.session.facts(), this.host.decoder);
    this.parts.post({ type: "state", state });
  }
}
