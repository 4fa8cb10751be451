"""Trained 8-bit units, proven on their complete domains: multiply, requantise and ReLU.

Three forms with the same bits: `Nets` (neural), `Tables` (look-up), and the integer arithmetic of `numerics`.
"""

from daisychain.units.certificate import Certificate, verify_units
from daisychain.units.counts import MULTIPLY, RELU, REQUANTISE, UNITS, Counts, counts
from daisychain.units.perceptron import Net, Nets
from daisychain.units.store import load_nets, save_nets, shipped_nets
from daisychain.units.tables import Tables, load_tables, tables_from

__all__ = [
    "MULTIPLY",
    "RELU",
    "REQUANTISE",
    "UNITS",
    "Certificate",
    "Counts",
    "Net",
    "Nets",
    "Tables",
    "counts",
    "load_nets",
    "load_tables",
    "save_nets",
    "shipped_nets",
    "tables_from",
    "verify_units",
]
