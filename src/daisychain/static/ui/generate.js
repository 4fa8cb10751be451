/** The prompt box: the model's text appears as it comes. */

import { GENERATE_TOKENS, PROMPT_MAX_CHARACTERS } from "../limits.js";
import { element, part, say } from "./dom.js";

/** @typedef {import("./state.js").Page} Page */
/** @typedef {{prompt: string, tokens: number, seed: number, temperature: number}} Request */

/**
 * @param {(request: Request) => void} write
 * @param {() => void} stop
 */
export function createGenerate(write, stop) {
  const form = part("generate", HTMLFormElement);
  const [prompt, hint, box] = [
    part("prompt", HTMLTextAreaElement),
    part("generate-hint", HTMLElement),
    part("written", HTMLElement),
  ];
  const [length, temperature, seed] = ["length", "temperature", "generate-seed"].map((id) =>
    part(id, HTMLInputElement),
  );
  const writeButton = part("write", HTMLButtonElement);
  const stopButton = part("write-stop", HTMLButtonElement);
  prompt.maxLength = PROMPT_MAX_CHARACTERS;
  [length.min, length.max, length.value] = GENERATE_TOKENS.map(String);
  const start = element("mark");
  const rest = element("span");
  box.append(start, rest);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    write({
      prompt: prompt.value,
      tokens: length.valueAsNumber,
      seed: seed.valueAsNumber,
      temperature: temperature.valueAsNumber,
    });
  });
  stopButton.addEventListener("click", stop);

  return {
    /** @param {Page} page */
    render({ written, run }) {
      const focused = document.activeElement;
      writeButton.disabled = !run.model;
      writeButton.hidden = written.busy;
      stopButton.hidden = !written.busy;
      if (focused === writeButton && written.busy) stopButton.focus();
      if (focused === stopButton && !written.busy) writeButton.focus();
      hint.hidden = run.model;
      box.hidden = !written.text && !written.busy;
      box.setAttribute("aria-busy", String(written.busy));
      say(start, written.prompt);
      say(rest, written.text);
      if (written.busy) box.scrollTop = box.scrollHeight;
    },
  };
}
