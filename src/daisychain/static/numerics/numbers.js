/** IEEE arithmetic that JavaScript has exactly; the only place outside ui/ that names Math. */

export const { abs, ceil, clz32, floor, fround, imul, max, min, sqrt, trunc } = Math;
