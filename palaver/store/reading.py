"""Runs and conversations as they are: one, or pages of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, assert_never

import orjson

from palaver.errors import UnknownConversation, UnknownRun
from palaver.filters import RunFilter, admits
from palaver.ids import all_shards, is_id, shard_of
from palaver.lifecycle import WaitReason
from palaver.limits import KIB, beyond, most
from palaver.models import Conversation, Message, Run, Waiting
from palaver.settings import Settings
from palaver.store import keys, records
from palaver.store.connection import Connection, now_ms
from palaver.store.contracts import ReadLog
from palaver.store.contracts.logs import LogPage
from palaver.store.contracts.replies import Unknown
from palaver.store.current_steps import show_steps
from palaver.store.events import LogEntry, Withdrawn, from_log, in_reply
from palaver.store.scripts import Scripts

_SCAN: Final = 100
_TOGETHER: Final = 25
"""Runs that are read at once: each may have some MB."""
_LARGE: Final = 64 * KIB
"""Bytes of a run after which others get a turn on the loop: it takes a millisecond or more to read."""
_SCAN_BUDGET: Final = 5_000
"""Runs that one page of a filtered list looks at before it answers with what it has."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """Runs, newest first, and where the next page starts."""

    runs: list[Run] = field(default_factory=list)
    next_cursor: str | None = None


class Reading:
    """Reads; changes nothing."""

    def __init__(self, redis: Connection, scripts: Scripts, settings: Settings) -> None:
        self._redis = redis
        self._scripts = scripts
        self._shards = all_shards(settings.shards)

    async def now(self) -> datetime:
        """The store's clock, the only one that counts; UTC."""
        return records.instant(await now_ms(self._redis))

    async def get(self, run_id: str) -> Run:
        """The run as it is now.

        Raises:
            UnknownRun: there is no such run (any more).
        """
        found = await self._weighed([run_id]) if is_id("run", run_id) else []
        if not found:
            raise UnknownRun(f"there is no run {run_id[:80]!r}")
        return found[0][0]

    async def list(self, admitted: RunFilter, *, limit: int, cursor: str | None = None) -> RunPage:
        """A page of runs, newest first: few where they are long.

        Raises:
            ValueError: the cursor is none of ours.
        """
        before = records.parse_cursor(cursor) if cursor else None
        newest = admitted.get("created_before")
        if before is None and newest is not None:
            before = (records.millis(newest) + 1, "")
        only = admitted.get("conversation_id")
        shards = self._shards if only is None else (shard_of(only),) if is_id("conv", only) else ()
        page = RunPage(runs=[])
        looked = size = 0
        while looked < _SCAN_BUDGET:
            candidates = await self._newest(shards, before, admitted.get("created_after"))
            if not candidates:
                return page
            for some in _parts(candidates):
                found = {run.id: (run, long) for run, long in await self._weighed([run_id for _, run_id in some])}
                for before in some:
                    looked += 1
                    run, long = found.get(before[1], (None, 0))
                    if run is not None and admits(admitted, run):
                        page.runs.append(run)
                        size += long
                        full = size > most("answer_bytes")
                        if full:
                            beyond("answer_bytes")
                        if full or len(page.runs) == limit:
                            return RunPage(page.runs, records.cursor(before))
        return RunPage(page.runs, records.cursor(before) if before else None)

    async def _newest(
        self, shards: Sequence[str], before: tuple[int, str] | None, after: datetime | None
    ) -> Sequence[tuple[int, str]]:
        """Creation times and ids of runs that are older than ``before``, newest first; of one time, by id. None that
        are older than ``after``."""
        oldest = "-inf" if after is None else str(records.millis(after))
        pipeline = self._redis.pipeline(transaction=False)
        for shard in shards:
            older = "+inf" if before is None else f"({before[0]}"
            pipeline.zrange(keys.runs(shard), older, oldest, True, True, byscore=True, offset=0, num=_SCAN)
            if before is not None:
                pipeline.zrange(keys.runs(shard), before[0], before[0], withscores=True, byscore=True)
        replies = await pipeline.execute()
        found = [(int(score), member.decode()) for pairs in replies for member, score in pairs]
        return sorted((pair for pair in found if before is None or pair < before), reverse=True)[:_SCAN]

    async def _weighed(self, run_ids: Sequence[str]) -> Sequence[tuple[Run, int]]:
        """Runs, each with how many bytes it has."""
        found: list[tuple[Run, int]] = []
        pipeline = self._redis.pipeline(transaction=False)
        for run_id in run_ids:
            pipeline.hmget(keys.run(run_id), records.RUN_FIELDS)
            pipeline.hgetall(keys.steps(run_id))
        replies = await pipeline.execute()
        for values, steps in zip(replies[::2], replies[1::2], strict=True):
            if fields := records.run_fields(values):
                size = sum(map(len, (*fields.values(), *steps.values())))
                run = records.run(fields)
                show_steps(run, steps, fields.get(b"progress"))
                found.append((run, size))
                if size > _LARGE:
                    await asyncio.sleep(0)
        await self._say_who_is_ahead([run for run, _ in found])
        return found

    async def _say_who_is_ahead(self, runs: Sequence[Run]) -> None:
        behind = [run for run in runs if run.waiting and run.waiting.reason is WaitReason.CONVERSATION_BUSY]
        pipeline = self._redis.pipeline(transaction=False)
        for run in behind:
            pipeline.hget(keys.conversation(run.conversation_id), "active")
        # Who is ahead changes with every run that ends, so the run's own record does not say it.
        ahead = await pipeline.execute() if behind else []
        for run, active in zip(behind, ahead, strict=True):
            run.waiting = Waiting(reason=WaitReason.CONVERSATION_BUSY, run_id=active and active.decode())

    async def conversation_of(self, run_id: str) -> str:
        """The id of the run's conversation.

        Raises:
            UnknownRun: there is no such run (any more).
        """
        found = await self._redis.hget(keys.run(run_id), "conversation") if is_id("run", run_id) else None
        if found is None:
            raise UnknownRun(f"there is no run {run_id[:80]!r}")
        return found.decode()

    async def begins_at(self, run_id: str) -> int:
        """The position in its conversation's log behind which the run's entries are."""
        found = await self._redis.hget(keys.run(run_id), "logged")
        return int(found.partition(b"-")[0]) - 1 if found else 0

    async def check_there(self, conversation_id: str) -> None:
        """Check that there is something of a conversation, be it half deleted.

        Raises:
            UnknownConversation: there is nothing.
        """
        if not is_id("conv", conversation_id) or not await self._redis.exists(keys.conversation(conversation_id)):
            raise _unknown(conversation_id)

    async def waiting_input(self, run_id: str) -> tuple[Message, ...]:
        """What a run is to say, or was, as long as its turn has not come, with what the user said into it meanwhile;
        empty afterwards."""
        given, steered = await self._redis.hmget(keys.run(run_id), ("input", "steer"))
        if given is None:
            return ()
        texts = orjson.loads(given) + orjson.loads(steered or b"[]")
        return tuple(Message.model_validate_json(text) for text in texts)

    async def conversation(self, conversation_id: str) -> Conversation:
        """The conversation as it is now.

        Raises:
            UnknownConversation: there is none of that id (any more).
        """
        known = is_id("conv", conversation_id)
        found = await self._redis.hgetall(keys.conversation(conversation_id)) if known else {}
        if b"id" not in found or b"deleting" in found:
            raise _unknown(conversation_id)
        return records.conversation(found)

    async def entries(self, conversation_id: str, *, after: int = 0, limit: int = 100) -> Sequence[LogEntry]:
        """Log entries behind position ``after``, in order: ``limit`` at most, fewer only at the log's end.

        Raises:
            UnknownConversation: there is none of that id (any more).
        """
        found: Sequence[LogEntry] = ()
        async with aclosing(self.pages(conversation_id, after=after)) as pages:
            async for page in pages:
                found = [*found, *page]
                if len(found) >= limit:
                    break
        return found[:limit]

    async def pages(self, conversation_id: str, *, after: int = 0) -> AsyncGenerator[Sequence[LogEntry], None]:
        """The log behind position ``after``, in order, a page at a time: Redis keeps others waiting for one.

        Raises:
            UnknownConversation: there is none of that id (any more).
        """
        if not is_id("conv", conversation_id):
            raise _unknown(conversation_id)
        conversation, log, ends = keys.conversation(conversation_id), keys.log(conversation_id), False
        while not ends:
            match await self._scripts.run(ReadLog(conversation=conversation, log=log, after=after)):
                case LogPage() as found:
                    ends, parts = found.ends, Withdrawn(found.withdrawn)
                    page = [from_log(*in_reply(each), parts) for each in found.entries]
                    if page:
                        after = page[-1].position
                        yield page
                case Unknown():
                    raise _unknown(conversation_id)
                case other:
                    assert_never(other)


def _parts(candidates: Sequence[tuple[int, str]]) -> Iterator[Sequence[tuple[int, str]]]:
    for start in range(0, len(candidates), _TOGETHER):
        yield candidates[start : start + _TOGETHER]


def _unknown(conversation_id: str) -> UnknownConversation:
    return UnknownConversation(f"there is no conversation {conversation_id[:80]!r}")
