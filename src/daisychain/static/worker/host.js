/** The model of a run on this device: what the session asks of it, one thing after the other. */

import { writeSafetensors } from "../checkpoint/checkpoint.js";
import { readCheckpoint } from "../checkpoint/validate.js";
import { ConfigError } from "../errors.js";
import { BATCH_SAMPLES, CONTRACT_VERSION, MAX_CHECKPOINT_STEP, VOCABULARY } from "../limits.js";
import { Decoder } from "../model/decoder.js";
import { sampleCount, sampleWindows } from "../model/samples.js";
import { checkConfig, initialWeights } from "../model/weights.js";
import { sampleIds } from "../numerics/roster.js";
import { toHex } from "../numerics/sha256.js";
import { compress, decompress, payloadBytes } from "../sync/compress.js";

/** @typedef {import("../kernels/cpu.js").CpuBackend} Backend */
/** @typedef {import("../checkpoint/checkpoint.js").Checkpoint} Checkpoint */
/** @typedef {import("../sync/types.js").Part} Part */
/**
 * What a run's config says beside what the session needs of it; `rate` in thousandths.
 * @typedef {import("../model/weights.js").DecoderConfig & {batch: number, rate: number, seed: number,
 *   steps: number, contract?: number, gradients: "float32" | "int8"}} RunSettings
 */

export class Host {
  /** @type {Decoder | null} */
  decoder = null;
  /** @type {RunSettings | null} */
  settings = null;
  position = 0;
  /** @type {Uint16Array} */
  #text = new Uint16Array();
  /** What error feedback carries over, and what it would become, by epoch and step. @type {Float32Array} */
  #residual = new Float32Array();
  /** @type {{key: string, residual: Float32Array} | null} */
  #pending = null;
  #last = Promise.resolve();

  /**
   * @param {Backend} backend
   * @param {string} tokenizer SHA-256 of tokenizer.json, in hex
   * @param {() => Promise<void>} pause lets messages in, in the middle of a long step
   */
  constructor(backend, tokenizer, pause) {
    this.backend = backend;
    this.tokenizer = tokenizer;
    this.pause = pause;
  }

  /**
   * Take turns: what is asked of the model runs when all asked before is done.
   * @template T
   * @param {() => Promise<T>} work
   * @returns {Promise<T>}
   */
  turn(work) {
    const done = this.#last.then(work);
    this.#last = done.then(
      () => {},
      () => {},
    );
    return done;
  }

  /**
   * Become the state in `bytes` (a safetensors file with the optimiser), or the seeded one of step 0.
   * @param {RunSettings} settings
   * @param {Uint16Array} text
   * @param {Uint8Array | null} bytes
   */
  async import(settings, text, bytes) {
    checkConfig(settings);
    checkSettings(settings);
    const checkpoint = bytes && readCheckpoint(bytes, "of this run", this.known());
    if (checkpoint && !sameShape(checkpoint.config, settings)) {
      throw new ConfigError("the state that came in belongs to a model of another shape than the run's.");
    }
    const decoder = this.#decoder(settings);
    const optimizer = checkpoint?.optimizer;
    decoder.load({
      step: checkpoint?.step ?? 0,
      weights: checkpoint?.weights ?? initialWeights(settings, settings.seed),
      ...optimizer,
    });
    this.settings = settings;
    this.position = optimizer?.position ?? 0;
    this.#text = text;
    this.#residual = new Float32Array(settings.gradients === "int8" ? decoder.length : 0);
    this.#pending = null;
    return {
      step: decoder.step,
      hash: await this.#hash(decoder),
      payloadBytes: payloadBytes(decoder.length, settings.gradients),
    };
  }

  /** @param {RunSettings} settings */
  #decoder(settings) {
    const { decoder } = this;
    if (decoder && sameShape(decoder.config, settings) && decoder.sizes.samples === settings.batch)
      return decoder;
    decoder?.free();
    this.decoder = null; // so that a refusal for lack of memory leaves nothing half made
    this.decoder = new Decoder(this.backend, shapeOf(settings), settings.batch);
    return this.decoder;
  }

  /**
   * The gradient of this device's share of a step.
   * @param {{epoch: number, step: number, place: number}} of
   */
  async compute({ epoch, step, place }) {
    const { decoder, settings } = this.#ready();
    const { batch, sequence, seed, gradients } = settings;
    const first = this.position + place * batch;
    const positions = Array.from({ length: batch }, (_, i) => first + i);
    const samples = sampleIds(positions, sampleCount(this.#text, sequence), seed);
    const { ids, targets } = sampleWindows(this.#text, samples, sequence);
    const { lossSum, count } = await decoder.gradient(ids, targets, this.pause);
    const sent = compress(await decoder.readGradient(), gradients, this.#residual);
    this.#pending = { key: `${epoch}/${step}`, residual: sent.residual };
    return { payload: sent.payload, count, loss: lossSum, probe: toHex(this.backend.probe()) };
  }

  /**
   * One step by a whole roster's gradients; the new state's hash.
   * @param {{origin: number, parts: Part[]}} set
   */
  async apply({ origin, parts }) {
    const { decoder, settings } = this.#ready();
    const key = `${origin}/${decoder.step}`;
    const gradients = parts.map(({ bytes }) => decompress(bytes, settings.gradients, decoder.length));
    const count = parts.reduce((total, part) => total + part.count, 0);
    await decoder.update(gradients, count, settings.rate);
    this.position += parts.length * settings.batch;
    if (this.#pending?.key === key) this.#residual = this.#pending.residual;
    this.#pending = null;
    return this.#hash(decoder);
  }

  /** The whole state as a safetensors file, optimiser included. */
  async export() {
    return writeSafetensors(await this.checkpoint());
  }

  /** @returns {Promise<Checkpoint>} */
  async checkpoint() {
    const { decoder } = this.#ready();
    const { step, weights, ...optimizer } = await decoder.state();
    return {
      config: decoder.config,
      step,
      tokenizer: this.tokenizer,
      weights,
      optimizer: { ...optimizer, position: this.position },
    };
  }

  /** The next token's logits, in turn with training. @param {ArrayLike<number>} ids */
  logits(ids) {
    return this.turn(() => this.#ready().decoder.logits(ids));
  }

  /** What a checkpoint must have been made with. */
  known() {
    return { digest: this.tokenizer, vocabulary: VOCABULARY };
  }

  /** @param {Decoder} decoder */
  async #hash(decoder) {
    return toHex(await decoder.hash());
  }

  #ready() {
    const { decoder, settings } = this;
    if (!decoder || !settings)
      throw new ConfigError("there is no model on this device yet; start or join a run.");
    return { decoder, settings };
  }
}

/** @param {import("../model/weights.js").DecoderConfig} config */
export function shapeOf({ vocabulary, width, layers, heads, sequence }) {
  return { vocabulary, width, layers, heads, sequence };
}

/**
 * @param {import("../model/weights.js").DecoderConfig} a
 * @param {import("../model/weights.js").DecoderConfig} b
 */
export function sameShape(a, b) {
  return JSON.stringify(shapeOf(a)) === JSON.stringify(shapeOf(b));
}

/** What another device sent as a run's settings is checked like a stranger's. @param {RunSettings} settings */
export function checkSettings({ batch, rate, seed, steps, gradients, contract }) {
  if (!(Number.isInteger(steps) && steps >= 0 && steps <= MAX_CHECKPOINT_STEP)) {
    throw new ConfigError(`${steps} steps must be a whole number from 0 to ${MAX_CHECKPOINT_STEP}.`);
  }
  if (gradients !== "float32" && gradients !== "int8") {
    throw new ConfigError(`gradients ${gradients} are not known; use float32 or int8.`);
  }
  if (contract !== CONTRACT_VERSION) {
    throw new ConfigError(
      `the run follows contract ${contract}, this page ${CONTRACT_VERSION}; reload the page on every device.`,
    );
  }
  const [, most] = BATCH_SAMPLES;
  if (!(Number.isInteger(batch) && batch >= 1 && batch <= most)) {
    throw new ConfigError(`a batch of ${batch} samples must be a whole number from 1 to ${most}.`);
  }
  if (!(Number.isInteger(rate) && rate >= 1 && rate <= 1000)) {
    throw new ConfigError(`a rate of ${rate} thousandths must be a whole number from 1 to 1000.`);
  }
  if (!(Number.isInteger(seed) && seed >= 0 && seed < 2 ** 32)) {
    throw new ConfigError(`seed ${seed} must be a whole number below 2^32.`);
  }
}
