"""The counts: a hash of each tenant in each shard, ``{p00}:<owner>tally``, by the status of ended runs."""

from __future__ import annotations

from collections import Counter

from palaver.store.redis.keys import owner
from palaver.store.sides import Ground, StoreSide
from palaver.telemetry.metrics import Metric
from palaver.vocabulary.ids import all_shards


def tally(shard, tag):
    return f"{{p{shard}}}:{owner(tag)}tally"


class Tallies:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    async def of(self, tag: str) -> Counter[str]:
        counts = Counter[str]()
        for shard in all_shards(self._ground.settings.shards):
            for status, number in (await self._ground.redis.hgetall(tally(shard, tag))).items():
                counts[status.decode()] += int(number)
        return counts


class _Side(StoreSide):
    def sweep(self, pipeline, shard, tag):
        pipeline.unlink(tally(shard, tag))

    async def samples(self, part):
        return {"palaver_tally_runs": {(status,): n for status, n in (await part(Tallies).of("")).items()}}


SIDE = _Side()
METRICS = {"palaver_runs": (Metric("Runs", "palaver_tally_runs", "gauge", "Ended runs.", "store", ("status",)),)}
