"""Values as cells of a table that people open with a spreadsheet."""

from __future__ import annotations

from typing import Final

import orjson

_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Beginnings of texts that a spreadsheet may take for a formula, the first four also in their full width."""


def as_cell(value: object) -> object:
    """A value as a spreadsheet takes it: an object as JSON, and no text of a user as a formula."""
    text = orjson.dumps(value).decode() if isinstance(value, dict | list) else value
    return f"'{text}" if isinstance(text, str) and text.startswith(_FORMULAS) else text
