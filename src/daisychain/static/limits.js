/** Every bound and default of the page, in one place. A name ends in its unit. */

// The numeric contract (docs/NUMERICS.md); the same numbers as in base/limits.py.
export const CONTRACT_VERSION = 1;
export const BLOCK_LENGTH = 128;
export const EXPONENT_MIN = -60;
export const EXPONENT_MAX = 53;
export const ACCUMULATOR_MAX_K = 131_071;

// The model
export const VOCABULARY = 16_512;
export const MAX_LAYERS = 8;

// Going on with a text
export const SAMPLING_TOP_K = 40;
/** Besides 0, which takes the likeliest: [least, most]. */
export const TEMPERATURE = /** @type {const} */ ([0.01, 100]);
export const GENERATED_TOKENS_MAX = 10_000;
export const MAX_CACHED_PIECES = 100_000; // of text, with their ids

// Settings of a run: [least, most, default]
export const WIDTH = /** @type {const} */ ([16, 128, 32]);
export const SEQUENCE = /** @type {const} */ ([16, 128, 32]);
export const BATCH_SAMPLES = /** @type {const} */ ([2, 32, 8]);
export const STEPS = /** @type {const} */ ([100, 10_000, 300]);
export const RATE_THOUSANDTHS = /** @type {const} */ ([5, 50, 10]);
export const LAYERS_DEFAULT = 2;
export const HEADS_DEFAULT = 4;

// The group
export const MAX_MEMBERS = 8;

// The mesh: messages and frames
/** Below every browser's and aiortc's (65,536) largest message, header included. */
export const FRAME_BYTES = 48 * 1024;
export const MESSAGE_BYTES = 64 * 1024 * 1024;
/** One message of the largest size, and small ones beside it. */
export const MESSAGES_IN_FLIGHT = 4;
export const REASSEMBLY_BYTES = MESSAGE_BYTES + 1024 * 1024;
/** Messages up to this size take the control channel, past a long transfer. */
export const CONTROL_MESSAGE_BYTES = 16 * 1024;
/** Chrome closes a channel without a word at about 16 MB. */
export const HIGH_WATER_BYTES = 1024 * 1024;
export const LOW_WATER_BYTES = 256 * 1024;
/** What may wait for one device; more means that it takes nothing. */
export const SEND_QUEUE_BYTES = 2 * MESSAGE_BYTES;

// The mesh: links. Timers report and repair only; a step waits for none of them.
export const CHANNEL_POLL_MS = 250;
export const CHANNEL_STUCK_MS = 15_000;
export const CHANNEL_DEAD_MS = 45_000;
export const COLLECTION_PRESSURE_BYTES = 64 * 1024 * 1024;
export const LINK_DEADLINE_MS = 15_000;
export const ICE_PATIENCE_MS = 2_000;
export const ICE_RESTARTS = 3;
/** A link that stood this long begins its next retries from the shortest wait. */
export const LINK_SOUND_MS = 5_000;
/** Waits between tries double from the first to the second value. */
export const LINK_RETRY_MS = /** @type {const} */ ([500, 30_000]);
/** An absent device's link is kept as long as something comes through it within this time. */
export const ABSENT_PATIENCE_MS = 2_000;
export const SIGNAL_CHARACTERS = 16 * 1024;

// The sync protocol (docs/PROTOCOL.md). Deadlines run on the session's own clock, in which a freeze hardly counts.
export const PROTOCOL_VERSION = 1;
export const SYNC_JSON_BYTES = 16 * 1024;
export const SYNC_TEXT_CHARACTERS = 500;
/** An epoch may be so far ahead of the last one seen. */
export const EPOCH_LEAP = 1_000;
/** The largest batch times the longest sequence. */
export const GRADIENT_TOKENS = 32 * 128;
/** A device that is alive but gives no gradient for so long is left out. */
export const STEP_PATIENCE_MS = 120_000;
/** The name of what a device computes with. */
export const BACKEND_CHARACTERS = 20;
/** The largest model has 3.7 million parameters. */
export const GRADIENT_BYTES = 16 * 2 ** 20;
export const TEXT_TOKENS_BYTES = 32 * 2 ** 20;
export const STATE_BYTES = MESSAGE_BYTES - 1024;
export const CONFIG_ENTRIES = 32;
/** Views that may still have to be asked in a change of view. */
export const TRAIL_VIEWS = 8;
/** Gradients of one device that are kept for the step at hand and the next. */
export const EARLY_GRADIENTS = 3;
/** Applied steps whose gradients the leader keeps for repair, as far as they fit into the bytes. */
export const REPAIR_STEPS = 8;
export const REPAIR_BYTES = 256 * 2 ** 20;
/** A longer time between two ticks counts as this much: who was frozen does not blame the others. */
export const TICK_COUNTS_MS = 1_000;
export const RETRY_MS = 1_000;
/** What a broken link has for coming back before the roster goes on without it. */
export const LINK_GRACE_MS = 5_000;
export const SILENCE_MS = 10_000;
export const PROMISES_WAIT_MS = 2_000;
/** The same at the start of a run, where waiting for a busy device costs nothing. */
export const START_WAIT_MS = 6_000;
/** Between the tries of one candidate and the next, and of one candidate: the least, and what is drawn on top. */
export const STAGGER_MS = 2_000;
export const ELECTION_MS = 6_000;
export const FETCH_RETRY_MS = 30_000;
/** Behind others for so long: no gradient will come, the state is fetched. */
export const BEHIND_MS = 15_000;
/** A wait is reported after the first, and the run given up after the second. */
export const TROUBLE_MS = /** @type {const} */ ([3_000, 60_000]);

// Signalling
export const SOCKET_RETRY_MS = /** @type {const} */ ([500, 30_000]);
export const SOCKET_OPEN_MS = 10_000;
/** Silence, in ping intervals, after which the socket is dead. */
export const MISSED_PINGS = 2.5;
/** The same while the host has not answered, when the server's ping interval is not known yet. */
export const WAITING_SILENCE_MS = 60_000;
export const SERVER_MESSAGE_CHARACTERS = 64 * 1024;

// The page
export const ROOM_CODE_CHARACTERS = 13;
export const ROOM_NAME_CHARACTERS = 40;
export const LOG_LINES = 400;
export const GENERATE_TOKENS = /** @type {const} */ ([1, 512, 64]);
export const PROMPT_MAX_CHARACTERS = 2000;
export const UPLOAD_MAX_BYTES = 64 * 2 ** 20;
export const READOUT_COLUMN_PX = 3;

// Kernels
/** What a backend's memory begins with and grows by: a multiple of 65,536. */
export const KERNEL_MEMORY_BYTES = 16 * 2 ** 20;
/** Seed of the cells that are audited at random. */
export const AUDIT_SEED = 0x0da15e;
/** Of a product with a longer contraction one cell is audited, else two. */
export const AUDIT_LONG = 4096;
export const MEMORY_MAX_BYTES = 2 ** 31 - 65_536;

// Checkpoints; a file is at most UPLOAD_MAX_BYTES
export const MAX_CHECKPOINT_HEADER_BYTES = 64 * 1024; // the largest model needs 5 KiB
export const MAX_CHECKPOINT_ENTRIES = 256; // of a .pt's archive
export const MAX_CHECKPOINT_STEP = 2 ** 31 - 1;

// The worker
/** The page is told how things stand at most so often. */
export const STATE_EVERY_MS = 100;
export const TICK_MS = 500;
export const STEP_SMOOTHING = 0.1; // weight of the newest step's time
export const TEXT_BYTES = 512 * 1024; // asked for a run
export const FETCH_LIMIT_MS = 90_000;
