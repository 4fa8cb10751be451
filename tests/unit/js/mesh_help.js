/** A clock, a line and peer connections for tests of the mesh, with nothing real behind them. */

/** A clock that moves when it is told to; chance is always one half. */
export class FakeClock {
  #nowMs = 0;
  #next = 1;
  /** @type {Map<number, {atMs: number, action: () => void}>} */
  #timers = new Map();

  now = () => this.#nowMs;
  random = () => 0.5;

  /** @param {() => void} action @param {number} waitMs */
  setTimeout = (action, waitMs) => {
    this.#timers.set(this.#next, { atMs: this.#nowMs + waitMs, action });
    return this.#next++;
  };

  /** @param {number} timer */
  clearTimeout = (timer) => {
    this.#timers.delete(timer);
  };

  get pending() {
    return this.#timers.size;
  }

  /** Lets time pass, timer by timer, with what follows from each. @param {number} ms */
  async pass(ms) {
    const endMs = this.#nowMs + ms;
    for (;;) {
      await settle();
      const due = [...this.#timers].filter(([, { atMs }]) => atMs <= endMs);
      if (!due.length) break;
      const [timer, { atMs, action }] = due.reduce((a, b) => (b[1].atMs < a[1].atMs ? b : a));
      this.#nowMs = Math.max(this.#nowMs, atMs);
      this.#timers.delete(timer);
      action();
    }
    this.#nowMs = endMs;
  }
}

/** Until nothing is left to do but to wait. */
export async function settle() {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
}

/** A data channel whose buffer empties only by `drain`, unless it leads somewhere. */
export class FakeChannel {
  label = "bulk";
  readyState = "open";
  binaryType = "";
  bufferedAmount = 0;
  bufferedAmountLowThreshold = 0;
  mostBuffered = 0;
  /** @type {Uint8Array<ArrayBuffer>[]} */
  sent = [];
  /** @type {FakeChannel | null} */
  other = null;
  /** @type {any} */ onopen = null;
  /** @type {any} */ onclose = null;
  /** @type {any} */ onmessage = null;
  /** @type {any} */ onbufferedamountlow = null;

  /** @param {Uint8Array<ArrayBuffer>} frame */
  send(frame) {
    if (this.other) {
      const { other } = this;
      queueMicrotask(() => other.onmessage?.({ data: frame.slice().buffer }));
      return;
    }
    this.sent.push(frame);
    this.bufferedAmount += frame.length;
    this.mostBuffered = Math.max(this.mostBuffered, this.bufferedAmount);
  }

  /** @param {number} bytes @param {boolean} [says] whether the low event comes */
  drain(bytes, says = true) {
    const before = this.bufferedAmount;
    this.bufferedAmount = Math.max(0, before - bytes);
    const threshold = this.bufferedAmountLowThreshold;
    if (says && before > threshold && this.bufferedAmount <= threshold) this.onbufferedamountlow?.();
  }

  close() {
    this.readyState = "closed";
  }
}

/**
 * Stands for an RTCPeerConnection: descriptions name connections, and two that name each other connect when
 * the network lets them.
 */
export class FakeConnection {
  static #count = 0;
  signalingState = "stable";
  connectionState = "new";
  localDescription = /** @type {any} */ (null);
  sctp = { maxMessageSize: 262_144 };
  /** @type {FakeChannel[]} */
  channels = [];
  /** @type {FakeConnection | null} */
  other = null;
  restarts = 0;
  rollbacks = 0;
  /** @type {any} */ onicecandidate = null;
  /** @type {any} */ onnegotiationneeded = null;
  /** @type {any} */ onconnectionstatechange = null;
  #name = `connection ${FakeConnection.#count++}`;
  #remote = "";

  /** @param {FakeNetwork} network */
  constructor(network) {
    this.network = network;
    network.connections.push(this);
  }

  /** @param {string} label @param {{id: number}} options */
  createDataChannel(label, { id }) {
    const channel = Object.assign(new FakeChannel(), { label, readyState: "connecting" });
    this.channels[id] = channel;
    return channel;
  }

  async setLocalDescription() {
    const type = this.signalingState === "have-remote-offer" ? "answer" : "offer";
    this.signalingState = type === "answer" ? "stable" : "have-local-offer";
    this.localDescription = { type, sdp: this.#name };
    this.onicecandidate?.({
      candidate: { candidate: "candidate:1", toJSON: () => ({ candidate: "candidate:1", sdpMid: "0" }) },
    });
    this.#meet();
  }

  /** @param {{type: string, sdp: string}} description */
  async setRemoteDescription({ type, sdp }) {
    if (this.#remote && this.#remote !== sdp) throw new Error("descriptions of two connections");
    if (type === "offer") {
      if (this.signalingState === "have-local-offer") this.rollbacks += 1;
      this.signalingState = "have-remote-offer";
    } else if (this.signalingState === "have-local-offer") this.signalingState = "stable";
    else throw new Error(`an answer in ${this.signalingState}`);
    this.#remote = sdp;
    this.#meet();
  }

  async addIceCandidate() {}

  async getStats() {
    return new Map([
      [
        "pair",
        { id: "pair", type: "candidate-pair", nominated: true, state: "succeeded", localCandidateId: "l" },
      ],
      ["l", { id: "l", type: "local-candidate", candidateType: "host" }],
    ]);
  }

  restartIce() {
    this.restarts += 1;
    this.onnegotiationneeded?.();
  }

  /** @param {string} state */
  become(state) {
    if (this.connectionState === state || this.connectionState === "closed") return;
    this.connectionState = state;
    this.onconnectionstatechange?.();
  }

  close() {
    this.connectionState = "closed";
    for (const channel of this.channels) channel.readyState = "closed";
    const { other } = this;
    this.other = null;
    if (!other || !this.network.tellsOfClosing) return;
    other.other = null;
    for (const channel of other.channels) queueMicrotask(() => channel.onclose?.());
  }

  #meet() {
    const other = this.network.connections.find((each) => each.#name === this.#remote);
    if (!other || other.#remote !== this.#name || !this.network.open) return;
    if (this.signalingState !== "stable" || other.signalingState !== "stable") return;
    queueMicrotask(() => this.#connect(other));
  }

  /** @param {FakeConnection} other */
  #connect(other) {
    if (this.connectionState === "closed" || other.connectionState === "closed") return;
    for (const [one, two] of [
      [this, other],
      [other, this],
    ]) {
      one.other = two;
      one.become("connected");
      for (const [id, channel] of one.channels.entries()) {
        channel.other = two.channels[id];
        if (channel.readyState === "open") continue;
        channel.readyState = "open";
        channel.onopen?.();
      }
    }
  }
}

/** What the fake connections share. */
export class FakeNetwork {
  /** @type {FakeConnection[]} */
  connections = [];
  open = true;
  tellsOfClosing = true;

  connect = () => /** @type {any} */ (new FakeConnection(this));

  get alive() {
    return this.connections.filter(({ connectionState }) => connectionState !== "closed");
  }
}

/** Stands for the room server and the signalling of every device in it. */
export class FakeHub {
  /** @type {Map<string, FakeSignalling>} */
  #members = new Map();
  lost = /** @type {(from: string, to: string) => boolean} */ (() => false);

  /** @param {string} id */
  signalling(id) {
    return new FakeSignalling(this, id);
  }

  /** @param {FakeSignalling} member */
  enter(member) {
    const members = [...this.#members.keys()].map((id) => ({ id, name: `device ${id}` }));
    for (const other of this.#members.values())
      other.say("joined", { id: member.id, name: `device ${member.id}` });
    this.#members.set(member.id, member);
    member.say("welcome", { id: member.id, members, ice: [] });
  }

  /** @param {FakeSignalling} member */
  leave(member) {
    this.#members.delete(member.id);
    for (const other of this.#members.values()) other.say("left", { id: member.id });
  }

  /** @param {string} from @param {string} to @param {unknown} data */
  pass(from, to, data) {
    if (this.lost(from, to)) return;
    const text = JSON.stringify(data);
    queueMicrotask(() => this.#members.get(to)?.say("signal", { from, data: JSON.parse(text) }));
  }
}

export class FakeSignalling {
  /** @type {Map<string, Set<(content: any) => void>>} */
  #listeners = new Map();

  /** @param {FakeHub} hub @param {string} id */
  constructor(hub, id) {
    this.hub = hub;
    this.id = id;
  }

  /** @param {string} type @param {(content: any) => void} listener */
  on(type, listener) {
    const listeners = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, listeners.add(listener));
    return () => listeners.delete(listener);
  }

  get listening() {
    return [...this.#listeners.values()].reduce((sum, listeners) => sum + listeners.size, 0);
  }

  /** @param {string} type @param {unknown} content */
  say(type, content) {
    for (const listener of this.#listeners.get(type) ?? []) listener(content);
  }

  /** @param {string} to @param {unknown} data */
  signal(to, data) {
    this.hub.pass(this.id, to, data);
    return true;
  }
}
