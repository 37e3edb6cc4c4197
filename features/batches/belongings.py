"""Batches in erasures and exports of tenants."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final

from palaver.store.redis.keys import Key
from palaver.store.sides import ListedSide, Part, Placed

from . import batch_keys
from .batches import PAGE, Batches
from .problems import UnknownBatch

_BATCHES: Final = 50


class _Batches(ListedSide):
    section = 7
    begins_runs = True
    kind = "batches"
    due = batch_keys.BATCHES_DUE
    place = re.compile(r"batch_[0-9a-f]{24} [0-9]{1,9}")

    def listed(self, tag: str) -> Key:
        return batch_keys.batches(tag)

    def erasure(self, tag: str) -> Key:
        return batch_keys.batches_erasure(tag)

    def keys_of(self, tag: str, name: str) -> Sequence[Key]:
        of = batch_keys.of_batch(tag, name)
        return of.batch, of.items, of.cells, of.flight, of.again, of.failed

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
