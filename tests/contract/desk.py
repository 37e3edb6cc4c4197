"""What clients, workers and sweepers do with the store, in a test's words."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import orjson

from palaver.errors import ErrorClass, Failure
from palaver.leases import Delivery, Lease, Settled, Stray
from palaver.lifecycle import StopReason
from palaver.models import AgentSpec, Event, Message, Run, Submission, ToolCall
from palaver.retry import RetryPolicy
from palaver.store import Store, keys
from palaver.store.due import Attention
from palaver.store.runs import Submitted
from palaver.verdicts import Continue, Finish, GiveUp, OpenCall, RetryAfter, ToolOutcome

AGENT = AgentSpec(model="fake/echo", instructions="Be brief.", tools=("calculator",))
RATE_LIMITED = Failure.of(ErrorClass.RATE_LIMITED)
INTERNAL = Failure.of(ErrorClass.INTERNAL)
TOOL_ERROR = Failure.of(ErrorClass.TOOL_ERROR, "division by zero")
NO_RETRIES = RetryPolicy()


class Desk:
    """Does one thing with the store at a time."""

    def __init__(self, store: Store, redis: Any) -> None:
        self.store = store
        self.redis = redis
        self._nonces = itertools.count()

    async def submit(self, input: str | tuple[Message, ...] = "hello", **more: Any) -> Submitted:
        """A run with the usual agent."""
        key = more.pop("idempotency_key", None)
        more.setdefault("agent", AGENT)
        return await self.store.runs.submit(Submission(input=input, **more), idempotency_key=key)

    async def begin(self, **more: Any) -> tuple[str, Lease]:
        """A run whose first step is leased: its id and the lease."""
        submitted = await self.submit(**more)
        return submitted.run_id, await self.claim(submitted.deliveries[0])

    async def try_claim(
        self, delivery: Delivery, worker: str = "w1", *, nonce: str | None = None, known: int = 0
    ) -> Lease | Stray:
        """What a worker is answered who was sent ``delivery``."""
        return await self.store.steps.claim(
            delivery.run_id,
            delivery.conversation_id,
            delivery.step,
            worker=worker,
            nonce=nonce or f"n{next(self._nonces)}",
            known=known if delivery.queue.startswith("model") else None,
        )

    async def claim(self, delivery: Delivery, worker: str = "w1", **more: Any) -> Lease:
        """The lease on what ``delivery`` asks for."""
        lease = await self.try_claim(delivery, worker, **more)
        assert isinstance(lease, Lease), lease
        return lease

    async def ask(self, lease: Lease, *ids: str, idempotent: Sequence[str] = ()) -> list[Delivery]:
        """The model asks for tools, all of them tool steps: their deliveries."""
        calls = tuple(ToolCall(id=call_id, name="calculator", arguments='{"x": 1}') for call_id in ids)
        message = Message(role="assistant", content="let me see", tool_calls=calls)
        opened = tuple(OpenCall(call, call.id in idempotent) for call in calls)
        settled = await self.store.steps.settle(lease, Continue(message, calls=opened))
        return list(settled.deliveries)

    async def turn(self, *ids: str, idempotent: Sequence[str] = ()) -> tuple[str, list[Delivery]]:
        """A run whose model asked for tools: its id and their deliveries."""
        run_id, lease = await self.begin()
        return run_id, await self.ask(lease, *ids, idempotent=idempotent)

    async def answer(self, lease: Lease, text: str = "42") -> Settled:
        """The tool answers."""
        assert lease.call is not None
        message = Message(role="tool", call_id=lease.call.id, name=lease.call.name, content=text)
        return await self.store.steps.settle(lease, Continue(outcomes=(ToolOutcome(message),)))

    async def finish(self, lease: Lease, reason: StopReason = StopReason.END_TURN, text: str = "bye") -> Settled:
        """The model ends its turn."""
        return await self.store.steps.settle(lease, Finish(Message(role="assistant", content=text), reason))

    async def retry(self, lease: Lease, delay: float = 60.0, failure: Failure = RATE_LIMITED) -> Settled:
        """The step is to be tried again."""
        return await self.store.steps.settle(lease, RetryAfter(delay, failure))

    async def give_up(self, lease: Lease, failure: Failure = INTERNAL) -> Settled:
        """The step is not tried again."""
        return await self.store.steps.settle(lease, GiveUp(failure, StopReason.ERROR))

    async def attend(self, run_id: str, what: str, **more: Any) -> list[Settled]:
        """A sweeper looks at something."""
        return await self.store.due.attend([Attention(run_id, what)], **more)

    async def hasten(self, run_id: str, what: str) -> list[Settled]:
        """The time of something in the due index has come, and a sweeper sees it."""
        index = keys.due(run_id[4:6])
        assert await self.redis.zscore(index, f"{run_id}/{what}") is not None, f"{what} is not due at all"
        await self.redis.zadd(index, {f"{run_id}/{what}": 1})
        return await self.attend(run_id, what)

    async def lose(self, lease: Lease) -> list[Settled]:
        """The lease's worker is known to have died."""
        worker = orjson.loads(await self.redis.hget(keys.steps(lease.run_id), lease.step))["worker"]
        return await self.attend(lease.run_id, lease.step, worker=worker)

    async def get(self, run_id: str) -> Run:
        """The run."""
        return await self.store.runs.get(run_id)

    async def events(self, run_id: str) -> Sequence[Event]:
        """All events of a run."""
        return await self.store.feeds.page(run_id)

    async def kinds(self, run_id: str) -> list[str]:
        """The types of a run's events."""
        return [event.type for event in await self.events(run_id)]

    async def results(self, run_id: str) -> list[tuple[str, str]]:
        """The call id and the text of each tool result, in the order of the log."""
        entries = await self.store.runs.entries((await self.get(run_id)).conversation_id, limit=1000)
        found = [entry.data["message"] for entry in entries if entry.type == "tool.finished"]
        return [(message["call_id"], message["content"]) for message in found]
