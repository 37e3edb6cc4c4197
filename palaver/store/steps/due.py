"""The index of what is due, for sweepers: find it, and act on it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, get_args

import orjson

from palaver.errors import ErrorClass
from palaver.schemas.actions import ActionType
from palaver.steps.leases import Delivery, Settled
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection, Pipeline, now_ms, portions
from palaver.store.redis.rounds import Rounds
from palaver.store.redis.visits import ask_each, tell_each, whole
from palaver.store.scripting.contracts.conversations import ForgetConversations
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.replies import Gone, Moved
from palaver.store.scripting.contracts.steps import Attend, Fill, LeftToNewer, RunDue, Sweep
from palaver.store.scripting.list_lengths import ANY, list_lengths
from palaver.store.scripting.moving import settled
from palaver.store.scripting.scripts import Scripts
from palaver.store.steps.due_items import DueItem
from palaver.store.steps.losses import Losses
from palaver.store.steps.queues import ToolQueues
from palaver.telemetry.outage_log import outage_reason
from palaver.vocabulary.ids import tenant_of
from palaver.vocabulary.lifecycle import RunStatus, WaitReason
from palaver.vocabulary.limits import count_exceeded
from palaver.vocabulary.step_kinds import LACKED

log = logging.getLogger("palaver.store.steps.due")

_AT_ONCE: Final = 500
"""Steps that are read in one go: a worker's other steps go on in between."""
_CAPPED: Final = 500
"""Tenants at their cap that are looked at in one go, in each queue of a shard."""
_LOOKS: Final = 4
"""Looks in a second for what is due, and for what is not claimed."""
_TERMINAL: Final = tuple(status for status in RunStatus if status.terminal)


class DueIndex:
    """The due index and the ready indexes of every shard."""

    def __init__(self, redis: Connection, scripts: Scripts, rounds: Rounds, queues: ToolQueues) -> None:
        self._redis = redis
        self._scripts = scripts
        self._queues = queues
        self._looked_at: dict[str, dict[str, int]] = {}
        """How far the backlog of each shard was looked through, of queues that no worker takes from."""
        self._upcoming: dict[str, float] = {}
        """When the next item of each shard will be due (ms), as far as is known."""
        self.rounds = rounds
        self.shards = rounds.shards
        self._losses = Losses(redis, scripts, self.shards)

    async def due(self, limit: int = 200) -> tuple[list[DueItem], float]:
        """Return the items that are due now, by Redis's clock, and the seconds until the next one will be (a day at
        most), as far as is known: of many shards, those are looked at whose turn it is, or that have something due."""
        if not (turn := self.rounds.turn("due", _LOOKS)):
            return [], 86400.0
        now = await now_ms(self._redis)

        def put(pipeline: Pipeline, shard: str) -> None:
            index = keys.due(shard)
            pipeline.zrange(index, "-inf", now, byscore=True, offset=0, num=limit)
            pipeline.zrange(index, f"({now}", "+inf", byscore=True, offset=0, num=1, withscores=True)

        if not self.rounds.few:
            self._upcoming = {shard: at for shard, at in self._upcoming.items() if self.rounds.has(shard)}
        shards = {*turn, *(shard for shard, at in self._upcoming.items() if at <= now)}
        for shard in shards:
            self._upcoming.pop(shard, None)
        items: list[DueItem] = []
        for shard, (members, pairs) in await ask_each(self._redis, sorted(shards), put):
            items += map(_due_item, members)
            for _, at in pairs if self.rounds.has(shard) else ():
                self._upcoming[shard] = at
        return items, min(((at - now) / 1000 for at in self._upcoming.values()), default=86400.0)

    async def unclaimed(self, queue: str, older_than: float, limit: int) -> list[DueItem]:
        """Steps delivered to ``queue`` over ``older_than`` seconds ago that were not claimed, oldest first; of many
        shards, those of some, and of the next ones the next time."""
        if not (turn := self.rounds.turn(f"unclaimed {queue}", _LOOKS)):
            return []
        before = await now_ms(self._redis) - int(older_than * 1000)
        found = await self._of_shards(
            lambda pipeline, shard: pipeline.zrange(
                keys.ready(shard, queue), "-inf", before, byscore=True, offset=0, num=limit
            ),
            turn,
        )
        return [_due_item(member, queue) for members in found for member in members][:limit]

    async def delivered(self, queue: str) -> int:
        """The number of steps that are delivered to ``queue`` and that are not claimed."""
        return sum(await self._of_shards(lambda pipeline, shard: pipeline.zcard(keys.ready(shard, queue))))

    async def held(self, worker: str, before: int, limit: int = 10_000) -> list[DueItem]:
        """Steps that ``worker`` has leased until some time before ``before``, in milliseconds, of ``limit`` leases a
        shard at most."""
        now = await now_ms(self._redis)
        found = await self._of_shards(
            lambda pipeline, shard: pipeline.zrange(
                keys.due(shard), now, f"({before}", byscore=True, offset=0, num=limit
            )
        )
        items = [_due_item(member) for members in found for member in members]
        leased = []
        for some in portions(items, _AT_ONCE):
            steps = await ask_each(
                self._redis, some, lambda pipeline, item: pipeline.hget(keys.steps(item.run_id), item.what)
            )
            leased += [item for item, (step,) in steps if step and orjson.loads(step).get("worker") == worker]
        return leased

    async def sweep(
        self,
        things: Sequence[DueItem],
        *,
        worker: str = "",
        unrenewed_before: int | None = None,
        unclaimed_after: float = 1.0,
    ) -> list[Settled]:
        """Act on ``things``. Those that are not due any more are left unchanged.

        ``worker`` names a worker that is known to be dead: its leases on these steps end now, or only those that end
        before ``unrenewed_before``. Raises an error that a script answered only if nothing was done: else what was done
        would not be followed up, and the next sweep meets the error again.
        """

        judgements = await self._losses.judge(things, worker, unrenewed_before)
        acquitted = frozenset(judgements.acquitted)

        def sweep(thing: DueItem, run: keys.RunKeys) -> Sweep:
            return Sweep(
                run=run,
                what=thing.what,
                ready=thing.ready,
                dead_worker=worker or None,
                unrenewed_before=unrenewed_before,
                unclaimed=unclaimed_after,
                judged=judgements.by_item.get(thing),
                acquitted=thing in acquitted,
            )

        return await self._act([*things, *acquitted.difference(things)], sweep, ErrorClass.WORKER_LOST)

    async def attend(self, queue: str, *, attended: bool, ready_for: float = 2.0, limit: int = 100) -> list[Settled]:
        """Note on steps that are ready in ``queue`` whether workers take from it: on those where something else is
        noted, or on the next of those that are ready for so many seconds, ``limit`` a shard at most. Raises as
        `sweep`."""
        items = await (self._unattended(queue, limit) if attended else self._waiting_in(queue, ready_for, limit))
        moves = await self._act(
            items,
            lambda item, run: Attend(run=run, step=item.what, queue=queue, attended=attended),
            ErrorClass.NO_WORKER,
        )
        for _ in (moved for moved in moves if moved.status == RunStatus.FAILED):
            count_exceeded("no_worker")
        return moves

    async def _unattended(self, queue: str, limit: int) -> list[DueItem]:
        code = f"{LACKED}{queue}"
        # "!" is what comes behind " ", which ends a code.
        found = await self._of_shards(
            lambda pipeline, shard: pipeline.zrange(
                keys.lacking(shard), f"[{code} ", f"({code}!", bylex=True, offset=0, num=limit
            ),
            self.rounds.turn(f"attended {queue}", 1),
        )
        self._looked_at.pop(queue, None)
        return [_due_item(member.partition(b" ")[2], queue) for members in found for member in members]

    async def _waiting_in(self, queue: str, ready_for: float, limit: int) -> list[DueItem]:
        """Those that are delivered, and a page of each backlog: the first one again after the last."""
        before, looked_at = await now_ms(self._redis) - int(ready_for * 1000), self._looked_at.setdefault(queue, {})

        def put(pipeline: Pipeline, shard: str) -> None:
            at = looked_at.get(shard, 0)
            pipeline.zrange(keys.ready(shard, queue), "-inf", before, byscore=True, offset=0, num=limit)
            pipeline.zrange(keys.held_back(shard, queue), "-inf", before, byscore=True, offset=at, num=limit)

        replies = await ask_each(self._redis, self.rounds.turn(f"attended {queue}", 1), put)
        for shard, (_, held_back) in replies:
            looked_at[shard] = looked_at.get(shard, 0) + limit if len(held_back) == limit else 0
        return [_due_item(member, queue) for _, reply in replies for members in reply for member in members]

    async def _act(
        self,
        things: Sequence[DueItem],
        script_for: Callable[[DueItem, keys.RunKeys], Script[Moved | Gone | LeftToNewer]],
        failure: ErrorClass,
    ) -> list[Settled]:
        """Run a script for each of these; ``failure`` is the class of what ends a run there."""
        known = await ask_each(
            self._redis, things, lambda pipeline, thing: pipeline.hget(keys.run(thing.run_id), "conversation")
        )
        acted = [(thing, conversation.decode()) for thing, (conversation,) in known if conversation]
        await self._forget([thing for thing, (conversation,) in known if not conversation])
        replies = await self._scripts.run_each(
            script_for(thing, keys.of_run(thing.run_id, conversation)) for thing, conversation in acted
        )
        moves: list[Settled] = []
        errors: list[tuple[DueItem, Exception]] = []
        for reply, (thing, _) in zip(replies, acted, strict=True):
            if isinstance(reply, Exception):
                errors.append((thing, reply))
            elif isinstance(reply, Moved):
                if reply.status is RunStatus.FAILED and thing.what != RunDue.START:
                    log.warning("run %s failed at step %s: %s", thing.run_id, thing.what, failure)
                moves.append(settled(reply))
        if errors:
            # One line for all of them: in an outage hundreds of things may be due, each second.
            thing, error = errors[0]
            log.warning(
                "cannot act on what is due: %d things (run %s at %s is one): %s",
                *(len(errors), thing.run_id, thing.what, outage_reason(error)),
            )
            if not moves:
                raise error
        return moves

    async def forget_expired(self, limit: int = 1000) -> int:
        """Take runs whose retention is over out of the lists of runs; how many, ``limit`` a shard at most."""
        if not (turn := self.rounds.seldom("expired")):
            return 0
        now = await now_ms(self._redis)
        found = await ask_each(
            self._redis,
            turn,
            lambda pipeline, shard: pipeline.zrange(keys.ended(shard), "-inf", now, byscore=True, offset=0, num=limit),
        )
        pipeline = self._redis.pipeline(transaction=False)
        for shard, (members,) in found:
            if members:
                # In this order: after an interruption the work is repeated.
                for owner, listed in _by_owner(members).items():
                    for status in (None, *_TERMINAL):
                        pipeline.zrem(keys.runs(shard, status, owner), *listed)
                pipeline.zrem(keys.ended(shard), *members)
        await tell_each(pipeline)
        return sum(len(members) for _, (members,) in found)

    async def forget_conversations(self, limit: int = 1000) -> int:
        """Take conversations whose retention is over out of their lists; how many, ``limit`` a shard at most."""
        replies = await self._scripts.run_for_each(
            self.rounds.seldom("conversations"),
            lambda shard: ForgetConversations(expiring=keys.expiring(shard), limit=limit),
        )
        return sum(reply.count for _, reply in replies)

    async def fill(self) -> tuple[Delivery, ...]:
        """Let go what the queues have room for, of the tenants whose turn it is. Return what is to be published."""
        queues = await self._queues.all()
        replies = await self._scripts.run_for_each(
            self.rounds.turn("fill", 1), lambda shard: Fill(due=keys.due(shard), most=_CAPPED, queues=queues)
        )
        self._scripts.note_busy(shard for shard, reply in replies if reply.deliveries)
        return tuple(delivery for _, reply in replies for delivery in reply.deliveries)

    async def depths(self) -> dict[str, tuple[int, float]]:
        """For each queue: how many steps are ready, delivered or not, and the oldest one's seconds."""
        now, queues = await now_ms(self._redis), await self._queues.all()
        lists = [list_of(ANY, queue) for queue in queues for list_of in (keys.ready, keys.held_back)]
        there = [parts for _, parts in whole(self.shards, await list_lengths(self._scripts, self.shards, lists))]
        by_queue: dict[str, tuple[int, float]] = {}
        for i, queue in enumerate(queues):
            of_queue = [part for parts in there for part in parts[2 * i : 2 * (i + 1)]]
            oldest = [now - part.first for part in of_queue if part.length]
            by_queue[queue] = (sum(part.length for part in of_queue), max(0.0, max(oldest, default=0) / 1000))
        return by_queue

    async def _forget(self, things: Sequence[DueItem]) -> None:
        """Remove the entries of a run that no longer exists (deleted by hand, or evicted), which had not ended."""
        if not things:
            return
        queues = await self._queues.all()
        pipeline = self._redis.pipeline(transaction=False)
        for thing in things:
            run_id, shard, member = thing.run_id, thing.run_id[4:6], f"{thing.run_id}/{thing.what}"
            pipeline.zrem(keys.due(shard), member)
            for queue in queues:
                pipeline.zrem(keys.ready(shard, queue), member)
                pipeline.hdel(keys.undelivered(shard, queue), member)
                pipeline.zrem(keys.held_back(shard, queue), member)
            for action_type in get_args(ActionType):
                pipeline.zrem(keys.pending(shard, action_type), f"{run_id}/{thing.what.partition('/')[2]}")
            for reason in WaitReason:
                pipeline.zrem(keys.waiting(shard, reason), run_id)
            of = keys.owner(tenant_of(run_id))
            pipeline.zrem(keys.in_flight(shard, of), member, run_id)
            for queue in queues:
                pipeline.zrem(keys.backlog(shard, queue, of), member)
            for owner in keys.owners_of(run_id):
                for status in (None, *(status for status in RunStatus if not status.terminal)):
                    pipeline.zrem(keys.runs(shard, status, owner), run_id)
        await tell_each(pipeline)

    async def _of_shards(
        self, put: Callable[[Pipeline, str], object], shards: Sequence[str] | None = None
    ) -> list[Any]:
        """The answers of the shards, or of some of them, to one command."""
        asked = self.shards if shards is None else shards
        return [reply for _, (reply,) in await ask_each(self._redis, asked, put)]


def _by_owner(run_ids: Iterable[bytes]) -> Mapping[keys.Owner, Sequence[bytes]]:
    """Return the runs by the owners of the lists that they are in."""
    by_owner: dict[keys.Owner, list[bytes]] = {}
    for run_id in run_ids:
        for owner in keys.owners_of(run_id.decode()):
            by_owner.setdefault(owner, []).append(run_id)
    return by_owner


def _due_item(member: bytes, ready: str | None = None) -> DueItem:
    return DueItem.of(member.decode(), ready)
