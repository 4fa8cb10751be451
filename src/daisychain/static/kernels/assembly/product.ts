// One block's product of two quantised matrices, in tiles of 4 rows × 8 columns.

/** Where a tile that is cut off by the edge of the output is put together. */
const TILE: usize = memory.data(128, 16);

/** f32(sum)·2^(ka+kb) of four columns, into place. */
@inline
function finish(sum: v128, scale: v128, to: usize, adds: bool): void {
  const value = f32x4.mul(f32x4.convert_i32x4_s(sum), scale);
  v128.store(to, adds ? f32x4.add(v128.load(to), value) : value);
}

/** Sums of one tile over all pairs, into 4 rows `rowBytes` apart. */
@inline
function tile(
  a: usize,
  aScales: usize,
  b: usize,
  bScales: usize,
  pairs: i32,
  to: usize,
  rowBytes: usize,
  adds: bool,
): void {
  let s00 = i32x4.splat(0);
  let s01 = s00;
  let s10 = s00;
  let s11 = s00;
  let s20 = s00;
  let s21 = s00;
  let s30 = s00;
  let s31 = s00;
  const end = a + (<usize>pairs << 4);
  while (a < end) {
    const left = v128.load(b);
    const right = v128.load(b, 16);
    const a0 = v128.load32_splat(a);
    s00 = i32x4.add(s00, i32x4.dot_i16x8_s(a0, left));
    s01 = i32x4.add(s01, i32x4.dot_i16x8_s(a0, right));
    const a1 = v128.load32_splat(a, 4);
    s10 = i32x4.add(s10, i32x4.dot_i16x8_s(a1, left));
    s11 = i32x4.add(s11, i32x4.dot_i16x8_s(a1, right));
    const a2 = v128.load32_splat(a, 8);
    s20 = i32x4.add(s20, i32x4.dot_i16x8_s(a2, left));
    s21 = i32x4.add(s21, i32x4.dot_i16x8_s(a2, right));
    const a3 = v128.load32_splat(a, 12);
    s30 = i32x4.add(s30, i32x4.dot_i16x8_s(a3, left));
    s31 = i32x4.add(s31, i32x4.dot_i16x8_s(a3, right));
    a += 16;
    b += 32;
  }
  const scaleLeft = v128.load(bScales);
  const scaleRight = v128.load(bScales, 16);
  const c0 = v128.load32_splat(aScales);
  finish(s00, f32x4.mul(c0, scaleLeft), to, adds);
  finish(s01, f32x4.mul(c0, scaleRight), to + 16, adds);
  const c1 = v128.load32_splat(aScales, 4);
  finish(s10, f32x4.mul(c1, scaleLeft), to + rowBytes, adds);
  finish(s11, f32x4.mul(c1, scaleRight), to + rowBytes + 16, adds);
  const c2 = v128.load32_splat(aScales, 8);
  finish(s20, f32x4.mul(c2, scaleLeft), to + 2 * rowBytes, adds);
  finish(s21, f32x4.mul(c2, scaleRight), to + 2 * rowBytes + 16, adds);
  const c3 = v128.load32_splat(aScales, 12);
  finish(s30, f32x4.mul(c3, scaleLeft), to + 3 * rowBytes, adds);
  finish(s31, f32x4.mul(c3, scaleRight), to + 3 * rowBytes + 16, adds);
}

export function product(
  a: usize,
  aScales: usize,
  rows: i32,
  b: usize,
  bScales: usize,
  columns: i32,
  pairs: i32,
  out: usize,
  stride: i32,
  adds: bool,
): void {
  const rowBytes: usize = <usize>stride << 2;
  for (let c = 0; c < columns; c += 8) {
    const panel = b + (<usize>(c * pairs) << 2);
    const panelScales = bScales + (<usize>c << 2);
    for (let r = 0; r < rows; r += 4) {
      const left = a + (<usize>(r * pairs) << 2);
      const leftScales = aScales + (<usize>r << 2);
      const to = out + <usize>r * rowBytes + (<usize>c << 2);
      if (r + 4 <= rows && c + 8 <= columns) {
        if (adds) tile(left, leftScales, panel, panelScales, pairs, to, rowBytes, true);
        else tile(left, leftScales, panel, panelScales, pairs, to, rowBytes, false);
      } else {
        tile(left, leftScales, panel, panelScales, pairs, TILE, 32, false);
        place(to, rowBytes, min(rows - r, 4), min(columns - c, 8), adds);
      }
    }
  }
}

/** The part of the tile that lies within the output. */
function place(to: usize, rowBytes: usize, rows: i32, columns: i32, adds: bool): void {
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) {
      const at = to + <usize>r * rowBytes + (<usize>c << 2);
      const value = load<f32>(TILE + (<usize>(r * 8 + c) << 2));
      store<f32>(at, adds ? load<f32>(at) + value : value);
    }
  }
}
