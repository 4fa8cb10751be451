"""Handwritten digits of 8 × 8 pixels, as they ship inside scikit-learn: 1,797 of them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daisychain.base import limits
from daisychain.base.errors import DataError
from daisychain.data.columns import TableSource, as_table, column_named, number_values
from daisychain.data.split import held_out_split

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

PIXELS = 64
CLASSES = 10
PIXEL_MAX = 16
PIXEL_NAMES = tuple(f"pixel_{number}" for number in range(PIXELS))


@dataclass(frozen=True)
class Digits:
    """`images` float32 (n, 64) within ±2, `labels` int64 (n,); `train` and `held_out` are places in them."""

    images: F32
    labels: I64
    train: I64
    held_out: I64


def scale_pixels(pixels: npt.NDArray[np.float64]) -> F32:
    """Grey values 0 … 16 → −2 … 2, exact."""
    return (pixels / 4 - 2).astype(np.float32)


def load_digits(seed: int) -> Digits:
    """All digits, a seeded fifth of them held out."""
    from sklearn import datasets  # a second to import, so only where it is needed

    bunch = datasets.load_digits()
    train, held_out = held_out_split(len(bunch.target), limits.HELD_OUT_MAX_ROWS, seed)
    return Digits(scale_pixels(bunch.data), bunch.target.astype(np.int64), train, held_out)


def read_digits(source: TableSource) -> tuple[F32, npt.NDArray[np.float64] | None]:
    """Images of a table with columns pixel_0 … pixel_63, and its `label` column, if it has one. DataError."""
    table = as_table(source)
    pixels = np.stack([number_values(column_named(table, name), name) for name in PIXEL_NAMES], axis=1)
    wrong = np.argwhere(~((pixels >= 0) & (pixels <= PIXEL_MAX)))
    if len(wrong):
        row, pixel = map(int, wrong[0])
        raise DataError(
            f"{PIXEL_NAMES[pixel]} in row {row + 1} is {pixels[row, pixel]:g}; a pixel is a number from 0 (white) "
            f"to {PIXEL_MAX} (black)."
        )
    labels = number_values(table["label"], "label") if "label" in table.column_names else None
    return scale_pixels(pixels), labels
