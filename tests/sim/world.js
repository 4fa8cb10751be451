/** A seeded world: virtual time, chance, and links that delay, reorder, lose and break. */

/** @param {number} seed */
export function chanceOf(seed) {
  let state = seed >>> 0;
  /** A number from 0 up to 1. */
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), 1 | state);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    next,
    /** @param {number} least @param {number} most */
    between: (least, most) => least + next() * (most - least),
    /** @param {number} count */
    below: (count) => Math.floor(next() * count),
    /** @param {number} share */
    happens: (share) => next() < share,
    /** @template T @param {T[]} list @returns {T} */
    pick: (list) => list[Math.floor(next() * list.length)],
  };
}

/** Things to do at their time, those of one time in order of arrival. */
export class Agenda {
  nowMs = 0;
  #order = 0;
  /** A binary heap. @type {{atMs: number, order: number, act: () => void}[]} */
  #heap = [];

  /** @param {number} delayMs @param {() => void} act */
  after(delayMs, act) {
    const heap = this.#heap;
    const entry = { atMs: this.nowMs + delayMs, order: this.#order++, act };
    let i = heap.length;
    for (; i > 0; ) {
      const parent = (i - 1) >> 1;
      if (heap[parent].atMs <= entry.atMs) break;
      heap[i] = heap[parent];
      i = parent;
    }
    heap[i] = entry;
  }

  /** Do the next thing; false: nothing is left. */
  next() {
    const heap = this.#heap;
    const first = heap[0];
    if (!first) return false;
    const last = /** @type {typeof first} */ (heap.pop());
    if (heap.length > 0) this.#sink(last);
    this.nowMs = first.atMs;
    first.act();
    return true;
  }

  /** @param {{atMs: number, order: number, act: () => void}} entry */
  #sink(entry) {
    const heap = this.#heap;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && before(heap[child + 1], heap[child])) child += 1;
      if (!before(heap[child], entry)) break;
      heap[i] = heap[child];
      i = child;
    }
    heap[i] = entry;
  }
}

/** @param {{atMs: number, order: number}} a @param {{atMs: number, order: number}} b */
function before(a, b) {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}

/** One link. `deaf`: the end that hears nothing though the link is up. `era` counts its breaks.
 * @typedef {{up: boolean, era: number, deaf: string | null, deafMs: number, lastMs: Map<string, number>}} Link */

export class Network {
  /** @type {Map<string, Link>} */
  #links = new Map();

  /**
   * @param {Agenda} agenda
   * @param {ReturnType<typeof chanceOf>} chance
   * @param {(to: string, event: import("../../src/daisychain/static/sync/types.js").SessionEvent) => void} deliver
   * @param {{drop: number, repeat: number, delayMs: number, bulkMs: number}} weather
   */
  constructor(agenda, chance, deliver, weather) {
    this.agenda = agenda;
    this.chance = chance;
    this.deliver = deliver;
    this.weather = weather;
  }

  /** @param {string} a @param {string} b */
  link(a, b) {
    const key = a < b ? a + b : b + a;
    let link = this.#links.get(key);
    if (!link) {
      link = { up: false, era: 0, deaf: null, deafMs: 0, lastMs: new Map() };
      this.#links.set(key, link);
    }
    return link;
  }

  /** @param {string} a @param {string} b */
  connect(a, b) {
    const link = this.link(a, b);
    link.deaf = null;
    if (link.up) return;
    link.up = true;
    link.era += 1;
    for (const [at, other] of [
      [a, b],
      [b, a],
    ])
      this.#notice(link, at, other, "link_up", 300);
  }

  /** @param {string} a @param {string} b */
  cut(a, b) {
    const link = this.link(a, b);
    if (!link.up) return;
    link.up = false;
    link.era += 1;
    for (const [at, other] of [
      [a, b],
      [b, a],
    ])
      this.#notice(link, at, other, "link_down", 3000);
  }

  /** One end hears nothing any more. @param {string} a @param {string} b */
  deafen(a, b) {
    const link = this.link(a, b);
    link.deaf = a;
    link.deafMs = this.agenda.nowMs;
  }

  /** @param {string} a @param {string} b */
  undeafen(a, b) {
    this.link(a, b).deaf = null;
  }

  /** For how long an end has heard nothing though the link is up. @param {string} a @param {string} b */
  deafFor(a, b) {
    const { up, deaf, deafMs } = this.link(a, b);
    return up && deaf === a ? this.agenda.nowMs - deafMs : 0;
  }

  /** @param {Link} link @param {string} at @param {string} other @param {"link_up" | "link_down"} type @param {number} mostMs */
  #notice(link, at, other, type, mostMs) {
    const { era } = link;
    this.agenda.after(this.chance.between(1, mostMs), () => {
      if (link.era === era) this.deliver(at, { type, id: other });
    });
  }

  /** @param {string} from @param {string} to @param {Uint8Array} bytes @param {boolean} bulk */
  send(from, to, bytes, bulk) {
    const { agenda, chance, weather } = this;
    const link = this.link(from, to);
    if (!link.up || link.deaf === to || chance.happens(weather.drop)) return;
    const { era } = link;
    const lane = `${to}${bulk}`;
    const delayMs = chance.between(1, bulk ? weather.bulkMs : weather.delayMs);
    const atMs = Math.max(agenda.nowMs + delayMs, link.lastMs.get(lane) ?? 0);
    link.lastMs.set(lane, atMs);
    const arrive = () => {
      if (link.era === era && link.up) this.deliver(to, { type: "message", id: from, bytes });
    };
    agenda.after(atMs - agenda.nowMs, arrive);
    if (chance.happens(weather.repeat)) agenda.after(atMs - agenda.nowMs + chance.between(0, 2000), arrive);
  }
}
