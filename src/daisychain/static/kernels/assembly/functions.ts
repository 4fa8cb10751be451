// exp, softmax and its parts (rules 9 and 11), row by row.

import { dot, first, halve, largestLane, magnitudeBits, storeFirst } from "./lanes";

const LOG2_E: f32 = 1.4426950408889634;
const LN2_HIGH: f32 = 355.0 / 512.0;
const LN2_LOW: f32 = -0.00021219444170128554; // ln 2 − 355/512, rounded once

/** Rule 9 in four lanes. */
@inline
function exp(x: v128): v128 {
  const inside = f32x4.pmin(f32x4.pmax(x, f32x4.splat(-87)), f32x4.splat(88));
  const n = f32x4.floor(f32x4.add(f32x4.mul(inside, f32x4.splat(LOG2_E)), f32x4.splat(0.5)));
  const high = f32x4.sub(inside, f32x4.mul(n, f32x4.splat(LN2_HIGH)));
  const r = f32x4.sub(high, f32x4.mul(n, f32x4.splat(LN2_LOW)));
  let y = f32x4.add(f32x4.mul(f32x4.splat(<f32>(1.0 / 5040.0)), r), f32x4.splat(<f32>(1.0 / 720.0)));
  y = f32x4.add(f32x4.mul(y, r), f32x4.splat(<f32>(1.0 / 120.0)));
  y = f32x4.add(f32x4.mul(y, r), f32x4.splat(<f32>(1.0 / 24.0)));
  y = f32x4.add(f32x4.mul(y, r), f32x4.splat(<f32>(1.0 / 6.0)));
  y = f32x4.add(f32x4.mul(y, r), f32x4.splat(0.5));
  y = f32x4.add(f32x4.mul(y, r), f32x4.splat(1));
  y = f32x4.add(f32x4.mul(y, r), f32x4.splat(1));
  // n + 1.5·2^23 holds n in its low bits; what is above them is shifted out.
  const power = i32x4.add(i32x4.shl(f32x4.add(n, f32x4.splat(12582912.0)), 23), i32x4.splat(0x3f800000));
  y = f32x4.mul(y, power);
  y = v128.andnot(y, f32x4.lt(x, f32x4.splat(-87)));
  return v128.bitselect(f32x4.splat(Infinity), y, f32x4.gt(x, f32x4.splat(88)));
}

export function maximum(x: usize, length: i32): f32 {
  const bytes: usize = <usize>length << 2;
  let highest = v128.load32_splat(x);
  let bits = i32x4.splat(0);
  let i: usize = 0;
  for (; i + 16 <= bytes; i += 16) {
    const v = v128.load(x + i);
    highest = f32x4.pmax(highest, v);
    bits = i32x4.max_s(bits, magnitudeBits(v));
  }
  if (i < bytes) {
    const inside = first(<i32>((bytes - i) >> 2));
    const v = v128.bitselect(v128.load(x + i), highest, inside);
    highest = f32x4.pmax(highest, v);
    bits = i32x4.max_s(bits, v128.and(magnitudeBits(v), inside));
  }
  if (largestLane(bits) >= 0x7f800000) return f32.NaN;
  const two = f32x4.pmax(highest, i32x4.shuffle(highest, highest, 2, 3, 0, 1));
  return max(f32x4.extract_lane(two, 0), f32x4.extract_lane(two, 1)) + 0;
}

export function exponentials(x: usize, shift: f32, out: usize, length: i32): f32 {
  const bytes: usize = <usize>length << 2;
  const down = f32x4.splat(shift);
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  let i: usize = 0;
  for (; i + 64 <= bytes; i += 64) {
    const ea = exp(f32x4.sub(v128.load(x + i), down));
    const eb = exp(f32x4.sub(v128.load(x + i, 16), down));
    const ec = exp(f32x4.sub(v128.load(x + i, 32), down));
    const ed = exp(f32x4.sub(v128.load(x + i, 48), down));
    v128.store(out + i, ea);
    v128.store(out + i, eb, 16);
    v128.store(out + i, ec, 32);
    v128.store(out + i, ed, 48);
    a = f32x4.add(a, ea);
    b = f32x4.add(b, eb);
    c = f32x4.add(c, ec);
    d = f32x4.add(d, ed);
  }
  // The lanes take turns: after each vector the next of the four is due.
  for (; i < bytes; i += 16) {
    const left = <i32>((bytes - i) >> 2);
    const e = v128.and(exp(f32x4.sub(v128.load(x + i), down)), first(left));
    storeFirst(out + i, e, left);
    const due = f32x4.add(a, e);
    a = b;
    b = c;
    c = d;
    d = due;
  }
  const turned = ((length + 3) >> 2) & 3;
  if (turned == 1) return halve(d, a, b, c);
  if (turned == 2) return halve(c, d, a, b);
  if (turned == 3) return halve(b, c, d, a);
  return halve(a, b, c, d);
}

export function divide(x: usize, by: f32, length: i32): void {
  const bytes: usize = <usize>length << 2;
  const divisor = f32x4.splat(by);
  let i: usize = 0;
  for (; i + 16 <= bytes; i += 16) v128.store(x + i, f32x4.div(v128.load(x + i), divisor));
  for (; i < bytes; i += 4) store<f32>(x + i, load<f32>(x + i) / by);
}

export function causalSoftmax(s: usize, length: i32, scale: f32): i32 {
  const by = f32x4.splat(scale);
  let all = i32x4.splat(0);
  for (let row = 0; row < length; row++) {
    const at = s + (<usize>(row * length) << 2);
    const bytes: usize = <usize>(row + 1) << 2;
    for (let i: usize = 0; i < bytes; i += 16) {
      const left = <i32>((bytes - i) >> 2);
      const scaled = v128.and(f32x4.mul(v128.load(at + i), by), first(left));
      all = i32x4.max_s(all, magnitudeBits(scaled));
      storeFirst(at + i, scaled, left);
    }
    divide(at, exponentials(at, maximum(at, row + 1), at, row + 1), row + 1);
    memory.fill(at + bytes, 0, <usize>(length - row - 1) << 2);
  }
  return largestLane(all);
}

export function causalSoftmaxBackward(weights: usize, gradient: usize, length: i32, scale: f32): void {
  const by = f32x4.splat(scale);
  for (let row = 0; row < length; row++) {
    const shift: usize = <usize>(row * length) << 2;
    const p = weights + shift;
    const dp = gradient + shift;
    const total = f32x4.splat(dot(p, dp, row + 1));
    const bytes: usize = <usize>(row + 1) << 2;
    for (let i: usize = 0; i < bytes; i += 16) {
      const ds = f32x4.mul(v128.load(p + i), f32x4.sub(v128.load(dp + i), total));
      storeFirst(dp + i, f32x4.mul(ds, by), <i32>((bytes - i) >> 2));
    }
    memory.fill(dp + bytes, 0, <usize>(length - row - 1) << 2);
  }
}
