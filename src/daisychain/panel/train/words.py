"""What the control panel's settings mean, for whoever sees them for the first time."""

from __future__ import annotations

from collections.abc import Mapping

TASKS: Mapping[str, tuple[str, str]] = {
    "spikewhale": ("SpikeWhale", "a language model that writes"),
    "text": ("Text", "a small one, byte by byte"),
    "table": ("Table", "predict a column of your CSV"),
    "digits": ("Digits", "read handwritten digits"),
}
PARTS: Mapping[str, tuple[str, str]] = {
    "hash_lookup": (
        "Hash lookup",
        "Two more tables tell a token's meaning apart, beside its embedding.",
    ),
    "engram": (
        "Engram memory",
        "Remembers what usually follows the last two and three tokens, and mixes it in where it helps.",
    ),
    "hyper_connections": (
        "Hyper-connections",
        "Several streams run through the model side by side, and every block learns how to mix them.",
    ),
    "low_rank": (
        "Low rank",
        "Queries and the output go through a narrow middle: far fewer numbers to learn.",
    ),
    "position_free": (
        "Position-free part",
        "Three quarters of each head look at what is said, not at where it stands.",
    ),
    "shared_key_value": (
        "Shared keys and values",
        "All heads look into one memory of the text, so that writing takes less memory.",
    ),
    "qk_norm": (
        "Query/key norm",
        "Keeps queries and keys at one length, which keeps the training steady.",
    ),
    "refinement": (
        "Refinement",
        "One more pass over the result before a token is chosen; it begins closed and opens as it learns.",
    ),
    "multi_token": (
        "Multi-token",
        "While it learns it also predicts the token after the next. It costs time, and nothing when it writes.",
    ),
}
PRESETS: Mapping[str, str] = {
    "tiny": "an old laptop, minutes",
    "small": "a good laptop, hours",
    "medium": "a fast desktop, days",
    "published": "as it was published, but for the sequence",
}
PLACES: Mapping[str, tuple[str, str]] = {
    "embedded": ("Built-in text", "no network needed"),
    "fineweb": ("FineWeb-Edu", "web pages worth learning from"),
    "hub": ("Search the Hub", "any text data set"),
    "upload": ("Your file", "from this browser"),
    "path": ("A path", "on this machine"),
}
PLACE_HINTS: Mapping[str, str] = {
    "embedded": "Texts that come with Python itself. Enough to see a model learn, and nothing leaves this machine.",
    "fineweb": "Read from the Hugging Face Hub as the training goes on; only what is needed is fetched.",
    "hub": "Needs a network. Data sets that are private or gated need your Hugging Face token (HF_TOKEN) as well.",
}
SLIDERS: Mapping[str, tuple[str, str]] = {
    "width": ("Hidden size", "Numbers that stand for one token inside the model. More can learn more."),
    "layers": ("Layers", "Blocks one after the other. Each adds to what can be worked out, and to the time."),
    "heads": ("Heads", "Places in the text that a layer can look at at once."),
    "sequence": ("Sequence", "Tokens that it sees at once; a token is about four letters."),
    "batch": ("Batch", "Samples of one step, over all nodes together. More make a steadier, slower step."),
    "steps": ("Steps", "How often the model is improved. You can stop early, and go on later."),
    "learning_rate": (
        "Learning rate",
        "How far each step goes. Too much and the loss jumps, too little and it creeps.",
    ),
    "warmup": ("Warm-up", "Steps over which the rate rises from nothing to what is set above."),
    "nodes": ("Nodes on this machine", "Processes that share every batch, as machines of a cluster would."),
    "checkpoint_every": ("Checkpoint every", "Steps between two copies on disk."),
}
CHECKPOINTS_OF_TEXT = "Steps between two copies on disk, and between two looks at its text."
DIGITS = "1,797 images of handwritten digits, 8 × 8 pixels, which come with scikit-learn."
ARITHMETIC: Mapping[str, tuple[str, str]] = {
    "int8": ("Verified 8-bit", "every product proven, the same bits everywhere"),
    "float": ("Float", "ordinary arithmetic, to compare with"),
}
ON_FAILURE: Mapping[str, tuple[str, str]] = {
    "stop": ("Pause the run", "it keeps its state, and you go on later"),
    "embedded": ("Go on with the built-in text", "and it says so"),
}
