"""`python -m bench.store_cost [--runs N] [--durability CLASS]`: what each call of the store costs, here and in Redis.

One client, one call after the other, on a server of its own. "Client" is CPU time of this process for a call, event
loop and redis-py included; "Redis" is the time that the server spent in scripts, from INFO commandstats.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from redis.asyncio import Redis

from bench.leasing import USED, lease
from bench.report import Table
from features.stack.ports import HOST
from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.schemas.models import AgentSpec, Message, Submission, ToolCall
from palaver.steps.leases import Delivery, Delta, Lease
from palaver.steps.verdicts import Continue, Finish, OpenCall, ToolOutcome
from palaver.store import Store
from palaver.vocabulary.lifecycle import StopReason

T = TypeVar("T")
AGENT = AgentSpec(model="fake/tool-20", instructions="You are a careful assistant. " * 20, tools=("calculator",))
BATCH = 100


class Meter:
    """Measures phases, one row each."""

    def __init__(self, redis: Redis, store: Store) -> None:
        self.store = store
        self.rows: list[Sequence[str]] = []
        self._redis = redis

    async def each(
        self, what: str, things: Sequence[T], act: Callable[[T], Awaitable[object]], per: int = 1
    ) -> list[object]:
        """``act`` on each of ``things``; ``per`` units of work in one call. The answers."""
        await self._redis.config_resetstat()
        cpu, wall = time.process_time(), time.perf_counter()
        answers = [await act(thing) for thing in things]
        units = len(things) * per
        cpu, wall = (time.process_time() - cpu) / units, (time.perf_counter() - wall) / units
        stats = await self._redis.info("commandstats")
        scripts = [stats.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in ("evalsha", "eval")]
        server = sum(scripts) / units
        self.rows.append((what, f"{cpu * 1e6:.0f}", f"{server:.0f}", f"{wall * 1e6:.0f}"))
        return answers

    async def claim(self, delivery: Delivery) -> Lease:
        """The lease on a step; the worker knows nothing of its conversation."""
        return await lease(self.store, delivery, None if "/" in delivery.step else 0)


async def measure(runs: int, durability: str) -> Table:
    """Runs of one tool call each, phase by phase. The server has a replica on this machine."""
    with RedisServer() as server, RedisServer() as replica:
        settings = Settings(redis_url=server.url, durability=durability)
        redis = Redis.from_url(server.url)
        async with Redis.from_url(replica.url) as follower:
            await redis.config_set("repl-diskless-sync-delay", 0)
            await follower.replicaof(HOST, str(server.port))
        await redis.set("replicated", 1, px=1)
        await redis.wait(1, 20_000)
        async with Store.connect(settings) as store:
            table = await _phases(Meter(redis, store), runs)
        await redis.aclose()
        return table


async def _phases(meter: Meter, runs: int) -> Table:
    steps, message = meter.store.steps, Message(role="assistant", content="The sum is 42. " * 8)
    call = ToolCall(id="call_1", name="calculator", arguments='{"expression": "6*7"}')
    asks = Continue(Message(role="assistant", tool_calls=(call,)), calls=(OpenCall(call, True),), usage=USED)
    result = Message(role="tool", call_id=call.id, name=call.name, content="42")
    body = Submission(agent=AGENT, input="What is six times seven? " * 8)

    def delta(lease: Lease) -> Delta:
        return Delta(lease, "the quick brown fox")

    async def settle(pairs: Sequence[Lease], what: str, verdict: Continue | Finish) -> list[Delivery]:
        answers = await meter.each(what, pairs, lambda lease: steps.settle(lease, verdict))
        return [delivery for answer in answers for delivery in answer.deliveries]  # type: ignore[attr-defined]

    async def claim(what: str, deliveries: Sequence[Delivery]) -> list[Lease]:
        return await meter.each(what, deliveries, meter.claim)  # type: ignore[return-value]

    await meter.store.runs.submit(body)
    submitted = await meter.each("submit", range(runs), lambda _: meter.store.runs.submit(body))
    leases = await claim("claim a model step", [d for s in submitted for d in s.deliveries])  # type: ignore[attr-defined]
    await meter.each("show one delta", leases, lambda lease: steps.write_deltas([delta(lease)]))
    batches = [leases[i : i + BATCH] for i in range(0, len(leases) - BATCH + 1, BATCH)]
    await meter.each(
        f"show a delta, {BATCH} at once",
        batches,
        lambda batch: steps.write_deltas([delta(lease) for lease in batch]),
        BATCH,
    )
    await meter.each(
        f"renew a lease, {BATCH} at once",
        batches,
        steps.renew,
        BATCH,
    )
    tools = await claim("claim a tool step", await settle(leases, "settle: a tool is asked for", asks))
    answered = await settle(tools, "settle: the tool answers", Continue(outcomes=(ToolOutcome(result),)))
    last = await claim("claim the next model step", answered)
    await settle(last, "settle: the run ends", Finish(message, StopReason.END_TURN, USED))
    await meter.each("read a run", last, lambda lease: meter.store.runs.get(lease.run_id))
    await meter.each("read its events", last, lambda lease: meter.store.feeds.page(lease.run_id))
    return Table("What the store costs", ("call", "client, us", "Redis, us", "elapsed, us"), meter.rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.store_cost")
    parser.add_argument("--runs", type=int, default=2000, help="runs to make (default: 2000)")
    parser.add_argument("--durability", default="server", help="server (default), fsync or replicas=1")
    options = parser.parse_args()
    print(asyncio.run(measure(options.runs, options.durability)).markdown())


if __name__ == "__main__":
    main()
