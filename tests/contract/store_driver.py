"""What clients, workers and sweepers do with the store, in a test's words."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from typing import Any

import orjson
from redis.exceptions import NoScriptError

from palaver.errors import ErrorClass, Failure
from palaver.processes.tasks import end
from palaver.schemas.actions import (
    ActionType,
    ApprovalDecision,
    Item,
    Pause,
    PendingAction,
    Resume,
    Steering,
    Stop,
    ToolOutput,
)
from palaver.schemas.models import AgentSpec, Message, Run, Submission, ToolCall, Usage
from palaver.steps.leases import Delivery, Lease, OfferedPlace, Settled, Stray
from palaver.steps.verdicts import Continue, Finish, GiveUp, HandBack, OpenCall, Postpone, RetryAfter, ToolOutcome
from palaver.store import Store
from palaver.store.fleet.fleet import Interruption
from palaver.store.reading.events import LogEntry, StoredEvent
from palaver.store.redis import fleet_keys, keys
from palaver.store.runs.control import Acted
from palaver.store.runs.runs import Submitted
from palaver.store.steps.due_items import DueItem
from palaver.telemetry.traces import Tracing
from palaver.vocabulary.ids import call_of
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from palaver.vocabulary.step_kinds import queue_in_broker
from tests.waiting import aeventually

AGENT = AgentSpec(model="fake/echo", instructions="Be brief.", tools=("calculator",))
RATE_LIMITED = Failure.of(ErrorClass.RATE_LIMITED)
INTERNAL = Failure.of(ErrorClass.INTERNAL)
TOOL_ERROR = Failure.of(ErrorClass.TOOL_ERROR, "division by zero")
PAUSE, PAUSE_NOW, RESUME = Pause(type="pause"), Pause(type="pause", now=True), Resume(type="resume")
STOP = Stop(type="stop")
OWN = "gpu"
"""A queue that tools name."""


def approve(action_id: str = "all", **more: Any) -> ApprovalDecision:
    """Let a call begin."""
    return ApprovalDecision(type="approval", action_id=action_id, decision="approve", **more)


def deny(action_id: str = "all", reason: str | None = None) -> ApprovalDecision:
    """Do not let it."""
    return ApprovalDecision(type="approval", action_id=action_id, decision="deny", reason=reason)


def edit(action_id: str, **arguments: Any) -> ApprovalDecision:
    """Let it begin with other arguments."""
    return ApprovalDecision(type="approval", action_id=action_id, decision="edit", arguments=arguments)


def output(call_id: str, value: Any = "seen", *, is_error: bool = False) -> ToolOutput:
    """What a client's tool answered."""
    return ToolOutput(type="tool_output", call_id=call_id, output=value, is_error=is_error)


def say(text: str) -> Steering:
    """The user's words into a run."""
    return Steering(type="message", content=text)


def calls(
    *ids: str,
    idempotent: Sequence[str] = (),
    approval: Sequence[str] = (),
    client: Sequence[str] = (),
    timeout: float = 3600.0,
    second_person: Sequence[str] = (),
    queue: str | None = None,
    at_hand: Sequence[str] = (),
) -> Continue:
    """The model's message that asks for tools, all of them tool steps; some wait for an approval, perhaps that of a
    second person, or a client's output first. ``queue`` is the one that the tool names; the worker has the tools of
    calls that are ``at_hand``."""
    asked = tuple(ToolCall(id=call_id, name="calculator", arguments='{"x": 1}') for call_id in ids)
    opened = []
    for call in asked:
        awaits: ActionType | None = "approval" if call.id in approval else "client_tool" if call.id in client else None
        by_other = call.id in second_person
        wait = timeout if awaits else 0.0
        how: dict[str, Any] = {"second_person": by_other, "queue": queue, "at_hand": call.id in at_hand}
        opened.append(OpenCall(call, call.id in idempotent, awaits, wait, **how))
    return Continue(Message(role="assistant", content="let me see", tool_calls=asked), calls=tuple(opened))


class StoreDriver:
    """Does one thing with the store at a time."""

    def __init__(self, store: Store, redis: Any) -> None:
        self.store = store
        self.redis = redis
        self._nonces = itertools.count()

    async def submit(self, input: str | tuple[Message, ...] = "hello", **more: Any) -> Submitted:
        """A run with the usual agent, in a trace of its own."""
        how = {name: more.pop(name) for name in ("idempotency_key", "begins", "seen_agent", "show") if name in more}
        more.setdefault("agent", AGENT)
        with Tracing().request(None):
            return await self.store.runs.submit(Submission(input=input, **more), **how)

    async def begin(self, **more: Any) -> tuple[str, Lease]:
        """A run whose first step is leased: its id and the lease."""
        submitted = await self.submit(**more)
        return submitted.run_id, await self.claim(submitted.deliveries[0])

    async def try_claim(
        self, delivery: Delivery, worker: str = "w1", *, nonce: str | None = None, known: int = 0
    ) -> Lease | Stray:
        """What a worker is answered who was sent ``delivery``."""
        at = await self.redis.xrange(keys.log(delivery.conversation_id), f"{known}-0", f"{known}-0") if known else ()
        return await self.store.steps.claim(
            delivery.run_id,
            delivery.conversation_id,
            delivery.step,
            queues=(queue_in_broker(delivery.queue) or "",),
            worker=worker,
            nonce=nonce or f"n{next(self._nonces)}",
            known=None if call_of(delivery.step) else known,
            known_at=int(at[0][1][b"at"]) if at else 0,
        )

    async def claim(self, delivery: Delivery, worker: str = "w1", **more: Any) -> Lease:
        """The lease on what ``delivery`` asks for."""
        lease = await self.try_claim(delivery, worker, **more)
        assert isinstance(lease, Lease), lease
        return lease

    async def first_of(self, run_id: str) -> Delivery:
        """The delivery of a run's first step, also where that waits for its turn yet."""
        return Delivery("model", run_id, (await self.get(run_id)).conversation_id, "1", 1)

    async def place(
        self, lease: Lease, worker: str = "w1", *, nonce: str | None = None, known: int = 0
    ) -> OfferedPlace:
        """What a worker offers with its verdict that would go on with the run of ``lease``."""
        at = await self.redis.xrange(keys.log(lease.conversation_id), f"{known}-0", f"{known}-0") if known else ()
        position_at = int(at[0][1][b"at"]) if at else 0
        return OfferedPlace(worker, nonce or f"n{next(self._nonces)}", 30.0, known, position_at, queues="model tools")

    async def ask(self, lease: Lease, *ids: str, **how: Any) -> list[Delivery]:
        """The model asks for tools, as ``calls`` has them: the deliveries of those that begin at once."""
        return list((await self.store.steps.settle(lease, calls(*ids, **how))).deliveries)

    async def turn(self, *ids: str, **how: Any) -> tuple[str, list[Delivery]]:
        """A run whose model asked for tools: its id and their deliveries."""
        run_id, lease = await self.begin()
        return run_id, await self.ask(lease, *ids, **how)

    async def act(self, run_id: str, *items: Item, **more: Any) -> Acted:
        """Put something into a run."""
        return await self.store.control.act(run_id, items, **more)

    async def action(self, run_id: str, call_id: str) -> PendingAction:
        """The pending action of a call."""
        return {action.call_id: action for action in (await self.get(run_id)).pending_actions}[call_id]

    async def is_heard(self, channel: str) -> bool:
        """Whether somebody listens to ``channel``."""
        ((_, listeners),) = await self.redis.pubsub_numsub(channel)
        return bool(listeners)

    @contextlib.asynccontextmanager
    async def hearing(self, worker: str) -> AsyncIterator[Sequence[Interruption]]:
        """What a worker hears, as it comes."""
        listener, heard = self.store.fleet.cancels(worker), list[Interruption]()

        async def listen() -> None:
            async for each in listener.listen():
                heard.append(each)

        listening = asyncio.create_task(listen())
        try:
            await aeventually(lambda: self.is_heard(fleet_keys.cancel_channel(worker)))
            yield heard
        finally:
            await end(listening)
            await listener.close()

    @contextlib.contextmanager
    def answers_get_lost(self) -> Iterator[None]:
        """The client library runs every script twice with the same arguments, as if the first answer had been lost."""
        evalsha = self.redis.evalsha

        async def twice(*args: Any) -> Any:
            with contextlib.suppress(NoScriptError):
                await evalsha(*args)
            return await evalsha(*args)

        self.redis.evalsha = twice
        try:
            yield
        finally:
            self.redis.evalsha = evalsha

    async def answer(
        self, lease: Lease, text: str = "42", *, ends_run: bool = False, place: OfferedPlace | None = None
    ) -> Settled:
        """The tool answers, perhaps one that ends the run, and perhaps its worker would go on."""
        assert lease.call is not None
        message = Message(role="tool", call_id=lease.call.id, name=lease.call.name, content=text)
        answered = Continue(outcomes=(ToolOutcome(message, ends_run=ends_run),))
        return await self.store.steps.settle(lease, answered, place=place)

    async def finish(self, lease: Lease, reason: StopReason = StopReason.END_TURN, text: str = "bye") -> Settled:
        """The model ends its turn."""
        return await self.store.steps.settle(lease, Finish(Message(role="assistant", content=text), reason))

    async def retry(self, lease: Lease, delay: float = 60.0, failure: Failure = RATE_LIMITED) -> Settled:
        """The step is to be tried again."""
        return await self.store.steps.settle(lease, RetryAfter(delay, failure))

    async def give_up(self, lease: Lease, failure: Failure = INTERNAL) -> Settled:
        """The step is not tried again."""
        return await self.store.steps.settle(lease, GiveUp(failure, StopReason.ERROR))

    async def hand_back(self, lease: Lease, *, begun: bool = True, usage: Usage | None = None) -> Settled:
        """The worker stops."""
        return await self.store.steps.settle(lease, HandBack(begun, usage or Usage()))

    async def postpone(self, lease: Lease, seconds: float = 60.0, code: str = "cooldown") -> Settled:
        """The provider has no room."""
        return await self.store.steps.settle(lease, Postpone(seconds, code))

    async def sweep(self, run_id: str, what: str, **more: Any) -> list[Settled]:
        """A sweeper looks at something."""
        return await self.store.due.sweep([DueItem(run_id, what)], **more)

    async def behind(self, moment: datetime) -> None:
        """Wait until it has passed, by the store's clock."""

        async def passed() -> bool:
            return await self.store.runs.now() > moment

        await aeventually(passed)

    async def hasten(self, run_id: str, what: str) -> list[Settled]:
        """The time of something in the due index has come, and a sweeper sees it."""
        index = keys.due(run_id[4:6])
        assert await self.redis.zscore(index, f"{run_id}/{what}") is not None, f"{what} is not due at all"
        await self.redis.zadd(index, {f"{run_id}/{what}": 1})
        return await self.sweep(run_id, what)

    async def lose(self, lease: Lease) -> list[Settled]:
        """The lease's worker is known to have died."""
        worker = orjson.loads(await self.redis.hget(keys.steps(lease.run_id), lease.step))["worker"]
        return await self.sweep(lease.run_id, lease.step, worker=worker)

    async def drive_to_the_end(self, runs: Sequence[str]) -> None:
        """Nobody asks for anything any more, time passes, and one good worker is left: every run must end."""
        for run_id in runs:
            run = await self.get(run_id)
            if run.pausing or run.status is RunStatus.PAUSED:
                await self.act(run_id, RESUME)
        for _ in range(200):
            came_due = await self._everything_comes_due()
            found = []
            for queue in ("model", "tools", OWN):
                found += await self.store.due.unclaimed(queue, -60, 100)
            if not found and not came_due:
                break
            for settled in await self.store.due.sweep(found, unclaimed_after=-60):
                for delivery in settled.deliveries:
                    lease = await self.try_claim(delivery, "good")
                    if isinstance(lease, Lease):
                        await (self.finish(lease) if lease.call is None else self.answer(lease))
        for run_id in runs:
            status = (await self.get(run_id)).status
            assert status.terminal, f"{run_id} is {status}"

    async def _everything_comes_due(self) -> bool:
        members = [m.decode() for m in await self.redis.zrange(keys.due("00"), 0, -1)]
        things = [DueItem(*m.split("/", 1)) for m in members if not m.endswith("/end")]
        if things:
            await self.redis.zadd(keys.due("00"), {f"{thing.run_id}/{thing.what}": 1 for thing in things})
            await self.store.due.sweep(things)
        return bool(things)

    async def get(self, run_id: str) -> Run:
        """The run."""
        return await self.store.runs.get(run_id)

    async def waiting_input(self, run_id: str) -> list[Any]:
        """What a run was to say, and what was said into it, as long as its turn has not come."""
        input, steer = await self.redis.hmget(keys.run(run_id), ("input", "steer"))
        texts = orjson.loads(input) + orjson.loads(steer or b"[]") if input else []
        return [orjson.loads(text)["content"] for text in texts]

    async def events(self, run_id: str) -> Sequence[StoredEvent]:
        """All events of a run, however many pages they are."""
        found: list[StoredEvent] = []
        while page := await self.store.feeds.page(run_id, after=found[-1].seq if found else 0):
            found += page
        return found

    async def kinds(self, run_id: str) -> list[str]:
        """The types of a run's events."""
        return [event.type for event in await self.events(run_id)]

    async def results(self, run_id: str) -> list[tuple[str, str]]:
        """The call id and the text of each tool result, in the order of the log."""
        found = [entry.data["message"] for entry in await self.log(run_id) if entry.type == "tool.finished"]
        return [(message["call_id"], message["content"]) for message in found]

    async def log(self, run_id: str) -> Sequence[LogEntry]:
        """The log of the run's conversation."""
        return await self.store.runs.entries((await self.get(run_id)).conversation_id, limit=1000)

    async def anew(self, lease: Lease) -> Lease:
        """The same lease of a model step, as it is told to a worker that knows nothing."""
        step = orjson.loads(await self.redis.hget(keys.steps(lease.run_id), lease.step))
        delivery = Delivery("model", lease.run_id, lease.conversation_id, lease.step, 1)
        return await self.claim(delivery, step["worker"], nonce=step["nonce"])

    async def everything(self) -> dict[str, Any]:
        """What all keys hold, but for counts, statistics and what traces are still to be told: these outlive runs."""
        found: dict[str, Any] = {}
        for name in await self.redis.keys("*"):
            if name.endswith((b":spans", b":counts", b":journal", b":statistics")):
                continue
            match await self.redis.type(name):
                case b"hash":
                    found[name] = await self.redis.hgetall(name)
                case b"stream":
                    found[name] = await self.redis.xrange(name)
                case _:
                    found[name] = await self.redis.zrange(name, 0, -1, withscores=True)
        return found

    def said(self, lease: Lease) -> list[str]:
        """What of the conversation a worker is told with this lease."""
        return [entry.message.text for entry in lease.log.entries]
