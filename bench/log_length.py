"""What a step costs Redis behind logs of different lengths, asked for by one client at one pace.

A worker with a long conversation has more to do between two steps, and a server that was left alone for some
milliseconds needs more CPU for the same commands: its scripts and its data have gone from the caches. Here nothing but
the log differs, and the same steps are made without a pause and with one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from redis.asyncio import Redis

from bench.asked import BenchError
from bench.conversation import TOOL
from bench.history import ANSWERED, ASKED, inputs
from bench.report import Table
from bench.server_work import ServerWork
from palaver.leases import Delivery, Lease
from palaver.lifecycle import StopReason
from palaver.models import AgentSpec, Message, Submission, ToolCall, Usage
from palaver.settings import Settings
from palaver.store import Store
from palaver.testing.redis_server import RedisServer
from palaver.verdicts import Continue, Finish, ToolOutcome

_AGENT: Final = AgentSpec(model="fake/tool-20", tools=(TOOL,))
_USAGE: Final = Usage(input_tokens=700, output_tokens=40, model_calls=1, cost_usd=0.001)
_PAUSES: Final = (0.0, 0.02)
"""Seconds before each step."""
_STEPS: Final = 40
"""Of each run that are measured: 80 messages more."""
_BEFORE: Final = 5
"""Steps of each run that are not: its first claim has read the whole log."""
_TURNS: Final = 7
"""Each with logs of their own, which are there before anything is measured: to write them leaves the server busy."""


class _Driver:
    """Does what a worker does to the store, and nothing else."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._claims = 0

    async def conversation(self, messages: int) -> str:
        """One with so many messages."""
        conversation: str | None = None
        for said in inputs(messages):
            lease = await self.begin(said, conversation)
            await self.end(lease)
            conversation = lease.conversation_id
        if conversation is None:
            raise BenchError("a conversation has at least two messages")
        return conversation

    async def begin(self, said: tuple[Message, ...], conversation: str | None) -> Lease:
        """Submit a run, and lease its first step."""
        submitted = await self._store.runs.submit(Submission(agent=_AGENT, input=said, conversation_id=conversation))
        return await self._claim(submitted.deliveries, 0, 0)

    async def go_on(self, lease: Lease, pause: float) -> Lease:
        """Let the model ask for a tool that answers at once; after a pause, lease the next step."""
        call = ToolCall(id=f"call_{lease.step}", name=TOOL, arguments='{"expression": "6*7"}')
        asks = Message(role="assistant", tool_calls=(call,))
        result = ToolOutcome(Message(role="tool", call_id=call.id, name=call.name, content="42"))
        settled = await self._store.steps.settle(lease, Continue(asks, outcomes=(result,), usage=_USAGE))
        await asyncio.sleep(pause)
        return await self._claim(settled.deliveries, lease.position, lease.position_at)

    async def end(self, lease: Lease) -> None:
        """Let the model end its turn."""
        await self._store.steps.settle(lease, Finish(ANSWERED, StopReason.END_TURN, _USAGE))

    async def _claim(self, deliveries: Sequence[Delivery], known: int, known_at: int) -> Lease:
        (due,) = deliveries
        self._claims += 1
        lease = await self._store.steps.claim(
            due.run_id,
            due.conversation_id,
            due.step,
            queue=due.queue,
            worker="bench",
            nonce=str(self._claims),
            known=known,
            known_at=known_at,
        )
        if not isinstance(lease, Lease):
            raise BenchError(f"a step could not be leased: {lease}")
        return lease


async def measure(messages: Sequence[int]) -> Table:
    """Measure behind so many messages. Raises BenchError."""
    taken: Mapping[tuple[int, float], list[ServerWork]] = {(many, pause): [] for pause in _PAUSES for many in messages}
    with RedisServer() as server:
        async with Redis.from_url(server.url) as redis, Store.connect(Settings(redis_url=server.url)) as store:
            driver = _Driver(store)
            logs = [{kind: await driver.conversation(kind[0]) for kind in taken} for _ in range(_TURNS)]
            for turn in logs:
                for (many, pause), conversation in turn.items():
                    taken[many, pause].append(await _steps(driver, redis, conversation, pause))
    table = Table(
        f"What a step costs Redis, by messages before the run, asked for by one client ({_TURNS} times)",
        ("", "commands", *(f"{what}, {_said(pause)}" for pause in _PAUSES for what in ("CPU us", "in scripts"))),
        note="The same claims and settles, one after the other; a step with a tool call that is answered at once. "
        "Nothing but the length of the log differs, and how long the server was left alone before each claim. What "
        "it does while it is left alone is counted in.",
    )
    for many in messages:
        commands = median(work.commands for pause in _PAUSES for work in taken[many, pause])
        columns = (of(taken[many, pause]) for pause in _PAUSES for of in (_cpu, _in_scripts))
        table.rows.append((f"{many:,}", f"{commands / _STEPS:.1f}", *columns))
    return table


async def _steps(driver: _Driver, redis: Redis, conversation: str, pause: float) -> ServerWork:
    """What the steps of a run in the conversation cost."""
    lease = await driver.begin((ASKED,), conversation)
    for _ in range(_BEFORE):
        lease = await driver.go_on(lease, pause)
    before = await ServerWork.of(redis)
    for _ in range(_STEPS):
        lease = await driver.go_on(lease, pause)
    work = await ServerWork.of(redis) - before
    await driver.end(lease)
    return work


def _said(pause: float) -> str:
    return f"{1e3 * pause:.0f} ms apart" if pause else "at once"


def _cpu(works: Sequence[ServerWork]) -> str:
    return f"{1e6 * median(work.cpu for work in works) / _STEPS:.0f}"


def _in_scripts(works: Sequence[ServerWork]) -> str:
    return f"{1e6 * median(work.in_scripts for work in works) / _STEPS:.0f}"
