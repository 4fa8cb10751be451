"""Every bound and every default, in one place. A name ends in its unit."""

# The numeric contract (docs/NUMERICS.md). A change here is a new contract version.
CONTRACT_VERSION = 1
BLOCK_LENGTH = 128
EXPONENT_MIN = -60
EXPONENT_MAX = 53  # 127² · 128 · 2^(2·53) < 2^127: no partial sum of a block can overflow float32
ACCUMULATOR_MAX_K = 131_071  # 131,071 · 128² < 2^31

# Units
UNIT_BLOCK_ELEMENTS = 1 << 16  # elements a unit evaluates at once, so that memory is flat
UNIT_MARGIN_MAX = 0.25  # a net's output is at most this far from the integer it stands for
MAX_UNIT_FILE_BYTES = 1 << 16

# Kernels
AUDIT_CORNERS = 2  # cells of every product recomputed: opposite corners, so a last row and a last column,
AUDIT_EDGES = 1  # … edges of tiles,
AUDIT_RANDOM = 1  # … and anywhere
AUDIT_CONTRACT_EVERY_STEPS = 16  # a product checked by NumPy too; every step where nothing is compiled

# Training defaults (FEATURES P12)
DEFAULT_STEPS = 300
DEFAULT_BATCH_SAMPLES = 32
DEFAULT_SEED = 0
MAX_LOCAL_NODES = 64
MAX_NODES = 1_024
BUCKET_BYTES = 1 << 20
CHECKPOINTS_KEPT = 3
CHECKPOINT_EVERY_STEPS = 100

# Fleet
DEFAULT_PORT = 29_560
JOIN_LIMIT_S = 120.0  # every node must have arrived
OPERATION_LIMIT_S = 300.0  # one sum or gather, with every node alive
HEARTBEAT_EVERY_S = 0.5
PEER_LOST_AFTER_S = 10.0  # a node without a heartbeat for so long is lost
WAIT_SLICE_S = 0.05  # how often a wait looks up to see whether everybody is alive
DIAL_LIMIT_S = 5.0  # at the join every node dials every other
SAY_WAITING_EVERY_S = 8.0
WORD_GRACE_S = 1.0  # a node that said why it left ends the others' operations so much later
LEAVE_LIMIT_S = 5.0  # the coordinator stays so long for the others' goodbye
END_GRACE_S = 30.0  # local nodes may write a checkpoint for so long after one has failed
RECORD_BYTES = 1_024  # a record up to here, less its length, is gathered in one operation
MAX_RECORD_BYTES = 1 << 26
SAMPLE_LIMIT_S = 240.0  # a node waits so long for its own samples; less than the others wait for it
STOP_WAIT_S = 1.5  # … and so long, once a person has asked for the end
LINK_PROBE_BYTES = 1 << 18
LINK_PROBE_LIMIT_S = 5.0

# Plan
PLAN_SMOOTHING = 0.3  # weight of the newest speed
PLAN_HYSTERESIS = 0.10  # a plan changes only if it promises a step this much shorter
PLAN_EVERY_STEPS = 5
PLAN_SOUNDING_STEPS = 8  # first steps with uneven shares on purpose, to tell fixed from per-sample time
PLAN_PROBE_EVERY_STEPS = (
    50  # so often a node without a share gets one sample, to see whether it has recovered
)
SLOW_LINK_MIN_S = 0.02  # a step; a quicker link is never to blame
SLOW_LINK_FACTOR = 3.0  # a link is to blame for a slow step only if it takes so much longer than all others

# Status
STATUS_EVERY_S = 0.5  # a status file is renewed at most so often
STATUS_SILENT_S = 330.0  # a run on another machine that is silent for so long is lost; an operation has 300 s
STATUS_FRESH_S = (
    10.0  # so soon after a word of it, a process of that number is the run's, whatever the clock did
)
EVENT_TEXT_CHARACTERS = 2_000
RECORD_FILE_BYTES = 1 << 20  # of config.json, nodes.json, status.json; a longer one is not read
RECORD_LINE_BYTES = 1 << 18  # of metrics.jsonl and events.jsonl; 1,024 nodes need about 90 KB
HISTORY_READ_BYTES = 1 << 28  # at one refresh; what is left comes at the next
HISTORY_ROWS = 1 << 17  # held of one run; beyond, quiet stretches are thinned, and spikes stay
HISTORY_EVENTS = 500
HISTORY_POINTS = 600  # of a curve that is drawn
RUNS_LISTED = 1_000
CLOCK_DRIFT_S = 2.0  # between two readings of when a process was created

# Files
MAX_CHECKPOINT_BYTES = 1 << 36
MAX_CHECKPOINT_HEADER_BYTES = 1 << 26
MAX_TABLE_ROWS = 20_000_000
MAX_TEXT_BYTES = 1 << 30
MAX_TEXT_FILES = 100_000  # looked at in a folder
MAX_TABLE_BYTES = 1 << 32
MAX_TABLE_CELLS = 1 << 28  # rows × features held in memory: 1 GiB as float32

# Data
HELD_OUT_FRACTION = 0.2
HELD_OUT_MAX_ROWS = 10_000  # so that an evaluation takes seconds
HELD_OUT_MAX_WINDOWS = 256
MIN_TABLE_ROWS = 10
MAX_CLASSES = 1_000
MAX_INTEGER_CLASSES = 20  # a target of whole numbers with more values than this is a quantity
MAX_CATEGORIES = 64  # texts of a column that are told apart; the rest are "other"
MIN_CATEGORY_ROWS = 2  # a text that occurs less often is "other"
MAX_DEVIATIONS = 10.0  # a standardised number is clipped here, so that one outlier cannot own a block's scale

# Built-in models
MAX_MODEL_WIDTH = 4_096
MAX_MODEL_LAYERS = 64
MAX_SEQUENCE = 4_096
MAX_GENERATED_BYTES = 1 << 20

# SpikeWhale
SPIKEWHALE_MAX_VOCABULARY = 1 << 20
SPIKEWHALE_MAX_HEADS = 256
SPIKEWHALE_MAX_HEAD_WIDTH = 256
SPIKEWHALE_MAX_ALL_HEADS_WIDTH = (
    2 * MAX_MODEL_WIDTH
)  # what a token leaves in each layer's cache follows from it
SPIKEWHALE_MAX_MLP_WIDTH = 4 * MAX_MODEL_WIDTH
SPIKEWHALE_MAX_ENTRIES = 1 << 20  # of a hashed table
SPIKEWHALE_MAX_STREAMS = 8
SPIKEWHALE_MULTI_TOKEN_WEIGHT = 0.3  # of the token after next, beside the next one's 1
ABLATION_MAX_SEEDS = 20
SPIKEWHALE_LOGIT_ROWS = 256  # whose logits are in memory at once: 17 MB at the vocabulary's 16,512 entries

# Task spikewhale
EVALUATION_TOKENS = 1 << 14  # held-out tokens that the end of a run is measured on, at least one window
GLIMPSE_HELD_OUT_TOKENS = 1 << 10  # … and a look on the way
GLIMPSE_TOKENS = 40  # that a model writes on the way

# What training takes (cluster/estimate.py, benchmarks/memory.py)
TRAINER_BYTES = 600_000_000  # a node without a model: Python, torch, compiled kernels, the embedded corpus
ESTIMATE_MARGIN = 0.55  # of what samples leave behind: an allocator keeps some of what is free

# The room's model (numerics/decoder.py); the same numbers as in static/limits.js
VOCABULARY = 16_512
MAX_DECODER_WIDTH = 128
MAX_DECODER_LAYERS = 8
MAX_DECODER_SEQUENCE = 128  # one block: a sequence's rows are one sum of exact products
SAMPLING_TOP_K = 40  # tokens that sampling chooses from
MIN_TEMPERATURE = 0.01
MAX_TEMPERATURE = 100.0
MAX_GENERATED_TOKENS = 10_000
MAX_ROOM_MODEL_BYTES = 1 << 26  # the largest, with its optimiser's vectors, is 45 MB

# Room server
ROOM_PORT = 8_787
ROOM_MEMBERS = 8  # a group; every device holds a link to every other
ROOM_MESSAGE_BYTES = 16_384  # a session description takes 1–2 KiB
ROOM_FRAME_BYTES = 4 * ROOM_MESSAGE_BYTES  # up to here a message that is too large is told so
ROOM_MESSAGES_BURST = 400  # seven links being made at once
ROOM_MESSAGES_PER_S = 40.0
ROOM_OUTGOING_BYTES = 1 << 18  # waiting for a device that does not read
ROOM_SOCKETS = 2_000
ROOM_SOCKETS_PER_ADDRESS = 256
ROOM_ROOMS = 1_000
ROOM_KNOCKERS = 8
ROOM_APPROVED = 64  # devices that a room remembers, so that they come back without a knock
ROOM_GUESSES_BURST = 30  # codes of one address that open no existing room
ROOM_GUESSES_PER_MINUTE = 10.0
ROOM_CODE_CHARACTERS = (13, 32)  # Crockford base32, so 65 bits at least
ROOM_NAME_CHARACTERS = 40
ROOM_HELLO_LIMIT_S = 10.0
ROOM_PING_EVERY_S = 15.0
ROOM_SILENT_LIMIT_S = 40.0  # two pings unanswered
ROOM_EMPTY_KEPT_S = 120.0  # a private room waits so long for one of its devices
ROOM_TICK_S = 1.0
ROOM_UNSENT_LIMIT_S = 60.0  # data that the other side does not acknowledge ends a connection
ROOM_CLOSING_LIMIT_S = 3.0
ROOM_DATA_BYTES = 1 << 22  # of text a request
ROOM_DATA_BYTES_BURST = 1 << 25  # of text an address
ROOM_DATA_BYTES_PER_S = float(1 << 19)
ROOM_DATA_REQUESTS = 4  # at once
ROOM_DATA_LIMIT_S = 120.0
CERTIFICATE_DAYS = 397  # browsers refuse 398 and more
CERTIFICATE_RENEW_DAYS = 30
AUTHORITY_DAYS = 3_650

# Slices of a data set on the Hugging Face hub
SLICE_LIMIT_S = 30.0  # a slice is there by then, or the embedded corpus takes its place
SLICE_WAIT_S = 8.0  # for a connection, or for the next bytes
SLICE_GRACE_S = 3.0  # an answer may start slowly for so long …
SLICE_MIN_BYTES_PER_S = float(1 << 15)  # … and comes at least this fast after it
SLICE_RETRY_AFTER_S = 60.0  # after a failure the hub is left alone for so long
SLICE_BLOCK_BYTES = 1 << 18  # read at once where no plan says more
SLICE_MAX_READ_BYTES = 1 << 26  # for one slice, even of a server that does not heed ranges
SLICE_MAX_LISTING_BYTES = 1 << 20
SLICE_MAX_REDIRECTS = 5
SLICES_CACHED = 8
SLICE_FOOTERS_CACHED = 8

# Panel: the dashboard and the control panel
DASHBOARD_PORT = 8_080
PANEL_PORT = 8_899
WATCH_EVERY_S = 1.0  # a run that somebody looks at is read so often
WATCH_IDLE_S = 10.0  # a run that nobody has looked at for so long is not read
WATCH_FORGET_S = 120.0  # … and is forgotten after so long
WATCH_RUNS = 32  # looked at by all viewers together
VIEW_EVERY_S = 0.5  # a page looks for news so often
FLEET_VIEW_SHARE = 0.1  # of the pages' time that may go into showing the fleet …
FLEET_VIEW_MOST_S = 1.5  # … which is renewed at least so often
CHART_POINTS = 600
PANEL_NICENESS = 10  # viewers must not take the cores from a run
PANEL_TOKEN_CHARACTERS = (16, 200)
PANEL_GUESSES_BURST = 10
PANEL_GUESSES_PER_MINUTE = 6.0
PANEL_GUESSERS = 1_000  # addresses whose wrong tokens are counted
PANEL_BODY_BYTES = 1 << 20  # of a request that is no upload
PANEL_FRAME_BYTES = 1 << 20  # of a message from a page
PANEL_CONNECTIONS = 256
PANEL_HEAD_LIMIT_S = 10.0  # a connection says by then what it wants
PANEL_CLOSING_LIMIT_S = 3.0
PANEL_RECONNECT_S = 10.0  # a page that lost its connection finds everything as it was for so long
QUIET_LOOK_EVERY_S = 3.0  # whether a run is going on, for the agents
PANEL_COOKIE_S = 30 * 86_400
COMPARED_RUNS = 6
RUNS_SHOWN = 200
EVENTS_SHOWN = 60
GLIMPSES_SHOWN = 8

# Control panel: what a form may ask for, and what it starts
NODE_LOCK_LIMIT_S = 1.0  # a lock that is only looked at is free again at once
NODE_LOCK_BYTES = 8_192  # read of what its owner wrote
PANEL_WIDTHS = (32, 768)
PANEL_WIDTH_STEP = 32
PANEL_LAYERS = (1, 16)
PANEL_HEADS = (1, 16)
PANEL_SEQUENCES = (32, 512)
PANEL_SEQUENCE_STEP = 32
PANEL_MAX_BATCH = 1_024
PANEL_MAX_STEPS = 1_000_000
PANEL_RATES = (1e-6, 1.0)
PANEL_MAX_CHECKPOINT_EVERY = 10_000
PANEL_TEXT_CHARACTERS = 200  # of a name that a data set or a table gave
PANEL_PATH_CHARACTERS = 1_000
JOB_STOP_GRACE_S = 10.0  # a run that was asked to stop may finish its step and its checkpoint
JOB_KILL_LIMIT_S = 5.0
JOB_LOG_BYTES = 16_384  # of the trainer's words, from the end

# Agents and what they tell the dashboard
AGENT_PROBE_PORT = 29_570
AGENT_REPORT_EVERY_S = 1.0
AGENT_REPORT_LIMIT_S = 5.0  # for the dashboard's answer
AGENT_RETRY_MAX_S = 5.0  # between tries of a dashboard that does not answer
AGENT_REPORT_BYTES = 1 << 16  # 64 nodes need a quarter of it; the same for the answer
AGENT_NAME_CHARACTERS = 40
AGENT_WORDS_CHARACTERS = 400
AGENT_SURVEY_LIMIT_S = 300.0  # the device and the kernels are proven by then
AGENT_SILENT_AFTER_S = 3.0  # a node that nobody has heard of for so long counts as dead
AGENT_FORGOTTEN_AFTER_S = 3_600.0
FLEET_NODES = 64
PROBE_EVERY_S = 2.0  # so often an agent dials each other …
PROBES_PER_S = 8.0  # … unless they are so many that this would be exceeded
PROBE_LIMIT_S = 2.0  # of one dial
PROBE_PINGS = 3
PROBE_FAILURES = 2  # dials in a row that must fail before a way counts as blocked
PROBE_STALE_S = 15.0  # a result is believed for so long, and longer among many nodes
PROBE_DEAD_FOR_S = 30.0  # so long a dead node is still dialled
PROBE_BYTES = 1 << 18  # sent to measure bandwidth, in frames of PROBE_FRAME_BYTES
PROBE_FRAME_BYTES = 1 << 14
PROBE_BYTES_LIMIT_S = 3.0  # a slow link is judged by what it has carried by then
PROBE_CONNECTIONS = 32  # that an agent answers at once
PROBE_CONNECTIONS_PER_ADDRESS = 8
BANDWIDTH_EVERY_S = 30.0  # so often a way is measured …
BANDWIDTH_BYTES_PER_S = 1 << 16  # … unless a node would send and receive more than this for it
BANDWIDTH_TURN_S = 10.0  # a node's turn to measure ends after so long without a result
LINK_SLOW_MB_S = 2.0  # a link below this, 16 Mbit/s, makes a run wait
LINK_SLOW_LATENCY_S = 0.05
HOT_C = 90.0
FEW_FREE_BYTES = 1 << 30
CLOCK_OFF_S = 60.0  # a node's clock that differs by more is named
UPLOAD_MAX_BYTES = 1 << 26  # 64 MiB a file
UPLOADS_MAX_BYTES = 1 << 30  # all files of a folder of runs
UPLOADS_MAX_FILES = 100
UPLOADS_AT_ONCE = 2
UPLOAD_LIMIT_S = 300.0
UPLOAD_SAMPLE_BYTES = 1 << 16  # looked at to see whether a file is what it says
UPLOAD_MAX_COLUMNS = 1_000
UPLOAD_NAME_CHARACTERS = 80
PANEL_COOKIE_CHARACTERS = 3_000  # a browser keeps 4,096 bytes
SETTLE_S = 0.15  # settings that move are looked at when they have stood still for so long
PANEL_MAX_NODES = 8  # of this machine, by a slider
LOG_LINES_SHOWN = 20
EXPORT_LIMIT_S = 300.0
PREVIEW_ROWS = 4
PREVIEW_COLUMNS = 4
PROMPT_CHARACTERS = 2_000
PROMPT_TOKENS = 500
PROMPT_LIMIT_S = 120.0
PROMPT_OUTPUT_BYTES = 65_536

# Text of the hub, streamed for training (docs/DATA.md)
HUB_WAIT_S = 10.0  # for a connection, or for the next bytes
HUB_GRACE_S = 10.0  # an answer may start slowly for so long …
HUB_MIN_BYTES_PER_S = float(1 << 12)  # … and comes at least this fast after it
HUB_PATIENCE_S = 120.0  # a hub that gives nothing is asked again for so long …
HUB_STALL_S = 200.0  # the last net: who waits for another process's download waits no longer
HUB_RETRY_FIRST_S = 1.0  # … after this wait, twice as long each time,
HUB_RETRY_MOST_S = 20.0  # … up to this one
HUB_RETRY_AFTER_MOST_S = 60.0  # a longer wait that a server asks for is cut to this
HUB_CALL_LIMIT_S = 40.0  # a search or a preview
HUB_FOUND = 50  # data sets that a search gives at most
HUB_PREVIEW_ROWS = 20
HUB_PREVIEW_CHARACTERS = 400  # of a value of a preview
HUB_NAMES_SHOWN = 20  # configs, splits or columns that a message lists
HUB_ROWS_AT_ONCE = 256
HUB_READ_BYTES = (
    1 << 19
)  # a parquet column is asked for in parts of this size, so that a slow hub is seen to give
STREAM_MAX_TOKENS = 1 << 30  # of a data set: 2 GiB on disk; the stream begins anew after them
STREAM_PIECE_TOKENS = 1 << 18  # appended to the cache at once
STREAM_BLOCK_WINDOWS = 512  # are shuffled among themselves, so training waits for no more than one block
STREAM_AHEAD_BLOCKS = 2  # fetched before they are asked for
STREAM_HELD_OUT_WINDOWS = 128
STREAM_SLICE_S = 0.1  # how often a wait for text looks up
CACHE_FREE_BYTES = 1 << 30  # a cache stops growing when the disk has less left
MAX_CACHE_MANIFEST_BYTES = 1 << 22
LOCAL_CACHE_BYTES = 1 << 22  # a local text from this size on is tokenised once and kept
LOCAL_CACHE_WAIT_S = 90.0  # for another process that tokenises the same text
CACHE_LOCK_WAIT_S = 180.0  # for another process that asks the hub the same question
TOKENIZE_CHARACTERS = 1 << 20  # a longer document is tokenised in parts
