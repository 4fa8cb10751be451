import assert from "node:assert/strict";
import { test } from "node:test";
import { writePt, writeSafetensors } from "../../../src/daisychain/static/checkpoint/checkpoint.js";
import { readCheckpoint } from "../../../src/daisychain/static/checkpoint/validate.js";
import { crc32, decodeZip } from "../../../src/daisychain/static/checkpoint/zip.js";
import { CheckpointError } from "../../../src/daisychain/static/errors.js";
import { UPLOAD_MAX_BYTES } from "../../../src/daisychain/static/limits.js";
import {
  bytesOf,
  CHECKPOINT,
  CONFIG,
  joinSafetensors,
  PT,
  rebuiltPt,
  SAFETENSORS,
  splitSafetensors,
  TOKENIZER,
  withPickle,
} from "./checkpointHelp.js";

const { optimizer, ...WITHOUT_OPTIMIZER } = CHECKPOINT;

/** @param {Uint8Array} file */
const read = (file) => readCheckpoint(file, "given", TOKENIZER);

/**
 * @param {string} name
 * @param {RegExp} reason
 * @param {() => Uint8Array} file
 */
function refuses(name, reason, file) {
  test(`refused: ${name}`, () => {
    assert.throws(
      () => read(file()),
      (error) => {
        assert.ok(error instanceof CheckpointError, String(error));
        assert.match(error.message, /^checkpoint given was refused: .*\. Nothing has changed; use a file/);
        assert.match(error.message, reason);
        assert.ok(error.message.length < 400, error.message);
        return true;
      },
    );
  });
}

test("safetensors: what was written is read, to the last bit, with the optimizer and without", () => {
  assert.deepStrictEqual(read(SAFETENSORS), CHECKPOINT);
  assert.deepStrictEqual(read(writeSafetensors(WITHOUT_OPTIMIZER)), WITHOUT_OPTIMIZER);
});

test(".pt: what was written is read, to the last bit, without the optimizer", () => {
  assert.deepStrictEqual(read(PT), WITHOUT_OPTIMIZER);
});

test("a file that lies anywhere in a buffer is read", () => {
  for (const file of [SAFETENSORS, PT]) {
    const padded = new Uint8Array(file.length + 20);
    padded.set(file, 7);
    assert.equal(read(padded.subarray(7, 7 + file.length)).step, 7);
  }
});

test("the same checkpoint gives the same bytes", () => {
  assert.deepEqual(writeSafetensors(CHECKPOINT), SAFETENSORS);
  assert.deepEqual(writePt(CHECKPOINT), PT);
});

test("the numbers of a .pt begin at multiples of 64 bytes", () => {
  for (const [name, content] of decodeZip(PT)) assert.equal(content.byteOffset % 64, 0, name);
  assert.equal(crc32(bytesOf("123456789")), 0xcbf43926);
});

/**
 * Safetensors with a changed header.
 * @param {(header: any) => void} change
 */
function withHeader(change) {
  const { header, data } = splitSafetensors(SAFETENSORS);
  change(header);
  return joinSafetensors(JSON.stringify(header), data);
}

/**
 * Safetensors with a changed description.
 * @param {(described: any) => void} change
 */
function withDescription(change) {
  return withHeader((header) => {
    const described = JSON.parse(header.__metadata__.daisychain);
    change(described);
    header.__metadata__.daisychain = JSON.stringify(described);
  });
}

/** @param {(text: string) => string} change */
function withHeaderText(change) {
  const { header, data } = splitSafetensors(SAFETENSORS);
  return joinSafetensors(change(JSON.stringify(header)), data);
}

/**
 * @param {number} value
 * @param {number} place
 */
function withWeight(value, place) {
  return { ...CHECKPOINT, weights: CHECKPOINT.weights.with(place, value) };
}

refuses("nothing", /it is 0 bytes long/, () => new Uint8Array());
refuses("larger than any", /67108865 bytes, more than/, () => new Uint8Array(UPLOAD_MAX_BYTES + 1));
refuses("a picture", /claims a header of \d+ bytes/, () => bytesOf("\x89PNG\r\n\x1a\n0000000000000000"));
refuses("NaN", /"positions" has NaN at place 1/, () => writeSafetensors(withWeight(NaN, 64 * 16 + 1)));
refuses("NaN in .pt", /"tokens" has NaN at place 0/, () => writePt(withWeight(NaN, 0)));
refuses("infinity in .pt", /"tokens" has -Infinity at place 5/, () => writePt(withWeight(-Infinity, 5)));
refuses("cut", /it is cut/, () => SAFETENSORS.subarray(0, -4));
refuses("cut in the header", /it is cut/, () => SAFETENSORS.subarray(0, 100));
refuses("bytes added", /has bytes added/, () => Uint8Array.of(...SAFETENSORS, 0, 0, 0, 0));
refuses("a cut .pt", /without its end: it is cut/, () => PT.subarray(0, -1));
refuses("a .pt with bytes added", /has bytes added/, () => Uint8Array.of(...PT, 0));

refuses("overlap", /"positions" begins at byte 4092, not 4096: it overlaps/, () =>
  withHeader((h) => {
    h.positions.data_offsets = h.positions.data_offsets.map((/** @type {number} */ x) => x - 4);
  }),
);
refuses("a hole", /"positions" begins at byte 4100, not 4096: it leaves a hole/, () =>
  withHeader((h) => {
    h.positions.data_offsets = h.positions.data_offsets.map((/** @type {number} */ x) => x + 4);
  }),
);
for (const dtype of ["F16", "BF16", "F64", "I32", null, {}, undefined]) {
  refuses(`type ${dtype}`, /"norm" has type .*; only F32/, () =>
    withHeader((h) => {
      h.norm.dtype = dtype;
    }),
  );
}
for (const offsets of [[0, 2 ** 60], [-4, 0], [0], "0", [0.5, 4], [0, 1e30], null, [4096, 0]]) {
  refuses(`offsets ${JSON.stringify(offsets)}`, /"tokens" .*(impossible|needs 4096 bytes)/, () =>
    withHeader((h) => {
      h.tokens.data_offsets = offsets;
    }),
  );
}
for (const shape of [[2 ** 31, 2 ** 31], [-64, -16], [64, 16, 1], ["64", 16], { length: 2 }, [1024, 2]]) {
  refuses(`shape ${JSON.stringify(shape)}`, /"tokens" .*(impossible|needs \d+ bytes)/, () =>
    withHeader((h) => {
      h.tokens.shape = shape;
    }),
  );
}
refuses("a tensor transposed", /"tokens" has shape \[16,64\], its config needs \[64,16\]/, () =>
  withHeader((h) => h.tokens.shape.reverse()),
);
refuses("a tensor under another name", /"norm" is missing/, () =>
  withHeader((h) => {
    h.morn = h.norm;
    delete h.norm;
  }),
);
refuses("a tensor too many", /no tensor "extra"/, () =>
  withHeader((h) => {
    h.extra = { dtype: "F32", shape: [0], data_offsets: [0, 0] };
  }),
);
refuses("a name twice", /a name twice/, () =>
  withHeaderText((text) => text.replace('"norm":', '"norm":{"dtype":"F32"},"norm":')),
);
refuses("a header nested deeply", /is no JSON/, () => withHeaderText(() => "[".repeat(60_000)));
refuses("a header nested and closed", /no JSON|a name twice/, () =>
  withHeaderText(() => "[".repeat(30_000) + "]".repeat(30_000)),
);
refuses("a huge header", /claims a header of 100000 bytes/, () => withHeaderText(() => " ".repeat(1e5)));
refuses("a header that is no UTF-8", /is no JSON/, () => joinSafetensors("", bytesOf("")).fill(0xff, 8));
refuses("another's safetensors", /not saved by DaisyChain/, () =>
  withHeader((h) => {
    h.__metadata__ = { format: "pt" };
  }),
);

/** @type {[string, RegExp, (described: any) => void][]} */
const DESCRIPTIONS = [
  ["another format", /format is "room 9"/, (d) => Object.assign(d, { format: "room 9" })],
  ["another tokenizer", /of tokenizer "other"/, (d) => Object.assign(d, { tokenizer: "other" })],
  ["another vocabulary", /vocabulary is 63/, (d) => Object.assign(d.config, { vocabulary: 63 })],
  [
    "another width",
    /"tokens" has shape \[64,16\], its .* \[64,32\]/,
    (d) => Object.assign(d.config, { width: 32 }),
  ],
  ["other layers", /"blocks.2.norm1" is missing/, (d) => Object.assign(d.config, { layers: 3 })],
  ["fewer layers", /no tensor "blocks.1.norm1"|needs/, (d) => Object.assign(d.config, { layers: 1 })],
  ["a huge width", /width 1000000000000000 must be/, (d) => Object.assign(d.config, { width: 1e15 })],
  ["a width as text", /whole numbers/, (d) => Object.assign(d.config, { width: "16" })],
  ["a width as a list", /whole numbers/, (d) => Object.assign(d.config, { width: [16] })],
  ["heads that do not divide", /not a multiple of heads 3/, (d) => Object.assign(d.config, { heads: 3 })],
  ["a config with more", /whole numbers/, (d) => Object.assign(d.config, { experts: 2 })],
  ["no config", /whole numbers/, (d) => Object.assign(d, { config: null })],
  ["a step below zero", /step is -1/, (d) => Object.assign(d, { step: -1 })],
  ["a huge step", /step is 1e\+300/, (d) => Object.assign(d, { step: 1e300 })],
  ["something more", /describes "more"/, (d) => Object.assign(d, { more: 1 })],
  ["a power of 2", /power1 is 2/, (d) => Object.assign(d.optimizer, { power1: 2 })],
  ["no position", /position is undefined/, (d) => delete d.optimizer.position],
  ["an optimizer of nothing", /power1 is undefined/, (d) => Object.assign(d, { optimizer: null })],
];
for (const [name, reason, change] of DESCRIPTIONS) refuses(name, reason, () => withDescription(change));

refuses("squares below zero", /"optimizer\/square" is below zero/, () =>
  writeSafetensors({ ...CHECKPOINT, optimizer: { ...optimizer, square: optimizer.square.with(1, -1) } }),
);
refuses("a mean of NaN", /"optimizer\/mean" has NaN/, () =>
  writeSafetensors({ ...CHECKPOINT, optimizer: { ...optimizer, mean: optimizer.mean.with(9, NaN) } }),
);

// What a hostile .pt may try.
const OS_SYSTEM = "\x80\x02cos\nsystem\n(X\x04\x00\x00\x00echotR.";
refuses("os.system", /asks for "os.system", which could run code/, () => withPickle(OS_SYSTEM));
refuses("eval", /asks for "builtins.eval"/, () => withPickle("\x80\x02cbuiltins\neval\n."));
refuses("float16", /asks for "torch.HalfStorage", only float32/, () =>
  withPickle((pickle) => pickle.replace("FloatStorage", "HalfStorage")),
);
refuses("the other way to name a function", /instruction 0x93 at byte \d+/, () =>
  withPickle("\x80\x02X\x02\x00\x00\x00osX\x06\x00\x00\x00system\x93."),
);
/** @type {[string, string]} each an instruction that builds or runs */
for (const [name, code] of [
  ...Object.entries({ BUILD: "b", INST: "i", OBJ: "o", NEWOBJ: "\x81", EXT1: "\x82" }),
]) {
  refuses(name, /instruction 0x[0-9a-f]{2} at byte 3/, () => withPickle(`\x80\x02}${code}.`));
}
refuses("a call of what is no function", /calls something/, () => withPickle("\x80\x02}(tR."));
refuses("a call of a storage", /calls something/, () => withPickle("\x80\x02ctorch\nFloatStorage\n(tR."));
refuses("a huge memo", /numbers a note 4294967295/, () => withPickle("\x80\x02}r\xff\xff\xff\xff."));
refuses("a note never taken", /recalls note 7/, () => withPickle("\x80\x02h\x07."));
refuses("a huge text", /is cut at byte/, () => withPickle("\x80\x02X\xff\xff\xff\x7fa."));
refuses("an empty stack", /empty stack/, () => withPickle("\x80\x02R."));
refuses("a mark as a value", /empty stack/, () => withPickle("\x80\x02(."));
refuses("no end", /is cut at byte/, () => withPickle("\x80\x02}"));
refuses("a huge pickle", /data.pkl has 70000 bytes/, () => withPickle(")".repeat(70_000)));
refuses("a key that is no text", /has 1 as a key/, () => withPickle("\x80\x02}K\x01K\x01s."));
refuses("a key twice", /the key "a" twice/, () =>
  withPickle("\x80\x02}(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00aK\x01u."),
);
refuses("a dict in itself", /its weight "a" is a structure, not a tensor/, () =>
  withPickle("\x80\x02}X\x07\x00\x00\x00weights}q\x01X\x01\x00\x00\x00ah\x01ss."),
);
refuses("deep tuples as a shape", /no storage and shape of a weight/, () =>
  withPickle((pickle) =>
    pickle.replace("(J\x40\x00\x00\x00J\x10\x00\x00\x00t", `${"(".repeat(20_000)}${"t".repeat(20_000)}\x85`),
  ),
);
refuses("a storage used twice", /"positions" overlaps another, in storage "0"/, () =>
  withPickle((pickle) => pickle.replace("X\x01\x00\x00\x001", "X\x01\x00\x00\x000")),
);
refuses("a shape beyond its storage", /of shape \[64,32\] does not fill its storage "0"/, () =>
  withPickle((pickle) => pickle.replace("J\x10\x00\x00\x00t", "J\x20\x00\x00\x00t")),
);
refuses("a shape and storage beyond the file", /"norm" of shape \[32\] needs 128 bytes and has 64/, () =>
  withPickle((pickle) => {
    const at = pickle.lastIndexOf("X\x04\x00\x00\x00norm");
    return pickle.slice(0, at) + pickle.slice(at).replaceAll("J\x10\x00\x00\x00", "J\x20\x00\x00\x00");
  }),
);
refuses("numbers missing", /numbers of tensor "norm" are missing/, () =>
  rebuiltPt((entries) => entries.delete("daisychain/data/14")),
);
refuses("no pickle", /no data.pkl/, () => rebuiltPt((entries) => entries.delete("daisychain/data.pkl")));
refuses("big-endian", /not little-endian/, () =>
  rebuiltPt((entries) => entries.set("daisychain/byteorder", bytesOf("big"))),
);
refuses("too many entries", /has 317 entries, more than 256/, () =>
  rebuiltPt((entries) => {
    for (let i = 0; i < 299; i++) entries.set(`x${i}`, new Uint8Array());
  }),
);

/**
 * The .pt with a number of 4 bytes written into the directory's first entry.
 * @param {number} field
 * @param {number} value
 */
function withDirectory(field, value) {
  const file = PT.slice();
  const view = new DataView(file.buffer);
  view.setUint32(view.getUint32(file.length - 6, true) + field, value, true);
  return file;
}
refuses("a compressed entry", /"daisychain\/data.pkl" is compressed or encrypted \(method 8/, () =>
  withDirectory(10, 8),
);
refuses("an encrypted entry", /compressed or encrypted \(method 0, flags 1\)/, () => withDirectory(8, 1));
refuses("a wrong checksum", /does not have its checksum/, () => withDirectory(16, 1));
refuses("an entry elsewhere", /points to what is not there/, () => withDirectory(42, 0xfffffff0));
refuses("entries one over the other", /overlaps what follows it/, () => {
  const file = PT.slice();
  const view = new DataView(file.buffer);
  const first = view.getUint32(file.length - 6, true);
  const second = first + 46 + view.getUint16(first + 28, true);
  view.setUint32(second + 42, view.getUint32(first + 42, true), true);
  return file;
});

test("a refusal does not change the file", () => {
  const file = writePt(withWeight(NaN, 0));
  const before = file.slice();
  assert.throws(() => read(file), CheckpointError);
  assert.deepEqual(file, before);
  assert.deepEqual(CONFIG, CHECKPOINT.config);
});
