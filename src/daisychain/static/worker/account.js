/** What the page is told of a run: the session's facts with names, speeds and losses. */

import { STEP_SMOOTHING } from "../limits.js";
import { parameterCount } from "../model/weights.js";
import { max } from "../numerics/numbers.js";

/** @typedef {import("../sync/types.js").Facts} Facts */
/** @typedef {import("../sync/types.js").Report} Report */
/** @typedef {"up" | "trouble" | "down"} Link */

export class Account {
  /** @type {Map<string, {name: string, link: Link}>} */
  #others = new Map();
  /** New since the page was last told. @type {[number, number][]} */
  #losses = [];
  /** @type {number | null} */
  #loss = null;
  #stepMs = 0;
  #lastStepMs = 0;
  /** Tokens of the last step, by device. @type {Map<string, number>} */
  #tokens = new Map();
  /** Tokens a second while it computes, by device. @type {Map<string, number>} */
  #speeds = new Map();
  /** @type {string | null} */
  #run = null;

  /** @param {string} id @param {string} name */
  constructor(id, name) {
    this.id = id;
    this.name = name;
  }

  /** @param {string} id @param {string} name @param {Link} state */
  link(id, name, state) {
    this.#others.set(id, { name: name || this.#name(id), link: state });
  }

  /** @param {string} id @param {string} name */
  rename(id, name) {
    const other = this.#others.get(id);
    if (id === this.id) this.name = name;
    else if (other) other.name = name;
  }

  /**
   * Take in a report; a line for the log, or null.
   * @param {Report} report
   * @param {number} nowMs
   * @param {Facts} facts
   */
  report(report, nowMs, facts) {
    this.#ofRun(facts.run);
    const line = (/** @type {string} */ text, /** @type {number | null} */ step = null) => ({
      kind: report.kind,
      step,
      text,
    });
    switch (report.kind) {
      case "step":
        return { ...line(this.#step(report, nowMs), report.step), hash: report.hash };
      case "roster":
        this.#lastStepMs = 0;
        return line(`Together: ${this.#names(report.roster)}. ${this.#name(report.leader)} leads.`);
      case "waiting":
        return line(report.reason);
      case "going":
        return line("Going on.");
      case "joined":
        this.#lastStepMs = 0;
        return line(this.#joined(report, facts), report.step);
      case "repair":
        return line(
          `Repaired: the gradient of ${this.#names(report.missing)} came by another way.`,
          report.step,
        );
      case "refused":
        return line(`Refused a message of ${this.#name(report.id)}: ${report.reason}`);
      default:
        return null;
    }
  }

  /** What was known of another run is forgotten. @param {string | null} run */
  #ofRun(run) {
    if (run === this.#run) return;
    this.#run = run;
    this.#losses = [];
    this.#loss = null;
    this.#stepMs = this.#lastStepMs = 0;
    this.#tokens.clear();
    this.#speeds.clear();
  }

  /** @param {Extract<Report, {kind: "joined"}>} report @param {Facts} facts */
  #joined({ step, hash }, { config, leader }) {
    const state = `state ${hash.slice(0, 8)}`;
    if (step === 0) return `The weights are seeded, ${state}.`;
    const given = step >= (config?.steps ?? 0);
    const from = leader && leader !== this.id ? this.#name(leader) : "this device";
    return given
      ? `The group has the model of ${from}: ${step} steps, ${state}.`
      : `Took over the model at step ${step}, ${state}.`;
  }

  /** @param {Extract<Report, {kind: "step"}>} report @param {number} nowMs */
  #step({ step, loss, hash, contributions }, nowMs) {
    if (this.#lastStepMs) {
      const took = nowMs - this.#lastStepMs;
      this.#stepMs = this.#stepMs ? this.#stepMs + STEP_SMOOTHING * (took - this.#stepMs) : took;
    }
    this.#lastStepMs = nowMs;
    this.#loss = loss;
    this.#losses.push([step, loss]);
    this.#tokens = new Map(contributions.map(({ id, count }) => [id, count]));
    for (const { id, count, tookMs } of contributions) {
      const speed = (1000 * count) / max(tookMs, 1);
      const before = this.#speeds.get(id) ?? speed;
      this.#speeds.set(id, before + STEP_SMOOTHING * (speed - before));
    }
    const shares = contributions.map(
      ({ id, count, loss: sum }) => `${this.#name(id)} ${count} tokens, loss ${(sum / count).toFixed(3)}`,
    );
    return `loss ${loss.toFixed(4)}, state ${hash.slice(0, 8)}: ${shares.join("; ")}`;
  }

  /**
   * @param {Facts} facts
   * @param {import("../model/decoder.js").Decoder | null} decoder
   */
  state({ run, phase, reason, config, step, hash, leader, devices }, decoder) {
    this.#ofRun(run);
    const losses = this.#losses;
    this.#losses = [];
    return {
      id: run ?? "",
      phase: phase === "left" || phase === "quorum" ? "stopped" : phase,
      reason,
      settings: config,
      step,
      steps: config?.steps ?? 0,
      loss: this.#loss,
      losses,
      tokensPerS: this.#perS([...this.#tokens.values()].reduce((a, b) => a + b, 0)),
      stepMs: this.#stepMs,
      hash: hash ?? "",
      leader,
      source: config?.source ?? "",
      parameters: decoder ? parameterCount(decoder.config) : 0,
      devices: devices.map((device) => this.#device(device, phase !== "halted")),
      model: decoder !== null,
    };
  }

  /**
   * Who took part in the last step had the same state before it: every device compares that before it goes on.
   * @param {Facts["devices"][number]} device
   * @param {boolean} sound the run was not stopped for a fault
   */
  #device({ id, place, linked, backend, step, hash, equal }, sound) {
    const other = this.#others.get(id);
    const link = linked ? (other?.link ?? "up") : "down";
    return {
      ...{ id, name: this.#name(id), backend, place },
      ...{ step: step ?? 0, hash: hash ?? "" },
      equal: equal ?? (sound && this.#tokens.has(id) ? true : null),
      tokensPerS: this.#tokens.has(id) ? (this.#speeds.get(id) ?? 0) : 0,
      link: id === this.id ? "self" : link,
    };
  }

  /** @param {number} tokens of a step */
  #perS(tokens) {
    return this.#stepMs ? (1000 * tokens) / this.#stepMs : 0;
  }

  /** @param {string[]} ids */
  #names(ids) {
    return ids.map((id) => this.#name(id)).join(", ");
  }

  /** @param {string} id */
  #name(id) {
    return id === this.id ? this.name : this.#others.get(id)?.name || id.slice(0, 6);
  }
}
