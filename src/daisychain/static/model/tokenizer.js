/** Text to entries of the vocabulary and back: byte-level BPE, the same ids as data/tokenizer.py. */

import { ConfigError } from "../errors.js";
import { MAX_CACHED_PIECES, VOCABULARY } from "../limits.js";

/** Stands between documents; the only entry that is no string of bytes. */
export const END = "<|end|>";

/**
 * What this module reads of a tokenizer file in the format of the package `tokenizers`.
 * @typedef {object} TokenizerFile
 * @property {{pretokenizers: {pattern?: {Regex: string}}[]}} pre_tokenizer
 * @property {{vocab: Record<string, number>, merges: [string, string][]}} model
 */

export class Tokenizer {
  /** The id of END. */
  end;
  /** @type {Uint8Array[]} the bytes of each entry */
  #bytes;
  /** @type {Uint16Array} the id of each byte */
  #byteIds;
  /** @type {Map<number, number>} left id · VOCABULARY + right id → rank; the lowest goes first */
  #ranks;
  /** @type {number[]} the id that the merge of each rank gives */
  #merged;
  #pattern;
  /** @type {Map<string, Uint16Array>} the ids of pieces seen before */
  #cache = new Map();
  #encoder = new TextEncoder();

  /**
   * @param {TokenizerFile} json the content of tokenizer.json
   * @throws {ConfigError} if it is no such file, or not of VOCABULARY entries
   */
  constructor(json) {
    const vocab = json?.model?.vocab;
    const merges = json?.model?.merges;
    const pattern = json?.pre_tokenizer?.pretokenizers?.[0]?.pattern?.Regex;
    const size = Object.keys(vocab ?? {}).length;
    if (size !== VOCABULARY || vocab[END] === undefined || !Array.isArray(merges) || !pattern) {
      throw new ConfigError(
        `This is no tokenizer of ${VOCABULARY} entries (${size} found): reload the page.`,
      );
    }
    const alphabet = byteAlphabet();
    this.end = vocab[END];
    this.#pattern = new RegExp(pattern, "gu");
    this.#byteIds = Uint16Array.from(alphabet.keys(), (character) => vocab[character]);
    this.#ranks = new Map(merges.map(([a, b], rank) => [vocab[a] * VOCABULARY + vocab[b], rank]));
    this.#merged = merges.map(([a, b]) => vocab[a + b]);
    this.#bytes = new Array(VOCABULARY);
    for (const [text, id] of Object.entries(vocab)) {
      this.#bytes[id] =
        id === this.end
          ? this.#encoder.encode(END)
          : Uint8Array.from(text, (character) => /** @type {number} */ (alphabet.get(character)));
    }
  }

  /**
   * The ids of a text; END in it becomes one entry. A lone surrogate counts as U+FFFD.
   * @param {string} text
   * @returns {Uint16Array}
   */
  encode(text) {
    /** @type {number[]} */
    const ids = [];
    text.split(END).forEach((part, at) => {
      if (at > 0) ids.push(this.end);
      for (const piece of part.match(this.#pattern) ?? []) {
        for (const id of this.#pieceIds(piece)) ids.push(id);
      }
    });
    return Uint16Array.from(ids);
  }

  /**
   * The text of ids; bytes that are not UTF-8 become U+FFFD.
   * @param {ArrayLike<number>} ids
   * @returns {string}
   * @throws {ConfigError} for an id out of range
   */
  decode(ids) {
    const parts = Array.from(ids, (id) => {
      const bytes = this.#bytes[id];
      if (bytes === undefined) {
        throw new ConfigError(`Id ${id} is not in the vocabulary; ids are 0 … ${VOCABULARY - 1}.`);
      }
      return bytes;
    });
    const all = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
    let at = 0;
    for (const part of parts) {
      all.set(part, at);
      at += part.length;
    }
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(all);
  }

  /** @param {string} piece */
  #pieceIds(piece) {
    let ids = this.#cache.get(piece);
    if (ids === undefined) {
      ids = this.#merge(Array.from(this.#encoder.encode(piece), (byte) => this.#byteIds[byte]));
      if (this.#cache.size >= MAX_CACHED_PIECES) this.#cache.clear();
      this.#cache.set(piece, ids);
    }
    return ids;
  }

  /**
   * Merges the leftmost pair of the lowest rank until no pair is left that merges.
   * @param {number[]} ids
   */
  #merge(ids) {
    for (;;) {
      let best = this.#merged.length;
      let at = -1;
      for (let i = 0; i + 1 < ids.length; i++) {
        const rank = this.#ranks.get(ids[i] * VOCABULARY + ids[i + 1]) ?? best;
        if (rank < best) {
          best = rank;
          at = i;
        }
      }
      if (at < 0) return Uint16Array.from(ids);
      ids.splice(at, 2, this.#merged[best]);
    }
  }
}

/** The character that stands for each byte in the file: itself if it is visible, else one from U+0100 on. */
function byteAlphabet() {
  /** @type {Map<string, number>} in the order of the bytes */
  const alphabet = new Map();
  for (let byte = 0, others = 0; byte < 256; byte++) {
    const visible = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
    alphabet.set(String.fromCharCode(visible ? byte : 256 + others++), byte);
  }
  return alphabet;
}
