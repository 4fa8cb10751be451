"""Names in messages: what a person may have meant, and lists that stay on one line."""

import difflib
from collections.abc import Sequence


def listed(names: Sequence[str], most: int = 8) -> str:
    """`'a', 'b' and 3 more`."""
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def suggest(wrong: str, known: Sequence[str]) -> str:
    """`did you mean 'a'?`, or, if nothing is near, `there are 'a', 'b'.`"""
    by_folded = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(wrong.casefold(), by_folded, n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(repr(by_folded[name]) for name in near)}?"
    return f"there are {listed(known)}." if known else "there are none."
