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
