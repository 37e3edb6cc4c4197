"""Thoughts of a model, read from the fields that its provider wants back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def objects(found: Any) -> list[dict[str, Any]]:
    """The objects of a list; none if it is no list."""
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def texts(fields: Mapping[str, Any], *places: tuple[str, str]) -> Iterator[str]:
    """What stands at each place: in a field that is a list of blocks, among other things, and in a field of these."""
    for blocks, text in places:
        yield from (str(block.get(text) or "") for block in objects(fields.get(blocks)))
