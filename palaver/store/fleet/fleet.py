"""The workers: their reports, the cancels sent to them, and the workers that are gone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from redis.exceptions import ResponseError

from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from palaver.late import dataclass
from palaver.store.redis import fleet_keys
from palaver.store.redis.busy import FEW
from palaver.store.redis.connection import (
    Connection,
    Listener,
    Pipeline,
    PubSub,
    is_absent,
    is_closed,
    now_ms,
    portions,
)
from palaver.store.redis.visits import ask_each, is_away, tell_each
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.step_kinds import MODEL, TOOL, kind_of

KNOWN_FOR: Final = limit_of("no_worker")
"""Seconds for which a tool or a provider is known that no worker has any more: a restart of all of them loses none.
After that it may not be asked for, and what waits for it fails."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A worker process as it says it is."""

    id: str
    queues: tuple[str, ...]
    """The queues that it takes from: that of its kind of steps, or some of tools."""
    in_flight: int
    capacity: int
    draining: bool
    tools: str = ""
    """The digest of its set of tools; empty before it has reported them."""
    providers: tuple[str, ...] = ()
    """The providers that it can call."""
    lacks: tuple[str, ...] = ()
    """The things that its own settings name and that it cannot do, named as in `Postpone`."""
    refused: tuple[str, ...] = ()
    """Commands that its broker or its store refuses it, or `login`. Then it does no steps."""
    processes: str = ""
    """The processes that may still say what became of its steps, named as in `palaver.processes.existence`: this one,
    and the parent of a child."""
    by_queue: tuple[int, ...] = ()
    """Its steps in flight by queue, in the order of ``queues``; empty if an older worker reports."""

    def in_flight_of(self, queue: str) -> int:
        """Its steps in flight of one of its queues; of an older worker, all."""
        return dict(zip(self.queues, self.by_queue, strict=False)).get(queue, self.in_flight)


@dataclass(frozen=True, slots=True)
class Interruption:
    """A run that a worker must let go: cancelled, or, if ``pausing``, to be handed back."""

    run_id: str
    pausing: bool


@dataclass(frozen=True, slots=True)
class DeadWorker:
    """A worker that has no connection to Redis any more, as it was when it was looked at."""

    id: str
    connection: int
    """The one of its connections that it named last. If another look finds another one, it has spoken in between."""
    unrenewed_before: int
    """A lease of this worker that ends before then was neither claimed nor renewed after the look. Milliseconds, by
    Redis's clock."""
    child: bool
    """True if it has a parent, which sees its death, too, and can say what it died of."""
    processes: str = ""
    """The processes of which one may still say something, as it reported them."""


@dataclass(frozen=True, slots=True)
class WorkerCensus:
    """The result of one look at all workers."""

    known: int
    """The number of workers that reported lately."""
    gone: tuple[DeadWorker, ...]


class CancelListener:
    """The runs that this worker must let go, as they are. Lossy: renewing a lease says it too.

    A subscription to its channel is also how others see that the worker lives.
    """

    def __init__(
        self, pubsub: PubSub, channel: str, on_reconnect: Callable[[], None], on_planned: Callable[[], None]
    ) -> None:
        self._pubsub = pubsub
        self._channel = channel
        self._on_reconnect = on_reconnect
        self._on_planned = on_planned

    async def listen(self) -> AsyncIterator[Interruption]:
        """Runs, for ever. Raises what Redis raises; start again then."""
        await self._pubsub.subscribe(self._channel)
        listener = Listener(self._pubsub)
        subscribed = False
        while True:
            message = await listener.hear()
            if message is not None and message["type"] == "subscribe":
                # redis-py connects again in silence, but each connection has its subscription confirmed.
                if subscribed:
                    self._on_reconnect()
                subscribed = True
            elif message is not None and message["data"] == fleet_keys.PLANNED.encode():
                self._on_planned()
            elif message is not None:
                run_id = message["data"].decode()
                yield Interruption(run_id.removeprefix(fleet_keys.PAUSE), run_id.startswith(fleet_keys.PAUSE))

    async def close(self) -> None:
        """Hear no more."""
        await self._pubsub.aclose()


class Fleet:
    """The workers there are."""

    def __init__(self, redis: Connection, settings: Settings) -> None:
        self._redis = redis
        self._shares = settings.shards > FEW
        self._ttl = max(3, round(settings.heartbeat * 3))
        self._lease_ms = int(settings.lease_seconds * 1000)

    async def report(self, worker: WorkerReport, *, connected: bool = False) -> None:
        """Say that ``worker`` is there; forgotten after three heartbeats.

        One that is ``connected`` keeps its connections and listens to its channel: without them it is dead.
        """
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.time()
        pipeline.execute_command("CLIENT ID")
        pipeline.info("server")
        time, connection, server = await pipeline.execute(raise_on_error=False)
        if isinstance(time, Exception):
            raise time
        seconds, _ = time
        name = fleet_keys.worker(worker.id)
        pipeline.hset(
            name,
            mapping={
                "queues": " ".join(worker.queues),
                "in_flight": worker.in_flight,
                "by_queue": " ".join(map(str, worker.by_queue)),
                "capacity": worker.capacity,
                "draining": int(worker.draining),
                "tools": worker.tools,
                "providers": " ".join(worker.providers),
                "lacks": " ".join(worker.lacks),
                "refused": " ".join(worker.refused),
                "lease_ms": self._lease_ms,
                "processes": worker.processes,
                # A worker that may not ask for them is not judged by them.
                "connection": connection if connected and isinstance(connection, int) else 0,
                "server": server.get("run_id", "") if isinstance(server, dict) else "",
            },
        )
        pipeline.expire(name, self._ttl)
        pipeline.zadd(fleet_keys.WORKERS, {worker.id: seconds})
        # Another worker may have longer leases, and speak less often.
        pipeline.zremrangebyscore(fleet_keys.WORKERS, "-inf", seconds - max(self._ttl, KNOWN_FOR))
        if worker.providers:
            pipeline.zadd(fleet_keys.WORKER_PROVIDERS, dict.fromkeys(worker.providers, seconds))
        pipeline.zremrangebyscore(fleet_keys.WORKER_PROVIDERS, "-inf", seconds - KNOWN_FOR)
        await tell_each(pipeline)

    async def leave(self, worker_id: str) -> bool:
        """Report that a worker is gone. Returns whether this is the first report of it."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.delete(fleet_keys.worker(worker_id))
        pipeline.zrem(fleet_keys.WORKERS, worker_id)
        _, removed = await pipeline.execute()
        if self._shares:
            # Others sweep in its place at once.
            pipeline.hdel(fleet_keys.SWEEPERS, worker_id)
            await pipeline.execute(raise_on_error=False)
        return bool(removed)

    async def is_heard(self, worker_id: str) -> bool:
        """Tell whether there is a subscription to the channel of this worker. Raises as `call_roll` does."""
        try:
            ((_, listeners),) = await self._redis.pubsub_numsub(fleet_keys.cancel_channel(worker_id))
        except ResponseError as error:
            raise _untold(error) from None
        return listeners > 0

    async def call_roll(self, asking: str) -> WorkerCensus:
        """Look for workers that have no connection to this Redis any more; ``asking`` is the worker who looks.

        A worker is gone if its channel has no subscriber and the connection that it named last is closed. It is
        not judged if it named none, as older workers do, or one to another server: to this one before a restart, or to
        its master before a failover. None is, if the worker that looks is not subscribed itself.

        Raises:
            ConfigurationError: the server does not answer such questions, or not to us.
        """
        now = await now_ms(self._redis)
        ids = [member.decode() for member in await self._redis.zrange(fleet_keys.WORKERS, 0, -1)]
        try:
            heard = [
                channel
                for some in portions((asking, *ids))
                for channel in await self._redis.pubsub_numsub(*map(fleet_keys.cancel_channel, some))
            ]
            deaf, *silent = (subscribers == 0 for _, subscribers in heard)
            absent = [worker_id for worker_id, is_silent in zip(ids, silent, strict=True) if is_silent]
            gone = await self._unconnected(absent, now) if absent and not deaf else ()
        except ResponseError as error:
            raise _untold(error) from None
        return WorkerCensus(len(ids), gone)

    async def _unconnected(self, workers: Sequence[str], now: int) -> tuple[DeadWorker, ...]:
        # By itself: of a cluster, the server that workers report to.
        info = await self._redis.info("server")
        fields = ("server", "connection", "lease_ms", "queues", "processes")
        # Who reports at a master that is away is judged when it is back.
        reports = await ask_each(
            self._redis, workers, lambda pipeline, worker_id: pipeline.hmget(fleet_keys.worker(worker_id), fields)
        )
        here = info.get("run_id", "").encode()
        named = [
            DeadWorker(
                worker_id,
                int(connection),
                now + int(lease_ms),
                all(kind_of(queue) is TOOL for queue in queues.decode().split()),
                (processes or b"").decode(),
            )
            for worker_id, ((server, connection, lease_ms, queues, processes),) in reports
            if server and server == here and int(connection)
        ]
        if not named:
            return ()
        there = {
            client["id"]
            for some in portions([worker.connection for worker in named])
            for client in await self._redis.client_list(client_id=some)
        }
        return tuple(worker for worker in named if str(worker.connection) not in there)

    async def workers(self) -> list[WorkerReport]:
        """All workers that reported lately."""
        ids = [member.decode() for member in await self._redis.zrange(fleet_keys.WORKERS, 0, -1)]
        reports = await ask_each(
            self._redis, ids, lambda pipeline, worker_id: pipeline.hgetall(fleet_keys.worker(worker_id))
        )
        return [
            WorkerReport(
                id=worker_id,
                queues=tuple(report[b"queues"].decode().split()),
                in_flight=int(report[b"in_flight"]),
                capacity=int(report[b"capacity"]),
                draining=report[b"draining"] == b"1",
                tools=report.get(b"tools", b"").decode(),
                providers=tuple(report.get(b"providers", b"").decode().split()),
                lacks=tuple(report.get(b"lacks", b"").decode().split()),
                refused=tuple(report.get(b"refused", b"").decode().split()),
                by_queue=tuple(map(int, report.get(b"by_queue", b"").split())),
            )
            for worker_id, (report,) in reports
            if report
        ]

    async def taken_from(self) -> frozenset[str]:
        """The queues that a worker takes from which reported lately."""
        return frozenset(queue for _, queues in await self.taking() for queue in queues)

    async def taking(self) -> list[tuple[str, Sequence[str]]]:
        """The workers that reported lately and take what comes, each with its queues."""
        ids = [member.decode() for member in await self._redis.zrange(fleet_keys.WORKERS, 0, -1)]
        pipeline = self._redis.pipeline(transaction=False)
        for worker_id in ids:
            pipeline.hmget(fleet_keys.worker(worker_id), ("queues", "draining", "refused"))
        reports = await pipeline.execute() if ids else []
        return [
            (worker_id, queues.decode().split())
            for worker_id, (queues, draining, refused) in zip(ids, reports, strict=True)
            if queues and draining != b"1" and not refused
        ]

    async def providers(self) -> frozenset[str] | None:
        """Providers that a worker can call, or could within the last hour; none if none has reported yet.

        None while a model worker is older than this report: it may be able to call any. So may one whose report is on
        a server that is away.
        """
        if is_away(self._redis, fleet_keys.WORKERS):
            return None
        ids = [member.decode() for member in await self._redis.zrange(fleet_keys.WORKERS, 0, -1)]

        def put(pipeline: Pipeline, worker_id: str | None) -> None:
            if worker_id is None:
                pipeline.zrange(fleet_keys.WORKER_PROVIDERS, 0, -1)
            else:
                pipeline.hmget(fleet_keys.worker(worker_id), ("queues", "providers"))

        found = dict(await ask_each(self._redis, (None, *ids), put))
        if len(found) < 1 + len(ids):
            return None
        (names,) = found.pop(None)
        if any(queues == MODEL.queue.encode() and listed is None for ((queues, listed),) in found.values()):
            return None
        return frozenset(name.decode() for name in names)

    def cancels(
        self,
        worker_id: str,
        on_reconnect: Callable[[], None] = lambda: None,
        on_planned: Callable[[], None] = lambda: None,
    ) -> CancelListener:
        """A listener on one pub/sub connection of its own; ``on_reconnect`` is called when it was cut and is back,
        ``on_planned`` when a schedule or a batch is to be looked at."""
        return CancelListener(self._redis.pubsub(), fleet_keys.cancel_channel(worker_id), on_reconnect, on_planned)


def _untold(error: ResponseError) -> Exception:
    """The error of a look that was answered with this one."""
    if not is_closed(error) and not is_absent(error):
        return error
    return ConfigurationError(
        f"the server does not tell who is connected ({error}): steps of a worker that dies wait until their leases run "
        "out. Let the user of workers call what deploy/users.acl lists for it"
    )
