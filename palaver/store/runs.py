"""What the API does with runs and conversations: submit, cancel, and read (``reading.py``)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import orjson

from palaver.errors import IdempotencyMismatch, NoRoom, StateConflict, TimePassed, UnknownConversation, UnknownRun
from palaver.ids import is_id, new_id, pick_shard, shard_of
from palaver.leases import Delivery, Settled
from palaver.limits import beyond, most
from palaver.models import AgentSpec, CancelMode, Conversation, Message, Submission
from palaver.settings import Settings
from palaver.store import keys, records
from palaver.store.connection import Connection, Value, now_ms
from palaver.store.events import Withdrawn
from palaver.store.reading import Reading
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


def idempotency(key: str | None, request: str, by: str | None) -> IdempotencyKey:
    """``key`` used with ``request`` by the bearers of API keys of that name: others' keys are other keys."""
    if key is None:
        return IdempotencyKey()
    return IdempotencyKey(sha256(key if by is None else f"{by}\n{key}"), sha256(request))


@dataclass(frozen=True, slots=True)
class Submitted:
    """A run that was taken on, now or, with ``replayed``, by an earlier request with the same key."""

    run_id: str
    replayed: bool
    deliveries: tuple[Delivery, ...]
    steered: bool = False
    """There is no new run: the input went into ``run_id``, which was active."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A conversation's log that was copied for another one to begin with, up to position ``through``."""

    conversation_id: str
    through: int
    withdrawals: bytes
    """Of the conversation before it was copied: with others, the copy may have what was deleted since."""
    withdrawn: bytes
    """What of the copy models are not told."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a script did not do what was asked, as callers are told."""

    code: str
    message: str
    limit: str | None = None
    """The limit behind it, by which it is counted."""

    def about(self, run_id: str | None, where: str = "") -> StateConflict:
        """The conflict, with the run that is in the way; it is counted. ``where`` precedes its message."""
        if self.limit is not None:
            beyond(self.limit)
        return StateConflict(self.code, run_id, where + self.message)


CONVERSATION_FULL: Final = Refusal(
    "conversation_full", "the conversation has as many entries, or as much in them, as it may", "entries"
)
STEERING_FULL: Final = Refusal("steering_full", "as much waits for the run's next model call as may", "steering")
_REFUSALS: Final[Mapping[bytes, Refusal]] = {
    b"pending": Refusal("pending_action", "the conversation waits for somebody's answer"),
    b"moved_on": Refusal("conversation_moved_on", "another run came after this one"),
    b"busy": Refusal("conversation_busy", "the conversation is busy with another run"),
    b"no_agent": Refusal("no_agent", "the conversation has no agent yet; give one with this run"),
    b"changed": Refusal("conversation_changed", "something of it was deleted while it was copied"),
    b"queue_full": Refusal(
        "queue_full", "as many runs of the conversation are unfinished as there may be", "queued_runs"
    ),
    b"conversation_full": CONVERSATION_FULL,
    b"steering_full": STEERING_FULL,
}
"""What ``submit.lua`` says of a run that is not taken on."""


class Runs(Reading):
    """Runs and conversations, as the API sees them."""

    def __init__(self, redis: Connection, scripts: Scripts, settings: Settings, room: Room) -> None:
        super().__init__(redis, scripts, settings)
        self._room = room
        self._settings = settings

    async def submit(
        self, submission: Submission, *, idempotency_key: str | None = None, by: str | None = None
    ) -> Submitted:
        """Take a run on: durable, in its conversation's order, and under its idempotency key, in one step. ``by`` is
        who asks: the name of an API key, among whose bearers the idempotency key is one.

        Raises:
            UnknownConversation: the conversation is not there (any more).
            IdempotencyMismatch: the key was used with another body.
            StateConflict: ``conversation_busy`` and ``on_conflict`` says reject; ``pending_action``, the active run
                waits for somebody, and this one would wait behind it; ``no_agent`` and none was given; ``queue_full``,
                ``conversation_full`` or ``steering_full``, there is no room for it.
            NoRoom: ``too_many_runs`` or ``store_nearly_full``, and this would be one more.
            TimePassed: ``start_by`` or ``deadline`` has.
            NotDurable: taken on, but not as safely as PALAVER_DURABILITY asks; with the same key it is found.
        """
        # Without defaults: a field that a later version adds must not change what an old body hashes to.
        key = idempotency(idempotency_key, submission.model_dump_json(exclude_defaults=True), by)
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
        fork: Copied | None = None,
    ) -> Submitted:
        """``submit`` to the conversation ``target``; with ``retry`` only right behind the run that it goes on with, and
        with ``fork`` to one that begins as another one did.

        Raises:
            StateConflict: also ``conversation_moved_on``, and ``conversation_changed`` since it was copied.
            NoRoom, TimePassed: as ``submit``.
        """
        nearly_full = await self._room.nearly_full()
        shard = shard_of(target)
        run_id = new_id("run", shard)
        given = submission.input
        messages = (Message(role="user", content=given),) if isinstance(given, str) else given
        record = keys.idempotency(shard, key.digest or sha256(run_id))
        source = (keys.conversation(fork.conversation_id),) if fork else ()
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
                fork.withdrawals if fork else "",
                fork.withdrawn if fork else "",
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
            case b"past":
                name = reply[1].decode()
                raise TimePassed(name, f"{name} has passed")
            case b"full" if nearly_full:
                beyond("memory")
                raise NoRoom("store_nearly_full", "the store has no memory left for new runs")
            case b"full":
                beyond("runs")
                raise NoRoom("too_many_runs", "as many runs are unfinished as there may be")
            case code if code in _REFUSALS:
                other = reply[1].decode() if len(reply) > 1 else retried_from
                raise _REFUSALS[code].about(other or None)
            case _:
                raise UnknownConversation(f"there is no conversation {target}")

    async def copy(self, conversation_id: str, target: str, *, through: int, made_anew: str) -> Copied:
        """Copy a conversation's log up to position ``through``, a part at a time, for ``target`` to begin with.

        What the run ``made_anew`` said before counts there even if it was rolled back. A copy without a run is
        forgotten after ten minutes.

        Raises:
            UnknownConversation: the conversation is not there (any more).
        """
        names = [key(each) for each in (conversation_id, target) for key in (keys.conversation, keys.log)]
        first: Copied | None = None
        reply = [b"more"]
        while reply[0] == b"more":
            reply = await self._scripts.run("copy_log", names, (through,))
            if reply[0] == b"unknown":
                raise UnknownConversation(f"there is no conversation {conversation_id}")
            if first is None:
                withdrawn = Withdrawn(reply[2]).without(made_anew, through)
                first = Copied(conversation_id, through, reply[1], withdrawn)
        assert first is not None  # the first reply made it
        return first

    async def forget_copy(self, target: str) -> None:
        """Forget a copy that no run was submitted to."""
        await self._redis.unlink(keys.conversation(target), keys.log(target))

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
            StateConflict: ``run_ended``, it had ended otherwise; the message names the status.
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
                raise StateConflict("run_ended", run_id, f"the run has already ended: {reply[1].decode()}")
            case b"unknown":
                raise UnknownRun(f"there is no run {run_id}")
            case _:
                return settled(reply, run_id, conversation_id)

    async def create_conversation(self, agent: AgentSpec | None) -> Conversation:
        """An empty conversation. It goes after a day, or the retention if that is shorter, unless a run uses it: no
        list has it, so nobody would find it to delete.

        Raises:
            NoRoom: ``store_nearly_full``.
        """
        await self._room.admit()
        conversation_id = new_id("conv", pick_shard(new_id("run", "00"), len(self._shards)))
        fields: dict[str, Value] = {"id": conversation_id, "created_at": await now_ms(self._redis)}
        if agent is not None:
            fields |= {"agent": agent.model_dump_json(), "max_steps": agent.max_steps}
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hset(keys.conversation(conversation_id), mapping=fields)
        pipeline.expire(keys.conversation(conversation_id), min(int(self._settings.retention), most("unused")))
        await pipeline.execute()
        return await self.conversation(conversation_id)
