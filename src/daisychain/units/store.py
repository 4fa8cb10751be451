"""Nets on disk: one small safetensors file a unit, written only when right, believed only when proven again."""

from functools import lru_cache
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from daisychain.base import limits
from daisychain.base.errors import UnitError
from daisychain.base.files import write_atomic
from daisychain.numerics import state_hash
from daisychain.units.counts import UNITS
from daisychain.units.domain import complete_domain
from daisychain.units.perceptron import F32, SPECS, Net, Nets

SHIPPED_FOLDER = Path(__file__).parent / "weights"

METADATA_KEY = "daisychain"


def net_path(folder: Path, unit: str) -> Path:
    """Where `folder` holds the net of `unit`."""
    return folder / f"{unit}.safetensors"


def save_nets(folder: Path, nets: Nets) -> None:
    """Write the three nets, if all have the margin and all are right on their complete domains.

    Raises UnitError, and writes nothing, if not; also if the folder cannot be written.
    """
    for unit in UNITS:
        check_margin(nets.by_unit[unit], "net not saved")
        domain = complete_domain(unit)
        domain.check(getattr(nets, unit)(*domain.operands), "net not saved")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for unit in UNITS:
            arrays = _arrays(nets.by_unit[unit])
            write_atomic(net_path(folder, unit), save(arrays, {METADATA_KEY: _seal(unit, arrays)}))
    except OSError as error:
        raise UnitError(
            f"unit files cannot be written into {folder} ({error}); choose another folder."
        ) from error


def load_nets(folder: Path) -> Nets:
    """The nets in `folder`, each proven to have the margin on its complete domain.

    Raises UnitError for a file that is missing, cut, altered, hostile or wrong.
    """
    return Nets({unit: load_net(net_path(folder, unit), unit) for unit in UNITS})


def load_net(path: Path, unit: str) -> Net:
    """The net of `unit` in one file, proven; UnitError as for `load_nets`."""
    try:
        size_bytes = path.stat().st_size
        if size_bytes > limits.MAX_UNIT_FILE_BYTES:
            raise UnitError(
                f"unit file {path} has {size_bytes} bytes, more than {limits.MAX_UNIT_FILE_BYTES}."
            )
        with safe_open(path, framework="numpy") as file:
            seal = (file.metadata() or {}).get(METADATA_KEY)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnitError(
            f"unit file {path} cannot be read ({' '.join(str(error).split())}); "
            "reinstall, or run `daisychain units train`."
        ) from error
    hidden = arrays["hidden_bias"].size if "hidden_bias" in arrays else 0
    spec = SPECS[unit]
    shapes = {
        "hidden_weight": (spec.word_bits, hidden),
        "hidden_bias": (hidden,),
        "output_weight": (hidden,),
        "output_bias": (1,),
    }
    if {name: array.shape for name, array in arrays.items()} != shapes or any(
        array.dtype != np.float32 or not np.isfinite(array).all() for array in arrays.values()
    ):
        raise UnitError(
            f"unit file {path} does not hold a {unit} net; reinstall, or run `daisychain units train`."
        )
    if seal != _seal(unit, arrays):
        raise UnitError(f"unit file {path} was altered; reinstall, or run `daisychain units train`.")
    net = Net(spec, **arrays)
    check_margin(net, f"unit file {path}")
    return net


def check_margin(net: Net, what: str) -> None:
    """Raise UnitError unless rounding cannot change any result of `net`."""
    margin = net.margin()
    if not margin <= limits.UNIT_MARGIN_MAX:
        raise UnitError(
            f"{what}: {net.spec.unit} is up to {margin:.3g} away from the right integer, more than "
            f"{limits.UNIT_MARGIN_MAX}; run `daisychain units train`, with another seed if need be."
        )


def _arrays(net: Net) -> dict[str, F32]:
    names = ("hidden_weight", "hidden_bias", "output_weight", "output_bias")
    return {name: np.ascontiguousarray(getattr(net, name)) for name in names}


def _seal(unit: str, arrays: dict[str, F32]) -> str:
    """Finds accidents. Malice is found by proving the net again."""
    return f"{unit} {state_hash(arrays, 0).hex()}"


@lru_cache(maxsize=1)
def shipped_nets() -> Nets:
    """The nets that DaisyChain comes with; read and proven once a process."""
    return load_nets(SHIPPED_FOLDER)
