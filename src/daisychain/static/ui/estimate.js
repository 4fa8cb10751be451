/** What settings cost before they are tried: bytes to each other device a step. Pure. */

import { VOCABULARY } from "../limits.js";
import { parameterCount } from "../model/weights.js";
import { payloadBytes } from "../sync/compress.js";

/** @typedef {import("./state.js").Settings} Settings */

/** @param {Settings} settings */
export const parametersOf = (settings) => parameterCount({ ...settings, vocabulary: VOCABULARY });

/** @param {Settings} settings */
export const stepBytes = (settings) => payloadBytes(parametersOf(settings), settings.gradients);
