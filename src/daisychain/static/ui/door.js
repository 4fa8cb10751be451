/** Coming in and letting in: waiting, denied, full; who knocks; notices. */

import { element, nameInput, part, say } from "./dom.js";
import { many } from "./words.js";

/** @typedef {import("./state.js").Page} Page */
/** @typedef {"reload" | "ask again" | "own room" | ""} DoorAction */

const ACTIONS = {
  reload: "Try again",
  "ask again": "Ask again",
  "own room": "Make a room of your own",
  "": "",
};
const WAIT = "The host of this room has been asked. Keep this page open: it goes on by itself.";
const TITLE = "DaisyChain room";

/**
 * What stands in place of the room; null when the device is in.
 * @param {Page} page
 * @returns {{title: string, text: string, action: DoorAction} | null}
 */
export function doorWords({ door, doorReason, doorCode, id }) {
  switch (door) {
    case "waiting":
      return {
        title: "Waiting to be let in",
        text: doorReason || WAIT,
        action: "",
      };
    case "denied":
      return { title: "Not let in", text: doorReason, action: "ask again" };
    case "closed": {
      const full = doorCode === "full" || doorCode === "bad_room";
      return { title: closedTitle(doorCode), text: doorReason, action: full ? "own room" : "reload" };
    }
    case "connecting":
      if (id || !doorReason) return null;
      return {
        title: "The room server does not answer",
        text: "Is it still running, and is this device on its network? The page keeps trying.",
        action: "reload",
      };
    default:
      return null;
  }
}

/** @param {string} code */
function closedTitle(code) {
  const titles = /** @type {Record<string, string>} */ ({
    full: "No place left",
    throttled: "Too many tries",
    bad_room: "That is no room",
  });
  return titles[code] ?? "The room server closed the connection";
}

/**
 * @param {() => void} ownRoom
 * @param {(name: string) => void} rename
 */
export function createDoor(ownRoom, rename) {
  const [door, room] = [part("door", HTMLElement), part("room", HTMLElement)];
  const [title, text] = [part("door-title", HTMLElement), part("door-text", HTMLElement)];
  const [button, place] = [part("door-action", HTMLButtonElement), part("place", HTMLElement)];
  const [name, naming] = [part("door-name", HTMLInputElement), part("door-naming", HTMLElement)];
  const own = part("door-own", HTMLButtonElement);
  /** @type {DoorAction} */
  let action = "";
  nameInput(name, rename);
  own.addEventListener("click", ownRoom);
  button.addEventListener("click", () => (action === "own room" ? ownRoom() : location.reload()));

  return {
    /** @param {Page} page */
    render(page) {
      const words = doorWords(page);
      door.hidden = !words;
      room.hidden = words !== null;
      say(title, words?.title ?? "");
      say(text, words?.text ?? "");
      action = words?.action ?? "";
      button.hidden = !action;
      say(button, ACTIONS[action]);
      own.hidden = page.door !== "denied";
      naming.hidden = page.door !== "denied" && page.door !== "waiting";
      if (document.activeElement !== name) name.value = page.name;
      say(place, placeWords(page));
    },
  };
}

/** @param {Page} page */
function placeWords({ door, room, host, members }) {
  if (door === "connecting") return "Connecting…";
  if (door !== "open") return "";
  if (!room) return members.length ? `A group of ${members.length + 1} on this network` : "On this network";
  return `Private room ${room}${host ? ", and you are its host" : ""}`;
}

/** @param {(id: string, accepted: boolean) => void} answer */
export function createKnocks(answer) {
  const box = part("knocks", HTMLElement);
  const title = part("knocks-title", HTMLElement);
  const list = part("knock-list", HTMLUListElement);
  const announce = part("announce-knock", HTMLElement);
  /** @type {Map<string, HTMLLIElement>} */
  const items = new Map();

  return {
    /** @param {Page} page */
    render({ knocks }) {
      box.hidden = !knocks.length;
      const words =
        knocks.length === 1 ? "A device wants to join" : `${many(knocks.length, "device")} want to join`;
      say(title, words);
      document.title = knocks.length
        ? `${knocks.map(({ name }) => name).join(", ")} wants in – ${TITLE}`
        : TITLE;
      say(announce, knocks.length ? `${words}: ${knocks.map(({ name }) => name).join(", ")}` : "");
      for (const [id, item] of items) {
        if (knocks.some((knock) => knock.id === id)) continue;
        item.remove();
        items.delete(id);
      }
      for (const { id, name } of knocks) {
        const item = items.get(id) ?? knockItem(id, answer);
        if (!items.has(id)) list.append(item);
        items.set(id, item);
        if (item.firstElementChild) say(item.firstElementChild, name);
      }
    },
  };
}

/** @param {string} id @param {(id: string, accepted: boolean) => void} answer */
function knockItem(id, answer) {
  const name = element("span", { id: `knock-${id}` });
  const button = (/** @type {string} */ words, /** @type {boolean} */ accepted) => {
    const made = element("button", { type: "button", "aria-describedby": name.id }, words);
    if (accepted) made.className = "main";
    made.addEventListener("click", () => answer(id, accepted));
    return made;
  };
  return element("li", {}, name, button("Accept", true), button("Deny", false));
}

/** @param {() => void} close */
export function createNotice(close) {
  const box = part("notice", HTMLElement);
  const [title, text] = [part("notice-title", HTMLElement), part("notice-text", HTMLElement)];
  part("notice-close", HTMLButtonElement).addEventListener("click", close);
  return {
    /** @param {Page} page */
    render({ notice }) {
      box.hidden = !notice;
      box.className = notice?.bad ? "notice bad" : "notice";
      say(title, notice?.title ?? "");
      say(text, notice?.text ?? "");
    },
  };
}
