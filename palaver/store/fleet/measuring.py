"""The store's part of the metrics: the counts that its scripts keep, and the lengths of its lists."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, get_args

from redis.exceptions import ResponseError

from palaver.config.settings import Settings
from palaver.schemas.actions import ActionType
from palaver.store.fleet.fleet import Fleet, WorkerReport
from palaver.store.fleet.provider_states import ProviderUsage
from palaver.store.fleet.providers import Providers
from palaver.store.redis import keys
from palaver.store.redis.capacity import Capacity, Memory
from palaver.store.redis.connection import Connection, Fields, now_ms, portions
from palaver.store.redis.visits import ask_each, whole
from palaver.store.scripting.contracts.listing import Length
from palaver.store.scripting.list_lengths import ANY, list_lengths
from palaver.store.scripting.scripts import Scripts
from palaver.store.server.rewinds import Rewinds
from palaver.store.server.server_state import NO_EVICTION, ServerState
from palaver.store.sides import Part, sides
from palaver.store.steps.queues import ToolQueues
from palaver.telemetry.exposition import Samples, Times, Values
from palaver.telemetry.metrics import counted
from palaver.vocabulary.ids import all_shards
from palaver.vocabulary.lifecycle import RunStatus, WaitReason

_AT_ONCE: Final = 32
"""Shards that are read in one go: others get their turn in between."""


@dataclass
class _WaitingLine:
    """The waiters for one thing: their number, and since when the first of them waits (ms)."""

    length: int = 0
    since: int | None = None

    def add(self, part: Length) -> None:
        """The part of it in another shard."""
        self.length += part.length
        if part.length:
            self.since = part.first if self.since is None else min(self.since, part.first)

    def seconds(self, now: int) -> float:
        """For how long its first has waited; 0 if there is none, or if its time is still to come."""
        return 0.0 if self.since is None else round(max(0.0, now - self.since) / 1000, 3)


@dataclass
class _Shards:
    """The sums over all shards."""

    counts: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    waiting: dict[str, _WaitingLine] = field(default_factory=lambda: {reason: _WaitingLine() for reason in WaitReason})
    pending: dict[str, _WaitingLine] = field(
        default_factory=lambda: {action: _WaitingLine() for action in get_args(ActionType)}
    )
    ready: dict[str, _WaitingLine] = field(default_factory=dict)
    due: _WaitingLine = field(default_factory=_WaitingLine)

    def lists(self) -> list[keys.Key]:
        """The lists of a shard that are measured: those of runs, then the parts of each line."""
        runs = [keys.runs(ANY, status, owner) for status in RunStatus for owner in keys.ALL_TENANTS]
        return runs + [key for _, key in self._lines()]

    def add(self, counts: Fields, lengths: Sequence[Length]) -> None:
        """What a shard has: its counts, and the lengths of those lists."""
        self.counts.update({series.decode(): int(number) for series, number in counts.items()})
        left = iter(lengths)
        for status in RunStatus:
            self.runs[status] += sum(next(left).length for _ in keys.ALL_TENANTS)
        for line, _ in self._lines():
            line.add(next(left))

    def _lines(self) -> Iterator[tuple[_WaitingLine, str]]:
        """Each line, and the key of a shard's part of it."""
        yield from ((line, keys.waiting(ANY, reason)) for reason, line in self.waiting.items())
        yield from ((line, keys.pending(ANY, action_type)) for action_type, line in self.pending.items())
        yield from ((line, keys.ready(ANY, queue)) for queue, line in self.ready.items())
        yield from ((line, keys.held_back(ANY, queue)) for queue, line in self.ready.items())
        yield self.due, keys.due(ANY)


class Measuring:
    """Reads metrics."""

    def __init__(
        self,
        redis: Connection,
        scripts: Scripts,
        settings: Settings,
        fleet: Fleet,
        providers: Providers,
        capacity: Capacity,
        rewinds: Rewinds,
        queues: ToolQueues,
        part: Part[Any],
    ) -> None:
        self._redis = redis
        self._scripts = scripts
        self._shards = all_shards(settings.shards)
        self._fleet = fleet
        self._providers = providers
        self._capacity = capacity
        self._rewinds = rewinds
        self._queues = queues
        self._part = part
        self._last: dict[str, tuple[Fields, Sequence[Length]]] = {}
        """The answers of each shard, as they were read last."""

    async def read(self, providers: Iterable[str]) -> Samples:
        """All that the store knows, and about ``providers`` of these names. Raises what Redis raises."""
        now, shards, workers, usage, server, rewind = await asyncio.gather(
            now_ms(self._redis),
            self._read_shards(),
            self._fleet.workers(),
            self._providers.state(providers),
            self._read_server(),
            self._rewinds.last(),
        )
        return {
            **_counted(shards.counts),
            **_lines(shards, now),
            **_of_workers(workers),
            **_of_providers(usage),
            **server,
            **await self._of_features(),
            "palaver_store_rewound_timestamp_seconds": {(): rewind.at if rewind else 0},
        }

    async def _of_features(self) -> Samples:
        read = [await side.samples(self._part) for side in sides().values()]
        return {name: values for samples in read for name, values in samples.items()}

    async def _read_server(self) -> Samples:
        memory = _of_memory(await self._capacity.memory())
        try:
            return {**memory, **_of_server(ServerState.of(await self._redis.info("default")))}
        except ResponseError:
            # The user may not run INFO: the look at the start has logged that.
            return memory

    async def _read_shards(self) -> _Shards:
        totals = _Shards(ready={queue: _WaitingLine() for queue in await self._queues.all()})
        lists = totals.lists()
        for shards in portions(self._shards, _AT_ONCE):
            counts = await ask_each(self._redis, shards, lambda pipeline, shard: pipeline.hgetall(keys.counts(shard)))
            measured = dict(await list_lengths(self._scripts, [shard for shard, _ in counts], lists))
            self._last.update({each: (said, measured[each]) for each, (said,) in counts if each in measured})
            # One that is away stands still: what was read of it last.
            for _, last in whole(shards, [(each, self._last[each]) for each in shards if each in self._last]):
                totals.add(*last)
        return totals


def _counted(counts: Mapping[str, int]) -> Samples:
    """Return the counts that the scripts keep, without those that only newer code knows."""
    known = counted()
    samples: dict[str, dict[tuple[str, ...], Any]] = {metric.name: {} for metric in known.values()}
    times: dict[tuple[str, tuple[str, ...]], dict[str, int]] = {}
    for series, number in counts.items():
        name, *labels = series.split(" ")
        metric = known.get(name)
        if metric is None or len(labels) != len(metric.labels) + bool(metric.buckets):
            continue
        if metric.buckets:
            times.setdefault((name, tuple(labels[:-1])), {})[labels[-1]] = number
        else:
            samples[metric.name][tuple(labels)] = Decimal(number) / metric.per if metric.per > 1 else number
    for (name, values), parts in times.items():
        metric = known[name]
        buckets = tuple(parts.get(str(edge), 0) for edge in (*metric.buckets, "inf"))
        samples[metric.name][values] = Times(buckets, Decimal(parts.get("sum", 0)) / metric.per)
    return samples


def _lines(shards: _Shards, now: int) -> Samples:
    return {
        "palaver_runs": {(status,): number for status, number in shards.runs.items()},
        "palaver_waiting": _lengths(shards.waiting),
        "palaver_waiting_oldest_seconds": _ages(shards.waiting, now),
        "palaver_pending_actions": _lengths(shards.pending),
        "palaver_pending_actions_oldest_seconds": _ages(shards.pending, now),
        "palaver_queue_ready": _lengths(shards.ready),
        "palaver_queue_oldest_seconds": _ages(shards.ready, now),
        "palaver_overdue_seconds": {(): shards.due.seconds(now)},
    }


def _lengths(lines: Mapping[str, _WaitingLine]) -> Values:
    return {(name,): line.length for name, line in lines.items()}


def _ages(lines: Mapping[str, _WaitingLine], now: int) -> Values:
    return {(name,): line.seconds(now) for name, line in lines.items()}


def _of_workers(workers: Iterable[WorkerReport]) -> Samples:
    there, running, capacity = (Counter[tuple[str, ...]]() for _ in range(3))
    for worker in workers:
        # One that takes from several has all its places for each of them.
        for queue in worker.queues:
            there[queue, "refused" if worker.refused else "draining" if worker.draining else "working"] += 1
            running[queue,] += worker.in_flight_of(queue)
            capacity[queue,] += 0 if worker.draining or worker.refused else worker.capacity
    return {"palaver_workers": there, "palaver_queue_running": running, "palaver_queue_capacity": capacity}


def _of_providers(usage: Iterable[ProviderUsage]) -> Samples:
    listed = list(usage)
    return {
        "palaver_provider_cooling": {(provider.name,): int(provider.cooling_until is not None) for provider in listed},
        "palaver_provider_cooldowns_total": {(provider.name,): provider.cooldowns for provider in listed},
        "palaver_provider_outages": {(provider.name,): len(provider.outages) for provider in listed},
        "palaver_provider_waiting": {(provider.name,): provider.waiting for provider in listed},
        "palaver_provider_in_flight": {(provider.name,): provider.in_flight for provider in listed},
    }


def _of_memory(memory: Memory) -> Samples:
    """Nothing if the server does not tell."""
    samples: dict[str, Values] = {}
    if memory.used:
        samples["palaver_store_memory_bytes"] = {(): memory.used}
    if memory.used and memory.most:
        samples["palaver_store_memory_ratio"] = {(): round(memory.used / memory.most, 4)}
        samples["palaver_store_memory_limit_ratio"] = {(): memory.limit / memory.most}
    return samples


def _of_server(state: ServerState) -> Samples:
    """Return the samples of the server's state."""
    values = {
        "palaver_store_append_only": state.append_only,
        "palaver_store_disk_good": state.disk_good,
        "palaver_store_noeviction": None if state.policy is None else state.policy == NO_EVICTION,
        "palaver_store_evicted_keys_total": state.evicted,
        "palaver_store_replicas": state.replicas,
        "palaver_store_replication_lag_bytes": state.lag,
    }
    return {name: {(): int(value)} for name, value in values.items() if value is not None}
