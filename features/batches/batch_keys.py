"""Keys of batches.

Batches of all tenants share a hash tag; of the default tenant, ``<tag>`` is empty. What one has goes some
time after its end.

{palaver:batches}:due      zset    ``<tag>/<id>``, by the time at which it next needs attention            no TTL
{palaver:batches}:of:<tag> zset    the batches of a tenant by time of creation, those that are gone among them  no TTL
{palaver:batches}:batch:<tag>:<id> hash  one of them (`lua/_batch.lua`)              TTL: retention after its end
{palaver:batches}:items:<tag>:<id> hash  its items, by number                        TTL: as above
{palaver:batches}:cells:<tag>:<id> hash  what came of its runs, by the number of the cell  TTL: as above
{palaver:batches}:flight:<tag>:<id> hash cells that are begun and have not ended     gone at its end
{palaver:batches}:again:<tag>:<id> zset  cells that are to be begun again            gone at its end
{palaver:batches}:failed:<tag>:<id> zset cells that have failed                      TTL: as above
{palaver:batches}:erasure:<tag> hash   what was erased of them: none is made any more                      TTL: a day
"""

from __future__ import annotations

from typing import Final, NamedTuple

from palaver.store.redis.keys import Key

_BATCHES: Final = "{palaver:batches}"
BATCHES_DUE: Final = f"{_BATCHES}:due"
BATCHES_TOLD: Final = f"{_BATCHES}:events"


class BatchKeys(NamedTuple):
    """The keys of every script about one batch."""

    batch: Key
    items: Key
    cells: Key
    flight: Key
    again: Key
    failed: Key
    batches: Key
    """The batches of its tenant."""
    batches_due: Key


_OF_BATCH: Final = ("batch", "items", "cells", "flight", "again", "failed")


def of_batch(tenant: str, batch_id: str) -> BatchKeys:
    """Return the keys for a script about one batch."""
    own = (f"{_BATCHES}:{kind}:{tenant}:{batch_id}" for kind in _OF_BATCH)
    return BatchKeys._make((*own, batches(tenant), BATCHES_DUE))


def batches(tenant: str) -> str:
    """The batches of a tenant, by time of creation."""
    return f"{_BATCHES}:of:{tenant}"


def batches_erasure(tenant: str) -> str:
    """The counts of what was erased of a tenant's batches."""
    return f"{_BATCHES}:erasure:{tenant}"
