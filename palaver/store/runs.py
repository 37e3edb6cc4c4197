"""What the API does with runs and conversations: submit, cancel, read, list."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import orjson

from palaver.errors import Conflict, IdempotencyMismatch, NoRoom, UnknownConversation, UnknownRun
from palaver.ids import is_id, new_id, pick_shard, shard_of
from palaver.leases import Delivery, Settled
from palaver.lifecycle import RunStatus, WaitReason
from palaver.models import AgentSpec, CancelMode, Conversation, Entry, Message, Run, Submission, Waiting
from palaver.settings import Settings
from palaver.store import keys, records
from palaver.store.connection import Connection, Value, now_ms
from palaver.store.room import Room
from palaver.store.scripts import Scripts
from palaver.store.steps import deliveries, settled


def sha256(text: str) -> str:
    """Hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A client's key as the store has it; both empty when there is none."""

    digest: str = ""
    fingerprint: str = ""
    """Of the request that it is used with."""


def idempotency(key: str | None, request: str) -> IdempotencyKey:
    """``key`` used with ``request``."""
    return IdempotencyKey() if key is None else IdempotencyKey(sha256(key), sha256(request))


_SCAN = 100
_SCAN_BUDGET = 5_000
"""Runs that one page of a filtered list looks at before it answers with what it has."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A run that was taken on, now or, with ``replayed``, by an earlier request with the same key."""

    run_id: str
    replayed: bool
    deliveries: tuple[Delivery, ...]
    steered: bool = False
    """There is no new run: the input went into ``run_id``, which was active."""


@dataclass(frozen=True, slots=True)
class Fork:
    """What a new conversation begins with: the log of ``conversation_id`` up to position ``through``."""

    conversation_id: str
    through: int


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs a list shows; empty fields let everything through."""

    statuses: frozenset[RunStatus] = frozenset()
    conversation_id: str | None = None
    tag: str | None = None
    error_class: str | None = None
    agent: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def admits(self, run: Run) -> bool:
        """Whether ``run`` is to be shown."""
        return (
            (not self.statuses or run.status in self.statuses)
            and self.conversation_id in (None, run.conversation_id)
            and (self.tag is None or self.tag in run.tags)
            and (self.error_class is None or (run.error or {}).get("class") == self.error_class)
            and self.agent in (None, run.agent.name)
            and (self.created_after is None or run.times.created_at > self.created_after)
            and (self.created_before is None or run.times.created_at < self.created_before)
        )


@dataclass(frozen=True, slots=True)
class RunPage:
    """Runs, newest first, and where the next page starts."""

    runs: list[Run] = field(default_factory=list)
    next_cursor: str | None = None


class Runs:
    """Runs and conversations, as the API sees them."""

    def __init__(self, redis: Connection, scripts: Scripts, settings: Settings, room: Room) -> None:
        self._redis = redis
        self._scripts = scripts
        self._room = room
        self._settings = settings
        self._shards = tuple(f"{shard:02x}" for shard in range(settings.shards))

    async def submit(self, submission: Submission, *, idempotency_key: str | None = None) -> Submitted:
        """Take a run on: durable, in its conversation's order, and under its idempotency key, in one step.

        Raises:
            UnknownConversation: the conversation is not there (any more).
            IdempotencyMismatch: the key was used with another body.
            Conflict: ``conversation_busy`` and ``on_conflict`` says reject; ``pending_action``, the active run waits
                for somebody, and this one would wait behind it; ``no_agent`` and none was given.
            NoRoom: ``too_many_runs`` or ``store_nearly_full``, and this would be one more.
            NotDurable: taken on, but not as safely as PALAVER_DURABILITY asks; with the same key it is found.
        """
        # Without defaults: a field that a later version adds must not change what an old body hashes to.
        key = idempotency(idempotency_key, submission.model_dump_json(exclude_defaults=True))
        conversation_id = submission.conversation_id
        if conversation_id is None:
            shard = pick_shard(key.digest or new_id("run", "00"), len(self._shards))
            return await self.take_on(submission, new_id("conv", shard), "new", key)
        if not is_id("conv", conversation_id):
            raise UnknownConversation(f"there is no conversation {conversation_id[:80]!r}")
        return await self.take_on(submission, conversation_id, "known", key)

    async def take_on(
        self,
        submission: Submission,
        target: str,
        known: Literal["new", "known", "retry", "fork"],
        key: IdempotencyKey,
        *,
        retried_from: str = "",
        fork: Fork | None = None,
    ) -> Submitted:
        """``submit`` to the conversation ``target``; with ``retry`` only right behind the run that it goes on with, and
        with ``fork`` to one that begins as another one did.

        Raises:
            Conflict: also ``conversation_moved_on``.
            NoRoom: as ``submit``.
        """
        nearly_full = await self._room.nearly_full()
        shard = shard_of(target)
        run_id = new_id("run", shard)
        given = submission.input
        messages = (Message(role="user", content=given),) if isinstance(given, str) else given
        record = keys.idempotency(shard, key.digest or sha256(run_id))
        source = (keys.conversation(fork.conversation_id), keys.log(fork.conversation_id)) if fork else ()
        reply = await self._scripts.promise(
            "submit",
            (*keys.of_run(run_id, target), keys.runs(shard), record, *source),
            (
                run_id,
                target,
                known,
                key.fingerprint,
                submission.on_conflict,
                submission.agent.model_dump_json() if submission.agent else "",
                submission.agent.max_steps if submission.agent else "",
                records.millis(submission.start_after),
                records.millis(submission.start_by),
                records.millis(submission.deadline),
                orjson.dumps(submission.metadata),
                orjson.dumps(submission.tags),
                submission.budget.model_dump_json(exclude_none=True) if submission.budget else "",
                retried_from,
                fork.through if fork else "",
                0 if nearly_full else self._room.runs_of_a_shard(),
                *(orjson.dumps(message.model_dump(exclude_defaults=True)) for message in messages),
            ),
        )
        match reply[0]:
            case b"created" | b"steered":
                found = reply[1].decode()
                return Submitted(found, False, deliveries(reply[2], found, target), steered=reply[0] == b"steered")
            case b"replayed":
                return Submitted(reply[1].decode(), True, (), steered=bool(reply[2]))
            case b"mismatch":
                raise IdempotencyMismatch("this Idempotency-Key was used with another body")
            case b"pending":
                raise Conflict("pending_action", reply[1].decode(), "the conversation waits for somebody's answer")
            case b"moved_on":
                raise Conflict("conversation_moved_on", retried_from, "another run came after this one")
            case b"busy":
                busy_with = reply[1].decode()
                raise Conflict("conversation_busy", busy_with, "the conversation is busy with another run")
            case b"full" if nearly_full:
                raise NoRoom("store_nearly_full", "the store has no memory left for new runs")
            case b"full":
                raise NoRoom("too_many_runs", "as many runs are unfinished as there may be")
            case b"no_agent":
                raise Conflict("no_agent", None, "the conversation has no agent yet; give one with this run")
            case _:
                raise UnknownConversation(f"there is no conversation {target}")

    async def cancel(
        self,
        run_id: str,
        *,
        mode: CancelMode = "now",
        reason: str | None = None,
        by: str | None = None,
        acked_ms: int = 0,
    ) -> Settled:
        """Acknowledge a cancel, ``acked_ms`` milliseconds after it was asked for.

        Doing it again changes nothing, unless the mode is stronger: graceful, now, rollback.

        Raises:
            UnknownRun: there is no such run.
            Conflict: ``run_ended``, it had ended otherwise; the message names the status.
            NotDurable: acknowledged, but not as safely as PALAVER_DURABILITY asks; again, it may be.
        """
        conversation_id = await self.conversation_of(run_id)
        reply = await self._scripts.promise(
            "cancel",
            keys.of_run(run_id, conversation_id),
            (mode, orjson.dumps(by), orjson.dumps(reason), acked_ms),
        )
        match reply[0]:
            case b"ended":
                raise Conflict("run_ended", run_id, f"the run has already ended: {reply[1].decode()}")
            case b"unknown":
                raise UnknownRun(f"there is no run {run_id}")
            case _:
                return settled(reply, run_id, conversation_id)

    async def get(self, run_id: str) -> Run:
        """The run as it is now.

        Raises:
            UnknownRun: there is no such run (any more).
        """
        found = await self._read([run_id]) if is_id("run", run_id) else []
        if not found:
            raise UnknownRun(f"there is no run {run_id[:80]!r}")
        return found[0]

    async def list(self, admitted: RunFilter, *, limit: int, cursor: str | None = None) -> RunPage:
        """A page of runs, newest first.

        Raises:
            ValueError: the cursor is none of ours.
        """
        before = records.parse_cursor(cursor) if cursor else None
        if before is None and admitted.created_before is not None:
            before = (int(records.millis(admitted.created_before)) + 1, "")
        only = admitted.conversation_id
        shards = self._shards if only is None else (shard_of(only),) if is_id("conv", only) else ()
        page = RunPage(runs=[])
        looked = 0
        while looked < _SCAN_BUDGET:
            candidates = await self._newest(shards, before, admitted.created_after)
            if not candidates:
                return page
            found = {run.id: run for run in await self._read([run_id for _, run_id in candidates])}
            for before in candidates:
                looked += 1
                run = found.get(before[1])
                if run is not None and admitted.admits(run):
                    page.runs.append(run)
                    if len(page.runs) == limit:
                        return RunPage(page.runs, records.cursor(before))
        return RunPage(page.runs, records.cursor(before) if before else None)

    async def _newest(
        self, shards: Sequence[str], before: tuple[int, str] | None, after: datetime | None
    ) -> Sequence[tuple[int, str]]:
        """Creation times and ids of runs that are older than ``before``, newest first; of one time, by id. None that
        are older than ``after``."""
        oldest = records.millis(after) or "-inf"
        pipeline = self._redis.pipeline(transaction=False)
        for shard in shards:
            older = "+inf" if before is None else f"({before[0]}"
            pipeline.zrange(keys.runs(shard), older, oldest, True, True, byscore=True, offset=0, num=_SCAN)
            if before is not None:
                pipeline.zrange(keys.runs(shard), before[0], before[0], withscores=True, byscore=True)
        replies = await pipeline.execute()
        found = [(int(score), member.decode()) for pairs in replies for member, score in pairs]
        return sorted((pair for pair in found if before is None or pair < before), reverse=True)[:_SCAN]

    async def _read(self, run_ids: Sequence[str]) -> Sequence[Run]:
        pipeline = self._redis.pipeline(transaction=False)
        for run_id in run_ids:
            pipeline.hgetall(keys.run(run_id))
        runs = [records.run(found) for found in await pipeline.execute() if found.get(b"id")]
        behind = [run for run in runs if run.waiting and run.waiting.reason is WaitReason.CONVERSATION_BUSY]
        for run in behind:
            pipeline.hget(keys.conversation(run.conversation_id), "active")
        # Who is ahead changes with every run that ends, so the run's own record does not say it.
        ahead = await pipeline.execute() if behind else []
        for run, active in zip(behind, ahead, strict=True):
            run.waiting = Waiting(reason=WaitReason.CONVERSATION_BUSY, run_id=active and active.decode())
        return runs

    async def conversation_of(self, run_id: str) -> str:
        """The id of the run's conversation.

        Raises:
            UnknownRun: there is no such run (any more).
        """
        found = await self._redis.hget(keys.run(run_id), "conversation") if is_id("run", run_id) else None
        if found is None:
            raise UnknownRun(f"there is no run {run_id[:80]!r}")
        return found.decode()

    async def waiting_input(self, run_id: str) -> tuple[Message, ...]:
        """What a run is to say, or was, as long as its turn has not come, with what the user said into it meanwhile;
        empty afterwards."""
        given, steered = await self._redis.hmget(keys.run(run_id), ("input", "steer"))
        if given is None:
            return ()
        texts = orjson.loads(given) + orjson.loads(steered or b"[]")
        return tuple(Message.model_validate_json(text) for text in texts)

    async def create_conversation(self, agent: AgentSpec | None) -> Conversation:
        """An empty conversation; it goes after the retention unless a run uses it."""
        conversation_id = new_id("conv", pick_shard(new_id("run", "00"), len(self._shards)))
        fields: dict[str, Value] = {"id": conversation_id, "created_at": await now_ms(self._redis)}
        if agent is not None:
            fields |= {"agent": agent.model_dump_json(), "max_steps": agent.max_steps}
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hset(keys.conversation(conversation_id), mapping=fields)
        pipeline.expire(keys.conversation(conversation_id), int(self._settings.retention))
        await pipeline.execute()
        return await self.conversation(conversation_id)

    async def conversation(self, conversation_id: str) -> Conversation:
        """The conversation as it is now.

        Raises:
            UnknownConversation: there is none of that id (any more).
        """
        known = is_id("conv", conversation_id)
        found = await self._redis.hgetall(keys.conversation(conversation_id)) if known else {}
        if not found:
            raise UnknownConversation(f"there is no conversation {conversation_id[:80]!r}")
        return records.conversation(found)

    async def entries(self, conversation_id: str, *, after: int = 0, limit: int = 100) -> Sequence[Entry]:
        """Log entries behind position ``after``, in order.

        Raises:
            UnknownConversation: there is none of that id (any more).
        """
        await self.conversation(conversation_id)
        withdrawn = await self._redis.hget(keys.conversation(conversation_id), "withdrawn")
        found = await self._redis.xrange(keys.log(conversation_id), f"{after + 1}-0", "+", limit)
        return [records.entry(entry_id, fields, withdrawn) for entry_id, fields in found]
