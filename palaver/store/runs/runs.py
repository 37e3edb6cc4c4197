"""The runs, as the API uses them: submit, cancel, list (``listing.py``) and read (``reading.py``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from secrets import token_hex
from typing import Any, assert_never

import orjson

from palaver.config.settings import Settings
from palaver.errors import IdempotencyMismatch, NoRoom, StateConflict, TimePassed, UnknownRun
from palaver.late import dataclass
from palaver.schemas.first_words import PREVIEW, TITLE, first_words
from palaver.schemas.models import AgentSpec, CancelMode, Message, Run, Submission
from palaver.steps.leases import Delivery, Settled
from palaver.store.conversations.vault import Vault, endpoint_of, with_key
from palaver.store.reading import records
from palaver.store.reading.existing import check_conversation_id, unknown_conversation
from palaver.store.reading.listing import Listing
from palaver.store.reading.reading import reads_of, shown
from palaver.store.reading.recall import Memories
from palaver.store.redis import keys
from palaver.store.redis.capacity import Capacity
from palaver.store.redis.connection import Connection
from palaver.store.redis.reach import reach
from palaver.store.scripting.contracts.logs import Copied, CopyLog
from palaver.store.scripting.contracts.replies import Ended, Mismatch, Moved, Unknown
from palaver.store.scripting.contracts.runs import (
    Barred,
    Cancel,
    Created,
    Full,
    Past,
    Rejected,
    Replayed,
    Steered,
    Submit,
    SubmitKind,
    TenantFull,
)
from palaver.store.scripting.idempotency import IdempotencyKey, idempotency, sha256
from palaver.store.scripting.log_entries import Withdrawn
from palaver.store.scripting.moving import durable_reply, settled
from palaver.store.scripting.refusals import refusal
from palaver.store.scripting.scripts import Scripts
from palaver.telemetry.traces import Trace, new_trace
from palaver.vocabulary.ids import new_run_id, pick_shard, shard_of, tenant_of
from palaver.vocabulary.limits import count_exceeded

SubmitReply = Created | Steered | Replayed | Mismatch | Past | Rejected | Full | TenantFull | Barred | Unknown


@dataclass(frozen=True, slots=True)
class Submitted:
    """A run that was taken on, now or, with ``replayed``, by an earlier request with the same key."""

    run_id: str
    replayed: bool
    deliveries: tuple[Delivery, ...]
    steered: bool = False
    """There is no new run: the input went into ``run_id``, which was active."""
    run: Run | None = None
    """The new run as it was right behind that, if it was to be shown; None if it says too little, or there is none."""


@dataclass(frozen=True, slots=True)
class CopiedLog:
    """A conversation's log that was copied for another one to begin with, up to position ``through``."""

    conversation_id: str
    copy: str
    """The name of the copy, which no other caller knows."""
    through: int
    withdrawals: bytes
    """The withdrawals of the conversation before it was copied: with other ones, the copy may have messages that were
    deleted since."""
    withdrawn: bytes
    """The parts of the copy that models do not see."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Opened: they are sealed for the copy."""


@dataclass(frozen=True, slots=True)
class NewChild:
    """A run that a call of another run begins."""

    run_id: str
    parent: bytes
    """As in `Submit`."""
    trace: Trace | None


class Runs(Listing):
    """Runs and conversations, as the API sees them."""

    def __init__(
        self,
        redis: Connection,
        scripts: Scripts,
        settings: Settings,
        capacity: Capacity,
        memories: Memories,
        vault: Vault,
    ) -> None:
        super().__init__(redis, scripts, settings, capacity, memories)
        self._vault = vault
        self._settings = settings

    async def submit(
        self,
        submission: Submission,
        *,
        received: Submission | None = None,
        idempotency_key: str | None = None,
        by: str | None = None,
        begins: bool = False,
        condenses: bool = False,
        agent_by: Collection[str] | None = None,
        voices: Collection[str] = (),
        lacks: str | None = None,
        seen_agent: str | None = None,
        show: bool = False,
    ) -> Submitted:
        """Take a run on: durable, in its conversation's order, and under its idempotency key, in one step. ``by`` is
        who asks: the name of an API key, among whose bearers the idempotency key is one; ``agent_by``, ``voices``
        and ``seen_agent`` are as in `Submit`. One that ``begins`` makes its conversation if there is none of that id.
        One that ``condenses`` does nothing else. ``lacks`` is what no worker has that its first step needs, as in
        ``waiting``; None if one may be there. With ``show`` a new run comes with the answer. ``received`` is the
        submission as it came, if it was completed since: the idempotency key is that of the former.

        Raises:
            UnknownConversation: the conversation is not there (any more).
            IdempotencyMismatch: the key was used with another body.
            StateConflict: ``conversation_busy`` and ``on_conflict`` says reject; ``pending_action``, the active run
                waits for an action, and this one would wait behind it; ``no_agent`` and none was given; ``queue_full``,
                ``conversation_full`` or ``steering_full``, there is no room for it; ``conversation_changed``, it has
                another agent than ``seen_agent``; ``tenant_erased``.
            NoRoom: ``too_many_runs``, ``tenant_queue_full`` or ``store_nearly_full``, and this would be one more.
            TimePassed: ``start_by`` or ``deadline`` has.
            NotDurable: taken on, but not as safely as PALAVER_DURABILITY asks; with the same key it is found.
        """
        # Without defaults: a field that a later version adds must not change what an old body hashes to.
        said = received or submission
        body = said.model_dump_json(exclude_defaults=True) if idempotency_key is not None else ""
        key = idempotency(idempotency_key, f"condense {body}" if condenses else body, by)
        kind: SubmitKind = "new"
        target = submission.conversation_id
        if target is None:
            # It knows which servers answer.
            await self._capacity.memory()
            # An idempotency key is found again by its own shard.
            target = self.new_conversation(self._shard_of_key(key.digest) if key.digest else None)
        else:
            check_conversation_id(target)
            kind = "condense" if condenses else "named" if begins else "known"
        submit = await self.to_submit(
            submission,
            target,
            kind,
            key,
            by=by,
            agent_by=agent_by,
            voices=voices,
            lacks=lacks,
            seen_agent=seen_agent,
        )
        return await self.take_on(submit, show=show)

    async def begun_with(
        self, idempotency_keys: Sequence[str], *, by: str | None = None, beside: str | None = None
    ) -> str | None:
        """Return the run that a submit with one of these keys made; the first that is known. ``beside`` is a run or the
        conversation that it was to go on with."""
        pipeline = self._redis.pipeline(transaction=False)
        for text in idempotency_keys:
            digest = idempotency(text, "", by).digest
            shard = self._shard_of_key(digest) if beside is None else shard_of(beside)
            pipeline.hget(keys.idempotency(shard, digest), "run")
        found = [run_id for run_id in await pipeline.execute() if run_id is not None]
        return found[0].decode() if found else None

    def _shard_of_key(self, digest: str) -> str:
        return pick_shard(digest, len(self.shards), reach().tenant)

    async def take_on(self, submit: Submit, *, show: bool = False) -> Submitted:
        """Submit what `to_submit` made, and return the outcome. With ``show`` a new run comes with it.

        Raises:
            StateConflict: as ``submit``; also ``conversation_moved_on``, and ``conversation_changed`` since it was
                copied.
            UnknownConversation, IdempotencyMismatch, NoRoom, TimePassed, NotDurable: as ``submit``.
        """
        if not show:
            return await durable_reply(self._scripts.run_durably(submit), partial(taken_on, submit))

        def read(replies: tuple[SubmitReply, Sequence[Any]]) -> Submitted:
            reply, answers = replies
            return replace(taken_on(submit, reply), run=shown(answers))

        return await durable_reply(self._scripts.run_durably_and_read(submit, reads_of(submit.run_id)), read)

    async def to_submit(
        self,
        submission: Submission,
        target: str,
        kind: SubmitKind,
        key: IdempotencyKey,
        *,
        by: str | None,
        agent_by: Collection[str] | None = None,
        voices: Collection[str] = (),
        retried_from: str | None = None,
        lacks: str | None = None,
        seen_agent: str | None = None,
        fork: CopiedLog | None = None,
        child: NewChild | None = None,
    ) -> Submit:
        """Return the request to the store for a run in the conversation ``target``: with ``retry`` only right behind
        the run that it goes on with, with ``fork`` in one that begins as another one did, and as a ``child`` under the
        lease of the call that it answers."""
        nearly_full = await self._capacity.nearly_full()
        shard = shard_of(target)
        run_id = child.run_id if child else new_run_id(shard, tenant_of(target))
        content = submission.input
        messages = (Message(role="user", content=content),) if isinstance(content, str) else content
        agent, ceiling = submission.spec, 0 if nearly_full else await self._capacity.runs_of_a_shard()
        trace = child.trace if child else new_trace()
        secrets = with_key(submission.secrets, agent)
        hidden = tuple(filter(None, secrets.values()))
        title = first_words(messages, TITLE, hidden)
        return Submit(
            run=keys.of_run(run_id, target),
            idempotency=keys.idempotency(shard, key.digest or sha256(run_id)),
            forked=keys.conversation(fork.conversation_id) if fork else None,
            run_id=run_id,
            conversation_id=target,
            kind=kind,
            fingerprint=key.fingerprint or None,
            on_conflict=submission.on_conflict,
            agent=records.agent_json(agent) if agent else None,
            names=records.names(agent) if agent else None,
            max_steps=agent.max_steps if agent else None,
            start_after=records.millis(submission.start_after) if submission.start_after else None,
            start_by=records.millis(submission.start_by) if submission.start_by else None,
            deadline=records.millis(submission.deadline) if submission.deadline else None,
            metadata=orjson.dumps(submission.metadata),
            tags=orjson.dumps(submission.tags),
            priority=submission.priority,
            budget=submission.budget.model_dump_json(exclude_none=True) if submission.budget else None,
            submitted_by=by,
            agent_by=records.names_json(agent_by),
            voices=records.names_json(voices or None),
            seen_agent=seen_agent,
            retried_from=retried_from,
            parent=child.parent if child else None,
            lacks=lacks,
            copy=fork.copy if fork else None,
            copied_through=fork.through if fork else None,
            most_due=ceiling,
            withdrawals=fork.withdrawals if fork else b"",
            withdrawn=fork.withdrawn or None if fork else None,
            trace=trace.stored if trace else None,
            messages=tuple(orjson.dumps(message.model_dump(exclude_defaults=True)) for message in messages),
            title=title,
            folded=title and title.casefold(),
            input_preview=first_words(reversed(messages), PREVIEW, hidden),
            secrets=self._vault.sealed(target, {**(fork.secrets if fork else {}), **secrets}),
            endpoint=endpoint_of(agent) if agent else None,
        )

    async def copy(
        self, conversation_id: str, *, through: int, made_anew: str | None, agent: AgentSpec | None
    ) -> CopiedLog:
        """Copy a conversation's log up to position ``through``, a part at a time, for another one to begin with.

        The earlier messages of the run ``made_anew`` count there even if it was rolled back. A copy that no
        conversation begins with is forgotten after ten minutes. ``agent`` is the agent of the other one.

        Raises:
            UnknownConversation: the conversation is not there (any more).
            KeyMissing: this process cannot open its secrets, which the copy is to have, too.
        """
        shard, name = shard_of(conversation_id), token_hex(16)
        copy = CopyLog(
            conversation=keys.conversation(conversation_id),
            log=keys.log(conversation_id),
            copy=keys.copy(shard, name),
            copied=keys.copied(shard, name),
            through=through,
        )
        first = part = await self._copy(copy, conversation_id)
        while not part.ends:
            part = await self._copy(copy, conversation_id)
        withdrawn = Withdrawn(first.withdrawn).without(made_anew, through)
        secrets = await self._vault.opened(conversation_id, agent)
        return CopiedLog(conversation_id, name, through, first.withdrawals, withdrawn, secrets)

    async def _copy(self, copy: CopyLog, conversation_id: str) -> Copied:
        match await self._scripts.run(copy):
            case Copied() as part:
                return part
            case Unknown():
                raise unknown_conversation(conversation_id)
            case other:
                assert_never(other)

    async def forget_copy(self, fork: CopiedLog) -> None:
        """Forget a copy. That changes nothing if a conversation has begun with it."""
        shard = shard_of(fork.conversation_id)
        await self._redis.unlink(keys.copy(shard, fork.copy), keys.copied(shard, fork.copy))

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
        cancel = to_cancel(run_id, conversation_id, mode=mode, reason=reason, by=by, acked_ms=acked_ms)
        return await durable_reply(self._scripts.run_durably(cancel), partial(cancelled, run_id))


class ChildBarred(Exception):
    """The call may not begin the run: why, as in `Barred`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def taken_on(submit: Submit, reply: SubmitReply) -> Submitted:
    """Read the reply to ``submit``. Raises as `Runs.take_on`."""
    match reply:
        case Created(run_id, due):
            return Submitted(run_id, False, due)
        case Steered(run_id):
            return Submitted(run_id, False, (), steered=True)
        case Replayed(run_id, steered):
            return Submitted(run_id, True, (), steered=steered)
        case Mismatch():
            raise IdempotencyMismatch("this Idempotency-Key was used with another body")
        case Past(name):
            raise TimePassed(name, f"{name} has passed")
        case Full() if submit.most_due == 0:
            count_exceeded("memory")
            raise NoRoom("store_nearly_full", "the store has no memory left for new runs")
        case Full():
            count_exceeded("runs")
            raise NoRoom("too_many_runs", "as many runs are unfinished as there may be")
        case TenantFull():
            raise NoRoom("tenant_queue_full", "as many runs of the tenant have not begun as there may be")
        case Rejected(code, other):
            raise refusal(code, other or submit.retried_from)
        case Barred(why):
            raise ChildBarred(why)
        case Unknown():
            raise unknown_conversation(submit.conversation_id)
        case none:
            assert_never(none)


def to_cancel(
    run_id: str, conversation_id: str, *, mode: CancelMode, reason: str | None, by: str | None, acked_ms: int
) -> Cancel:
    """Return the script for `Runs.cancel`; `cancelled` reads its answer."""
    return Cancel(
        run=keys.of_run(run_id, conversation_id),
        mode=mode,
        by=orjson.dumps(by),
        reason=orjson.dumps(reason),
        acked_ms=acked_ms,
    )


def cancelled(run_id: str, reply: Moved | Ended | Unknown) -> Settled:
    """Read the reply to a cancel. Raises as `Runs.cancel`."""
    match reply:
        case Moved() as moved:
            return settled(moved)
        case Ended(status):
            raise StateConflict("run_ended", run_id, f"the run has already ended: {status}")
        case Unknown():
            raise UnknownRun(run_id)
        case other:
            assert_never(other)
