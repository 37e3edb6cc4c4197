"""Reasons not to copy: each is a sentence that says what to do."""

from __future__ import annotations

from typing import Any, Final

from palaver.errors import Refused
from palaver.store.redis import keys
from palaver.vocabulary.ids import MAX_SHARDS, all_shards

from .fleets import fleet_of, servers_of
from .parts import part_of
from .places import CopyPlace

_EMPTY_IT: Final = "empty it if its content is not needed (FLUSHDB, of a cluster at each master), or name another one"


async def approve(source: CopyPlace, target: CopyPlace, *, ahead: bool) -> None:
    """See that the target may become what the source is, and claim it.

    Raises:
        Refused: it may not, or not now. Nothing was written.
        StoreUnavailable: one of them does not answer.
    """
    await _require_two(source, target)
    await _require_rest(source, target, ahead=ahead)
    generation = await _generation(source)
    if generation is None:
        raise _refusal("there is no store at the source: see that it is the right address, and its database")
    await _require_ours(generation, target)
    await _require_older(source, target)
    await target.ask([("SET", keys.generation(), generation, "NX")])
    if await _generation(target) != generation:
        raise _refusal("another process began to use the target: name another one")


async def _require_two(source: CopyPlace, target: CopyPlace) -> None:
    if await servers_of(source) & await servers_of(target) and source.database == target.database:
        raise _refusal("the source and the target are the same: see the two addresses")
    for told in await source.may_see("INFO", "replication") or ():
        if told.get("role") == "slave":
            raise _refusal("the source is a replica, and may be behind: name its primary")


async def _require_rest(source: CopyPlace, target: CopyPlace, *, ahead: bool) -> None:
    """Refuse what is used. A copy that runs ahead may read of a store that is."""
    for place in (target,) if ahead else (source, target):
        fleet = await fleet_of(place)
        if not fleet.there:
            continue
        how = "stop them, and begin again; a worker that was killed is forgotten after PALAVER_LEASE_SECONDS"
        more = "; or copy --ahead while they run" if place is source else ""
        raise _refusal(f"the {place.role} is in use by {fleet.named}: {how}{more}")


async def _require_ours(generation: bytes, target: CopyPlace) -> None:
    there = await _generation(target)
    if there is not None and there != generation:
        raise _refusal(f"the target has another store: {_EMPTY_IT}")
    if there is None:
        async for names in target.names():
            if any(part_of(name) is not None for name in names):
                raise _refusal(f"the target has keys of Palaver, and nothing says of which store: {_EMPTY_IT}")


async def _require_older(source: CopyPlace, target: CopyPlace) -> None:
    """Refuse a target in which something was counted that the source does not know: it was used since."""
    asked = [("HGETALL", keys.counts(shard)) for shard in all_shards(MAX_SHARDS)]
    for here, there in zip(await source.ask(asked), await target.ask(asked), strict=True):
        if any(float(count) > float(here.get(series, 0)) for series, count in there.items()):
            raise _refusal(
                "the target is ahead of the source: it was used since it was copied. Copy the other way, or, to lose "
                f"what came since, {_EMPTY_IT}"
            )


async def _generation(place: CopyPlace) -> Any:
    return (await place.ask([("GET", keys.generation())]))[0]


def _refusal(sentence: str) -> Refused:
    return Refused("copy_refused", sentence)
