"""Tables are certified entry by entry; a wrong one cannot be made."""

import numpy as np
import pytest

from daisychain.base.errors import UnitError
from daisychain.units import Nets, Tables, load_tables, shipped_nets, tables_from
from daisychain.units.counts import MULTIPLY, RELU, REQUANTISE
from daisychain.units.perceptron import Net

FIELDS = {MULTIPLY: "products", REQUANTISE: "requantised", RELU: "rectified"}


def copies() -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.signedinteger]]]:
    return {name: getattr(load_tables(), name).copy() for name in FIELDS.values()}


@pytest.mark.parametrize("unit", FIELDS)
@pytest.mark.parametrize("place", ["first", "last", "random"])
@pytest.mark.parametrize("bit", [0, 6])
def test_a_planted_wrong_entry_is_refused_and_named(unit: str, place: str, bit: int) -> None:
    tables = copies()
    table = tables[FIELDS[unit]]
    entry = {
        "first": 0,
        "last": len(table) - 1,
        "random": int(np.random.default_rng(4).integers(len(table))),
    }[place]
    right = int(table[entry])
    table[entry] ^= 1 << bit
    wrong = int(table[entry])
    message = rf"{unit}\(.*\) is {wrong}, not {right}; 1 of {len(table)} cases"
    with pytest.raises(UnitError, match=message):
        Tables(**tables)


def test_the_first_of_several_wrong_entries_is_named() -> None:
    tables = copies()
    tables["products"][[5 * 256 + 7, 5 * 256 + 9]] = 0
    with pytest.raises(UnitError, match=r"multiply\(5, 7\) is 0, not 35; 2 of 65536"):
        Tables(**tables)


@pytest.mark.parametrize("name", FIELDS.values())
def test_a_table_of_another_size_or_type_is_refused(name: str) -> None:
    for table in (copies()[name][:-1], copies()[name].astype(np.int32), copies()[name][:0]):
        with pytest.raises(UnitError, match="table refused"):
            Tables(**{**copies(), name: table})


def test_tables_cannot_change_after_they_were_certified() -> None:
    given = copies()
    tables = Tables(**given)
    given["rectified"][0] = 99
    assert tables.rectified[0] == 0
    for name in FIELDS.values():
        with pytest.raises(ValueError, match="read-only"):
            getattr(load_tables(), name)[0] = 1


def test_tables_of_a_wrong_net_are_refused() -> None:
    by_unit = dict(shipped_nets().by_unit)
    good = by_unit[MULTIPLY]
    shifted = good.output_bias + np.float32(1)
    by_unit[MULTIPLY] = Net(good.spec, good.hidden_weight, good.hidden_bias, good.output_weight, shifted)
    with pytest.raises(UnitError, match=r"multiply\(.*\) is"):
        tables_from(Nets(by_unit))


def test_tables_are_made_once_a_process() -> None:
    assert load_tables() is load_tables()
