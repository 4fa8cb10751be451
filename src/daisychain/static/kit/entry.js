/** The kit's page: a prompt box on the model in the file. */

import { messageOf } from "../errors.js";
import { openBackend } from "../kernels/registry.js";
import { GENERATE_TOKENS, PROMPT_MAX_CHARACTERS } from "../limits.js";
import { fromBase64 } from "./base64.js";
import { openModel } from "./model.js";

/** @param {string} id */
const part = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @param {string} id */
const input = (id) => /** @type {HTMLInputElement} */ (part(id));

/** A file that page.html holds as text, which then goes. @param {string} id */
function embedded(id) {
  const bytes = fromBase64(part(id).textContent ?? "");
  part(id).remove();
  return bytes;
}

/** Lets the browser draw what has changed. */
const drawn = () => new Promise((resolve) => setTimeout(resolve));

/** @param {Record<string, string | number>} facts */
function showFacts({ step, parameters, layers, width, sequence, hash, backend }) {
  const rows = {
    "Trained for": `${step} steps`,
    Parameters: parameters.toLocaleString("en"),
    Shape: `${layers} layers of width ${width}, sequence ${sequence}`,
    "State hash": hash,
    "Computes with": backend === "wasm" ? "WebAssembly" : "plain JavaScript",
  };
  for (const [name, value] of Object.entries(rows)) {
    const [term, description] = [document.createElement("dt"), document.createElement("dd")];
    term.textContent = name;
    description.textContent = String(value);
    part("facts").append(term, description);
  }
}

/** @param {Awaited<ReturnType<typeof openModel>>} model */
function listen(model) {
  let wanted = false;
  const busy = (/** @type {boolean} */ now) => {
    wanted = now;
    part("write").hidden = now;
    part("stop").hidden = !now;
    part(now ? "stop" : "write").focus();
  };
  part("stop").addEventListener("click", () => {
    wanted = false;
  });
  part("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const [tokens, temperature, seed] = ["length", "temperature", "seed"].map(
      (id) => input(id).valueAsNumber,
    );
    const { value: prompt } = input("prompt");
    part("written").hidden = false;
    part("written").textContent = prompt;
    part("status").textContent = "";
    busy(true);
    try {
      for await (const { text } of model.write(prompt, { tokens, temperature, seed })) {
        part("written").textContent = prompt + text;
        await drawn();
        if (!wanted) break;
      }
    } catch (error) {
      part("status").textContent = messageOf(error);
    }
    busy(false);
  });
}

async function main() {
  input("prompt").maxLength = PROMPT_MAX_CHARACTERS;
  [input("length").min, input("length").max, input("length").value] = GENERATE_TOKENS.map(String);
  try {
    const { backend } = await openBackend({ wasmBytes: embedded("kernels") });
    const model = await openModel(
      { weights: embedded("weights"), tokenizer: embedded("tokenizer") },
      backend,
    );
    showFacts(model.facts);
    listen(model);
    input("write").disabled = false;
    part("status").textContent = "Ready.";
  } catch (error) {
    part("status").textContent = `This kit cannot be used: ${messageOf(error)}`;
  }
}

await main();
