"""The outbox of traces: attempts and runs that are over, which the scripts have written and which are not sent yet.

A script writes a record in the same step in which it becomes true, so no death of a process loses one. One worker at a
time sends those of a shard, and takes out those that were sent. If it dies in between, they are sent again: as the same
spans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from palaver.events import EventKind
from palaver.store.reading.events import LogEntry, from_log
from palaver.store.redis import keys
from palaver.store.redis.connection import StreamEntry
from palaver.store.redis.visits import is_away
from palaver.store.sides import Ground

from . import tracing_keys

HOLD: Final = 5
"""Seconds after which another worker sends in the place of one that says nothing more."""


class SpanOutbox:
    """The records of every shard."""

    def __init__(self, ground: Ground) -> None:
        self._redis = ground.redis
        self._rounds = ground.rounds
        self.shards = ground.rounds.shards

    def there(self) -> Iterator[str]:
        """The shards whose server answers, as far as is known; of many, those whose turn it is."""
        shards = self.shards if self._rounds.few else self._rounds.turn("spans", 1)
        return (shard for shard in shards if not is_away(self._redis, tracing_keys.spans(shard)))

    async def hold(self, shard: str, worker: str) -> bool:
        """Tell whether ``worker`` is the one that sends for the next ``HOLD`` seconds."""
        key = tracing_keys.sender(shard)
        if await self._redis.set(key, worker, ex=HOLD, nx=True):
            return True
        if await self._redis.get(key) != worker.encode():
            return False
        return bool(await self._redis.set(key, worker, ex=HOLD, xx=True))

    async def release(self, shard: str, worker: str) -> None:
        """Let another one send at once."""
        if await self._redis.get(tracing_keys.sender(shard)) == worker.encode():
            await self._redis.unlink(tracing_keys.sender(shard))

    async def read(self, shard: str, most: int) -> list[StreamEntry]:
        """The oldest records, and ``most`` of them at most."""
        return await self._redis.xrange(tracing_keys.spans(shard), "-", "+", count=most)

    async def log(self, conversation_id: str, position: int, most: int) -> list[LogEntry]:
        """Entries of the conversation's log from ``position`` on."""
        entries = await self._redis.xrange(keys.log(conversation_id), f"{position}-0", "+", count=most)
        return [from_log(*entry) for entry in entries]

    async def log_before(self, conversation_id: str, position: int, most: int) -> list[LogEntry]:
        """Entries up to ``position``, the newest first."""
        entries = await self._redis.xrevrange(keys.log(conversation_id), f"{position}-0", "-", count=most)
        return [from_log(*entry) for entry in entries]

    async def input_and_output(
        self, run_id: str, conversation_id: str, most: int = 16
    ) -> tuple[list[Mapping[str, Any]], str]:
        """The messages that the run began with, and the text that it ended with."""
        entered, output = await self._redis.hmget(keys.run(run_id), ["entered", "output"])
        entries = await self.log(conversation_id, int(entered) + 1, most) if entered else []
        inputs = takewhile(
            lambda entry: entry.type == EventKind.MESSAGE_CREATED and entry.data.get("step") is None, entries
        )
        return [entry.data["message"] for entry in inputs], (output or b"").decode()

    async def forget(self, shard: str, records: Sequence[StreamEntry]) -> None:
        """They were sent."""
        await self._redis.xdel(tracing_keys.spans(shard), *(entry_id for entry_id, _ in records))
