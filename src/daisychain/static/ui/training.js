/** Start, Stop, how far the run is, and whether all devices hold the same weights. */

import { part, say } from "./dom.js";
import { doorWords } from "./door.js";
import {
  equalWords,
  goOnWords,
  isBusy,
  leftWords,
  nameOf,
  short,
  shortHash,
  sourceWords,
  statusWords,
  whole,
} from "./words.js";

/** @typedef {import("./state.js").Page} Page */

/**
 * @param {() => import("./state.js").Settings} chosen for the next run
 * @param {(goOn: boolean) => void} start anew, or from the model that is here
 * @param {() => void} stop
 */
export function createTraining(chosen, start, stop) {
  const startButton = part("start", HTMLButtonElement);
  const goOnButton = part("go-on", HTMLButtonElement);
  const goOnHint = part("go-on-hint", HTMLElement);
  const stopButton = part("stop", HTMLButtonElement);
  const status = part("status", HTMLElement);
  const announce = part("announce", HTMLElement);
  const progress = part("progress", HTMLProgressElement);
  const [step, loss, speed, left] = ["step", "loss", "speed", "left"].map((key) =>
    part(`fact-${key}`, HTMLElement),
  );
  const badge = part("hash-badge", HTMLElement);
  const [hash, source] = [part("hash", HTMLElement), part("source", HTMLElement)];
  startButton.addEventListener("click", () => startButton.ariaDisabled || start(false));
  goOnButton.addEventListener("click", () => goOnButton.ariaDisabled || start(true));
  stopButton.addEventListener("click", stop);

  return {
    /** @param {Page} page */
    render(page) {
      const { run } = page;
      const busy = isBusy(page);
      const leads = run.leader === null || run.leader === page.id;
      const focused = document.activeElement;
      startButton.hidden = busy;
      startButton.disabled = !page.backend;
      // Not disabled while it is waited: it would lose the focus.
      startButton.ariaDisabled = goOnButton.ariaDisabled = page.asked ? "true" : null;
      startButton.className = run.model ? "" : "main";
      say(startButton, run.model ? "Start anew" : "Start");
      goOnButton.hidden = busy || !run.model;
      goOnHint.hidden = goOnButton.hidden;
      say(goOnHint, goOnWords(page, chosen()));
      stopButton.hidden = !busy || !leads;
      if ((focused === startButton || focused === goOnButton) && busy && leads) stopButton.focus();
      if (focused === stopButton && !busy) (run.model ? goOnButton : startButton).focus();
      const who = busy && !leads && run.leader ? ` Only ${nameOf(page, run.leader)} can stop it.` : "";
      const words = statusWords(page) + who;
      say(status, words);
      const door = doorWords(page);
      say(announce, door ? `${door.title}. ${door.text}` : words);
      progress.max = Math.max(run.steps, 1);
      progress.value = run.step;
      say(step, run.steps ? `${whole(run.step)} of ${whole(run.steps)}` : "–");
      say(loss, run.loss === null ? "–" : run.loss.toFixed(3));
      say(speed, run.tokensPerS ? short(run.tokensPerS) : "–");
      say(left, leftWords(page));
      const { tone, text } = equalWords(page);
      badge.className = `badge ${tone}`;
      say(badge, text);
      say(hash, shortHash(run.hash));
      say(source, sourceWords(run.source));
      hash.title = run.hash ? `State hash ${run.hash}` : "";
    },
  };
}
