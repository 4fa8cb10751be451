// What several kernels share: parts of vectors at the end of a row, and the pinned lane sum.

/** All bits set in the first `count` (0 … 4) of four lanes. */
@inline
export function first(count: i32): v128 {
  return i32x4.lt_s(i32x4(0, 1, 2, 3), i32x4.splat(count));
}

/** Store the first `count` (1 … 4) of four lanes. */
@inline
export function storeFirst(to: usize, v: v128, count: i32): void {
  if (count >= 4) {
    v128.store(to, v);
    return;
  }
  v128.store32_lane(to, v, 0);
  if (count > 1) v128.store32_lane(to, v, 1, 4);
  if (count > 2) v128.store32_lane(to, v, 2, 8);
}

@inline
export function magnitudeBits(v: v128): v128 {
  return v128.and(v, i32x4.splat(0x7fffffff));
}

/** The largest of four int32 lanes. */
@inline
export function largestLane(v: v128): i32 {
  const two = i32x4.max_s(v, i32x4.shuffle(v, v, 2, 3, 0, 1));
  return i32x4.extract_lane(i32x4.max_s(two, i32x4.shuffle(two, two, 1, 0, 3, 2)), 0);
}

/** Sixteen lanes halved 8, 4, 2, 1. */
@inline
export function halve(a: v128, b: v128, c: v128, d: v128): f32 {
  const four = f32x4.add(f32x4.add(a, c), f32x4.add(b, d));
  const two = f32x4.add(four, i32x4.shuffle(four, four, 2, 3, 0, 1));
  return f32x4.extract_lane(two, 0) + f32x4.extract_lane(two, 1);
}

/** Lane sum of x·y. */
export function dot(x: usize, y: usize, length: i32): f32 {
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  const bytes: usize = <usize>length << 2;
  let i: usize = 0;
  for (; i + 64 <= bytes; i += 64) {
    a = f32x4.add(a, f32x4.mul(v128.load(x + i), v128.load(y + i)));
    b = f32x4.add(b, f32x4.mul(v128.load(x + i, 16), v128.load(y + i, 16)));
    c = f32x4.add(c, f32x4.mul(v128.load(x + i, 32), v128.load(y + i, 32)));
    d = f32x4.add(d, f32x4.mul(v128.load(x + i, 48), v128.load(y + i, 48)));
  }
  // A lane of a sum that began at +0 is never −0, so that adding +0 for what is not there turns no bit.
  const left = (<i32>(bytes - i)) >> 2;
  if (left > 0) a = f32x4.add(a, v128.and(f32x4.mul(v128.load(x + i), v128.load(y + i)), first(left)));
  if (left > 4) {
    b = f32x4.add(b, v128.and(f32x4.mul(v128.load(x + i, 16), v128.load(y + i, 16)), first(left - 4)));
  }
  if (left > 8) {
    c = f32x4.add(c, v128.and(f32x4.mul(v128.load(x + i, 32), v128.load(y + i, 32)), first(left - 8)));
  }
  if (left > 12) {
    d = f32x4.add(d, v128.and(f32x4.mul(v128.load(x + i, 48), v128.load(y + i, 48)), first(left - 12)));
  }
  return halve(a, b, c, d);
}
