"""The parts of a store, in the order in which they are copied, and the keys that are none of it.

A record needs nothing else; lists name records; what moves has the fleet act on them. So a copy that ended half-way has
no list that leads to nothing, and one without the last part has nothing that a fleet would begin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from typing import Final

from palaver.vocabulary.ids import MAX_SHARDS, all_shards

_SHARD: Final = re.compile(rb"\{p([0-9a-z]{2})\}:(?:@[0-9a-z]*:)?([a-z_]+)")
_SHARED: Final = re.compile(rb"\{palaver:([a-z]+)[^}]*\}:(?:model:.*:)?([a-z]+)")
_PLAIN: Final = re.compile(rb"palaver:(tenants|worker-[a-z]+)")
_NOT_COPIED: Final = re.compile(
    rb"\{p[0-9a-z]{2}\}:(sender|promised)$|\{palaver:workers\}:|palaver:(workers$|worker:|task:)"
)
"""Matches keys that speak of living processes, or of a server, and reports of Celery's tasks that are tools."""
_WORD: Final = re.compile(rb"[A-Za-z0-9_-]+")
_RECORDS: Final = frozenset(
    (b"run", b"steps", b"feed", b"conv", b"log", b"left", b"copy", b"copied", b"idem", b"trace")
)
_LISTS: Final = frozenset((b"runs", b"convs", b"waiting", b"pending", b"usage", b"statistics"))
_LISTS_OF_ALL: Final = frozenset((b"of", b"names", b"tenants"))
_MOVING_OF_ALL: Final = frozenset((b"due", b"events"))
MOST_LEFT: Final = 20
"""Beginnings of names by which the keys are counted that are left where they are; further ones count as others."""


class StorePart(IntEnum):
    """A part of a store; those before it are copied first."""

    RECORDS = 0
    LISTS = 1
    MOVING = 2
    """Due times, backlogs, leases, counts: each that is not known as one of the others is here."""


def part_of(key: bytes) -> StorePart | None:
    """Return the part that a key is of; None if it is not copied."""
    if _NOT_COPIED.match(key):
        return None
    if found := _SHARD.match(key):
        word = found[2]
        return StorePart.RECORDS if word in _RECORDS else StorePart.LISTS if word in _LISTS else StorePart.MOVING
    if found := _SHARED.match(key):
        return (
            StorePart.MOVING
            if found[2] in _MOVING_OF_ALL
            else StorePart.LISTS
            if found[2] in _LISTS_OF_ALL
            else StorePart.RECORDS
        )
    return StorePart.LISTS if _PLAIN.match(key) else None


def shard_in(key: bytes) -> int | None:
    """Return the number of the shard that a key is of; None if it is of none."""
    found = _SHARD.match(key)
    return _places().get(found[1].decode()) if found else None


@cache
def _places() -> Mapping[str, int]:
    return {shard: place for place, shard in enumerate(all_shards(MAX_SHARDS))}


def kind_in(key: bytes) -> str:
    """Return the name under which a key of the store is counted."""
    if found := _SHARD.match(key):
        return found[2].decode()
    if found := _SHARED.match(key):
        return f"{found[1].decode()}:{found[2].decode()}"
    return key.split(b":")[1].decode()


def beginning_of(key: bytes) -> str:
    """Return the beginning of the name of a key that is not copied: it tells whose it is, and has no id."""
    if _NOT_COPIED.match(key):
        return "palaver:worker" if b"worker" in key else "palaver:task" if b"task" in key else kind_in(key)
    found = _WORD.search(key)
    return found[0][:40].decode() if found else "?"
