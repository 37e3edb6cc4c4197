"""A Redis client that looks at the status of each run after each script, and so knows every move. It also notes what a
cluster would refuse, and sends no request of more words than every server takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from palaver.store.redis.cluster.client import ClusterClient
from palaver.store.redis.cluster.slots import slot_of
from palaver.store.redis.connection import MOST_ARGUMENTS
from palaver.vocabulary.lifecycle import TRANSITIONS, RunStatus
from tests.contract.clock import TurnedRedis
from tests.contract.slots import crossings, refused, refused_together


class Moves:
    """The statuses that each run went through. A move that TRANSITIONS does not draw is an AssertionError."""

    def __init__(self) -> None:
        self.seen: dict[str, list[RunStatus]] = {}
        self.deleted: set[str] = set()
        """Runs that are gone before their time."""

    def note(self, key: str, status: str) -> None:
        """The run under ``key`` is in ``status`` now."""
        history, now = self.seen.setdefault(key, []), RunStatus(status)
        if not history:
            assert now is RunStatus.QUEUED or now.terminal, f"{key} began as {now}"
        elif history[-1] is now:
            return
        else:
            assert now in TRANSITIONS[history[-1]], f"{key} moved from {history[-1]} to {now}"
        history.append(now)


class _Witnessed:
    moves: Moves

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        crossings.extend(refused(args))
        assert len(args) <= MOST_ARGUMENTS, f"{args[0]} has {len(args)} words"
        reply = await super().execute_command(*args, **options)  # type: ignore[misc]
        if args[0] in ("EVALSHA", "EVAL"):
            await self.look([args])
        return reply

    async def look(self, commands: list[tuple[Any, ...]]) -> None:
        """Note the statuses of the runs that ``commands`` named in their KEYS."""
        for args in commands:
            for key in args[3 : 3 + int(args[2])]:
                if ":run:" in str(key):
                    status = await super().execute_command("HGET", key, "status")  # type: ignore[misc]
                    if status is not None:
                        self.moves.note(key, status.decode())
                    elif key in self.moves.seen:
                        self.moves.deleted.add(key)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        pipeline = super().pipeline(transaction, shard_hint)  # type: ignore[misc]
        execute = pipeline.execute

        async def execute_and_look(raise_on_error: bool = True) -> Any:
            sent = [command[0] for command in pipeline.command_stack]
            crossings.extend(refused_together(sent, transaction=transaction))
            assert all(len(args) <= MOST_ARGUMENTS for args in sent), [(args[0], len(args)) for args in sent]
            commands = [args for args in sent if args[0] == "EVALSHA"]
            replies = await execute(raise_on_error)
            await self.look(commands)
            return replies

        pipeline.execute = execute_and_look
        return cast(Pipeline, pipeline)


class WitnessedRedis(_Witnessed, Redis):  # type: ignore[misc]
    """A client of a real server."""


class WitnessedFake(_Witnessed, TurnedRedis):  # type: ignore[misc]
    """A client of a store whose clock a test turns."""


class WitnessedCluster(_Witnessed, ClusterClient):  # type: ignore[misc]
    """A client of a cluster, with what tests want to see of all of its masters."""

    async def flushall(self, **_: Any) -> None:  # type: ignore[override]
        """Empty them."""
        await self.of_each_master("FLUSHALL")

    async def config_set(self, name: Any, value: Any, *more: Any, **_: Any) -> None:  # type: ignore[override]
        """Set an option of each."""
        await self.of_each_master("CONFIG SET", name, value, *more)

    async def keys(self, pattern: Any = "*", **_: Any) -> list[bytes | str]:
        """The names of all keys."""
        return [key for keys in await self.of_each_master("KEYS", pattern) for key in keys]

    async def dbsize(self, **_: Any) -> int:
        """The number of all keys."""
        return sum(await self.of_each_master("DBSIZE"))

    async def scan_iter(self, match: Any = "*", **_: Any) -> AsyncIterator[bytes]:  # type: ignore[override]
        """The names of all keys, one by one."""
        for names in await self.of_each_master("KEYS", match):
            for name in names:
                yield name

    async def pubsub_numsub(self, *channels: Any, **_: Any) -> Any:
        """How many listen to channels, at the master that each belongs to."""
        counts = []
        for channel in channels:
            if channel.startswith("{"):
                node = self.node(await self.master(slot_of(channel)))
                counts.append((channel.encode(), (await node.pubsub_shardnumsub(channel))[0][1]))
            else:
                counts += await super().pubsub_numsub(channel)
        return counts
