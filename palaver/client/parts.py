"""The items of a batch, in parts that one request can carry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, Final

from palaver.schemas.batches import BatchItem
from palaver.vocabulary.limits import limit_of

_ITEMS: Final = 200
_BYTES: Final = 256 * 1024
Item = BatchItem | Mapping[str, Any] | str
"""An item: a text is its input."""


def check_number(items: Iterable[Item]) -> None:
    """Refuse a list that no batch has room for, before any of it runs.

    Raises:
        ValueError: it has too many items.
    """
    most = limit_of("batch_items")
    if isinstance(items, Sized) and len(items) > most:
        raise ValueError(f"{len(items):,} items are more than the {most:,} that a batch may have: make several batches")


def parts_of(items: Iterable[Item]) -> Iterator[list[Any]]:
    """Yield the items as JSON, in parts; no part if there is no item."""
    part: list[Any] = []
    size = 0
    for item in items:
        sent = _json(item)
        length = len(json.dumps(sent))
        if part and (len(part) == _ITEMS or size + length > _BYTES):
            yield part
            part, size = [], 0
        part.append(sent)
        size += length
    if part:
        yield part


def _json(item: Item) -> Any:
    match item:
        case str():
            return {"input": item}
        case BatchItem():
            return item.model_dump(mode="json", exclude_unset=True)
        case _:
            return dict(item)
