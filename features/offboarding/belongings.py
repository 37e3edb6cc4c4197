"""All that a tenant has, by where it is found.

A kind of key that `palaver.store.redis.keys` or a module beside it has and that nothing here leads to is one
that an erasure forgets: a test compares the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, get_args

from palaver.schemas.actions import ActionType
from palaver.schemas.erasures import ErasedCounts
from palaver.store.redis import keys
from palaver.store.sides import sides
from palaver.vocabulary.lifecycle import RunStatus, WaitReason

from .contract import SharedType

LISTS_OF_RUNS: Final[tuple[str, ...]] = ("runs", *(f"runs:{status}" for status in RunStatus))
"""The lists of a tenant that its runs are in."""
UNFINISHED: Final = tuple(
    sorted((status for status in RunStatus if not status.terminal), key=lambda status: status is not RunStatus.QUEUED)
)
"""Statuses of runs that have not ended, in the order in which they are ended: none that waits for its turn gets it
because the one before it ends."""
_KINDS: Final = {"idem": "idempotency_keys", "copy": "", "copied": ""}


def counted_kinds() -> Sequence[str]:
    """Return what receipts count: of the core, and of features. Raises ValueError for two of one name."""
    found = [*ErasedCounts.model_fields, *(side.kind for side in sides().values() if side.kind)]
    if twice := [kind for kind, number in Counter(found).items() if number > 1]:
        raise ValueError(f"two features, or one and the core, count {', '.join(twice)} in receipts")
    return found


class Shared(NamedTuple):
    """A key with members that are a tenant's, beside those of others."""

    key: keys.Key
    type: SharedType


def kind_of_passing(name: str) -> str:
    """Return the kind that a key counts as that is in no other list; empty: it counts as nothing."""
    return "usage_days" if name.startswith("@") else _KINDS[name.partition(":")[0]]


def run_lists(shard: str) -> tuple[keys.Key, ...]:
    """The lists of all tenants in which runs are by their ids."""
    return (keys.ended(shard), *(keys.waiting(shard, reason) for reason in WaitReason))


def shared(shard: str, queues: Sequence[str]) -> Iterator[Shared]:
    """Yield what is looked through at last: runs and conversations are taken out of it as they are erased, and here is
    found what should not be there any more."""
    for key in (
        keys.due(shard),
        keys.lacking(shard),
        *(keys.ready(shard, queue) for queue in queues),
        *(keys.pending(shard, action_type) for action_type in get_args(ActionType)),
        *run_lists(shard),
        keys.expiring(shard),
        *(keys.runs(shard, status, keys.OTHER_TENANTS) for status in (None, *RunStatus)),
        keys.conversations(shard, "", keys.OTHER_TENANTS),
        keys.conversations(shard, ":updated", keys.OTHER_TENANTS),
    ):
        yield Shared(key, "zset")
    for queue in queues:
        for zset in (keys.turns, keys.capped, keys.ahead, keys.held_back):
            yield Shared(zset(shard, queue), "zset")
        yield Shared(keys.undelivered(shard, queue), "hash")
    yield Shared(keys.held(shard), "zset")
    for side in sides().values():
        for key in side.shared_in(shard):
            yield Shared(key, "zset")
    for key in (keys.caps(shard), keys.meters(shard), keys.fair(shard)):
        yield Shared(key, "hash")
    for side in sides().values():
        for key in side.streams_in(shard):
            yield Shared(key, "stream")


def steps_under_way(shard: str, tag: str, queues: Sequence[str]) -> tuple[keys.Key, ...]:
    """The lists of a tenant's steps, empty once its runs have ended, unless one was broken; and what features have of
    these runs."""
    owner = keys.owner(tag)
    written = (key for side in sides().values() for key in side.traces_in(shard, tag))
    backlogs = (keys.backlog(shard, queue, owner) for queue in queues)
    return (keys.in_flight(shard, owner), keys.capped_in(shard, owner), *backlogs, *written)
