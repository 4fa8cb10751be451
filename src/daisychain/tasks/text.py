"""A small byte-level language model on any text."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

import torch
import torch.nn.functional as F

from daisychain.base import limits
from daisychain.base.errors import CheckpointError, ConfigError, NonFiniteError
from daisychain.data import (
    TableSource,
    as_table,
    column_named,
    cut_windows,
    data_hash,
    read_text,
    text_values,
)
from daisychain.nn import Transformer, TransformerConfig
from daisychain.tasks.builtin import (
    LANGUAGE_MODEL,
    check_arithmetic,
    device_of,
    in_range,
    refuse_options,
    seeded,
    task_name,
)
from daisychain.tasks.task import Loss, SampleIds, Task, TaskOptions

BYTES = 256
PREDICTED_BYTES = 64
EVALUATION_WINDOWS = 32  # windows that a model sees at once outside training
EMPTY_PROMPT = b"\n"  # a model needs something to go on


class TextTask(Task):
    """Bytes → the next byte. A batch is windows int64 (n, sequence + 1); the loss is (sum, bytes predicted)."""

    name = "text"
    metric = "bits_per_byte"
    usage = 'generate {model} --prompt "The "'
    learning_rate = 3e-3
    warmup_steps = 100  # ends lower than without, and small differences between nodes grow less early on
    seed = 0

    def __init__(self, options: TaskOptions) -> None:
        self.name = task_name("text", options)
        refuse_options(self.name, options, "target", *LANGUAGE_MODEL)
        self.config = text_config(options)
        self.seed = options.seed
        text, note = read_text(options.data)
        self.windows = cut_windows(
            text, self.config.sequence, options.seed, str(options.data or "the embedded corpus")
        )
        self.sample_count = len(self.windows.train)
        self._data_hash = data_hash(self.windows.text, self.windows.train)
        self.notes = (f"{note}; {len(self.windows.held_out)} windows of {self.config.sequence} held out",)

    def build_model(self) -> torch.nn.Module:
        return seeded(self.seed, lambda: Transformer(self.config))

    def sample(self, ids: SampleIds) -> torch.Tensor:
        return torch.from_numpy(self.windows.batch(self.windows.train[ids]))

    def loss(self, model: torch.nn.Module, batch: torch.Tensor) -> Loss:
        logits, targets = model(batch[:, :-1]), batch[:, 1:]
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum"), targets.numel()

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        """held_out_loss in nats a byte, bits_per_byte and perplexity."""
        windows = torch.from_numpy(self.windows.batch(self.windows.held_out))
        total = 0.0
        for part in torch.split(windows, EVALUATION_WINDOWS):
            part = part.to(device_of(model))
            with torch.no_grad():
                logits = model(part[:, :-1])
            total += float(F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum"))
        nats = total / (len(windows) * self.config.sequence)
        return {
            "held_out_loss": nats,
            "bits_per_byte": nats / math.log(2),
            "perplexity": math.exp(min(nats, 700.0)),
        }

    def generate(
        self, model: torch.nn.Module, prompt: bytes | str, tokens: int, temperature: float, seed: int
    ) -> Iterator[bytes]:
        """`tokens` bytes that go on from the prompt, one by one. Temperature 0 takes the likeliest byte.

        The same seed gives the same text on one machine. Raises ConfigError for bad arguments at once.
        """
        check_generation(tokens, temperature, limits.MAX_GENERATED_BYTES)
        text = prompt.encode(errors="surrogateescape") if isinstance(prompt, str) else prompt
        return self._continue(model, text or EMPTY_PROMPT, tokens, temperature, seed)

    def _continue(
        self, model: torch.nn.Module, text: bytes, tokens: int, temperature: float, seed: int
    ) -> Iterator[bytes]:
        generator = torch.Generator().manual_seed(seed)
        device = device_of(model)
        context = list(text[-self.config.sequence :])
        for _ in range(tokens):
            with torch.no_grad():
                logits = model(torch.tensor([context], device=device))[0, -1].cpu().double()
            byte = pick(logits, temperature, generator)
            context = [*context, byte][-self.config.sequence :]
            yield bytes([byte])

    def predict(self, model: torch.nn.Module, table: TableSource) -> list[dict[str, str | float | int]]:
        """The likeliest `continuation` of each text in the column `prompt`."""
        return continuations(lambda prompt: self.generate(model, prompt, PREDICTED_BYTES, 0.0, 0), table)

    def description(self) -> Mapping[str, Any]:
        return {"model": asdict(self.config), "data": self._data_hash}

    @classmethod
    def restore(cls, description: Mapping[str, Any]) -> "TextTask":
        task = cls.__new__(cls)  # without the training data
        task.config = config_from_json(description)
        return task


def continuations(
    write: Callable[[str], Iterable[bytes]], table: TableSource
) -> list[dict[str, str | float | int]]:
    """What `write` makes of each text in the column `prompt`, in the column `continuation`. Raises DataError."""
    prompts = text_values(column_named(as_table(table, ["prompt"]), "prompt"), "prompt").to_pylist()
    return [
        {
            "prompt": prompt or "",
            "continuation": b"".join(write(prompt or "")).decode(errors="replace"),
        }
        for prompt in prompts
    ]


def check_generation(tokens: object, temperature: float, most: int) -> None:
    """Raises ConfigError for what no text can be generated with."""
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not 0 <= tokens <= most:
        raise ConfigError(f"tokens {tokens!r} must be a whole number from 0 to {most}.")
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ConfigError(f"temperature {temperature} must be 0 or a positive number.")


def pick(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> int:
    """One of the tokens, by its logit: float64 (vocabulary,)."""
    if not torch.isfinite(logits).all():
        raise NonFiniteError(
            "the model's logits are NaN or infinite; its training has diverged, use another checkpoint."
        )
    if temperature == 0:
        return int(logits.argmax())
    likelihood = torch.softmax((logits - logits.max()) / temperature, 0)
    return int(torch.multinomial(likelihood, 1, generator=generator))


def text_config(options: TaskOptions) -> TransformerConfig:
    """The model that the options ask for. Raises ConfigError."""
    default = TransformerConfig()
    width = default.width if options.width is None else options.width
    return checked(
        TransformerConfig(
            vocabulary=BYTES,
            width=width,
            layers=default.layers if options.layers is None else options.layers,
            heads=next(heads for heads in (4, 2, 1) if width % heads == 0),
            sequence=default.sequence if options.sequence is None else options.sequence,
            arithmetic=options.arithmetic,
            backward=options.backward,
        )
    )


def checked(config: TransformerConfig) -> TransformerConfig:
    """The same configuration, within the limits of built-in models. Raises ConfigError."""
    in_range("width", config.width, limits.MAX_MODEL_WIDTH)
    in_range("layers", config.layers, limits.MAX_MODEL_LAYERS)
    in_range("heads", config.heads, config.width)
    in_range("sequence", config.sequence, limits.MAX_SEQUENCE)
    if config.vocabulary != BYTES:
        raise ConfigError(f"vocabulary {config.vocabulary!r:.60} must be {BYTES}, one a byte.")
    check_arithmetic(config.arithmetic, config.backward)
    return config


def config_from_json(description: Mapping[str, Any]) -> TransformerConfig:
    """What `asdict` made of a configuration. CheckpointError: it may be hostile."""
    try:
        model = description["model"]
        return checked(
            TransformerConfig(**{field.name: model[field.name] for field in fields(TransformerConfig)})
        )
    except (ConfigError, KeyError, TypeError) as error:
        raise CheckpointError(f"the checkpoint's model cannot be built: {error!r:.200}.") from None
