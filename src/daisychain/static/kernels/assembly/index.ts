// The primitives of plain.js and plainFunctions.js in WebAssembly SIMD; what each does is described there. No relaxed
// instruction, nothing fused. Kernels read up to 64 bytes beyond a matrix and never write there.

export { add, adam, norm, normBackward, reluBackward, subtract } from "./elementwise";
export { causalSoftmax, causalSoftmaxBackward, divide, exponentials, maximum } from "./functions";
export { product } from "./product";
export { blockValues, largest, quantiseColumns, quantiseRows } from "./quantise";
export { sha256 } from "./sha256";
