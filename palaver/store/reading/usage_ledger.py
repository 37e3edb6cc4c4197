"""The ledger of usage, read: what models used on a day, by agent, model, and the key that submitted the runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from palaver.config.settings import Settings
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection, Fields, Pipeline
from palaver.store.redis.reach import reaches
from palaver.store.redis.visits import ask_each, whole
from palaver.vocabulary.ids import all_shards
from palaver.vocabulary.ledger import COLUMNS, NONE

_EPOCH: Final = date(1970, 1, 1)


class Spender(NamedTuple):
    """The names that usage is counted by."""

    tenant: str
    """Its tag; empty for the default tenant."""
    agent: str | None
    """None: an agent without a name."""
    model: str | None
    key: str | None
    """The name of the key that submitted; None: without a key, or with one without a name."""


DayUsage = Mapping[Spender, Counter[str]]
"""For each spender a number for each column of `palaver.vocabulary.ledger`."""


class UsageLedger:
    """The ledgers of all shards."""

    def __init__(self, redis: Connection, settings: Settings) -> None:
        self._redis = redis
        self._shards = all_shards(settings.shards)

    async def read(self, first: date, last: date, tenants: Iterable[str]) -> AsyncIterator[tuple[date, DayUsage]]:
        """Yield each day (UTC) between these, both included, on which a model was called for one of the tenants with
        these tags, which are within reach. Raises what Redis raises."""
        tags = [tag for tag in tenants if reaches(tag)]
        for number in range((first - _EPOCH).days, (last - _EPOCH).days + 1):
            found: dict[Spender, Counter[str]] = {}
            for _, ledgers in await self._of_day(number, tags):
                for tag, fields in zip(tags, ledgers, strict=True):
                    _add(found, tag, fields)
            if found:
                yield _EPOCH + timedelta(days=number), found

    async def _of_day(self, number: int, tags: Sequence[str]) -> list[tuple[str, Sequence[Fields]]]:
        """The ledgers of these tenants for a day, in their order, by shard."""

        def put(pipeline: Pipeline, shard: str) -> None:
            for tag in tags:
                pipeline.hgetall(keys.usage(shard, number, tag))

        return whole(self._shards, await ask_each(self._redis, self._shards, put))


def today() -> date:
    """Return the day that it is (UTC)."""
    return datetime.now(UTC).date()


def _add(to: dict[Spender, Counter[str]], tenant: str, fields: Fields) -> None:
    for field, number in fields.items():
        column, _, row = field.decode().partition(" ")
        if column in COLUMNS:
            agent, model, key = (None if name == NONE else name for name in row.split(" "))
            to.setdefault(Spender(tenant, agent, model, key), Counter())[column] += int(number)
