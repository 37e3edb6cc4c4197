"""What a step costs Redis behind logs of different lengths, asked for by one client at one pace.

A worker with a long conversation has more to do between two steps, and a server that was left alone for some
milliseconds needs more CPU for the same commands: its scripts and its data have gone from the caches. Here nothing but
the log differs, and the same steps are made without a pause and with one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from redis.asyncio import Redis

from bench.conversation import TOOL
from bench.history import ANSWERED, ASKED, conversation
from bench.leasing import USED, lease
from bench.report import Table
from bench.server_work import ServerWork
from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.schemas.models import AgentSpec, Message, Submission, ToolCall
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Continue, Finish, ToolOutcome
from palaver.store import Store
from palaver.vocabulary.lifecycle import StopReason

_AGENT: Final = AgentSpec(model="fake/tool-20", tools=(TOOL,))
_PAUSES: Final = (0.0, 0.02)
"""Seconds before each step."""
_STEPS: Final = 40
"""Of each run that are measured: 80 messages more."""
_BEFORE: Final = 5
"""Steps of each run that are not: its first claim has read the whole log."""
_TURNS: Final = 7
"""Each with logs of their own, which are there before anything is measured: to write them leaves the server busy."""


async def _begin(store: Store, said: tuple[Message, ...], place: str | None) -> Lease:
    """Submit a run, and lease its first step."""
    (due,) = (await store.runs.submit(Submission(agent=_AGENT, input=said, conversation_id=place))).deliveries
    return await lease(store, due)


async def _go_on(store: Store, held: Lease, pause: float) -> Lease:
    """Let the model ask for a tool that answers at once; after a pause, lease the next step."""
    call = ToolCall(id=f"call_{held.step}", name=TOOL, arguments='{"expression": "6*7"}')
    asks = Message(role="assistant", tool_calls=(call,))
    result = ToolOutcome(Message(role="tool", call_id=call.id, name=call.name, content="42"))
    (due,) = (await store.steps.settle(held, Continue(asks, outcomes=(result,), usage=USED))).deliveries
    await asyncio.sleep(pause)
    return await lease(store, due, held.log.position, held.log.position_at)


async def _end(store: Store, held: Lease) -> None:
    """Let the model end its turn."""
    await store.steps.settle(held, Finish(ANSWERED, StopReason.END_TURN, USED))


async def measure(messages: Sequence[int]) -> Table:
    """Measure behind so many messages. Raises BenchError."""
    taken: Mapping[tuple[int, float], list[ServerWork]] = {(many, pause): [] for pause in _PAUSES for many in messages}
    with RedisServer() as server:
        async with Redis.from_url(server.url) as redis, Store.connect(Settings(redis_url=server.url)) as store:

            async def say(said: tuple[Message, ...], place: str | None) -> str:
                held = await _begin(store, said, place)
                await _end(store, held)
                return held.conversation_id

            logs = [{kind: await conversation(kind[0], say) for kind in taken} for _ in range(_TURNS)]
            for turn in logs:
                for (many, pause), place in turn.items():
                    taken[many, pause].append(await _steps(store, redis, place, pause))
    table = Table(
        f"What a step costs Redis, by messages before the run, asked for by one client ({_TURNS} times)",
        ("", "commands", *(f"{what}, {_said(pause)}" for pause in _PAUSES for what in ("CPU us", "in scripts"))),
        note="The same claims and settles, one after the other; a step with a tool call that is answered at once. "
        "Nothing but the length of the log differs, and how long the server was left alone before each claim. What "
        "it does while it is left alone is counted in.",
    )
    for many in messages:
        works = [taken[many, pause] for pause in _PAUSES]
        row = [f"{many:,}", f"{median(work.commands for each in works for work in each) / _STEPS:.1f}"]
        for each in works:
            row += [_us(work.cpu for work in each), _us(work.in_scripts for work in each)]
        table.rows.append(row)
    return table


async def _steps(store: Store, redis: Redis, place: str, pause: float) -> ServerWork:
    """What the steps of a run in a conversation cost."""
    held = await _begin(store, (ASKED,), place)
    for _ in range(_BEFORE):
        held = await _go_on(store, held, pause)
    before = await ServerWork.of(redis)
    for _ in range(_STEPS):
        held = await _go_on(store, held, pause)
    work = await ServerWork.of(redis) - before
    await _end(store, held)
    return work


def _said(pause: float) -> str:
    return f"{1e3 * pause:.0f} ms apart" if pause else "at once"


def _us(seconds: Iterable[float]) -> str:
    """The one in the middle, a step, in microseconds."""
    return f"{1e6 * median(seconds) / _STEPS:.0f}"
