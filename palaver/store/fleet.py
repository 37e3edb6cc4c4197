"""What workers report of themselves, and how they hear of cancels."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from palaver.limits import most
from palaver.settings import Settings
from palaver.step_kinds import MODEL
from palaver.store import keys
from palaver.store.connection import Connection, Listener, PubSub

KNOWN_FOR: Final = most("no_worker")
"""Seconds for which a tool or a provider is known that no worker has any more: a restart of all of them loses none.
After that nobody may ask for it, and what waits for it fails."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A worker process as it says it is."""

    id: str
    queue: str
    in_flight: int
    capacity: int
    draining: bool
    tools: str = ""
    """The digest of its set of tools; empty before it has told of them."""
    providers: tuple[str, ...] = ()
    """Those that it can call."""
    lacks: tuple[str, ...] = ()
    """What its own settings name and it cannot do, as `Postpone` names it."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """A run that a worker must let go: cancelled, or, if ``pausing``, to be handed back."""

    run_id: str
    pausing: bool


class CancelListener:
    """The runs that this worker must let go, as they are. Lossy: renewing a lease says it too."""

    def __init__(self, pubsub: PubSub, channel: str) -> None:
        self._pubsub = pubsub
        self._channel = channel

    async def listen(self) -> AsyncIterator[Interruption]:
        """Runs, for ever. Raises what Redis raises; start again then."""
        await self._pubsub.subscribe(self._channel)
        listener = Listener(self._pubsub)
        while True:
            message = await listener.hear()
            if message is not None:
                run_id = message["data"].decode()
                yield Interruption(run_id.removeprefix(keys.PAUSE), run_id.startswith(keys.PAUSE))

    async def close(self) -> None:
        """Hear no more."""
        await self._pubsub.aclose()


class Fleet:
    """The workers there are."""

    def __init__(self, redis: Connection, settings: Settings) -> None:
        self._redis = redis
        self._ttl = max(3, round(settings.heartbeat * 3))

    async def report(self, worker: WorkerReport) -> None:
        """Say that ``worker`` is there; forgotten after three heartbeats."""
        seconds, _ = await self._redis.time()
        pipeline = self._redis.pipeline(transaction=False)
        name = keys.worker(worker.id)
        pipeline.hset(
            name,
            mapping={
                "queue": worker.queue,
                "in_flight": worker.in_flight,
                "capacity": worker.capacity,
                "draining": int(worker.draining),
                "tools": worker.tools,
                "providers": " ".join(worker.providers),
                "lacks": " ".join(worker.lacks),
            },
        )
        pipeline.expire(name, self._ttl)
        pipeline.zadd(keys.WORKERS, {worker.id: seconds})
        pipeline.zremrangebyscore(keys.WORKERS, "-inf", seconds - self._ttl)
        if worker.providers:
            pipeline.zadd(keys.WORKER_PROVIDERS, dict.fromkeys(worker.providers, seconds))
        pipeline.zremrangebyscore(keys.WORKER_PROVIDERS, "-inf", seconds - KNOWN_FOR)
        await pipeline.execute()

    async def leave(self, worker_id: str) -> None:
        """Say that a worker is gone."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.delete(keys.worker(worker_id))
        pipeline.zrem(keys.WORKERS, worker_id)
        await pipeline.execute()

    async def workers(self) -> list[WorkerReport]:
        """All workers that reported lately."""
        ids = [member.decode() for member in await self._redis.zrange(keys.WORKERS, 0, -1)]
        pipeline = self._redis.pipeline(transaction=False)
        for worker_id in ids:
            pipeline.hgetall(keys.worker(worker_id))
        return [
            WorkerReport(
                id=worker_id,
                queue=found[b"queue"].decode(),
                in_flight=int(found[b"in_flight"]),
                capacity=int(found[b"capacity"]),
                draining=found[b"draining"] == b"1",
                tools=found.get(b"tools", b"").decode(),
                providers=tuple(found.get(b"providers", b"").decode().split()),
                lacks=tuple(found.get(b"lacks", b"").decode().split()),
            )
            for worker_id, found in zip(ids, await pipeline.execute(), strict=True)
            if found
        ]

    async def providers(self) -> frozenset[str] | None:
        """Providers that a worker can call, or could within the last hour; none if none has told yet.

        None while a model worker is older than this report: it may be able to call any.
        """
        ids = [member.decode() for member in await self._redis.zrange(keys.WORKERS, 0, -1)]
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.zrange(keys.WORKER_PROVIDERS, 0, -1)
        for worker_id in ids:
            pipeline.hmget(keys.worker(worker_id), ("queue", "providers"))
        names, *reports = await pipeline.execute()
        if any(queue == MODEL.queue.encode() and told is None for queue, told in reports):
            return None
        return frozenset(name.decode() for name in names)

    def cancels(self, worker_id: str) -> CancelListener:
        """A listener on one pub/sub connection of its own."""
        pubsub = self._redis.pubsub(ignore_subscribe_messages=True)
        return CancelListener(pubsub, keys.cancel_channel(worker_id))
