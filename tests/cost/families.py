"""Calls of agents with as many other runs beside them as there may be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import orjson

from palaver.schemas.models import AgentSpec, Message, Subagent, ToolCall
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Continue, OpenCall, Postpone
from palaver.store.redis import keys
from palaver.store.runs.children import child_id
from palaver.vocabulary.lifecycle import WaitReason
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.step_kinds import REMOTE
from tests.contract.store_driver import AGENT, StoreDriver, calls, deny

Act = Callable[[], Awaitable[object]]
BELOW = Subagent(agent=AGENT)
LEAD = AgentSpec(model="fake/echo", tools=("agent_a",), subagents={"agent_a": BELOW})


async def _call(driver: StoreDriver, n: int) -> tuple[str, Lease]:
    """A run whose ``n`` calls of agents are ready: its id, and the lease of the first."""
    run_id, lease = await driver.begin(agent=LEAD)
    asked = tuple(ToolCall(id=f"c{i}", name="agent_a", arguments='{"message": "look"}') for i in range(n))
    opened = tuple(OpenCall(call, idempotent=True, kind=REMOTE) for call in asked)
    verdict = Continue(Message(role="assistant", tool_calls=asked), calls=opened)
    settled = await driver.store.steps.settle(lease, verdict)
    return run_id, await driver.claim(settled.deliveries[0])


async def _with_siblings(driver: StoreDriver, run_id: str, n: int) -> None:
    kept = orjson.loads(await driver.redis.hget(keys.run(run_id), "children") or b"[]")
    more = [
        {"run_id": f"run_{i:032}", "step": f"1/x{i}", "agent": "researcher", "status": "completed"} for i in range(n)
    ]
    await driver.redis.hset(keys.run(run_id), "children", orjson.dumps([*more, *kept]))


async def begin_child(driver: StoreDriver, n: int) -> Act:
    """A call begins a run."""
    run_id, lease = await _call(driver, 1)
    await _with_siblings(driver, run_id, n)
    return lambda: driver.store.children.begin(lease, BELOW, "look")


async def end_child(driver: StoreDriver, n: int) -> Act:
    """The run of a call ends."""
    run_id, lease = await _call(driver, 1)
    begun = await driver.store.children.begin(lease, BELOW, "look")
    await driver.store.steps.settle(lease, Postpone(60.0, child_id(lease), WaitReason.AGENT_RUN))
    await _with_siblings(driver, run_id, n)
    child = await driver.claim(begun.deliveries[0])
    return lambda: driver.finish(child)


async def cancel_parent(driver: StoreDriver, n: int) -> Act:
    """A run ends whose calls have begun runs."""
    run_id, _ = await _call(driver, n)
    steps = await driver.redis.hgetall(keys.steps(run_id))
    for number, (name, text) in enumerate(steps.items()):
        await driver.redis.hset(
            keys.steps(run_id), name, orjson.dumps({**orjson.loads(text), "child": f"run_{number:032}"})
        )
    return lambda: driver.store.runs.cancel(run_id)


async def look_at_parent(driver: StoreDriver, n: int) -> Act:
    """A run whose parent has ended looks at it, and seals its own calls."""
    run_id, lease = await _call(driver, 1)
    begun = await driver.store.children.begin(lease, BELOW, "look")
    await driver.store.steps.settle(lease, Postpone(60.0, child_id(lease), WaitReason.AGENT_RUN))
    child = await driver.claim(begun.deliveries[0])
    await driver.ask(child, *(f"c{i}" for i in range(n)))
    await driver.store.runs.cancel(run_id)
    return lambda: driver.sweep(child.run_id, "parent")


async def _below(driver: StoreDriver, lease: Lease) -> Lease:
    """The first step of a run that a call of the leased step begins."""
    asked = ToolCall(id="c1", name="agent_a", arguments='{"message": "look"}')
    verdict = Continue(
        Message(role="assistant", tool_calls=(asked,)), calls=(OpenCall(asked, idempotent=True, kind=REMOTE),)
    )
    settled = await driver.store.steps.settle(lease, verdict)
    called = await driver.claim(settled.deliveries[0])
    begun = await driver.store.children.begin(called, BELOW, "look")
    await driver.store.steps.settle(called, Postpone(60.0, child_id(called), WaitReason.AGENT_RUN))
    return await driver.claim(begun.deliveries[0])


async def _at_the_bottom(driver: StoreDriver) -> tuple[str, Lease]:
    """The top of a tree that is as deep as it may be, and the lease of the run at its end."""
    run_id, lease = await driver.begin(agent=LEAD)
    for _ in range(limit_of("subagent_depth")):
        lease = await _below(driver, lease)
    return run_id, lease


async def wait_below(driver: StoreDriver, n: int) -> Act:
    """Calls wait below as many runs as there may be."""
    _, lease = await _at_the_bottom(driver)
    ids = [f"c{i}" for i in range(n)]
    return lambda: driver.store.steps.settle(lease, calls(*ids, approval=ids))


async def deny_below(driver: StoreDriver, n: int) -> Act:
    """They are answered."""
    _, lease = await _at_the_bottom(driver)
    ids = [f"c{i}" for i in range(n)]
    await driver.ask(lease, *ids, approval=ids)
    return lambda: driver.store.control.act(lease.run_id, [deny("all", "no")])
