"""What workers do with steps: claim, feed, renew, settle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from math import ceil
from secrets import token_hex
from typing import Any, Final

import orjson

from palaver.content import parts_from
from palaver.errors import NewerVersion, NotDurable, StaleLease
from palaver.events import MESSAGES, EventKind
from palaver.ids import call_of
from palaver.leases import Delivery, Delta, Lease, LogMessage, Settled, Stray
from palaver.limits import most
from palaver.models import AgentSpec, Message, ToolCall, Usage
from palaver.opaque import Opaque
from palaver.settings import Settings
from palaver.store import keys, records
from palaver.store.connection import Connection, Value
from palaver.store.events import Withdrawn
from palaver.store.scripts import Call, Scripts
from palaver.store.settling import settle_args, used
from palaver.verdicts import HandBack, Postpone, Verdict

_MESSAGES: Final = frozenset(kind.encode() for kind in (*MESSAGES, EventKind.CONVERSATION_CONDENSED))
"""The entries that a model's messages are derived from."""
_BATCH: Final = 100
"""Leases or deltas in one script call: about a millisecond of Redis (bench/store_cost.py)."""
_BATCH_BYTES: Final = most("script_page_bytes")
"""Of deltas in one script call."""

Args = list[Value]
_Shown = tuple[Lease, bytes]
"""The payload of a delta, and the lease that it is written under."""


class Renewal(IntEnum):
    """The answer to renewing a lease."""

    GONE = 0
    """Settled, or somebody else's."""
    PROLONGED = 1
    CANCELLING = 2
    """Let the run go; the lease is not prolonged."""
    PAUSING = 3
    """Prolonged; but abort the model call."""


class Steps:
    """Leases on steps and what may be written under them."""

    def __init__(self, redis: Connection, scripts: Scripts, settings: Settings) -> None:
        self._redis = redis
        self._scripts = scripts
        self._lease_ms = int(settings.lease_seconds * 1000)

    async def claim(
        self,
        run_id: str,
        conversation_id: str,
        step: str,
        *,
        worker: str,
        nonce: str,
        known: int | None,
        known_at: int = 0,
    ) -> Lease | Stray:
        """Lease a step to ``worker``.

        ``nonce`` names this very claim, so that a repeat after a lost answer gets the same lease. ``known``
        is the log position that the worker has already; None when it needs no messages (tool steps).
        ``known_at`` says when the entry there was written: Redis may have gone back since, after a power cut or a
        failover, and what the worker knows is not what the log says any more.

        Raises:
            NotDurable: a tool step's lease is not as safe as PALAVER_DURABILITY asks; it was handed back.
        """
        names = keys.of_run(run_id, conversation_id)
        args = (step, worker, self._lease_ms, "" if known is None else known, nonce, known_at)
        if call_of(step) is None:
            reply = await self._scripts.run("claim", names, args)
        else:
            # The record of intent: a tool that was begun under a lease that got lost would be begun again.
            try:
                reply = await self._scripts.promise("claim", names, args)
            except NotDurable as error:
                if error.reply[0] == b"leased":
                    await self._scripts.run("hand_back", names, (step, error.reply[1], 0, *used(Usage())))
                raise
        if reply[0] != b"leased":
            return Stray(reply[1].decode())
        fence, attempt, try_number, elapsed, left, agent, call, tail, model, calls_left = reply[1:11]
        since, withdrawn, more, edited = reply[11:]
        spec = records.agent(agent)
        if more:
            since, tail, withdrawn = await self._read_on(conversation_id, since, tail, withdrawn, more[5:])
        entries = tuple(_messages(tail, Withdrawn(withdrawn)))
        return Lease(
            run_id=run_id,
            conversation_id=conversation_id,
            step=step,
            fence=fence,
            attempt=attempt,
            try_number=try_number,
            elapsed=elapsed / 1000,
            time_left=left / 1000,
            agent=_asking(spec, int(model)),
            falls_back=int(model) < len(spec.fallbacks),
            call=ToolCall.model_validate_json(call) if call else None,
            position=int(tail[-1][0].partition(b"-")[0]) if tail else known or 0,
            position_at=int(tail[-1][1][3]) if tail else known_at,
            entries=entries,
            calls_left=None if calls_left < 0 else calls_left,
            rebuilt=since == 0,
            edited=bool(edited),
        )

    async def _read_on(
        self, conversation_id: str, since: int, tail: list[Any], withdrawn: bytes, withdrawals: bytes
    ) -> tuple[int, list[Any], bytes]:
        """The log's tail to its end, where a claim brought its first page; behind what, and what of it is withdrawn.

        Raises:
            StaleLease: the conversation is gone, and with it the lease.
        """
        names, ends = (keys.conversation(conversation_id), keys.log(conversation_id)), 0
        while not ends:
            behind = int(tail[-1][0].partition(b"-")[0]) if tail else 0
            reply = await self._scripts.run("read", names, (behind,))
            if reply[0] != b"read":
                raise StaleLease
            _, page, ends, newest, parts = reply
            if newest == withdrawals:
                tail += page
            else:
                # Something was deleted meanwhile, of which this may have a part.
                since, tail, ends, withdrawn, withdrawals = 0, [], 0, parts, newest
        return since, tail, withdrawn

    async def settle(self, lease: Lease, verdict: Verdict, *, streamed: bool = False) -> Settled:
        """Apply ``verdict``, with which the lease ends; ``streamed`` when watchers saw text that it withdraws.

        Raises:
            StaleLease: the lease is not the newest any more; nothing was written.
            ValueError: the verdict would leave a call of its message without an answer.
            ResponseTooLarge: it brings more than one script may be given.
        """
        args: Args
        match verdict:
            case Postpone():
                name, delay = "postpone", ceil(verdict.delay * 1000)
                args = [lease.step, lease.fence, delay, verdict.reason, verdict.code]
            case HandBack():
                name, args = "hand_back", [lease.step, lease.fence, int(verdict.begun), *used(verdict.usage)]
            case _:
                name, args = "settle", settle_args(lease, verdict, streamed)
        reply = await self._scripts.run(name, keys.of_run(lease.run_id, lease.conversation_id), args)
        if reply[0] == b"stale":
            raise StaleLease
        return settled(reply, lease.run_id, lease.conversation_id)

    async def recall(self, run_id: str, conversation_id: str, step: str) -> Settled | None:
        """Make a postponed step due now; None if it is not waiting any more."""
        try:
            reply = await self._scripts.run("recall", keys.of_run(run_id, conversation_id), (step,))
        except NewerVersion:
            return None
        return None if reply[0] == b"gone" else settled(reply, run_id, conversation_id)

    async def renew(self, leases: Sequence[Lease]) -> list[Renewal]:
        """Prolong ``leases``; the answers are in the same order."""
        order: list[int] = []
        calls: list[Call] = []
        by_shard: dict[str, list[int]] = {}
        for i, lease in enumerate(leases):
            by_shard.setdefault(lease.run_id[4:6], []).append(i)
        for shard, members in by_shard.items():
            for start in range(0, len(members), _BATCH):
                chunk = members[start : start + _BATCH]
                names: list[str] = [keys.due(shard)]
                args: Args = [self._lease_ms]
                for i in chunk:
                    run_id, step = leases[i].run_id, leases[i].step
                    names += (keys.run(run_id), keys.steps(run_id))
                    args += (run_id, step, leases[i].fence)
                calls.append(("renew", names, args))
                order += chunk
        replies = [Renewal(code) for reply in await self._scripts.run_all(calls) for code in reply]
        answers = dict(zip(order, replies, strict=True))
        return [answers[i] for i in range(len(leases))]

    async def feed(self, deltas: Sequence[Delta]) -> None:
        """Show ``deltas`` to watchers; those whose lease is gone are dropped."""
        calls: list[Call] = []
        by_shard: dict[str, list[_Shown]] = {}
        for delta in deltas:
            by_shard.setdefault(delta.lease.run_id[4:6], []).append((delta.lease, delta.payload))
        for members in by_shard.values():
            for batch in _batches(members):
                names: list[str] = []
                args: Args = [token_hex(8)]
                for lease, payload in batch:
                    run_id = lease.run_id
                    names += (keys.run(run_id), keys.steps(run_id), keys.feed(run_id))
                    args += (lease.step, lease.fence, EventKind.MESSAGE_DELTA, payload)
                calls.append(("feed", names, args))
        await self._scripts.run_all(calls)


def _batches(shown: Iterable[_Shown]) -> Iterator[list[_Shown]]:
    """So many of them as one script may be given."""
    batch: list[_Shown] = []
    size = 0
    for lease, payload in shown:
        if batch and (len(batch) == _BATCH or size + len(payload) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((lease, payload))
        size += len(payload)
    if batch:
        yield batch


def settled(reply: list[Any], run_id: str, conversation_id: str) -> Settled:
    """A script's reply ``[_, status, deliveries, next run id]``."""
    return Settled(
        status=reply[1].decode(),
        deliveries=deliveries(reply[2], run_id, conversation_id),
        next_run=reply[3].decode() or None,
    )


def deliveries(lines: Sequence[bytes], run_id: str, conversation_id: str) -> tuple[Delivery, ...]:
    """What a script says is to be published: ``queue step number``."""
    found = []
    for line in lines:
        queue, step, number = line.decode().split(" ")
        found.append(Delivery(queue, run_id, conversation_id, step, int(number)))
    return tuple(found)


def _messages(tail: Sequence[Any], withdrawn: Withdrawn) -> list[LogMessage]:
    """What of the log's ``tail`` is said to a model; an entry is ``type``, ``at``, ``run``, ``seq``, ``data`` and
    perhaps ``opaque``, each behind its name."""
    found = []
    for entry_id, fields in tail:
        position = int(entry_id.partition(b"-")[0])
        run_id = fields[5].decode()
        if fields[1] in _MESSAGES and not withdrawn.has(position, run_id):
            data = orjson.loads(fields[9])
            said = data.get("message") or {"role": "user", "content": data["summary"]}
            found.append(
                LogMessage(
                    position,
                    Message.model_construct(**_as_fields(said)),
                    run_id=run_id,
                    nudge=data.get("nudge", False),
                    through=data.get("through", 0),
                    prompt_tokens=data.get("prompt_tokens", 0),
                    opaque=Opaque.from_stored(fields[11]) if len(fields) > 11 else None,
                )
            )
    return found


def _as_fields(message: dict[str, Any]) -> dict[str, Any]:
    if isinstance(message.get("content"), list):
        message["content"] = parts_from(message["content"])
    if "tool_calls" in message:
        message["tool_calls"] = tuple(ToolCall.model_construct(**call) for call in message["tool_calls"])
    return message


def _asking(spec: AgentSpec, model: int) -> AgentSpec:
    """The agent with the model that is asked now, it or one of its fallbacks."""
    return spec.model_copy(update={"model": spec.models[model]}) if model else spec
