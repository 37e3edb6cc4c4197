"""A Redis client that looks at the status of each run after each script, and so knows every move. It also notes what a
cluster would refuse, and sends no request of more words than every server takes."""

from __future__ import annotations

from typing import Any, cast

from fakeredis import FakeAsyncRedis
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from palaver.store.redis.connection import MOST_ARGUMENTS
from palaver.vocabulary.lifecycle import TRANSITIONS, RunStatus
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


class WitnessedFake(_Witnessed, FakeAsyncRedis):  # type: ignore[misc]
    """A client of fakeredis."""
