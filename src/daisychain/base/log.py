"""What a person should know while the program works: one line each, on standard error.

Standard output belongs to results (`--json`, predictions, generated text).
"""

import sys


def say(message: str) -> None:
    """Print one line of information."""
    print(message, file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """Print one line that a person should act on."""
    print(f"warning: {message}", file=sys.stderr, flush=True)
