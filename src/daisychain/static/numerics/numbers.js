/** IEEE arithmetic that JavaScript has exactly; the only place outside ui/ that names Math. */

export const { abs, ceil, clz32, floor, fround, imul, LN2, LOG2E, max, min, sqrt, trunc } = Math;
