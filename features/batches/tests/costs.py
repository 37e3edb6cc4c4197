"""What makes scripts of batches dear."""

from __future__ import annotations

from typing import Final

import orjson

from features.batches.batches import Batches, BatchOrder
from features.batches.bodies import BatchHead
from features.batches.contract import EndedCell
from features.batches.progress import BatchClaim, BatchProgress
from palaver.schemas.batches import BatchItem
from palaver.schemas.bearers import Bearer
from tests.contract.store_driver import AGENT, StoreDriver
from tests.cost.case import Act, Case


async def _batch(driver: StoreDriver, n: int) -> tuple[BatchOrder, BatchClaim]:
    """A batch of a thousand items, ``n`` of which are begun."""
    batches, progress = driver.store.part(Batches), driver.store.part(BatchProgress)
    order = BatchOrder(BatchHead(agents=(AGENT,)), Bearer())
    await batches.create("", "batch_1", order)
    await batches.append("", "batch_1", order, 0, [BatchItem(input="hello")] * 1000, complete=True)
    claimed = await progress.claim("", "batch_1")
    assert claimed is not None
    begun, claimed.next = await progress.to_begin(claimed, n)
    await progress.advance(claimed, begun=begun)
    return order, claimed


def _failed(n: int) -> list[EndedCell]:
    result = orjson.dumps({"status": "failed", "agent_number": 0, "output": "x" * 500})
    return [EndedCell(cell, result, 0, "failed", True, 1, 1, 1, 1, None) for cell in range(n)]


async def _create_batch(driver: StoreDriver, n: int) -> Act:
    order = BatchOrder(BatchHead(agents=(AGENT.model_copy(update={"instructions": "x" * 1024 * n}),)), Bearer())
    return lambda: driver.store.part(Batches).create("", "batch_1", order)


async def _append_items(driver: StoreDriver, n: int) -> Act:
    order = BatchOrder(BatchHead(agents=(AGENT,)), Bearer())
    await driver.store.part(Batches).create("", "batch_1", order)
    items = [BatchItem(input="x" * 512)] * n
    return lambda: driver.store.part(Batches).append("", "batch_1", order, 0, items, complete=False)


async def _claim_batch(driver: StoreDriver, n: int) -> Act:
    _, claimed = await _batch(driver, n)
    await driver.store.part(BatchProgress).advance(claimed, wait=0.0)
    return lambda: driver.store.part(BatchProgress).claim("", "batch_1")


async def _leave_batch(driver: StoreDriver, n: int) -> Act:
    _, claimed = await _batch(driver, n)
    await driver.store.part(Batches).change("", "batch_1", "cancel")
    return lambda: driver.store.part(BatchProgress).leave("", "batch_1", claimed.claim)


async def _advance_batch(driver: StoreDriver, n: int) -> Act:
    _, claimed = await _batch(driver, n)
    return lambda: driver.store.part(BatchProgress).advance(claimed, ended=_failed(n), wait=1.0)


async def _change_batch(driver: StoreDriver, n: int) -> Act:
    _, claimed = await _batch(driver, n)
    await driver.store.part(BatchProgress).advance(claimed, ended=_failed(n))
    return lambda: driver.store.part(Batches).change("", "batch_1", "retry")


async def _remove_batch(driver: StoreDriver, n: int) -> Act:
    _, claimed = await _batch(driver, n)
    await driver.store.part(Batches).change("", "batch_1", "cancel")
    await driver.store.part(BatchProgress).advance(claimed, ended=_failed(n), wait=0.0)
    return lambda: driver.store.part(Batches).remove("", "batch_1")


SCRIPTS: Final = (
    Case("create_batch", "KiB of an agent", _create_batch, most=195),
    Case("append_items", "items of 512 characters", _append_items, most=1_000),
    Case("claim_batch", "cells in flight", _claim_batch, most=200),
    Case("leave_batch", "cells in flight", _leave_batch, most=200),
    Case("advance_batch", "cells that have ended", _advance_batch, most=200),
    Case("change_batch", "cells that have failed", _change_batch, most=999),
    Case("remove_batch", "cells that have ended", _remove_batch, most=999),
)
