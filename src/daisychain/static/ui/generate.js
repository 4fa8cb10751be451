/** The prompt box: the model's text appears as it comes. */

import { GENERATE_TOKENS, PROMPT_MAX_CHARACTERS } from "../limits.js";
import { copied, element, part, say } from "./dom.js";
import { whole } from "./words.js";

/** @typedef {import("./state.js").Page} Page */
/** @typedef {import("./state.js").Written} Written */
/** @typedef {{prompt: string, tokens: number, seed: number, temperature: number}} Request */

/**
 * Which weights wrote a text, where they are no longer those of the run.
 * @param {Pick<Page, "run" | "written">} page
 */
export function writtenWords({ written: { hash, step }, run }) {
  return hash === run.hash ? "" : `Written after step ${whole(step)}; the model has changed since.`;
}

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
  const copyButton = part("written-copy", HTMLButtonElement);
  const [result, by] = [part("result", HTMLElement), part("written-by", HTMLElement)];
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
  copyButton.addEventListener("click", async () => {
    const select = () => getSelection()?.selectAllChildren(box);
    say(copyButton, (await copied(box.textContent, select)) ? "Copied" : "Press Ctrl+C");
  });

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
      result.hidden = !written.text && !written.busy;
      box.setAttribute("aria-busy", String(written.busy));
      say(start, written.prompt);
      say(rest, written.text);
      say(by, writtenWords({ written, run }));
      copyButton.hidden = written.busy;
      if (written.busy) {
        say(copyButton, "Copy");
        box.scrollTop = box.scrollHeight;
      }
    },
  };
}
