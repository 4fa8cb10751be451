"""SpikeWhale on text: tokens → the next token."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import torch

from daisychain.base import limits
from daisychain.base.errors import CheckpointError, ConfigError
from daisychain.data import TableSource
from daisychain.data.packed import PackedText, open_tokens
from daisychain.data.source import TextChoice
from daisychain.data.tokenizer import load_tokenizer, text_pieces
from daisychain.nn.spikewhale import PARTS, SpikeWhale, SpikeWhaleConfig, config_for, generate
from daisychain.tasks.builtin import device_of, refuse_options, seeded, task_name
from daisychain.tasks.task import Glimpse, Loss, SampleIds, Task, TaskOptions
from daisychain.tasks.text import check_generation, continuations

EMPTY_PROMPT = "\n"  # a model needs something to go on
GLIMPSE_PROMPT = "The"
PREDICTED_TOKENS = 32
TINY_WIDTH = 32
TINY_RATE = 1e-2  # the best of a few for `tiny` (docs/NOTES.md); it falls as the width grows
TEMPERATURE = 0.8


class SpikeWhaleTask(Task):
    """A batch is windows of tokens int64 (n, sequence + 1); the loss is (sum, tokens predicted)."""

    name = "spikewhale"
    metric = "perplexity"
    usage = 'generate {model} --prompt "The "'
    warmup_steps = 30
    batch_samples = 8
    seed = 0
    tokens: PackedText

    def __init__(self, options: TaskOptions) -> None:
        self.name = task_name("spikewhale", options)
        refuse_options(self.name, options, "target")
        self.config = model_config(options)
        self.seed = options.seed
        self.learning_rate = rate_for(self.config.width)
        self.tokens = open_tokens(text_choice(options), self.config.sequence, options.seed)
        self.sample_count = self.tokens.sample_count
        self.streamed = self.tokens.streamed
        self.notes = tuple(self.tokens.notes)

    def build_model(self) -> torch.nn.Module:
        return seeded(self.seed, lambda: SpikeWhale(self.config))

    def sample(self, ids: SampleIds) -> torch.Tensor:
        return torch.from_numpy(self.tokens.windows(ids))

    def loss(self, model: torch.nn.Module, batch: torch.Tensor) -> Loss:
        assert isinstance(model, SpikeWhale)
        return model.loss(batch)

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        """held_out_loss in nats a token, perplexity a token, bits_per_byte of the text."""
        return self._held_out(model, limits.EVALUATION_TOKENS)

    def _held_out(self, model: torch.nn.Module, tokens: int) -> dict[str, float]:
        """Metrics on about so many held-out tokens, at least one window."""
        assert isinstance(model, SpikeWhale)
        windows = torch.from_numpy(self.tokens.held_out())[: max(1, tokens // self.config.sequence)]
        total, count = 0.0, 0
        for some in torch.split(windows, max(1, limits.SPIKEWHALE_LOGIT_ROWS // self.config.sequence)):
            with torch.no_grad():
                part, predicted = model.loss(some.to(device_of(model)))
            total, count = total + float(part), count + predicted
        nats = total / count
        return {
            "held_out_loss": nats,
            "perplexity": math.exp(min(nats, 700.0)),
            "bits_per_byte": nats / math.log(2) / self.tokens.bytes_per_token,
        }

    def glimpse(self, model: torch.nn.Module) -> Glimpse:
        """Metrics on a few held-out windows, and a short text."""
        text = b"".join(self.generate(model, GLIMPSE_PROMPT, limits.GLIMPSE_TOKENS, TEMPERATURE, 0))
        return Glimpse(
            self._held_out(model, limits.GLIMPSE_HELD_OUT_TOKENS),
            GLIMPSE_PROMPT + text.decode(errors="replace"),
        )

    def generate(
        self, model: torch.nn.Module, prompt: bytes | str, tokens: int, temperature: float, seed: int
    ) -> Iterator[bytes]:
        """The bytes of `tokens` tokens that go on from the prompt, whole characters at a time.

        Temperature 0 takes the likeliest token. The same seed gives the same text on one machine. Raises
        ConfigError for bad arguments at once.
        """
        assert isinstance(model, SpikeWhale)
        check_generation(tokens, temperature, limits.MAX_GENERATED_TOKENS)
        text = prompt.decode(errors="replace") if isinstance(prompt, bytes) else prompt
        ids = load_tokenizer().encode(text or EMPTY_PROMPT).tolist()
        return (piece.encode() for piece in text_pieces(generate(model, ids, tokens, temperature, seed)))

    def predict(self, model: torch.nn.Module, table: TableSource) -> list[dict[str, str | float | int]]:
        """The likeliest `continuation` of each text in the column `prompt`."""
        return continuations(lambda prompt: self.generate(model, prompt, PREDICTED_TOKENS, 0.0, 0), table)

    def description(self) -> Mapping[str, Any]:
        return {"model": asdict(self.config), "data": dict(self.tokens.identity)}

    @classmethod
    def restore(cls, description: Mapping[str, Any]) -> "SpikeWhaleTask":
        task = cls.__new__(cls)  # without the training data
        task.config = config_from_json(description)
        return task


def rate_for(width: int) -> float:
    """The learning rate of a model of this width, unless told otherwise."""
    return TINY_RATE * min(1.0, TINY_WIDTH / width)


def model_config(options: TaskOptions) -> SpikeWhaleConfig:
    """The model that the options ask for. Raises ConfigError."""
    for part in options.without:
        if part not in PARTS:
            raise ConfigError(f"--without {part!r:.60} names no part; parts are {', '.join(PARTS)}.")
    return config_for(
        options.preset,
        width=options.width,
        layers=options.layers,
        heads=options.heads,
        sequence=options.sequence,
        parts=tuple(part for part in PARTS if part not in options.without),
        arithmetic=options.arithmetic,
        backward=options.backward,
    )


def text_choice(options: TaskOptions) -> TextChoice:
    """The text that the options ask for. Raises ConfigError."""
    if options.split is not None and options.dataset is None:
        raise ConfigError(f"--split {options.split!r:.60} belongs to a data set; name one with --dataset.")
    return TextChoice(
        path=options.data,
        dataset=options.dataset,
        config=options.dataset_config,
        split="train" if options.split is None else options.split,
        column=options.column,
        on_failure=options.on_data_failure or "stop",
    )


def config_from_json(description: Mapping[str, Any]) -> SpikeWhaleConfig:
    """What `asdict` made of a configuration. CheckpointError: it may be hostile."""
    try:
        config = SpikeWhaleConfig.from_json(description.get("model", {}))
    except (ConfigError, TypeError) as error:
        raise CheckpointError(f"the checkpoint's model cannot be built: {error!s:.300}") from None
    if config.vocabulary != limits.VOCABULARY:
        raise CheckpointError(
            f"the checkpoint's model has a vocabulary of {config.vocabulary:,}; the tokenizer has "
            f"{limits.VOCABULARY:,}."
        )
    return config
