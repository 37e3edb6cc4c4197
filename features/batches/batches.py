"""Batches that a tenant has: made, filled with items, read, cancelled, retried and removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never, get_args

import orjson

from palaver.errors import UNREADABLE, CorruptRecord, IdempotencyMismatch, StateConflict
from palaver.late import dataclass
from palaver.schemas.batches import AgentTotals, Batch, BatchItem, BatchResult, CellStatus
from palaver.schemas.bearers import Bearer
from palaver.schemas.models import AgentSpec
from palaver.store.reading import records
from palaver.store.redis.connection import Fields, now_ms
from palaver.store.redis.due import member
from palaver.store.scripting.contracts.agents import Absent, Removed, TenantErased, TooMany
from palaver.store.scripting.contracts.claims import TickBusy
from palaver.store.scripting.contracts.replies import Mismatch, RefusalCode
from palaver.store.scripting.moving import durable_reply
from palaver.store.scripting.refusals import refusal
from palaver.store.sides import Ground
from palaver.telemetry.metrics import NANO
from palaver.vocabulary.limits import count_exceeded, limit_of

from . import batch_keys
from .bodies import BatchHead, BatchVerb
from .contract import AppendItems, BatchMade, ChangeBatch, CreateBatch, ItemsAppended, OffsetWrong, RemoveBatch
from .problems import UnknownBatch

_PARTS: Final = limit_of("batch_cells") // limit_of("batch_part") + 1
_ABANDONED: Final = f"No items came for {limit_of('batch_open') // 3600} hours, and none of them was the last."
_FAILED: Final = "What is stored of it could not be read: no more of its runs are begun. Those under way go on."
_UNREAD: Final = (
    "What is stored of it cannot be read by those who looked lately. It fails if none can for "
    f"{limit_of('batch_unreadable') // 3600} hour, or when it is cancelled."
)
_STATUSES: Final = get_args(CellStatus)
PAGE: Final = 500
"""Cells that are read at once."""


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """The part of a batch that holds for all of its runs, and in whose name they are."""

    head: BatchHead
    bearer: Bearer
    request: str = ""
    """The fingerprint of the request that made it."""

    def to_json(self) -> bytes:
        """The text that is stored: the same for the same order."""
        head = orjson.loads(self.head.model_dump_json(exclude_defaults=True))
        fields = {"head": head, "bearer": self.bearer.fields(), "request": self.request}
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def of_json(cls, text: str | bytes) -> BatchOrder:
        """The order that a text says."""
        fields = orjson.loads(text)
        head = BatchHead.model_validate_json(orjson.dumps(fields["head"]))
        return cls(head, Bearer.of_fields(fields["bearer"]), fields["request"])

    @property
    def width(self) -> int:
        """The number of cells of an item."""
        return len(self.head.agents) * self.head.repeats

    @property
    def most(self) -> int:
        """The number of items that there may be."""
        return min(limit_of("batch_items"), limit_of("batch_cells") // self.width)

    @property
    def names(self) -> Sequence[str]:
        """The names of the agents, as results have them: two of one name have numbers."""
        names = [each if isinstance(each, str) else each.name or each.model for each in self.head.agents]
        counted = Counter(names)
        return [f"{name}#{place + 1}" if counted[name] > 1 else name for place, name in enumerate(names)]

    def agent(self, cell: int) -> AgentSpec | str:
        """The agent of a cell."""
        return self.head.agents[cell % len(self.head.agents)]

    def item(self, cell: int) -> int:
        """The number of the item of a cell."""
        return cell // self.width

    def repeat(self, cell: int) -> int:
        """The repeat of a cell, from 1."""
        return cell % self.width // len(self.head.agents) + 1


class Batches:
    """The batches of tenants, each of which is named by its tag."""

    def __init__(self, ground: Ground) -> None:
        self._redis = ground.redis
        self._scripts = ground.scripts
        self._capacity = ground.capacity

    async def create(self, tenant: str, batch_id: str, order: BatchOrder) -> bool:
        """Make a batch without items. Return False if it was there.

        Raises:
            IdempotencyMismatch: it was there, and is another one.
            StateConflict: ``batches_full``; ``tenant_erased``.
            NoRoom: ``store_nearly_full``.
            NotDurable: made, but not as safely as PALAVER_DURABILITY asks.
        """
        await self._capacity.admit()
        await self._drop_gone(tenant)
        create = CreateBatch(
            of=batch_keys.of_batch(tenant, batch_id),
            erasure=batch_keys.batches_erasure(tenant),
            member=member(tenant, batch_id),
            batch_id=batch_id,
            order=order.to_json(),
            made=orjson.dumps({"at": await now_ms(self._redis), "by": order.bearer.name}),
        )
        return await durable_reply(self._scripts.run_durably(create), _made)

    async def append(
        self,
        tenant: str,
        batch_id: str,
        order: BatchOrder,
        offset: int,
        items: Sequence[BatchItem],
        *,
        complete: bool,
        bearer: Bearer | None = None,
    ) -> int:
        """Append items behind the ``offset`` that there are, and return how many there are then. A part that is there
        changes nothing. Their runs are in the name of ``bearer``; without one, of the batch's.

        Raises:
            UnknownBatch: there is none of this id.
            StateConflict: ``batch_offset``, they do not go on where the others end; ``batch_full``.
            NoRoom: ``store_nearly_full``.
            NotDurable: appended, but not as safely as PALAVER_DURABILITY asks.
        """
        await self._capacity.admit()
        append = AppendItems(
            of=batch_keys.of_batch(tenant, batch_id),
            member=member(tenant, batch_id),
            offset=offset,
            complete=complete,
            most=order.most,
            by=None if bearer is None or bearer == order.bearer else orjson.dumps(bearer.fields()),
            items=tuple(item.model_dump_json(exclude_defaults=True) for item in items),
        )
        return await durable_reply(self._scripts.run_durably(append), lambda reply: _appended(batch_id, reply))

    async def order(self, tenant: str, batch_id: str) -> BatchOrder:
        """Return the part of a batch that holds for all of its runs. Raises UnknownBatch and CorruptRecord."""
        text = await self._redis.hget(batch_keys.of_batch(tenant, batch_id).batch, "order")
        if text is None:
            raise UnknownBatch(batch_id)
        try:
            return BatchOrder.of_json(text)
        except UNREADABLE as error:
            raise CorruptRecord(f"the batch {batch_id}") from error

    async def get(self, tenant: str, batch_id: str) -> Batch:
        """A batch, and how far it is. Raises UnknownBatch."""
        (found,) = await self._read(tenant, [batch_id])
        if found is None:
            raise UnknownBatch(batch_id)
        return found

    async def listed(self, tenant: str, *, before: str = "", limit: int) -> tuple[list[Batch], str | None]:
        """Batches, the newest first, and the cursor of the next page; None on the last one."""
        ids = [each.decode() for each in reversed(await self._redis.zrange(batch_keys.batches(tenant), 0, -1))]
        begin = ids.index(before) + 1 if before in ids else 0
        page = ids[begin : begin + limit]
        found = [each for each in await self._read(tenant, page) if each is not None]
        return found, page[-1] if begin + limit < len(ids) else None

    async def results(self, tenant: str, batch_id: str, *, after: int, limit: int) -> tuple[list[BatchResult], int]:
        """Return the results of cells from the number ``after`` on, and the number behind the last that was looked at;
        -1 if none is behind it. Raises UnknownBatch."""
        of = batch_keys.of_batch(tenant, batch_id)
        order, begun = await self._redis.hmget(of.batch, ["order", "next"])
        if order is None or begun is None:
            raise UnknownBatch(batch_id)
        until = min(after + min(limit, PAGE), int(begun))
        if until <= after:
            return [], -1
        texts = await self._redis.hmget(of.cells, [str(cell) for cell in range(after, until)])
        try:
            found = [BatchResult.model_validate_json(text) for text in texts if text is not None]
        except UNREADABLE as error:
            raise CorruptRecord(f"the results of the batch {batch_id}") from error
        return found, until if until < int(begun) else -1

    async def change(self, tenant: str, batch_id: str, verb: BatchVerb, *, by: str | None = None) -> int:
        """Cancel a batch, or begin again what has failed; return how many cells that are. ``by`` is the name of the key
        that asks.

        Raises:
            UnknownBatch: there is none of this id.
            NotDurable: done, but not as safely as PALAVER_DURABILITY asks.
        """
        change = ChangeBatch(
            of=batch_keys.of_batch(tenant, batch_id),
            member=member(tenant, batch_id),
            verb=verb,
            by=orjson.dumps([by or ""]),
        )
        moved = 0
        for _ in range(_PARTS):
            reply = await self._scripts.run_durably(change)
            if isinstance(reply, Absent):
                raise UnknownBatch(batch_id)
            moved += reply.moved
            if not reply.more:
                break
        return moved

    async def remove(self, tenant: str, batch_id: str) -> None:
        """Forget a batch. Its runs stay.

        Raises:
            UnknownBatch: there is none of this id.
            StateConflict: ``batch_active``, it has not ended.
            NotDurable: done, but not as safely as PALAVER_DURABILITY asks.
        """
        remove = RemoveBatch(of=batch_keys.of_batch(tenant, batch_id), batch_id=batch_id)
        await durable_reply(self._scripts.run_durably(remove), lambda reply: _removed(batch_id, reply))

    async def _drop_gone(self, tenant: str) -> None:
        """Take those out of the list whose retention is over."""
        members = await self._redis.zrange(batch_keys.batches(tenant), 0, -1)
        if not members:
            return
        pipeline = self._redis.pipeline(transaction=False)
        for each in members:
            pipeline.execute_command("EXISTS", batch_keys.of_batch(tenant, each.decode()).batch)
        gone = [each for each, there in zip(members, await pipeline.execute(), strict=True) if not there]
        if gone:
            pipeline.zrem(batch_keys.batches(tenant), *gone)
            await pipeline.execute()

    async def _read(self, tenant: str, ids: Sequence[str]) -> list[Batch | None]:
        pipeline = self._redis.pipeline(transaction=False)
        for batch_id in ids:
            of = batch_keys.of_batch(tenant, batch_id)
            pipeline.hgetall(of.batch)
            pipeline.execute_command("HLEN", of.flight)
            pipeline.zcard(of.again)
        replies = iter(await pipeline.execute() if ids else ())
        return [_batch(batch_id, next(replies), next(replies), next(replies)) for batch_id in ids]


def _batch(batch_id: str, fields: Fields, flight: int, again: int) -> Batch | None:
    if b"order" not in fields:
        return None
    order = _order(fields)
    totals = () if order is None else tuple(_totals(name, number, fields) for number, name in enumerate(order.names))
    try:
        made, items, state = orjson.loads(fields[b"made"]), int(fields[b"items"]), fields[b"state"].decode()
        return Batch(
            id=batch_id,
            name=None if order is None else order.head.name,
            state=state,
            reason=_reason(fields, state, readable=order is not None),
            items=items,
            cells=0 if order is None else items * order.width,
            begun=int(fields[b"next"]) - again,
            in_flight=flight,
            ended=sum(sum(each.ended.values()) for each in totals),
            totals=totals,
            created_at=records.instant(made["at"]),
            created_by=made["by"],
        )
    except UNREADABLE as error:
        raise CorruptRecord(f"the batch {batch_id}") from error


def _order(fields: Fields) -> BatchOrder | None:
    """Return the order of a batch; None if it cannot be read. It is shown all the same: who has it may remove it."""
    try:
        return BatchOrder.of_json(fields[b"order"])
    except UNREADABLE:
        return None


def _reason(fields: Fields, state: str, *, readable: bool) -> str | None:
    if state == "failed":
        return _FAILED
    if b"unread" in fields or not (readable or state in ("done", "cancelled")):
        return _UNREAD
    return _ABANDONED if b"abandoned" in fields else None


def _totals(name: str, number: int, fields: Fields) -> AgentTotals:
    def count(what: str) -> int:
        return int(fields.get(f"{number}:{what}".encode(), 0))

    counts: Mapping[Any, int] = {status: found for status in _STATUSES if (found := count(status))}
    timed = count("timed")
    return AgentTotals(
        agent=name,
        ended=dict(counts),
        cost_usd=None if count("unpriced") else count("nanos") / NANO,
        input_tokens=count("input"),
        output_tokens=count("output"),
        seconds=round(count("ms") / 1000 / timed, 3) if timed else 0.0,
        scored=count("scored"),
        passed=count("passed"),
    )


def _made(reply: BatchMade | Mismatch | TooMany | TenantErased) -> bool:
    match reply:
        case BatchMade(new=new):
            return new
        case Mismatch():
            raise IdempotencyMismatch
        case TooMany():
            count_exceeded("batches")
            raise StateConflict("batches_full", None, "there are as many batches as there may be: remove some")
        case TenantErased():
            raise refusal(RefusalCode.TENANT_ERASED, None)
        case none:
            assert_never(none)


def _appended(batch_id: str, reply: ItemsAppended | OffsetWrong | TooMany | Absent) -> int:
    match reply:
        case ItemsAppended(items=items):
            return items
        case OffsetWrong(items=items):
            raise StateConflict("batch_offset", None, f"the batch has {items} items, and may take no more")
        case TooMany():
            count_exceeded("batch_items")
            items, runs, size = (limit_of(f"batch_{each}") for each in ("items", "cells", "bytes"))
            most = f"{items:,} items, {runs:,} runs (items times agents times repeats) and {size:,} bytes"
            raise StateConflict("batch_full", None, f"a batch has at most {most}: make several batches")
        case Absent():
            raise UnknownBatch(batch_id)
        case none:
            assert_never(none)


def _removed(batch_id: str, reply: Removed | TickBusy | Absent) -> None:
    match reply:
        case Removed():
            return
        case TickBusy():
            raise StateConflict("batch_active", None, "the batch has not ended: cancel it")
        case Absent():
            raise UnknownBatch(batch_id)
        case none:
            assert_never(none)
