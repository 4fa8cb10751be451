/** What a page does in a test of the mesh alone. Each function runs in the page and sees its argument only. */

/**
 * @typedef {object} MeshPage
 * @property {any} signalling
 * @property {any} mesh
 * @property {RTCPeerConnection[]} connections not closed, or closed of late
 * @property {string} id
 * @property {Record<string, string>} state of the link, by device
 * @property {string[]} reasons
 * @property {{from: string, bytes: number, digest: string}[]} received
 */

/** Makes signalling and a mesh, as the page itself does. @param {string} name */
export async function joinMesh(name) {
  const folder = "/static/mesh/";
  const { Mesh } = await import(`${folder}mesh.js`);
  const { Signalling } = await import(`${folder}signalling.js`);
  const session = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
  const signalling = new Signalling({ url: `ws://${location.host}/ws`, name, session });
  const digest = async (/** @type {BufferSource} */ bytes) =>
    Array.from(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))).join();
  /** @type {MeshPage} */
  const page = { signalling, mesh: null, connections: [], id: "", state: {}, reasons: [], received: [] };
  page.mesh = new Mesh({
    signalling,
    connect: (/** @type {RTCConfiguration} */ configuration) => {
      const connection = new RTCPeerConnection(configuration);
      const open = page.connections.filter(({ connectionState }) => connectionState !== "closed");
      page.connections = [...open, connection];
      return connection;
    },
    onMessage: async (/** @type {string} */ from, /** @type {ArrayBuffer} */ message) => {
      page.received.push({ from, bytes: message.byteLength, digest: await digest(message) });
    },
    onLink: (/** @type {string} */ id, /** @type {string} */ state, /** @type {string} */ reason) => {
      page.state[id] = state;
      if (reason) page.reasons.push(reason);
    },
  });
  const welcomed = new Promise((resolve) => {
    signalling.on("welcome", ({ id = "" }) => {
      page.id = id;
      resolve(null);
    });
  });
  Object.assign(globalThis, { meshPage: page, meshDigest: digest });
  signalling.connect();
  await welcomed;
  return page.id;
}

export function meshView() {
  const { state, reasons, received, mesh } = /** @type {{meshPage: MeshPage}} */ (
    /** @type {unknown} */ (globalThis)
  ).meshPage;
  return { state, reasons, received, links: mesh.links() };
}

/**
 * Sends random bytes to every device that has a link.
 * @param {number} length
 * @returns {Promise<{digest: string, sent: string[]}>}
 */
export async function sendToAll(length) {
  const { meshPage, meshDigest } = /** @type {any} */ (globalThis);
  const bytes = new Uint8Array(length);
  for (let at = 0; at < length; at += 65_536) crypto.getRandomValues(bytes.subarray(at, at + 65_536));
  const ids = Object.keys(meshPage.state);
  return { digest: await meshDigest(bytes), sent: ids.filter((id) => meshPage.mesh.send(id, bytes)) };
}

/** @param {{fault: "breakLink" | "releaseLink" | "dropNext", id: string}} order */
export function meshFault({ fault, id }) {
  /** @type {any} */ (globalThis).meshPage.mesh.faults[fault](id);
}

/** Begins an ICE restart of every link. @returns {number} how many */
export function restartAll() {
  const { connections } = /** @type {{meshPage: MeshPage}} */ (/** @type {unknown} */ (globalThis)).meshPage;
  const open = connections.filter(({ connectionState }) => connectionState === "connected");
  for (const connection of open) connection.restartIce();
  return open.length;
}

/** @returns {string[]} what ICE calls this side of each link; a restart changes it */
export function iceNames() {
  const { connections } = /** @type {{meshPage: MeshPage}} */ (/** @type {unknown} */ (globalThis)).meshPage;
  return connections.map(({ currentLocalDescription }) => {
    return /a=ice-ufrag:(\S+)/.exec(currentLocalDescription?.sdp ?? "")?.[1] ?? "";
  });
}

/** Leaves the mesh and the room, as a page does that goes. */
export function leaveMesh() {
  const { mesh, signalling } = /** @type {any} */ (globalThis).meshPage;
  mesh.close();
  signalling.close();
}
