/** Checkpoints and the kit: save, make, load. */

import { UPLOAD_MAX_BYTES } from "../limits.js";
import { part, say } from "./dom.js";
import { inBytes, isBusy } from "./words.js";

/** @typedef {import("./state.js").Page} Page */

/**
 * Why a file is refused before it is even read, or "".
 * @param {{name: string, size: number}} file
 */
export function refusal({ name, size }) {
  if (!/\.(safetensors|pt)$/i.test(name)) {
    return `${name} is no .safetensors and no .pt file: choose one that DaisyChain saved.`;
  }
  if (size > UPLOAD_MAX_BYTES) {
    return `${name} has ${inBytes(size)}; a room's model has at most ${inBytes(UPLOAD_MAX_BYTES)}.`;
  }
  return size ? "" : `${name} is empty.`;
}

/**
 * @param {(format: "safetensors" | "pt" | "kit") => void} save
 * @param {(name: string, bytes: ArrayBuffer) => void} load
 * @param {(reason: string) => void} refuse
 */
export function createFiles(save, load, refuse) {
  const status = part("files-status", HTMLElement);
  const input = part("upload-file", HTMLInputElement);
  const upload = part("upload", HTMLButtonElement);
  const formats = /** @type {const} */ (["safetensors", "pt", "kit"]);
  const savers = formats.map((format) => {
    const button = part(`save-${format}`, HTMLButtonElement);
    button.addEventListener("click", () => save(format));
    return button;
  });
  upload.addEventListener("click", () => input.click());
  input.addEventListener("change", async () => {
    const file = input.files?.[0];
    input.value = "";
    if (!file) return;
    const why = refusal(file);
    if (why) refuse(why);
    else load(file.name, await file.arrayBuffer());
  });

  return {
    /** @param {Page} page */
    render(page) {
      for (const button of savers) button.disabled = !page.run.model || page.file.busy;
      upload.disabled = !page.backend || page.file.busy || isBusy(page);
      status.className = page.file.bad ? "hint bad" : "hint";
      say(status, page.file.text);
    },
  };
}

/**
 * Gives bytes to the browser's own download.
 * @param {string} name
 * @param {BlobPart} bytes
 * @param {string} mime
 */
export function download(name, bytes, mime) {
  const url = URL.createObjectURL(new Blob([bytes], { type: mime }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser may read the URL after the click returns.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
