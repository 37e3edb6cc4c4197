"""The cases of batches in tests of the core."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

import orjson

from features.batches import batch_keys
from features.batches.batches import Batches, BatchOrder
from features.batches.bodies import BatchHead
from features.batches.contract import EndedCell
from features.batches.progress import BatchProgress
from palaver.schemas.batches import BatchItem
from palaver.schemas.bearers import Bearer
from palaver.store import Store

NO_PART: Final = {
    "DELETE /v1/batches/{batch_id}": "it ends something",
    "POST /v1/batches/{batch_id}/cancel": "it ends something",
}
ENDOWED: Final = 2


async def endow(store: Store, tag: str, words: str) -> None:
    """A batch with a cell in flight, one that is to be begun again, and one that has failed; and one that has ended."""
    order = BatchOrder(BatchHead(agents=("support",)), Bearer(words))
    await end_batch(store, tag, f"batch_{sha256(tag.encode()).hexdigest()[:24]}", order)
    batch_id = f"batch_{sha256(words.encode()).hexdigest()[:24]}"
    await store.part(Batches).create(tag, batch_id, order)
    await store.part(Batches).append(tag, batch_id, order, 0, [BatchItem(input=words)] * 3, complete=True)
    claimed = await store.part(BatchProgress).claim(tag, batch_id)
    assert claimed is not None
    begun, claimed.next = await store.part(BatchProgress).to_begin(claimed, 3)
    result = orjson.dumps({"status": "failed", "agent_number": 0, "output": words})
    await store.part(BatchProgress).advance(
        claimed, begun=begun, ended=[EndedCell(1, result, 0, "failed", True, 0, 0, 0, 0, None)]
    )
    await store.part(Batches).change(tag, batch_id, "retry")
    await store.part(BatchProgress).advance(claimed, ended=[EndedCell(2, result, 0, "failed", True, 0, 0, 0, 0, None)])


async def end_batch(store: Store, tag: str, batch_id: str, order: BatchOrder) -> None:
    """A batch of no items, which has ended."""
    await store.part(Batches).create(tag, batch_id, order)
    await store.part(Batches).append(tag, batch_id, order, 0, [], complete=True)
    claimed = await store.part(BatchProgress).claim(tag, batch_id)
    assert claimed is not None
    await store.part(BatchProgress).advance(claimed, wait=1.0)


async def check_key(redis: Any, name: str, ttl: int) -> None:
    """A batch that has ended goes some time later, with all that it has; another one has its place in the index."""
    _, _, rest = name.partition("}:")
    kind, _, about = rest.partition(":")
    if kind == "erasure":
        assert ttl > 0, f"{name} has no TTL"
        return
    if kind in ("due", "of", "promised"):
        assert ttl == -1 or kind == "promised", f"{name} has a TTL"
        return
    assert kind in batch_keys.BatchKeys._fields, f"{name} is no key of a batch"
    tag, _, batch_id = about.partition(":")
    assert await redis.zscore(batch_keys.batches(tag), batch_id) is not None, f"{name} is not listed"
    of = batch_keys.of_batch(tag, batch_id)
    state = (await redis.hget(of.batch, "state")).decode()
    over = state in ("done", "cancelled", "failed")
    assert (ttl > 0) == over, f"{name} of a batch that is {state} has the TTL {ttl}"
    due = await redis.zscore(of.batches_due, f"{tag}/{batch_id}")
    assert due is not None or over, f"{name} is of a batch that no worker goes on with"
    assert not (over and (due or await redis.exists(of.flight))), f"{name} is of a batch that is over, and goes on"
