"""Whole training steps, verified INT8 against `nn.Linear` in float32: one thread, alternating.

    python benchmarks/step.py [--rounds 25]

Prints one JSON line a model: milliseconds a step of each side and its ratio to float32 (below 1 is faster). A step is
forward, backward and the optimiser; the verified sides also audit live products, as in training. `portable` is the
sgemm backend, which needs no VNNI.
"""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from daisychain import kernels
from daisychain.kernels import make_optimizer
from daisychain.nn import MLP, Transformer, TransformerConfig
from timing import alternate, print_result

Made = tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]
Make = Callable[[str, str], Made]


def perceptron(arithmetic: str, backward: str) -> Made:
    """784-256-256-10 at batch 256."""
    x, y = torch.randn(256, 784), torch.randint(0, 10, (256,))
    return MLP([784, 256, 256, 10], arithmetic, backward), lambda model: F.cross_entropy(model(x), y)  # type: ignore[arg-type]


def gpt(arithmetic: str, backward: str) -> Made:
    """Width 128, 4 layers, sequence 128, batch 8, 256 symbols."""
    ids = torch.randint(0, 256, (8, 129))
    config = TransformerConfig(256, 128, 4, 4, 128, arithmetic, backward)  # type: ignore[arg-type]

    def loss(model: nn.Module) -> torch.Tensor:
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    return Transformer(config), loss


def float_step(
    make: Make,
) -> Callable[[], object]:
    """Ordinary layers with torch's own fused Adam, its fastest on a CPU."""
    model, loss = make("float", "float")
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def step() -> None:
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()

    return step


def verified_step(
    make: Make,
    backward: str,
    kernel: str,
) -> Callable[[], object]:
    """Verified layers with DaisyAdam on one flat vector, as the trainer has it."""
    model, loss = make("int8", backward)
    parameters = list(model.parameters())
    weights = torch.cat([p.detach().flatten() for p in parameters])
    gradient = torch.zeros_like(weights)
    start = 0
    for p in parameters:
        p.data = weights[start : start + p.numel()].view_as(p)
        p.grad = gradient[start : start + p.numel()].view_as(p)
        start += p.numel()
    optimizer = make_optimizer("adam", len(weights))

    def step() -> None:
        registry.force(kernel, quiet=True)
        registry.auditor.begin_step()
        gradient.zero_()
        loss(model).backward()
        optimizer.step(weights.numpy(), gradient.numpy(), 1e-3)

    return step


registry = kernels.default()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=25)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    fast = "int_mm" if registry.prove("int_mm").admitted else "sgemm"
    for name, make in {
        "mlp 784-256-256-10, batch 256": perceptron,
        "gpt width 128, 4 layers, batch 8×128": gpt,
    }.items():
        torch.manual_seed(0)
        seconds = alternate(
            {
                "float32": float_step(make),
                "int8 backward": verified_step(make, "int8", fast),
                "float backward": verified_step(make, "float", fast),
                "portable": verified_step(make, "int8", "sgemm"),
            },
            rounds,
        )
        print_result(
            f"training step, {name}",
            kernel=fast,
            milliseconds={side: round(s * 1e3, 3) for side, s in seconds.items()},
            ratio_to_float32={side: round(s / seconds["float32"], 3) for side, s in seconds.items()},
        )


if __name__ == "__main__":
    main()
