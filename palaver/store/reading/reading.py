"""Runs and conversations as they are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, TypeGuard, TypeVar, assert_never
from uuid import UUID

import orjson

from palaver.config.settings import Settings
from palaver.errors import UNREADABLE, CorruptRecord, UnknownRun
from palaver.late import dataclass
from palaver.schemas.conversation import Conversation
from palaver.schemas.models import AgentSpec, Run, Waiting
from palaver.store.reading import records
from palaver.store.reading.below import say_what_waits_below
from palaver.store.reading.current_steps import show_steps
from palaver.store.reading.events import LogEntry, from_log
from palaver.store.reading.existing import check_conversation_id, known_fields, unknown_conversation
from palaver.store.reading.known_runs import KnownRuns, is_behind
from palaver.store.reading.places import say_places
from palaver.store.redis import keys
from palaver.store.redis.capacity import Capacity
from palaver.store.redis.connection import Connection, Fields, now_ms
from palaver.store.redis.reach import reach
from palaver.store.redis.visits import is_away
from palaver.store.scripting.contracts.logs import LogPage, ReadLog
from palaver.store.scripting.contracts.replies import Unknown
from palaver.store.scripting.contracts.wire import read_agent
from palaver.store.scripting.log_entries import Withdrawn, in_reply
from palaver.store.scripting.scripts import Command, Scripts
from palaver.vocabulary.ids import (
    all_shards,
    conversation_id,
    is_id,
    new_conversation_id,
    shard_of,
    tenant_of,
)
from palaver.vocabulary.lifecycle import RunStatus, WaitReason
from palaver.vocabulary.limits import KIB

log = logging.getLogger("palaver.store.reading.reading")

_LARGE: Final = 64 * KIB
"""Bytes of a run after which others get a turn on the loop: it takes a millisecond or more to read."""
_TRIES: Final = 64
"""Shards that are tried for a new conversation, while servers of some are away."""
_GO_ON: Final = frozenset({RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.CANCELLING})
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The length of a conversation's log, and its revision."""

    entries: int
    revision: int


@dataclass(frozen=True, slots=True)
class StandingAgent:
    """The agent that a conversation has, as it was looked at."""

    spec: AgentSpec | None
    by: frozenset[str]
    """The names of those who wrote it, '' for one without; none if it is not known."""
    text: str
    """Its JSON as it is stored, - for none: a script refuses what leans on it if the conversation has another one."""


class Reading:
    """Reads; changes nothing."""

    def __init__(self, redis: Connection, scripts: Scripts, settings: Settings, capacity: Capacity) -> None:
        self._redis = redis
        self._scripts = scripts
        self._capacity = capacity
        self._known = KnownRuns()
        self.shards = all_shards(settings.shards)

    async def now(self) -> datetime:
        """The store's clock, the only one that counts; UTC."""
        return records.instant(await now_ms(self._redis))

    def new_conversation(self, shard: str | None = None) -> str:
        """An id that no conversation has, on ``shard`` or on any whose server answers, of the tenant that it is asked
        for."""
        if shard is not None:
            return new_conversation_id(len(self.shards), shard, reach().tenant)
        for _ in range(_TRIES):
            chosen = new_conversation_id(len(self.shards), None, reach().tenant)
            if not is_away(self._redis, keys.due(shard_of(chosen))):
                break
        return chosen

    def new_conversation_beside(self, any_id: str) -> str:
        """An id that no conversation has, of the same shard and tenant as that of a run or a conversation."""
        return new_conversation_id(len(self.shards), shard_of(any_id), tenant_of(any_id))

    def conversation_of_number(self, number: UUID, tenant: str | None = None) -> str:
        """The id of the conversation that others know by ``number``, whether there is one or not, of the tenant with
        this tag, or of the one that it is asked for."""
        return conversation_id(number, len(self.shards), reach().tenant if tenant is None else tenant)

    async def get(self, run_id: str) -> Run:
        """The run as it is now.

        Raises:
            UnknownRun: there is no such run (any more).
            CorruptRecord: it is not as it was written.
        """
        runs = await self._runs([run_id]) if is_id("run", run_id) else []
        if not runs:
            raise UnknownRun(run_id)
        return _readable(runs[0])[0]

    async def weighed(self, run_ids: Sequence[str]) -> Sequence[tuple[Run, int]]:
        """Runs that are there, each with how many bytes it has. One that cannot be read is left out: no list is to be
        refused for it."""
        return _left(await self._runs(run_ids))

    async def _runs(self, run_ids: Sequence[str]) -> Sequence[tuple[Run, int] | CorruptRecord]:
        pipeline = self._redis.pipeline(transaction=False)
        for command in (read for run_id in run_ids for read in reads_of(run_id)):
            pipeline.execute_command(*command)
        replies = await pipeline.execute()
        runs: list[tuple[Run, int] | CorruptRecord] = []
        for run_id, values, steps in zip(run_ids, replies[::2], replies[1::2], strict=True):
            try:
                # A list has more runs than would be asked for again.
                weighed_run = (
                    self._known.weighed(run_id, values, steps, weighed) if len(run_ids) == 1 else weighed(values, steps)
                )
            except CorruptRecord as error:
                runs.append(error)
                continue
            if weighed_run:
                runs.append(weighed_run)
                if weighed_run[1] > _LARGE:
                    await asyncio.sleep(0)
        readable = [run[0] for run in runs if not isinstance(run, CorruptRecord)]
        await self._say_who_is_ahead(readable)
        await say_places(self._redis, readable)
        await say_what_waits_below(self._redis, readable)
        return await self._with_refusal(runs)

    async def _with_refusal(
        self, runs: Sequence[tuple[Run, int] | CorruptRecord]
    ) -> Sequence[tuple[Run, int] | CorruptRecord]:
        """Let those that nothing else holds up say that the store takes no writes, while it does not. A run that was
        read before is not changed."""
        if not any(_is_free(run) for run in runs) or (why := await self._capacity.refusal()) is None:
            return runs
        waits = {"waiting": Waiting(reason=WaitReason.STORE, code=why)}
        return [(run[0].model_copy(update=waits), run[1]) if _is_free(run) else run for run in runs]

    async def _say_who_is_ahead(self, runs: Sequence[Run]) -> None:
        behind = [run for run in runs if is_behind(run)]
        if not behind:
            return
        pipeline = self._redis.pipeline(transaction=False)
        for run in behind:
            pipeline.hget(keys.conversation(run.conversation_id), "active")
        # Who is ahead changes with every run that ends, so the run's own record does not say it.
        for run, active in zip(behind, await pipeline.execute(), strict=True):
            run.waiting = Waiting(reason=WaitReason.CONVERSATION_BUSY, run_id=active and active.decode())

    async def conversation_of(self, run_id: str) -> str:
        """The id of the run's conversation.

        Raises:
            UnknownRun: there is no such run (any more).
        """
        conversation_id = await self._redis.hget(keys.run(run_id), "conversation") if is_id("run", run_id) else None
        if conversation_id is None:
            raise UnknownRun(run_id)
        return conversation_id.decode()

    async def speakers(self, run_id: str) -> frozenset[str]:
        """The names of those who have said something in the run's conversation, '' for one without. If the run is gone,
        it is not known who they were: '' alone."""
        conversation_id = await self._redis.hget(keys.run(run_id), "conversation")
        if conversation_id is None:
            return frozenset({""})
        voices = await self._redis.hget(keys.conversation(conversation_id.decode()), "voices")
        return frozenset(orjson.loads(voices or b"{}"))

    async def agent_of(self, conversation_id: str) -> StandingAgent:
        """The agent of a conversation, and who wrote it, at one moment.

        Raises:
            UnknownConversation: there is none of that id (any more).
            CorruptRecord: it is not as it was written.
        """
        text, by = await known_fields(self._redis, conversation_id, "agent", "agent_by")
        try:
            spec, writers = None if text is None else read_agent(text), orjson.loads(by or b"[]")
        except UNREADABLE as error:
            raise CorruptRecord(f"the conversation {conversation_id}") from error
        return StandingAgent(spec, frozenset(writers), "-" if text is None else text.decode())

    async def has_unheard_words(self, run_id: str) -> bool:
        """Tell whether the user has said something into the run that its next model call is to be told."""
        return await self._redis.hget(keys.run(run_id), "steer") is not None

    async def begins_at(self, run_id: str) -> int:
        """The position in its conversation's log behind which the run's entries are."""
        logged = await self._redis.hget(keys.run(run_id), "logged")
        return int(logged.partition(b"-")[0]) - 1 if logged else 0

    async def check_there(self, conversation_id: str) -> None:
        """Check that there is something of a conversation, be it half deleted.

        Raises:
            UnknownConversation: there is nothing.
        """
        check_conversation_id(conversation_id)
        if not await self._redis.exists(keys.conversation(conversation_id)):
            raise unknown_conversation(conversation_id)

    async def conversation(self, conversation_id: str) -> Conversation:
        """The conversation as it is now.

        Raises:
            UnknownConversation: there is none of that id (any more).
            CorruptRecord: it is not as it was written.
        """
        conversations = await self._conversations([conversation_id]) if is_id("conv", conversation_id) else []
        if not conversations:
            raise unknown_conversation(conversation_id)
        return _readable(conversations[0])

    async def conversations(self, conversation_ids: Sequence[str]) -> Sequence[Conversation]:
        """Return those of these conversations that exist, as they are now. One that cannot be read is left out: it is
        no reason to refuse a list."""
        return _left(await self._conversations(conversation_ids) if conversation_ids else [])

    async def _conversations(self, conversation_ids: Sequence[str]) -> Sequence[Conversation | CorruptRecord]:
        pipeline = self._redis.pipeline(transaction=False)
        for id_ in conversation_ids:
            pipeline.hmget(keys.conversation(id_), records.CONVERSATION_FIELDS)
        hashes = [records.conversation_fields(values) for values in await pipeline.execute()]
        active = [run_id for fields in hashes if fields and (run_id := _active(fields))]
        # Read behind the conversations: a run that ends meanwhile is counted once, here.
        for run_id in active:
            pipeline.hmget(keys.run(run_id), records.ACTIVE_RUN_FIELDS)
        runs = map(records.active_run_fields, await pipeline.execute() if active else [])
        known = dict(zip(active, runs, strict=True))
        made = list[Conversation | CorruptRecord]()
        for fields in filter(None, hashes):
            try:
                made.append(records.conversation(fields, known.get(_active(fields), {})))
            except CorruptRecord as error:
                made.append(error)
            if len(fields.get(b"agent", b"")) > _LARGE:
                await asyncio.sleep(0)
        return made

    async def glance(self, conversation_id: str) -> LogExtent:
        """Read how far a conversation is: the least that tells whether there is something new.

        Raises:
            UnknownConversation: there is none of that id (any more).
        """
        entries, revision = await known_fields(self._redis, conversation_id, "entries", "revision")
        return LogExtent(int(entries or 0), int(revision or 0))

    async def entries(self, conversation_id: str, *, after: int = 0, limit: int = 100) -> Sequence[LogEntry]:
        """Log entries behind position ``after``, in order: ``limit`` at most, fewer only at the log's end.

        Raises:
            UnknownConversation: there is none of that id (any more).
        """
        entries: Sequence[LogEntry] = ()
        async with aclosing(self.pages(conversation_id, after=after)) as pages:
            async for page in pages:
                entries = [*entries, *page]
                if len(entries) >= limit:
                    break
        return entries[:limit]

    async def pages(
        self, conversation_id: str, *, after: int = 0, newest_first: bool = False
    ) -> AsyncGenerator[Sequence[LogEntry], None]:
        """The log behind position ``after``, in order, a page at a time: Redis keeps others waiting for one. With
        ``newest_first`` from there back to its beginning; 0 is its end then.

        Raises:
            UnknownConversation: there is none of that id (any more).
        """
        check_conversation_id(conversation_id)
        conversation, log, ends = keys.conversation(conversation_id), keys.log(conversation_id), False
        while not ends:
            read = ReadLog(conversation=conversation, log=log, after=after, newest_first=newest_first)
            match await self._scripts.run(read):
                case LogPage() as reply:
                    ends, parts = reply.ends, Withdrawn(reply.withdrawn)
                    page = [from_log(*in_reply(entry), parts) for entry in reply.entries]
                    if page:
                        after = page[-1].position
                        yield page
                case Unknown():
                    raise unknown_conversation(conversation_id)
                case other:
                    assert_never(other)


def _active(fields: Fields) -> str:
    """Return the id of the active run of a conversation; empty if there is none, or if it is no id."""
    run_id = fields.get(b"active", b"").decode(errors="replace")
    return run_id if is_id("run", run_id) else ""


def _is_free(run: tuple[Run, int] | CorruptRecord) -> TypeGuard[tuple[Run, int]]:
    """Tell whether a run would go on now, as far as its record says."""
    return not isinstance(run, CorruptRecord) and run[0].waiting is None and run[0].status in _GO_ON


def _readable(record: T | CorruptRecord) -> T:
    if isinstance(record, CorruptRecord):
        raise record
    return record


def _left(results: Sequence[T | CorruptRecord]) -> list[T]:
    """Return the records that can be read; log the others."""
    left: list[T] = []
    for result in results:
        if isinstance(result, CorruptRecord):
            log.error("%s and is left out of a list: %r", result, result.__cause__)
        else:
            left.append(result)
    return left


def reads_of(run_id: str) -> tuple[Command, Command]:
    """The commands whose answers show a run."""
    return ("HMGET", keys.run(run_id), *records.RUN_FIELDS), ("HGETALL", keys.steps(run_id))


def weighed(values: Sequence[bytes | None], steps: Fields) -> tuple[Run, int] | None:
    """The run that these answers show, but for who is ahead of it, and how many bytes it has; None if it is not there
    (any more)."""
    fields = records.run_fields(values)
    if fields is None:
        return None
    run = records.run(fields)
    try:
        show_steps(run, steps, fields.get(b"progress"))
    except UNREADABLE as error:
        raise CorruptRecord(f"the steps of {run.id}") from error
    return run, sum(map(len, (*fields.values(), *steps.values())))


def shown(answers: Sequence[Any]) -> Run | None:
    """The run of which these are the answers to `reads_of` it, if they say all."""
    if any(isinstance(answer, Exception) for answer in answers):
        return None
    weighed_run = weighed(*answers)
    # Who is ahead of it, another record has to say.
    return weighed_run[0] if weighed_run and not is_behind(weighed_run[0]) else None
