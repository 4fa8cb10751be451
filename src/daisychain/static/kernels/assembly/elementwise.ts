// Number by number: sums, ReLU's gradient, norm, DaisyAdam.

import { dot, storeFirst } from "./lanes";

const NORM_EPSILON: f32 = 1e-5;

export function add(a: usize, b: usize, out: usize, length: i32): void {
  const bytes: usize = <usize>length << 2;
  for (let i: usize = 0; i < bytes; i += 16) {
    const sum = f32x4.add(v128.load(a + i), v128.load(b + i));
    storeFirst(out + i, sum, <i32>((bytes - i) >> 2));
  }
}

export function subtract(a: usize, b: usize, out: usize, length: i32): void {
  const bytes: usize = <usize>length << 2;
  for (let i: usize = 0; i < bytes; i += 16) {
    const difference = f32x4.sub(v128.load(a + i), v128.load(b + i));
    storeFirst(out + i, difference, <i32>((bytes - i) >> 2));
  }
}

export function reluBackward(g: usize, y: usize, dx: usize, length: i32): void {
  const bytes: usize = <usize>length << 2;
  for (let i: usize = 0; i < bytes; i += 16) {
    const passes = f32x4.gt(v128.load(y + i), f32x4.splat(0));
    storeFirst(dx + i, v128.and(v128.load(g + i), passes), <i32>((bytes - i) >> 2));
  }
}

export function norm(x: usize, gain: usize, out: usize, inverse: usize, rows: i32, width: i32): void {
  const bytes: usize = <usize>width << 2;
  for (let row = 0; row < rows; row++) {
    const scale: f32 = 1 / sqrt<f32>(dot(x, x, width) / <f32>width + NORM_EPSILON);
    store<f32>(inverse + (<usize>row << 2), scale);
    const by = f32x4.splat(scale);
    for (let i: usize = 0; i < bytes; i += 16) {
      const value = f32x4.mul(f32x4.mul(v128.load(x + i), by), v128.load(gain + i));
      storeFirst(out + i, value, <i32>((bytes - i) >> 2));
    }
    x += bytes;
    out += bytes;
  }
}

export function normBackward(
  g: usize,
  x: usize,
  gain: usize,
  inverse: usize,
  dx: usize,
  dGain: usize,
  rows: i32,
  width: i32,
): void {
  const bytes: usize = <usize>width << 2;
  memory.fill(dGain, 0, bytes);
  for (let row = 0; row < rows; row++) {
    const scale = load<f32>(inverse + (<usize>row << 2));
    const by = f32x4.splat(scale);
    for (let i: usize = 0; i < bytes; i += 16) {
      const left = <i32>((bytes - i) >> 2);
      const gradient = v128.load(g + i);
      storeFirst(dx + i, f32x4.mul(gradient, v128.load(gain + i)), left);
      const part = f32x4.mul(gradient, f32x4.mul(v128.load(x + i), by));
      storeFirst(dGain + i, f32x4.add(v128.load(dGain + i), part), left);
    }
    const k = f32x4.splat((dot(dx, x, width) * scale * scale * scale) / <f32>width);
    for (let i: usize = 0; i < bytes; i += 16) {
      const value = f32x4.sub(f32x4.mul(v128.load(dx + i), by), f32x4.mul(v128.load(x + i), k));
      storeFirst(dx + i, value, <i32>((bytes - i) >> 2));
    }
    g += bytes;
    x += bytes;
    dx += bytes;
  }
}

export function adam(
  w: usize,
  g: usize,
  m: usize,
  v: usize,
  length: i32,
  beta1: f32,
  rest1: f32,
  beta2: f32,
  rest2: f32,
  root: f32,
  size: f32,
  epsilon: f32,
  keep: f32,
): void {
  const bytes: usize = <usize>length << 2;
  for (let i: usize = 0; i < bytes; i += 16) {
    const left = <i32>((bytes - i) >> 2);
    const gradient = v128.load(g + i);
    const decayed = f32x4.mul(v128.load(m + i), f32x4.splat(beta1));
    const mean = f32x4.add(decayed, f32x4.mul(gradient, f32x4.splat(rest1)));
    const squared = f32x4.mul(f32x4.mul(gradient, gradient), f32x4.splat(rest2));
    const square = f32x4.add(f32x4.mul(v128.load(v + i), f32x4.splat(beta2)), squared);
    const divisor = f32x4.add(f32x4.mul(f32x4.sqrt(square), f32x4.splat(root)), f32x4.splat(epsilon));
    const change = f32x4.mul(f32x4.div(mean, divisor), f32x4.splat(size));
    storeFirst(m + i, mean, left);
    storeFirst(v + i, square, left);
    const weight = f32x4.mul(v128.load(w + i), f32x4.splat(keep));
    storeFirst(w + i, f32x4.sub(weight, change), left);
  }
}
