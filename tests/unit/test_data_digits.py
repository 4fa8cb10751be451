"""Digits: exact scaling, and the example file that `daisychain predict` reads."""

from pathlib import Path

import numpy as np
import pytest

from daisychain.base.errors import DataError
from daisychain.data.digits import PIXEL_NAMES, load_digits, read_digits

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.csv"


def test_digits_are_whole_and_exactly_scaled() -> None:
    digits = load_digits(0)
    assert digits.images.shape == (1797, 64)
    assert len(digits.train) + len(digits.held_out) == 1797
    pixels = (digits.images + 2) * 4
    assert np.array_equal(pixels, np.round(pixels))
    assert (pixels.min(), pixels.max()) == (0, 16)


def test_example_rows_are_held_out_ones() -> None:
    images, labels = read_digits(EXAMPLE)
    digits = load_digits(0)
    rows = digits.held_out[::17][: len(images)]
    assert len(images) == 20
    assert labels is not None
    assert np.array_equal(images, digits.images[rows])
    assert np.array_equal(labels, digits.labels[rows])


def write(path: Path, **changes: str) -> Path:
    cells = dict.fromkeys(PIXEL_NAMES, "3") | changes
    path.write_text(",".join(cells) + "\n" + ",".join(cells.values()) + "\n")
    return path


def test_label_is_optional(tmp_path: Path) -> None:
    images, labels = read_digits(write(tmp_path / "a.csv"))
    assert labels is None
    assert (images == np.float32(-1.25)).all()


@pytest.mark.parametrize("bad", ["17", "-1", "", "nan", "inf", "dark"])
def test_bad_pixels_are_refused(tmp_path: Path, bad: str) -> None:
    with pytest.raises(DataError, match="pixel_5"):
        read_digits(write(tmp_path / "a.csv", pixel_5=bad))


def test_absent_pixel_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("pixel_0,label\n3,4\n")
    with pytest.raises(DataError, match="'pixel_1' is not in the data; did you mean 'pixel_0'"):
        read_digits(path)
