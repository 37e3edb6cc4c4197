"""Batches in erasures and exports of tenants."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final

from palaver.errors import UnknownBatch
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection
from palaver.store.redis.due import member
from palaver.store.redis.keys import Key
from palaver.store.scripting.contracts import EraseKeys
from palaver.store.scripting.contracts.erasure import Erasable
from palaver.store.scripting.scripts import Scripts
from palaver.store.sides import Part, Placed, StoreSide

from . import batch_keys
from .batches import PAGE, Batches

_ERASED_AT_ONCE: Final = 200
_BATCHES: Final = 50
_PLACE: Final = re.compile(r"batch_[0-9a-f]{24} [0-9]{1,9}")


class _Batches(StoreSide):
    begins_runs = True
    section = 7

    def marks(self, tag: str) -> Sequence[Key]:
        return (batch_keys.batches_erasure(tag),)

    def traces(self, tag: str) -> Sequence[Key]:
        return (batch_keys.batches(tag),)

    async def erase_some(self, redis: Connection, scripts: Scripts, tag: str) -> bool:
        ids = [each.decode() for each in await redis.zrange(batch_keys.batches(tag), 0, _ERASED_AT_ONCE - 1)]
        if not ids:
            return False
        own = [batch_keys.of_batch(tag, batch_id) for batch_id in ids]
        parts = (key for of in own for key in (of.items, of.cells, of.flight, of.again, of.failed))
        erased = (
            *(Erasable(of.batch, "batches", 1) for of in own),
            *(Erasable(key, "", 0) for key in parts),
            Erasable(keys.promised(batch_keys.BATCHES_DUE), "", 0),
        )
        await scripts.run(EraseKeys(erasure=batch_keys.batches_erasure(tag), erased_keys=erased))
        pipeline = redis.pipeline(transaction=False)
        pipeline.zrem(batch_keys.BATCHES_DUE, *(member(tag, batch_id) for batch_id in ids))
        # Last: it says what is left to do.
        pipeline.zrem(batch_keys.batches(tag), *ids)
        await pipeline.execute()
        return True

    def check_place(self, place: str) -> None:
        if not _PLACE.fullmatch(place):
            raise ValueError(place)

    async def export(self, part: Part[Any], tag: str, place: str) -> AsyncGenerator[Placed, None]:
        """Yield each batch behind a place, which is the id of one and a cell of it; then what came of its cells."""
        batches: Batches = part(Batches)
        behind, _, cell = place.partition(" ")
        if behind:
            async for placed in _results(batches, tag, behind, int(cell)):
                yield placed
        cursor: str | None = behind
        while cursor is not None:
            page, cursor = await batches.listed(tag, before=cursor, limit=_BATCHES)
            for batch in page:
                yield f"{batch.id} 0", {"kind": "batch", "batch": batch.model_dump(mode="json")}
                async for placed in _results(batches, tag, batch.id, 0):
                    yield placed


async def _results(batches: Batches, tag: str, batch_id: str, after: int) -> AsyncIterator[Placed]:
    with suppress(UnknownBatch):
        while after >= 0:
            page, after = await batches.results(tag, batch_id, after=after, limit=PAGE)
            for result in page:
                about = {"batch_id": batch_id, "result": result.model_dump(mode="json")}
                yield f"{batch_id} {result.cell + 1}", {"kind": "batch_result", **about}


STORE_SIDE: Final = _Batches()
