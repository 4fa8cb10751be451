"""Single products on every backend that passes the proof, against the float32 product: one thread, alternating.

    python benchmarks/product.py [--rounds 9]

Prints one JSON line a shape: microseconds of each side and its ratio to float32. Each side starts from float32
matrices and ends in one, so quantising is inside.
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch

from daisychain.kernels import Kernels, Operand
from daisychain.numerics import block_edges
from timing import alternate, print_result

#: (m, K, n, axis a, axis b): forward, gradient of the input and gradient of the weight of the step benchmark's layers.
SHAPES = [
    (256, 784, 256, 1, 1),
    (256, 256, 784, 0, 0),
    (1024, 128, 512, 1, 1),
    (1024, 512, 128, 1, 0),
    (512, 1024, 128, 0, 0),
    (32, 32, 32, 1, 1),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    registry = Kernels()
    fast = [b for b in registry.backends.values() if not b.for_proof and registry.prove(b.name).admitted]
    for m, k, n, axis_a, axis_b in SHAPES:
        a = Operand(torch.randn((m, k) if axis_a else (k, m)), axis_a)
        b = Operand(torch.randn((n, k) if axis_b else (k, n)), axis_b)
        left, right, edges = a.part(0, k), b.part(0, k).t(), block_edges(k)

        sides: dict[str, Callable[[], object]] = {"float32": partial(torch.mm, left, right)}
        sides |= {backend.name: partial(backend.product, a, b, edges) for backend in fast}
        seconds = alternate(sides, rounds, round_s=0.05)
        print_result(
            f"product {m}×{k}×{n}, contracted along axes {axis_a} and {axis_b}",
            microseconds={side: round(s * 1e6, 1) for side, s in seconds.items()},
            ratio_to_float32={side: round(s / seconds["float32"], 3) for side, s in seconds.items()},
        )


if __name__ == "__main__":
    main()
