/** What the page knows, and how each message changes it. Pure: no DOM, no clock, so that it can be tested. */

import {
  BATCH_SAMPLES,
  HEADS_DEFAULT,
  LAYERS_DEFAULT,
  LOG_LINES,
  MAX_MEMBERS,
  RATE_THOUSANDTHS,
  SEQUENCE,
  STEPS,
  WIDTH,
} from "../limits.js";

/** @typedef {"float32" | "int8"} Gradients */
/** @typedef {"auto" | "fineweb-edu" | "embedded"} Source */
/** @typedef {{width: number, layers: number, heads: number, sequence: number, batch: number, steps: number, rate: number, seed: number, gradients: Gradients, source: Source}} Settings */
/** @typedef {{id: string, name: string}} Member */
/** @typedef {"up" | "trouble" | "down" | "self"} LinkState */
/** @typedef {{id: string, name: string, backend: string, place: number | null, step: number, hash: string, equal: boolean | null, tokensPerS: number, link: LinkState}} Device */
/** @typedef {"idle" | "starting" | "running" | "waiting" | "finished" | "stopped" | "halted"} Phase */
/** @typedef {{id: string, phase: Phase, reason: string, settings: Settings | null, step: number, steps: number, loss: number | null, tokensPerS: number, stepMs: number, hash: string, leader: string | null, source: string, parameters: number, devices: Device[], model: boolean}} Run */
/** @typedef {[step: number, loss: number]} Point */
/** @typedef {{number: number, kind: string, step: number | null, text: string}} Line */
/** @typedef {{bad: boolean, title: string, text: string}} Notice */
/** @typedef {"connecting" | "open" | "waiting" | "denied" | "closed"} Door */
/**
 * `hash` and `step` are those of the weights when the writing began.
 * @typedef {{prompt: string, text: string, busy: boolean, hash: string, step: number}} Written
 */
/**
 * `saved` is the hash of the model that this page saved last or loaded, `saving` of the one being saved; `from` is
 * the step that the run on the curve began at, and a `newRun` has no points yet.
 */
/** @typedef {{door: Door, doorReason: string, doorCode: string, id: string, name: string, host: boolean, hostId: string, room: string | null, members: Member[], maxMembers: number, knocks: Member[], links: Record<string, {state: LinkState, reason: string}>, backend: string, backendWhy: string, run: Run, losses: Point[], newRun: boolean, from: number, asked: "" | "anew" | "go on", saved: string, saving: string, loading: boolean, log: Line[], logged: number, written: Written, file: {busy: boolean, bad: boolean, text: string}, notice: Notice | null}} Page */

/** @type {Settings} */
export const DEFAULT_SETTINGS = {
  width: WIDTH[2],
  layers: LAYERS_DEFAULT,
  heads: HEADS_DEFAULT,
  sequence: SEQUENCE[2],
  batch: BATCH_SAMPLES[2],
  steps: STEPS[2],
  rate: RATE_THOUSANDTHS[2],
  seed: 1,
  gradients: "float32",
  source: "auto",
};

/** The phases of a run that goes on. @type {Phase[]} */
export const BUSY = ["starting", "running", "waiting"];

/** @type {Run} */
const NO_RUN = {
  id: "",
  phase: "idle",
  reason: "",
  settings: null,
  step: 0,
  steps: 0,
  loss: null,
  tokensPerS: 0,
  stepMs: 0,
  hash: "",
  leader: null,
  source: "",
  parameters: 0,
  devices: [],
  model: false,
};

/**
 * @param {{name: string, room: string | null}} known
 * @returns {Page}
 */
export function newPage({ name, room }) {
  return {
    door: "connecting",
    doorReason: "",
    doorCode: "",
    id: "",
    name,
    host: false,
    hostId: "",
    room,
    members: [],
    maxMembers: MAX_MEMBERS,
    knocks: [],
    links: {},
    backend: "",
    backendWhy: "",
    run: NO_RUN,
    asked: "",
    losses: [],
    newRun: false,
    from: 0,
    saved: "",
    saving: "",
    loading: false,
    log: [],
    logged: 0,
    written: { prompt: "", text: "", busy: false, hash: "", step: 0 },
    file: { busy: false, bad: false, text: "" },
    notice: null,
  };
}

/**
 * The page after a message of the room server.
 * @param {Page} page
 * @param {any} message
 * @returns {Page}
 */
export function fromServer(page, message) {
  switch (message.type) {
    case "welcome": {
      const { id, host, room, members, limits } = message;
      const others = members.filter((/** @type {Member} */ member) => member.id !== id);
      return {
        ...page,
        ...{ door: "open", id, host, room, members: others },
        hostId: host ? id : page.hostId,
        maxMembers: limits?.members ?? page.maxMembers,
        notice: message.notice ? hintOf(message.notice) : page.notice === LOST ? null : page.notice,
      };
    }
    case "waiting":
      return { ...page, door: "waiting", doorReason: message.reason ?? "" };
    case "denied":
      return { ...page, door: "denied", doorReason: message.reason ?? "" };
    case "renamed":
      return {
        ...page,
        members: page.members.map((member) =>
          member.id === message.id ? { ...member, name: message.name } : member,
        ),
      };
    case "joined": {
      const { id, name } = message;
      const members = [...page.members.filter((member) => member.id !== id), { id, name }];
      return { ...page, members, knocks: without(page.knocks, id) };
    }
    case "left": {
      const { [message.id]: _, ...links } = page.links;
      return { ...page, links, members: without(page.members, message.id) };
    }
    case "knock":
      return {
        ...page,
        knocks: [...without(page.knocks, message.id), { id: message.id, name: message.name }],
      };
    case "gone":
      return { ...page, knocks: without(page.knocks, message.id) };
    case "host":
      return { ...page, host: message.id === page.id, hostId: message.id };
    case "error":
      return refused(page, message);
    default:
      return page;
  }
}

/** @type {Notice} */
const LOST = {
  bad: false,
  title: "The room server is out of reach.",
  text:
    "A run goes on between the devices, and a model can be saved; a new run and the offline page may need the " +
    "server. This page tries to get back by itself.",
};

/**
 * A device that is in stays in: its run needs no server, and the socket is opened again.
 * @param {Page} page
 * @param {{code: string, message: string}} error
 * @returns {Page}
 */
function refused(page, { code, message }) {
  if (!page.id) return { ...page, door: "closed", doorCode: code, doorReason: message };
  return withNotice(page, { bad: true, title: "The room server refused this page.", text: message });
}

/** @param {string} text @returns {Notice} */
const hintOf = (text) => ({ bad: false, title: "This device may stay alone.", text });

/**
 * The page when the socket to the server is lost (a run does not need it).
 * @param {Page} page
 * @returns {Page}
 */
export function serverLost(page) {
  if (page.door === "denied" || page.door === "closed") return page;
  return page.id ? withNotice(page, LOST) : { ...page, door: "connecting", doorReason: LOST.title };
}

/**
 * @param {Page} page
 * @param {string} id
 * @param {LinkState} state
 * @param {string} reason
 * @returns {Page}
 */
export function linkChanged(page, id, state, reason) {
  if (!page.members.some((member) => member.id === id)) return page;
  return { ...page, links: { ...page.links, [id]: { state, reason } } };
}

/**
 * The page after a message of the worker.
 * @param {Page} page
 * @param {any} message
 * @returns {Page}
 */
export function fromWorker(page, message) {
  switch (message.type) {
    case "ready":
      return { ...page, backend: message.backend, backendWhy: message.why ?? "" };
    case "state":
      return stated(page, message.state);
    case "log":
      return logLine(page, message);
    case "generated":
      return { ...page, written: { ...page.written, text: message.text, busy: !message.done } };
    case "file":
      return {
        ...page,
        saved: page.saving,
        file: { busy: false, bad: false, text: `Saved ${message.name}.` },
      };
    case "loaded":
      return {
        ...page,
        loading: true,
        file: { busy: false, bad: false, text: `Loaded ${message.description}.` },
      };
    case "error":
      return failed(page, message.message);
    default:
      return page;
  }
}

/**
 * @param {Page} page
 * @param {Run & {losses?: Point[]}} state
 * @returns {Page}
 */
function stated(page, { losses: added = [], ...run }) {
  const asked = BUSY.includes(run.phase) ? "" : page.asked;
  const known = { ...page, run, asked, ...curve(page, run, added) };
  const arrived = page.loading && run.phase === "finished" && run.hash !== "";
  const taken = arrived ? { loading: false, saved: run.hash } : { loading: page.loading && !added.length };
  const last = known.losses.at(-1)?.[0] ?? 0;
  // The worker still tells the loss and the speed of the run before.
  const old = known.newRun && !(last > 0 && last === run.step);
  return { ...known, ...taken, run: old ? { ...run, ...NO_STEP } : run };
}

/** Of a run that has made no step yet. */
const NO_STEP = { loss: null, tokensPerS: 0, stepMs: 0 };

/**
 * @param {Page} page
 * @param {Run} run
 * @param {Point[]} added
 */
function curve({ losses, newRun, from, asked, run: before }, run, added) {
  const last = losses.at(-1)?.[0] ?? 0;
  if (!newRun && run.id === before.id) return { newRun, from, losses: addPoints(losses, added) };
  if (!added.length) {
    const elsewhere = run.hash !== "" && run.step !== last;
    return { newRun: true, from, losses: elsewhere || asked === "anew" ? [] : losses };
  }
  const goesOn = losses.length > 0 && added[0][0] === last + 1;
  return { newRun: false, from: goesOn ? last : 0, losses: addPoints(goesOn ? losses : [], added) };
}

/**
 * The page as it shows: a run that was asked for anew has nothing of the last one.
 * @param {Page} page
 * @returns {Page}
 */
export function asShown(page) {
  if (page.asked !== "anew") return page;
  return { ...page, losses: [], run: { ...page.run, ...NO_STEP, step: 0, steps: 0 } };
}

/**
 * Is there a model that this page has not saved since it last changed?
 * @param {Page} page
 */
export const isUnsaved = ({ run, saved }) =>
  run.model && run.step > 0 && run.hash !== "" && run.hash !== saved;

/**
 * Would something be lost with this page? Who follows others leaves run and model with them.
 * @param {Page} page
 */
export function mayLose(page) {
  const { run, members, id } = page;
  const leads = run.leader === null || run.leader === id || !members.length;
  return leads && (BUSY.includes(run.phase) || isUnsaved(page));
}

/**
 * A step that was reissued replaces the points from its step on.
 * @param {Point[]} points in order of step
 * @param {Point[]} added in order of step
 * @returns {Point[]}
 */
export function addPoints(points, added) {
  const first = added[0];
  if (!first) return points;
  let keep = points.length;
  while (keep > 0 && points[keep - 1][0] >= first[0]) keep -= 1;
  return [...(keep < points.length ? points.slice(0, keep) : points), ...added];
}

/**
 * @param {Page} page
 * @param {{kind: string, step?: number | null, text: string}} line
 * @returns {Page}
 */
export function logLine(page, { kind, step, text }) {
  const log = page.log.slice(-(LOG_LINES - 1));
  log.push({ number: page.logged, kind, step: step ?? null, text });
  return { ...page, log, logged: page.logged + 1 };
}

/**
 * An error stands where the reader is waiting for a result; else it stands at the top.
 * @param {Page} page
 * @param {string} text
 * @returns {Page}
 */
function failed(page, text) {
  if (page.file.busy) return { ...page, file: { busy: false, bad: true, text } };
  const written = { ...page.written, busy: false };
  return withNotice({ ...page, written, asked: "" }, { bad: true, title: "That did not work.", text });
}

/**
 * @param {Page} page
 * @param {Notice | null} notice
 * @returns {Page}
 */
export function withNotice(page, notice) {
  return { ...page, notice };
}

/**
 * @param {Member[]} list
 * @param {string} id
 */
function without(list, id) {
  return list.filter((member) => member.id !== id);
}
