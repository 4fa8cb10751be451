/** The question before a model is thrown away: save it first? */

import { part, say } from "./dom.js";

/** @typedef {"save" | "go" | ""} Answer "" where all stays as it is */

export function createAsk() {
  const dialog = part("ask", HTMLDialogElement);
  const text = part("ask-text", HTMLElement);
  const answers = /** @type {const} */ (["save", "go", ""]);
  const [save, go, cancel] = ["ask-save", "ask-go", "ask-cancel"].map((id) => part(id, HTMLButtonElement));
  for (const [at, button] of [save, go, cancel].entries()) {
    button.addEventListener("click", () => dialog.close(answers[at]));
  }

  /**
   * @param {{text: string, save: string, go: string}} words
   * @returns {Promise<Answer>}
   */
  return (words) => {
    say(text, words.text);
    say(save, words.save);
    say(go, words.go);
    dialog.returnValue = "";
    dialog.showModal();
    return new Promise((resolve) => {
      const answered = () => resolve(answers.find((each) => each === dialog.returnValue) ?? "");
      dialog.addEventListener("close", answered, { once: true });
    });
  };
}
