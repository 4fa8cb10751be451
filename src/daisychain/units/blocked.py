"""Elementwise evaluation in blocks, so that memory beyond operands and result is flat in their size."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from daisychain.base.errors import UnitError

Array = npt.NDArray[Any]


def in_blocks(
    unit: str,
    function: Callable[..., Array],
    operands: tuple[Array, ...],
    dtypes: tuple[type[np.integer], type[np.integer]],
    block_elements: int,
) -> Array:
    """`function` over operands of one shape, any layout, `block_elements` at a time.

    `dtypes` are what the operands must have and what the result gets. Raises UnitError for another type, or for
    operands of unequal shapes.
    """
    given, result = dtypes
    for operand in operands:
        if operand.dtype != given or operand.shape != operands[0].shape:
            have = " and ".join(f"{o.dtype}{list(o.shape)}" for o in operands)
            raise UnitError(f"unit {unit} takes {given.__name__} arrays of one shape; it was given {have}.")
    out = np.empty(operands[0].shape, result)
    blocks = np.nditer(
        [*operands, out],
        flags=["external_loop", "buffered", "zerosize_ok"],
        op_flags=[["readonly", "contig"]] * len(operands) + [["writeonly"]],  # type: ignore[arg-type]
        buffersize=block_elements,
    )
    with blocks:
        for *inputs, place in blocks:
            place[...] = function(*inputs)
    return out
