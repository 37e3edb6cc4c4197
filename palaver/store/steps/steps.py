"""The steps, as workers use them: claim, settle, promote, renew, write deltas."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from secrets import token_hex
from types import MappingProxyType
from typing import Final, assert_never

from palaver.config.settings import Settings
from palaver.errors import NewerVersion, NotDurable, StaleLease
from palaver.events import EventKind
from palaver.schemas.models import Usage
from palaver.steps.leases import (
    AnswerProgress,
    Delivery,
    Delta,
    Lease,
    LogTail,
    OfferedPlace,
    ProgressDelta,
    Renewal,
    Settled,
    Shown,
    Stray,
)
from palaver.steps.verdicts import Continue, Verdict
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection, portions
from palaver.store.redis.visits import answered
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.logs import LogPage, ReadLog
from palaver.store.scripting.contracts.replies import Moved, Stale, Unknown
from palaver.store.scripting.contracts.steps import (
    CallsBegun,
    Claim,
    HandBack,
    HeldLease,
    NewDelta,
    Promote,
    Renew,
    WriteDeltas,
)
from palaver.store.scripting.log_entries import read_tail
from palaver.store.scripting.moving import settled
from palaver.store.scripting.scripts import Scripts
from palaver.store.steps.settling import settlement, used
from palaver.telemetry.outage_log import outage_reason
from palaver.vocabulary.lifecycle import RunStatus
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.step_kinds import kind_of_step

log = logging.getLogger("palaver.store.steps.steps")

_BATCH: Final = 100
"""Leases or deltas in one script call; Redis needs about a millisecond for them (bench/store_cost.py)."""
_BATCH_BYTES: Final = limit_of("script_page_bytes")
"""Bytes of deltas in one script call."""
_NONE: Final[Mapping[int, AnswerProgress]] = MappingProxyType({})


class Steps:
    """Leases on steps and what may be written under them."""

    def __init__(self, redis: Connection, scripts: Scripts, settings: Settings) -> None:
        self._redis = redis
        self._scripts = scripts
        self._lease = settings.lease_seconds

    async def claim(
        self,
        run_id: str,
        conversation_id: str,
        step: str,
        *,
        queues: Sequence[str],
        worker: str,
        nonce: str,
        known: int | None,
        known_at: int = 0,
    ) -> Lease | Stray:
        """Lease a step to ``worker``, if it is in one of ``queues``, which are of one kind of workers.

        ``nonce`` names this very claim, so that a repeat after a lost answer gets the same lease. ``known`` is the log
        position up to which the worker has cached the log; None when it needs no messages (tool steps). ``known_at`` is
        the time of the entry at that position: after a power cut or a failover Redis may have lost entries, and the
        cached conversation may differ from the log.

        Raises:
            NotDurable: a tool step's lease is not as safe as PALAVER_DURABILITY asks; it was handed back.
        """
        kind = kind_of_step(queues[0], step)
        claim = Claim(
            run_id=run_id,
            conversation_id=conversation_id,
            kind=kind,
            run=keys.of_run(run_id, conversation_id),
            step=step,
            worker=worker,
            lease=self._lease,
            known=known,
            known_at=known_at,
            nonce=nonce,
            queues=tuple(queues),
        )
        lease = await (self._scripts.run(claim) if kind.asks_model else self._begin(claim))
        return lease if isinstance(lease, Stray) else await self._whole(lease)

    async def _begin(self, claim: Claim) -> Lease | Stray:
        """Claim a tool step. The claim is the record of intent: if Redis lost it, the tool would be started a second
        time.

        Raises:
            NotDurable: as ``claim``.
        """
        try:
            return await self._scripts.run_durably(claim)
        except NotDurable as error:
            if isinstance(error.reply, Lease):
                await self._hand_back_unbegun(claim.run, claim.step, error.reply.fence)
            raise

    async def _hand_back_unbegun(self, run: keys.RunKeys, step: str, fence: int) -> tuple[Delivery, ...]:
        """Give up the lease of a tool step that did not begin; return the deliveries to publish."""
        back = HandBack(run=run, step=step, fence=fence, begun=False, used=used(Usage()), trace_note=None)
        moved = await self._scripts.run(back)
        return moved.deliveries if isinstance(moved, Moved) else ()

    async def _whole(self, lease: Lease) -> Lease:
        """The lease with the log's tail to its end. Raises as `_read_on`."""
        return lease if lease.log.ends else replace(lease, log=await self._read_on(lease.conversation_id, lease.log))

    async def _read_on(self, conversation_id: str, tail: LogTail) -> LogTail:
        """The log's tail to its end, where a claim brought its first page.

        Raises:
            StaleLease: the conversation is gone, and with it the lease.
        """
        conversation, log = keys.conversation(conversation_id), keys.log(conversation_id)
        entries = [*tail.entries]
        while not tail.ends:
            match await self._scripts.run(ReadLog(conversation=conversation, log=log, after=tail.position)):
                case LogPage() as page if page.withdrawals == tail.withdrawals:
                    more = read_tail(
                        (tail.position, tail.position_at, page.entries, page.ends, page.withdrawals, page.withdrawn)
                    )
                    entries += more.entries
                    tail = replace(more, rebuilt=tail.rebuilt)
                case LogPage() as page:
                    # Entries were deleted meanwhile, and the pages read so far may contain some of them.
                    entries.clear()
                    tail = LogTail(rebuilt=True, ends=False, withdrawals=page.withdrawals)
                case Unknown():
                    raise StaleLease
                case other:
                    assert_never(other)
        return replace(tail, entries=tuple(entries))

    async def settle(
        self,
        lease: Lease,
        verdict: Verdict,
        *,
        shown: Shown = Shown.ALL,
        trace_note: bytes | None = None,
        place: OfferedPlace | None = None,
    ) -> Settled:
        """Apply ``verdict`` and end the lease. Watchers were ``shown`` so much of its message: of one of which they saw
        nothing, the reader of its event makes the deltas. ``trace_note`` is what the worker says of the attempt in
        the trace of the run, JSON. A worker that offers a ``place`` may get the lease of the run's next model step.

        Raises:
            StaleLease: the lease is not the newest any more; nothing was written.
            ValueError: the verdict would leave a call of its message without an answer.
            ResponseTooLarge: the verdict is larger than one script may take.
        """
        call: Script[Moved | Lease | CallsBegun | Stale] = settlement(lease, verdict, shown, trace_note, place)
        begins = place is not None and isinstance(verdict, Continue) and any(each.at_hand for each in verdict.calls)
        match await (self._settle_and_begin(lease, call) if begins else self._scripts.run(call)):
            case Moved() as moved:
                return settled(moved)
            case Lease() as following:
                return Settled(RunStatus.RUNNING, following.deliveries, None, (await self._whole(following),))
            case CallsBegun() as begun:
                return Settled(RunStatus.RUNNING, begun.deliveries, None, _leases(lease, verdict, begun), begun.due)
            case Stale():
                raise StaleLease
            case other:
                assert_never(other)

    async def _settle_and_begin(
        self, lease: Lease, call: Script[Moved | Lease | CallsBegun | Stale]
    ) -> Moved | Lease | CallsBegun | Stale:
        """Settle a model step and begin its calls. Leases of calls that may be lost are handed back, as by `claim`."""
        try:
            return await self._scripts.run_durably(call)
        except NotDurable as error:
            reply: Moved | Lease | CallsBegun | Stale = error.reply
            if not isinstance(reply, CallsBegun):
                return reply
            run, deliveries = keys.of_run(lease.run_id, lease.conversation_id), reply.deliveries
            for step, fence in reply.calls:
                deliveries += await self._hand_back_unbegun(run, step, fence)
            return replace(reply, calls=(), deliveries=deliveries)

    async def promote(self, postponed: Sequence[tuple[str, str, str]]) -> list[Settled | None]:
        """Deliver postponed steps now, each by the ids of its conversation and run and its name; None for one that is
        no longer waiting, or that cannot be delivered: it says so in the log, and keeps no other from it."""
        calls = [Promote(run=keys.of_run(run_id, conv_id), step=step) for conv_id, run_id, step in postponed]
        replies = await self._scripts.run_each(calls)
        promoted: list[Settled | None] = []
        errors: list[tuple[str, Exception]] = []
        for reply, (_, run_id, _) in zip(replies, postponed, strict=True):
            if isinstance(reply, Exception) and not isinstance(reply, NewerVersion):
                errors.append((run_id, reply))
            promoted.append(settled(reply) if isinstance(reply, Moved) else None)
        if errors:
            one, error = errors[0]
            many = f"{len(errors)} of {len(promoted)} postponed steps ({one} is one)"
            log.warning("cannot deliver %s: %s", many, outage_reason(error))
        return promoted

    async def renew(
        self, leases: Sequence[Lease], progress: Mapping[int, AnswerProgress] = _NONE
    ) -> list[Renewal | None]:
        """Prolong ``leases``; the answers are in the same order, None of a server that is away. ``progress`` is
        reported with them, by place in it."""
        order: list[Sequence[int]] = []
        calls: list[Renew] = []
        by_shard: dict[str, list[int]] = {}
        for i, lease in enumerate(leases):
            by_shard.setdefault(lease.run_id[4:6], []).append(i)
        for shard, members in by_shard.items():
            for chunk in portions(members, _BATCH):
                held = tuple(_held(leases[i], progress.get(i)) for i in chunk)
                calls.append(Renew(due=keys.due(shard), lease=self._lease, leases=held))
                order.append(chunk)
        answers: list[Renewal | None] = [None] * len(leases)
        for chunk, renewed in answered(order, await self._scripts.run_each(calls)):
            for i, code in zip(chunk, renewed.answers, strict=True):
                answers[i] = Renewal(code)
        return answers

    async def write_deltas(self, deltas: Sequence[Delta | ProgressDelta]) -> frozenset[str]:
        """Show ``deltas`` to watchers. Those whose lease is lost are dropped. Return the shards whose server is away:
        their deltas may be lost."""
        calls: list[WriteDeltas] = []
        shards: list[str] = []
        by_shard: dict[str, list[NewDelta]] = {}
        for delta in deltas:
            by_shard.setdefault(delta.lease.run_id[4:6], []).append(_shown(delta))
        for shard, members in by_shard.items():
            for batch in _batches(members):
                calls.append(WriteDeltas(nonce=token_hex(8), deltas=tuple(batch)))
                shards.append(shard)
        replies = await self._scripts.run_each(calls)
        answered(shards, replies)
        return frozenset(shard for shard, reply in zip(shards, replies, strict=True) if isinstance(reply, Exception))


def _leases(lease: Lease, verdict: Verdict, begun: CallsBegun) -> tuple[Lease, ...]:
    """The leases of the calls that begin behind a model step."""
    calls = {f"{lease.step}/{each.call.id}": each for each in (verdict.calls if isinstance(verdict, Continue) else ())}
    return tuple(
        lease.of_call(calls[step].call, calls[step].shown, fence, begun.time_left, begun.secrets_at)
        for step, fence in begun.calls
    )


def _held(lease: Lease, progress: AnswerProgress | None) -> HeldLease:
    run_id = lease.run_id
    place = keys.run(run_id), keys.steps(run_id), run_id, lease.step, lease.fence
    if progress is None:
        return HeldLease(*place, 0, 0, 0.0, None)
    return HeldLease(*place, progress.received, progress.characters, progress.quiet, max(0.0, progress.left))


def _shown(delta: Delta | ProgressDelta) -> NewDelta:
    lease, run_id = delta.lease, delta.lease.run_id
    kind = EventKind.TOOL_PROGRESS
    if isinstance(delta, Delta):
        kind = EventKind.REASONING_DELTA if delta.reasoning else EventKind.MESSAGE_DELTA
    run, steps, feed = keys.run(run_id), keys.steps(run_id), keys.feed(run_id)
    return NewDelta(run, steps, feed, lease.step, lease.fence, kind, delta.payload)


def _batches(deltas: Iterable[NewDelta]) -> Iterator[list[NewDelta]]:
    """Batches that are small enough for one script."""
    batch: list[NewDelta] = []
    size = 0
    for delta in deltas:
        if batch and (len(batch) == _BATCH or size + len(delta.payload) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(delta)
        size += len(delta.payload)
    if batch:
        yield batch
