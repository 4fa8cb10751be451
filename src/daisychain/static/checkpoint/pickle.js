/**
 * Reads the few pickle instructions that torch.save needs for a dict of numbers, texts and tensors (protocol 2).
 * Nothing is executed: of what a file may ask for by name, three things are known, and they are looked up, not imported.
 */

import { CheckpointError } from "../errors.js";
import { FLOAT_STORAGE, ORDERED_DICT, REBUILD_TENSOR, rowMajor, TensorPlace } from "./pickleWriter.js";
import { isCounts, isShape, quote } from "./untrusted.js";

/** One of the three known names. */
class Known {
  /** @param {string} name */
  constructor(name) {
    this.name = name;
  }
}

/** What a persistent id stands for: float32 numbers of an entry of the archive. */
class Storage {
  /**
   * @param {string} key
   * @param {unknown} length
   */
  constructor(key, length) {
    this.key = key;
    this.length = length;
  }
}

const MARK = Symbol("mark");

/** The machine that a pickle is written for: a stack, a memo, and instructions of one byte. */
class Machine {
  /** @type {unknown[]} */
  #stack = [];
  /** @type {Map<number, unknown>} */
  #memo = new Map();
  #at = 0;

  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  run() {
    for (;;) {
      const place = this.#at;
      const code = String.fromCharCode(this.number("getUint8", 1));
      if (code === ".") return this.pop();
      const instruction = INSTRUCTIONS[code];
      if (!instruction) {
        const shown = `0x${code.charCodeAt(0).toString(16).padStart(2, "0")}`;
        throw new CheckpointError(
          `its pickle has instruction ${shown} at byte ${place}, which no checkpoint needs and which may run code`,
        );
      }
      instruction(this);
    }
  }

  /** @param {number} count */
  take(count) {
    const end = this.#at + count;
    if (end > this.bytes.length) throw new CheckpointError(`its pickle is cut at byte ${this.bytes.length}`);
    const taken = this.bytes.subarray(this.#at, end);
    this.#at = end;
    return taken;
  }

  /**
   * The next number, little-endian.
   * @param {"getUint8" | "getUint16" | "getUint32" | "getInt32"} read
   * @param {number} width in bytes
   */
  number(read, width) {
    const at = this.#at;
    this.take(width);
    return this.view[read](at, true);
  }

  line() {
    const end = this.bytes.indexOf(10, this.#at);
    const text = decodeText(this.take((end < 0 ? this.bytes.length : end) - this.#at));
    this.take(1);
    return text;
  }

  /** @param {unknown} value */
  push(value) {
    this.#stack.push(value);
  }

  /** @returns {unknown} */
  pop() {
    if (this.#stack.length === 0 || this.top() === MARK) throw underflow();
    return this.#stack.pop();
  }

  top() {
    return this.#stack[this.#stack.length - 1];
  }

  /** @param {number} count */
  popTuple(count) {
    return Array.from({ length: count }, () => this.pop()).reverse();
  }

  popMarked() {
    const mark = this.#stack.lastIndexOf(MARK);
    if (mark < 0) throw underflow();
    return this.#stack.splice(mark).slice(1);
  }

  /** @param {number} index */
  store(index) {
    if (index >= this.bytes.length) {
      throw new CheckpointError(`its pickle numbers a note ${index}, more than it has bytes`);
    }
    this.#memo.set(index, this.top());
  }

  /** @param {number} index */
  recall(index) {
    if (!this.#memo.has(index)) throw new CheckpointError(`its pickle recalls note ${index}, never taken`);
    this.push(this.#memo.get(index));
  }

  /** @param {unknown[]} items keys and values in turn */
  setItems(items) {
    const dict = this.top();
    if (!(dict instanceof Map) || items.length % 2) throw new CheckpointError("its pickle fills no dict");
    for (let i = 0; i < items.length; i += 2) {
      const key = items[i];
      if (typeof key !== "string") throw new CheckpointError(`its pickle has ${quote(key)} as a key`);
      if (dict.has(key)) throw new CheckpointError(`its pickle has the key ${quote(key)} twice`);
      dict.set(key, items[i + 1]);
    }
  }
}

/** @type {Record<string, (machine: Machine) => void>} */
const INSTRUCTIONS = {
  "\x80": (machine) => {
    const protocol = machine.number("getUint8", 1);
    if (protocol !== 2) throw new CheckpointError(`its pickle has protocol ${protocol}; torch.save writes 2`);
  },
  "}": (machine) => machine.push(new Map()),
  ")": (machine) => machine.push([]),
  "(": (machine) => machine.push(MARK),
  t: (machine) => machine.push(machine.popMarked()),
  "\x85": (machine) => machine.push(machine.popTuple(1)),
  "\x86": (machine) => machine.push(machine.popTuple(2)),
  "\x87": (machine) => machine.push(machine.popTuple(3)),
  "\x88": (machine) => machine.push(true),
  "\x89": (machine) => machine.push(false),
  K: (machine) => machine.push(machine.number("getUint8", 1)),
  M: (machine) => machine.push(machine.number("getUint16", 2)),
  J: (machine) => machine.push(machine.number("getInt32", 4)),
  X: (machine) => machine.push(decodeText(machine.take(machine.number("getUint32", 4)))),
  q: (machine) => machine.store(machine.number("getUint8", 1)),
  r: (machine) => machine.store(machine.number("getUint32", 4)),
  h: (machine) => machine.recall(machine.number("getUint8", 1)),
  j: (machine) => machine.recall(machine.number("getUint32", 4)),
  s: (machine) => machine.setItems(machine.popTuple(2)),
  u: (machine) => machine.setItems(machine.popMarked()),
  c: (machine) => machine.push(lookUp(`${machine.line()} ${machine.line()}`)),
  Q: (machine) => machine.push(openStorage(machine.pop())),
  R: (machine) => {
    const [callee, values] = machine.popTuple(2);
    machine.push(apply(callee, values));
  },
};

/**
 * What a pickle describes: dicts are Maps, tuples are arrays. Its memory is in proportion to its bytes. Throws
 * CheckpointError for whatever is not needed for a checkpoint, by name.
 * @param {Uint8Array} bytes
 */
export function decodePickle(bytes) {
  return new Machine(bytes).run();
}

/** @param {Uint8Array} bytes */
function decodeText(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new CheckpointError("its pickle has a text that is not UTF-8");
  }
}

function underflow() {
  return new CheckpointError("its pickle takes from an empty stack: it is altered");
}

/** @param {string} name */
function lookUp(name) {
  if (![REBUILD_TENSOR, FLOAT_STORAGE, ORDERED_DICT].includes(name)) {
    const advice = /^torch \w+Storage$/.test(name)
      ? "only float32 weights can be used"
      : "which could run code; save a plain dict of float32 tensors";
    throw new CheckpointError(`its pickle asks for ${quote(name.replace(" ", "."))}, ${advice}`);
  }
  return new Known(name);
}

/** @param {unknown} id */
function openStorage(id) {
  const [what, kind, key, , length] = Array.isArray(id) ? id : [];
  if (what !== "storage" || !isKnown(kind, FLOAT_STORAGE) || typeof key !== "string") {
    throw new CheckpointError("its pickle refers to something that is no storage of float32 numbers");
  }
  return new Storage(key, length);
}

/**
 * @param {unknown} callee
 * @param {unknown} values
 */
function apply(callee, values) {
  if (isKnown(callee, ORDERED_DICT) && Array.isArray(values) && values.length === 0) return new Map();
  if (!isKnown(callee, REBUILD_TENSOR) || !Array.isArray(values)) {
    throw new CheckpointError("its pickle calls something that makes no tensor");
  }
  const [storage, offset, shape, stride] = values;
  if (!(storage instanceof Storage) || !isShape(shape) || !isCounts(stride)) {
    throw new CheckpointError("its pickle makes a tensor of what is no storage and shape of a weight");
  }
  const wanted = rowMajor(shape);
  const whole = offset === 0 && storage.length === shape.reduce((a, b) => a * b, 1);
  if (!whole || String(stride) !== String(wanted)) {
    throw new CheckpointError(
      `the tensor of shape [${shape}] does not fill its storage ${quote(storage.key)} in order; ` +
        "save tensor.clone() of each weight",
    );
  }
  return new TensorPlace(storage.key, shape);
}

/**
 * @param {unknown} value
 * @param {string} name
 */
function isKnown(value, name) {
  return value instanceof Known && value.name === name;
}
