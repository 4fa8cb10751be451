/** One RTCPeerConnection to one device: negotiation, two channels, repair, and a reason when it cannot be made. */

import {
  CONTROL_MESSAGE_BYTES,
  FRAME_BYTES,
  ICE_PATIENCE_MS,
  ICE_RESTARTS,
  LINK_DEADLINE_MS,
  SEND_QUEUE_BYTES,
} from "../limits.js";
import { min } from "../numerics/numbers.js";
import { Reassembly } from "./frames.js";
import { Lane } from "./lane.js";
import { Meter } from "./meter.js";

/** @typedef {import("./clock.js").Clock} Clock */
/** @typedef {import("./signals.js").DescriptionSignal | import("./signals.js").CandidateSignal} LinkSignal */
/** @typedef {"connecting" | "up" | "trouble" | "closed"} LinkState */

/**
 * @typedef {object} LinkOptions
 * @property {number} number of this link between the two devices
 * @property {boolean} polite gives way when both offer at once; the other side makes the first offer
 * @property {RTCPeerConnection} connection fresh, and closed with the link
 * @property {Clock} clock
 * @property {(signal: LinkSignal) => void} signal sends to the other device's link
 * @property {(message: ArrayBuffer) => void} onMessage
 * @property {(state: "up" | "trouble", reason: string) => void} onState
 * @property {(reason: string) => void} onEnd the link has closed by itself, and why
 */

const CHANNELS = ["control", "bulk"];
const NO_PATH =
  "no path found: both devices may be behind client isolation or a VPN; " +
  "give a TURN server with --turn or open the room link on one Wi-Fi";

export class Link {
  #options;
  #connection;
  /** @type {RTCDataChannel[]} */
  #channels;
  /** @type {Lane[]} */
  #lanes;
  #reassembly = new Reassembly();
  #nextNumber = 0;
  /** @type {LinkState} */
  #state = "connecting";
  /** Negotiation, one thing after the other. */
  #work = Promise.resolve();
  #ignoresOffer = false;
  #answered = false;
  #restarts = 0;
  /** @type {any} */
  #timer;
  /** @type {string | null} */
  #path = null;
  sent;
  received;

  /** @param {LinkOptions} options */
  constructor(options) {
    const { connection, clock } = options;
    this.#options = options;
    this.#connection = connection;
    this.sent = new Meter(clock);
    this.received = new Meter(clock);
    connection.onicecandidate = ({ candidate }) => {
      if (candidate?.candidate) this.#signal({ candidate: candidate.toJSON() });
    };
    connection.onconnectionstatechange = () => this.#connectionChanged();
    this.#channels = CHANNELS.map((label, id) => this.#openChannel(label, id));
    this.#lanes = this.#channels.map((channel) => this.#makeLane(channel));
    // The polite side's first negotiation is its answer.
    if (!options.polite) this.#do(() => this.#offer());
    connection.onnegotiationneeded = () => {
      if (this.#answered) this.#do(() => this.#offer());
    };
    this.#timer = clock.setTimeout(() => this.#end(this.#reasonUnmade()), LINK_DEADLINE_MS);
  }

  get number() {
    return this.#options.number;
  }

  get state() {
    return this.#state;
  }

  /** Type of the local ICE candidate in use: "host", "srflx", "prflx" or "relay"; null until known. */
  get path() {
    return this.#path;
  }

  /**
   * @param {Uint8Array} message not to be changed afterwards
   * @returns {boolean} false when the link is not up, or too much waits for it already
   */
  send(message) {
    if (this.#state !== "up" && this.#state !== "trouble") return false;
    const queuedBytes = this.#lanes[0].queuedBytes + this.#lanes[1].queuedBytes;
    if (queuedBytes + message.length > SEND_QUEUE_BYTES) return false;
    // Small messages need not wait behind a long transfer: the sync protocol does not rely on their order.
    this.#lanes[message.length <= CONTROL_MESSAGE_BYTES ? 0 : 1].send(message);
    return true;
  }

  /** @param {LinkSignal} signal for this link's number */
  receive(signal) {
    this.#do(() =>
      "description" in signal ? this.#describe(signal.description) : this.#addCandidate(signal.candidate),
    );
  }

  /** Frees everything; says nothing. */
  close() {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#options.clock.clearTimeout(this.#timer);
    for (const lane of this.#lanes) lane.close();
    for (const channel of this.#channels) {
      channel.onopen = channel.onclose = channel.onmessage = null;
      channel.close();
    }
    const connection = this.#connection;
    connection.onicecandidate = connection.onnegotiationneeded = connection.onconnectionstatechange = null;
    connection.close();
  }

  /** @param {string} reason */
  #end(reason) {
    if (this.#state === "closed") return;
    this.close();
    this.#options.onEnd(reason);
  }

  /** @param {{description: any} | {candidate: any}} content */
  #signal(content) {
    this.#options.signal({ link: this.number, ...content });
  }

  /** @param {() => Promise<void>} step of the negotiation; a failure ends the link */
  #do(step) {
    this.#work = this.#work.then(async () => {
      try {
        if (this.#state !== "closed") await step();
      } catch (error) {
        this.#end(`the negotiation failed: ${error}`);
      }
    });
  }

  async #offer() {
    if (this.#connection.signalingState !== "stable") return; // a remote offer came first; it serves as well
    await this.#connection.setLocalDescription();
    this.#sendDescription();
  }

  /** @param {{type: "offer" | "answer", sdp: string}} description */
  async #describe(description) {
    const collides = description.type === "offer" && this.#connection.signalingState !== "stable";
    this.#ignoresOffer = collides && !this.#options.polite;
    if (this.#ignoresOffer) return;
    if (description.type === "answer" && this.#connection.signalingState !== "have-local-offer") return;
    await this.#connection.setRemoteDescription(description);
    this.#answered = true;
    if (description.type !== "offer") return;
    await this.#connection.setLocalDescription();
    this.#sendDescription();
  }

  #sendDescription() {
    const description = this.#connection.localDescription;
    if (!description || this.#state === "closed") return;
    this.#signal({ description: { type: description.type, sdp: description.sdp } });
  }

  /** @param {RTCIceCandidateInit} candidate */
  async #addCandidate(candidate) {
    if (this.#ignoresOffer) return;
    // One that cannot be used costs one path; if none is left, the deadline says so.
    await this.#connection.addIceCandidate(candidate).catch(() => undefined);
  }

  /** @param {string} label @param {number} id */
  #openChannel(label, id) {
    const channel = this.#connection.createDataChannel(label, { negotiated: true, id, ordered: true });
    channel.binaryType = "arraybuffer";
    channel.onopen = () => this.#channelOpened();
    channel.onclose = () => this.#end(`the other device closed the ${label} channel`);
    channel.onmessage = ({ data }) => this.#frameCame(data);
    return channel;
  }

  /** @param {RTCDataChannel} channel */
  #makeLane(channel) {
    return new Lane({
      channel,
      clock: this.#options.clock,
      frameBytes: () => min(FRAME_BYTES, this.#connection.sctp?.maxMessageSize || FRAME_BYTES),
      nextNumber: () => {
        this.#nextNumber = (this.#nextNumber + 1) >>> 0;
        return this.#nextNumber;
      },
      onSent: (bytes) => this.sent.add(bytes),
      onStuck: (reason) => this.#become(reason ? "trouble" : "up", reason ?? ""),
      onDead: (reason) => this.#end(reason),
    });
  }

  #channelOpened() {
    if (this.#state !== "connecting" || this.#channels.some(({ readyState }) => readyState !== "open"))
      return;
    this.#become("up", "");
    this.#readPath();
  }

  /** @param {unknown} data */
  #frameCame(data) {
    if (this.#state === "closed") return;
    let message;
    try {
      message = this.#reassembly.accept(/** @type {ArrayBuffer} */ (data));
    } catch (error) {
      this.#end(`the other device sent what is no frame of ours: ${error}`);
      return;
    }
    this.received.add(/** @type {ArrayBuffer} */ (data).byteLength);
    if (message) this.#options.onMessage(message);
  }

  /** @param {"up" | "trouble"} state @param {string} reason */
  #become(state, reason) {
    if (this.#state === "closed") return;
    if (state === "up") this.#options.clock.clearTimeout(this.#timer);
    this.#state = state;
    this.#options.onState(state, reason);
  }

  #connectionChanged() {
    const { connectionState } = this.#connection;
    if (this.#state === "connecting") {
      if (connectionState === "failed") this.#end(this.#reasonUnmade());
      return;
    }
    if (connectionState === "connected" && this.#state === "trouble") {
      this.#restarts = 0;
      this.#become("up", "");
      this.#readPath();
    } else if (connectionState === "disconnected") {
      this.#become("trouble", "the network to the other device is interrupted");
      this.#restartIn(ICE_PATIENCE_MS);
    } else if (connectionState === "failed") {
      this.#become("trouble", "the path to the other device is gone; looking for another");
      this.#restartIn(0);
    }
  }

  /** @param {number} waitMs */
  #restartIn(waitMs) {
    const { clock } = this.#options;
    clock.clearTimeout(this.#timer);
    if (waitMs > 0) {
      this.#timer = clock.setTimeout(() => this.#restartIn(0), waitMs);
      return;
    }
    this.#restarts += 1;
    if (this.#restarts > ICE_RESTARTS) {
      this.#end(`the path to the other device is gone, and ${ICE_RESTARTS} restarts found no other`);
      return;
    }
    this.#connection.restartIce();
    this.#timer = clock.setTimeout(() => this.#restartIn(0), LINK_DEADLINE_MS / ICE_RESTARTS);
  }

  #reasonUnmade() {
    if (!this.#answered) return "the other device does not answer; reload the page there if this stays";
    if (this.#connection.connectionState === "connected") return "the data channels did not open in time";
    return NO_PATH;
  }

  async #readPath() {
    try {
      const reports = [...(await this.#connection.getStats()).values()];
      const pair = reports.find(({ type, nominated, state }) => {
        return type === "candidate-pair" && nominated && state === "succeeded";
      });
      this.#path = reports.find(({ id }) => id === pair?.localCandidateId)?.candidateType ?? null;
    } catch {
      this.#path = null; // shown to a person only; the link works without
    }
  }
}
