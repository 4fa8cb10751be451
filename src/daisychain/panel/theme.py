"""How the pages look: where their colours and styles are, and light or dark."""

from __future__ import annotations

from pathlib import Path

STATIC = Path(__file__).parent / "static"
ROUTE = "/look"  # where the folder is served

SHEETS = ("panel.css", "parts.css", "run.css", "fleet.css")

#: Before the first paint, so that a page never flashes in the wrong colours.
HEAD = f"""
<link rel="stylesheet" href="{ROUTE}/tokens.css">
<link rel="stylesheet" href="{ROUTE}/dark.css" id="dark" media="(prefers-color-scheme: dark)">
{"".join(f'<link rel="stylesheet" href="{ROUTE}/{sheet}">' for sheet in SHEETS)}
<script src="{ROUTE}/theme.js"></script>
<script src="{ROUTE}/tips.js" defer></script>
"""
