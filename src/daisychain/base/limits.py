"""Every bound and every default, in one place. A name ends in its unit."""

# The numeric contract (docs/NUMERICS.md). A change here is a new contract version.
CONTRACT_VERSION = 1
BLOCK_LENGTH = 128
CODE_MAX = 127
EXPONENT_MIN = -60
EXPONENT_MAX = 53  # 127² · 128 · 2^(2·53) < 2^127: no partial sum of a block can overflow float32
ACCUMULATOR_MAX_K = 131_071  # 131,071 · 128² < 2^31

# Units
UNIT_BLOCK_ELEMENTS = 1 << 16  # elements a unit evaluates at once, so that memory is flat
UNIT_MARGIN_MAX = 0.25  # a net's output is at most this far from the integer it stands for

# Kernels
AUDIT_STRUCTURAL_CELLS = 4  # cells of a product recomputed at every audit: corners, edges, block edges
AUDIT_RANDOM_CELLS = 4
AUDIT_PRODUCTS_PER_STEP = 2  # products audited a step

# Training defaults (FEATURES P12)
DEFAULT_STEPS = 300
DEFAULT_BATCH_SAMPLES = 32
DEFAULT_SEED = 0
DEFAULT_NODES = 3
MAX_LOCAL_NODES = 64
BUCKET_BYTES = 1 << 20
CHECKPOINTS_KEPT = 3
CHECKPOINT_EVERY_STEPS = 100

# Fleet
DEFAULT_PORT = 29_560
JOIN_LIMIT_S = 120.0  # every node must have arrived
OPERATION_LIMIT_S = 300.0  # one sum or gather, with every node alive
HEARTBEAT_EVERY_S = 0.5
PEER_LOST_AFTER_S = 10.0  # a node without a heartbeat for so long is lost

# Plan
PLAN_SMOOTHING = 0.3  # weight of the newest speed
PLAN_HYSTERESIS = 0.10  # a plan changes only if it promises a step this much shorter
PLAN_EVERY_STEPS = 5

# Files
MAX_CHECKPOINT_BYTES = 1 << 36
MAX_CHECKPOINT_HEADER_BYTES = 1 << 26
MAX_TABLE_ROWS = 20_000_000
MAX_TEXT_BYTES = 1 << 30
