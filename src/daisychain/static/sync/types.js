/** The session's interface: events go in, actions come out, each a plain object named by its `type`.

`session.handle(event)` returns the actions in order; the host carries them out in that order. Ids are 16 hex
characters, runs 32, digests 64 (all lower case). Times are the host's own milliseconds, and come only with ticks.

Jobs. `compute`, `apply`, `export` and `import` carry a `job` number that the answer repeats. Of `apply`, `export` and
`import` one at most is in flight. A `compute` may be overtaken: by a later `compute` or by an `apply` (of a set that
another epoch completed); the host then drops the old one, or finishes it first; its answer is ignored. */

/** What all devices of a run share, fixed at its start. Further entries (width, layers, …) are the host's: integers
 * below 2^32 or short strings.
 * @typedef {{steps: number, gradients: "float32" | "int8"} & Record<string, number | string>} RunConfig */

/** A roster under its number. Order is the order of averaging.
 * @typedef {{epoch: number, leader: string, roster: string[]}} View */

/** One device's gradient in a set, as it came over the wire.
 * @typedef {{id: string, count: number, bytes: Uint8Array}} Part */

/** Events.
 *
 * `link_up`/`link_down`: the mesh has (lost) a channel to this device.
 * `message`: whole message of that device.
 * `tick`: about twice a second; only retries and deadlines depend on it.
 * `start`: begin a run; `run` is random, `state` an export to go on from (null: seeded weights, step 0).
 * `computed`: `payload` is the gradient's bytes (float32 little-endian, or compress.js's), `count` its tokens, `loss`
 *   their summed loss, `probe` the digest of the kernel probe, `tookMs` the whole milliseconds that it took.
 * `imported`: now at this step and hash; a gradient's payload measures `payloadBytes` in this run.
 * `fault`: this device cannot compute, apply or import: stops the run everywhere, with the reason.
 * `stop`: end the run for all after the next step. `leave`: this device goes.
 * @typedef {{type: "link_up" | "link_down", id: string}
 *   | {type: "message", id: string, bytes: Uint8Array}
 *   | {type: "tick", nowMs: number}
 *   | {type: "start", run: string, config: RunConfig, tokens: Uint16Array, state: Uint8Array | null}
 *   | {type: "computed", job: number, payload: Uint8Array, count: number, loss: number, probe: string,
 *       tookMs: number}
 *   | {type: "applied", job: number, hash: string}
 *   | {type: "exported", job: number, bytes: Uint8Array}
 *   | {type: "imported", job: number, step: number, hash: string, payloadBytes: number}
 *   | {type: "fault", reason: string}
 *   | {type: "stop"}
 *   | {type: "leave"}} SessionEvent */

/** Actions.
 *
 * `compute`: gradient of place `place` of `rosterSize` at this step.
 * `apply`: average the parts in this order over Σ counts, update, position += parts.length · batch; then `applied`.
 *   `origin` is the epoch under which the parts were computed: an int8 residual of the `compute` with this epoch
 *   and step becomes current, any other is dropped.
 * `export`: the whole state (weights, m, v, step, position, running products) as bytes, opaque to the session; a
 *   seeded state at step 0 may be a short marker.
 * `import`: become that state (bytes null: seeded, step 0); residual zero. Config and tokens are the run's.
 * `report`: facts for the log. `halted`: no more steps, weights as they are. `ended`: the run is over here.
 * @typedef {{type: "send", to: string, bytes: Uint8Array}
 *   | {type: "compute", job: number, epoch: number, step: number, place: number, rosterSize: number}
 *   | {type: "apply", job: number, step: number, origin: number, parts: Part[]}
 *   | {type: "export", job: number}
 *   | {type: "import", job: number, run: string, config: RunConfig, tokens: Uint16Array, bytes: Uint8Array | null}
 *   | {type: "report", report: Report}
 *   | {type: "halted", reason: string, culprits: string[]}
 *   | {type: "ended", ending: Ending, reason: string}} Action */

/** `quorum`: the rest was gone too long; the run may still be taken up again if they come back.
 * @typedef {"finished" | "stopped" | "left" | "quorum"} Ending */

/** `step`: a step was applied; `loss` is the mean over all tokens, `contributions` in roster order.
 * `roster`: a view was accepted. `waiting`: no progress, and why. `going`: a wait is over. `joined`: state came in.
 * `repair`: the gradients of `missing` came by way of another device. `refused`: a message broke the protocol or was not for us.
 * @typedef {{kind: "step", step: number, loss: number, hash: string, origin: number,
 *       contributions: {id: string, count: number, loss: number, tookMs: number}[]}
 *   | {kind: "roster", epoch: number, leader: string, roster: string[]}
 *   | {kind: "waiting", reason: string}
 *   | {kind: "going"}
 *   | {kind: "joined", step: number, hash: string}
 *   | {kind: "repair", step: number, missing: string[]}
 *   | {kind: "refused", id: string, reason: string}} Report */

/** @typedef {"idle" | "starting" | "running" | "waiting" | "halted" | Ending} Phase */

/** What the page shows at any time: `session.facts()`. `equal` is null where the steps differ or nothing is known.
 * @typedef {{phase: Phase, reason: string, run: string | null, config: RunConfig | null, step: number,
 *   hash: string | null, epoch: number, leader: string | null, roster: string[],
 *   devices: {id: string, place: number | null, linked: boolean, backend: string, step: number | null, hash: string | null,
 *     equal: boolean | null}[]}} Facts */

export {};
