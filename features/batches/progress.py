"""Batches that go on: found when they need attention, claimed by one process, and advanced (ADR 0118)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from secrets import token_hex
from typing import Any, Final

import orjson

from palaver.errors import UNREADABLE, CorruptRecord
from palaver.late import dataclass
from palaver.schemas.batches import BatchItem, BatchState
from palaver.schemas.bearers import Bearer
from palaver.store.redis.connection import now_ms
from palaver.store.redis.due import member, read_due
from palaver.store.sides import Ground

from . import batch_keys
from .batches import BatchOrder
from .contract import AdvanceBatch, BatchAdvanced, BatchClaimed, BegunCell, ClaimBatch, EndedCell, LeaveBatch

_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True)
class CellEntry:
    """A cell in flight."""

    cell: int
    attempt: int
    at: int
    """The time at which it was begun, ms."""
    run_id: str | None = None
    """Its run; None: it is submitted, or about to be."""
    item: str | None = None
    """The user's name for its item."""
    result: Mapping[str, Any] | None = None
    """The result of the run, once a scorer judges it."""
    score_run_id: str | None = None

    @property
    def under_way(self) -> str | None:
        """The run that it waits for: its own, or the one that judges it. None: that is to be submitted."""
        return self.run_id if self.result is None else self.score_run_id

    def begun(self) -> BegunCell:
        """The same, as it is stored."""
        fields = {name: getattr(self, name) for name in CellEntry.__slots__ if name != "cell"}
        return BegunCell(self.cell, orjson.dumps(fields))


@dataclass(frozen=True, slots=True)
class AddedItem:
    """An item of a batch, and in whose name its runs are."""

    item: BatchItem
    bearer: Bearer


@dataclass(slots=True)
class BatchClaim:
    """A batch that this process goes on with."""

    tenant: str
    batch_id: str
    claim: str
    order: BatchOrder
    state: BatchState
    items: int
    next: int
    """The first cell that was never begun."""
    now: int
    """The time of the claim, ms."""
    retried_by: Sequence[str]
    """The names of those who began again what had failed, '' for one without."""
    flight: dict[int, CellEntry] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        """The number of all cells."""
        return self.items * self.order.width


class BatchProgress:
    """The progress of all batches."""

    def __init__(self, ground: Ground) -> None:
        self._redis = ground.redis
        self._scripts = ground.scripts

    async def due(self) -> tuple[list[tuple[str, str]], float | None]:
        """Return the tenants and ids of batches that need attention, and the seconds until the next one will."""
        return await read_due(self._redis, batch_keys.BATCHES_DUE, _AT_ONCE)

    async def claim(self, tenant: str, batch_id: str) -> BatchClaim | None:
        """Claim a batch, with what is in flight; None if another process has it, or it is not there.

        Raises:
            CorruptRecord: it cannot be read here. It is left to others, and ends where none can.
        """
        of, claim = batch_keys.of_batch(tenant, batch_id), token_hex(8)
        reply = await self._scripts.run(ClaimBatch(of=of, member=member(tenant, batch_id), claim=claim))
        if not isinstance(reply, BatchClaimed):
            return None
        now, flight = await now_ms(self._redis), await self._redis.hgetall(of.flight)
        try:
            order = BatchOrder.of_json(reply.order)
            cells = {int(cell): CellEntry(int(cell), **orjson.loads(text)) for cell, text in flight.items()}
            again = orjson.loads(reply.retried_by or b"[]")
        except UNREADABLE as error:
            await self.leave(tenant, batch_id, claim)
            raise CorruptRecord(f"the batch {batch_id}") from error
        return BatchClaim(tenant, batch_id, claim, order, reply.state, reply.items, reply.next, now, again, cells)

    async def leave(self, tenant: str, batch_id: str, claim: str) -> None:
        """Let a batch go that cannot be read here."""
        of = batch_keys.of_batch(tenant, batch_id)
        await self._scripts.run(
            LeaveBatch(of=of, told=batch_keys.BATCHES_TOLD, member=member(tenant, batch_id), claim=claim)
        )

    async def to_begin(self, claimed: BatchClaim, room: int) -> tuple[list[CellEntry], int]:
        """Return the next cells to begin, those that are to be begun again before others, and the first cell behind
        those."""
        of = batch_keys.of_batch(claimed.tenant, claimed.batch_id)
        again = [int(each) for each in await self._redis.zrange(of.again, 0, room - 1)]
        former = await self._redis.hmget(of.cells, [str(cell) for cell in again]) if again else []
        found = [
            CellEntry(cell, 1 if text is None else orjson.loads(text)["attempt"] + 1, claimed.now)
            for cell, text in zip(again, former, strict=True)
        ]
        behind = min(claimed.cells, claimed.next + room - len(found))
        return [*found, *(CellEntry(cell, 1, claimed.now) for cell in range(claimed.next, behind))], behind

    async def items(self, claimed: BatchClaim, numbers: Sequence[int]) -> Mapping[int, AddedItem]:
        """The items of these numbers, without those that cannot be read."""
        asked = [*dict.fromkeys(numbers)]
        if not asked:
            return {}
        of = batch_keys.of_batch(claimed.tenant, claimed.batch_id)
        fields = [name for number in asked for name in (str(number), f"by:{number}")]
        texts = await self._redis.hmget(of.items, fields)
        found = {}
        for number, text, by in zip(asked, texts[::2], texts[1::2], strict=True):
            with suppress(*UNREADABLE):
                bearer = claimed.order.bearer if by is None else Bearer.of_fields(orjson.loads(by))
                found[number] = AddedItem(BatchItem.model_validate_json(text or b""), bearer)
        return found

    async def advance(
        self,
        claimed: BatchClaim,
        *,
        begun: Sequence[CellEntry] = (),
        ended: Sequence[EndedCell] = (),
        wait: float | None = None,
    ) -> bool:
        """Write what was begun and what has ended; with ``wait`` let the claim go for so many seconds. False: another
        else has the batch by now."""
        reply = await self._scripts.run(
            AdvanceBatch(
                of=batch_keys.of_batch(claimed.tenant, claimed.batch_id),
                told=batch_keys.BATCHES_TOLD,
                member=member(claimed.tenant, claimed.batch_id),
                claim=claimed.claim,
                next=claimed.next,
                width=claimed.order.width,
                wait=wait,
                begun=tuple(entry.begun() for entry in begun),
                ended=tuple(ended),
            )
        )
        if not isinstance(reply, BatchAdvanced):
            return False
        claimed.flight.update((entry.cell, entry) for entry in begun)
        for each in ended:
            claimed.flight.pop(each.cell, None)
        return True
