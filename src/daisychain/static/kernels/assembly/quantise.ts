// Quantisers: float32 matrices to codes in panels (the layout is described in plain.js).

import { first, largestLane, magnitudeBits, storeFirst } from "./lanes";

/** Added to an integer of ±32,640 as float32, it puts that integer plus 128 into the low bits, exactly. */
const ROUNDING: f32 = 12582912.0 + 128.0;
/** What those bits are besides, after a shift by 8. */
const BIAS: i32 = 0x4b4000;

@inline
function exponents(bits: v128): v128 {
  const k = i32x4.sub(i32x4.shr_s(i32x4.add(bits, i32x4.splat(0x10000)), 23), i32x4.splat(133));
  return i32x4.max_s(k, i32x4.splat(-60));
}

/** 2^k. */
@inline
function powers(k: v128): v128 {
  return i32x4.shl(i32x4.add(k, i32x4.splat(127)), 23);
}

/** 2^(8−k). */
@inline
function factors(k: v128): v128 {
  return i32x4.shl(i32x4.sub(i32x4.splat(135), k), 23);
}

/** floor(x·factor) + 128, above bits of 0x4B400000. */
@inline
function rounded(x: v128, factor: v128): v128 {
  return f32x4.add(f32x4.floor(f32x4.mul(x, factor)), f32x4.splat(ROUNDING));
}

/** Codes of two vectors as the pairs (x0, y0), (x1, y1) … */
@inline
function interleaved(x: v128, y: v128, factor: v128): v128 {
  const low = i32x4.shr_u(rounded(x, factor), 8);
  const high = i32x4.shl(rounded(y, factor), 8);
  const both = v128.bitselect(low, high, i32x4.splat(0xffff));
  return i16x8.sub(both, i16x8.splat(0x4000));
}

/** Codes of eight numbers that follow each other, as four pairs. */
@inline
function consecutive(x: v128, y: v128, factor: v128): v128 {
  const bias = i32x4.splat(BIAS);
  const low = i32x4.sub(i32x4.shr_s(rounded(x, factor), 8), bias);
  const high = i32x4.sub(i32x4.shr_s(rounded(y, factor), 8), bias);
  return i16x8.narrow_i32x4_s(low, high);
}

/** The bits of the largest magnitude. */
export function largest(x: usize, length: i32): i32 {
  const bytes: usize = <usize>length << 2;
  let a = i32x4.splat(0);
  let b = a;
  let i: usize = 0;
  for (; i + 32 <= bytes; i += 32) {
    a = i32x4.max_s(a, magnitudeBits(v128.load(x + i)));
    b = i32x4.max_s(b, magnitudeBits(v128.load(x + i, 16)));
  }
  a = i32x4.max_s(a, b);
  for (; i < bytes; i += 16) {
    const inside = first(<i32>((bytes - i) >> 2));
    a = i32x4.max_s(a, v128.and(magnitudeBits(v128.load(x + i)), inside));
  }
  return largestLane(a);
}

/** Pairs 0 … 3 of four rows to a place where pair p of the rows lie together, `step` bytes apart. */
@inline
function storeTransposed(to: usize, step: usize, a: v128, b: v128, c: v128, d: v128, count: i32): void {
  const ab = i32x4.shuffle(a, b, 0, 4, 1, 5);
  const cd = i32x4.shuffle(c, d, 0, 4, 1, 5);
  v128.store(to, i64x2.shuffle(ab, cd, 0, 2));
  if (count > 1) v128.store(to + step, i64x2.shuffle(ab, cd, 1, 3));
  if (count < 3) return;
  const ab2 = i32x4.shuffle(a, b, 2, 6, 3, 7);
  const cd2 = i32x4.shuffle(c, d, 2, 6, 3, 7);
  v128.store(to + 2 * step, i64x2.shuffle(ab2, cd2, 0, 2));
  if (count > 3) v128.store(to + 3 * step, i64x2.shuffle(ab2, cd2, 1, 3));
}

/** Four codes pairs of a row from number i on; what lies beyond the row gives 0. */
@inline
function tail(row: usize, i: i32, length: i32, factor: v128): v128 {
  const x = v128.and(v128.load(row + (<usize>i << 2)), first(length - i));
  const y = v128.and(v128.load(row + (<usize>i << 2), 16), first(length - i - 4));
  return consecutive(x, y, factor);
}

export function quantiseRows(
  x: usize,
  stride: i32,
  rows: i32,
  length: i32,
  width: i32,
  codes: usize,
  scales: usize,
): i32 {
  const pairs = (length + 1) >> 1;
  const step: usize = <usize>width << 2;
  const rowBytes: usize = <usize>stride << 2;
  let all: i32 = 0;
  for (let r = 0; r < rows; r += 4) {
    // Rows beyond the last are the last again: they do not reach the output.
    const x0 = x + <usize>r * rowBytes;
    const x1 = x + <usize>min(r + 1, rows - 1) * rowBytes;
    const x2 = x + <usize>min(r + 2, rows - 1) * rowBytes;
    const x3 = x + <usize>min(r + 3, rows - 1) * rowBytes;
    const bits = i32x4(largest(x0, length), largest(x1, length), largest(x2, length), largest(x3, length));
    all = max(all, largestLane(bits));
    const k = exponents(bits);
    v128.store(scales + (<usize>r << 2), powers(k));
    const factor = factors(k);
    const f0 = i32x4.shuffle(factor, factor, 0, 0, 0, 0);
    const f1 = i32x4.shuffle(factor, factor, 1, 1, 1, 1);
    const f2 = i32x4.shuffle(factor, factor, 2, 2, 2, 2);
    const f3 = i32x4.shuffle(factor, factor, 3, 3, 3, 3);
    const inPanel = r % width;
    let to = codes + ((<usize>((r - inPanel) * pairs + inPanel)) << 2);
    let i = 0;
    for (; i + 8 <= length; i += 8) {
      const at: usize = <usize>i << 2;
      storeTransposed(
        to,
        step,
        consecutive(v128.load(x0 + at), v128.load(x0 + at, 16), f0),
        consecutive(v128.load(x1 + at), v128.load(x1 + at, 16), f1),
        consecutive(v128.load(x2 + at), v128.load(x2 + at, 16), f2),
        consecutive(v128.load(x3 + at), v128.load(x3 + at, 16), f3),
        4,
      );
      to += step << 2;
    }
    if (i < length) {
      storeTransposed(
        to,
        step,
        tail(x0, i, length, f0),
        tail(x1, i, length, f1),
        tail(x2, i, length, f2),
        tail(x3, i, length, f3),
        pairs - (i >> 1),
      );
    }
  }
  return all;
}

export function quantiseColumns(
  x: usize,
  stride: i32,
  rows: i32,
  length: i32,
  width: i32,
  codes: usize,
  scales: usize,
): i32 {
  const pairs = (length + 1) >> 1;
  const step: usize = <usize>width << 2;
  const down: usize = <usize>stride << 2;
  const end = x + <usize>length * down;
  let all = i32x4.splat(0);
  for (let r = 0; r < rows; r += 4) {
    const inside = first(rows - r);
    const start: usize = <usize>r << 2;
    let bits = i32x4.splat(0);
    for (let at = x + start; at < end + start; at += down) {
      bits = i32x4.max_s(bits, magnitudeBits(v128.load(at)));
    }
    bits = v128.and(bits, inside);
    all = i32x4.max_s(all, bits);
    const k = exponents(bits);
    v128.store(scales + start, powers(k));
    const factor = factors(k);
    const inPanel = r % width;
    let to = codes + ((<usize>((r - inPanel) * pairs + inPanel)) << 2);
    let at = x + start;
    for (let p = 1; p < length; p += 2) {
      v128.store(to, interleaved(v128.load(at), v128.load(at + down), factor));
      at += down + down;
      to += step;
    }
    if (length & 1) v128.store(to, interleaved(v128.load(at), i32x4.splat(0), factor));
  }
  return largestLane(all);
}

export function blockValues(
  x: usize,
  stride: i32,
  rows: i32,
  length: i32,
  least: i32,
  out: usize,
): i32 {
  const bytes: usize = <usize>length << 2;
  const lower = i32x4.splat(least);
  let all: i32 = 0;
  for (let r = 0; r < rows; r++) {
    const shift: usize = <usize>(r * stride) << 2;
    const bits = largest(x + shift, length);
    all = max(all, bits);
    const k = exponents(i32x4.splat(bits));
    const factor = factors(k);
    const scale = powers(k);
    for (let i: usize = 0; i < bytes; i += 16) {
      const shifted = i32x4.shr_s(rounded(v128.load(x + shift + i), factor), 8);
      const code = i32x4.max_s(i32x4.sub(shifted, i32x4.splat(BIAS)), lower);
      const value = f32x4.mul(f32x4.convert_i32x4_s(code), scale);
      storeFirst(out + shift + i, value, <i32>((bytes - i) >> 2));
    }
  }
  return all;
}
