"""Where samples come from: digits, tables, text, and how they become arrays."""

from daisychain.data.columns import TableSource, as_table, column_named, text_values
from daisychain.data.digits import CLASSES, PIXELS, Digits, load_digits, read_digits
from daisychain.data.schema import ClassTarget, NumberTarget, TableSchema, schema_from_json
from daisychain.data.split import data_hash, held_out_split
from daisychain.data.tables import TableData, load_table
from daisychain.data.text import Windows, cut_windows, read_text

__all__ = [
    "CLASSES",
    "PIXELS",
    "ClassTarget",
    "Digits",
    "NumberTarget",
    "TableData",
    "TableSchema",
    "TableSource",
    "Windows",
    "as_table",
    "column_named",
    "cut_windows",
    "data_hash",
    "held_out_split",
    "load_digits",
    "load_table",
    "read_digits",
    "read_text",
    "schema_from_json",
    "text_values",
]
