"""Thoughts of a model, read from the fields that its provider wants back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; none if it is no list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def texts(fields: Mapping[str, Any], *places: tuple[str, str]) -> Iterator[str]:
    """Yield the texts at the places: a field that is a list of blocks, among other things, and a field of these."""
    for blocks, text in places:
        yield from (str(block.get(text) or "") for block in objects(fields.get(blocks)))
