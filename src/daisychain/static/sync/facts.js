/** What the page shows of a session at any time. */

/**
 * @param {import("./session.js").Session} session
 * @returns {import("./types.js").Facts}
 */
export function factsOf(session) {
  const { phase, reason, run, config, step, hash, epoch, view } = session;
  const roster = view?.roster ?? [];
  const ids = [...new Set([...roster, session.id, ...session.links.peers.keys()])];
  const devices = ids.map((id) => {
    const status = id === session.id ? session : session.links.status(id);
    const known = status !== null && status.run === run && run !== null && status.hash !== null;
    const place = roster.indexOf(id);
    return {
      id,
      place: place < 0 ? null : place,
      linked: id === session.id || session.alive(id),
      backend: status?.backend ?? "",
      step: known ? status.step : null,
      hash: known ? status.hash : null,
      equal: known && status.step === step && hash !== null ? status.hash === hash : null,
    };
  });
  return { phase, reason, run, config, step, hash, epoch, leader: view?.leader ?? null, roster, devices };
}
