"""Runs in every situation that a request may find them in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from palaver.steps.leases import Lease
from palaver.store.runs.runs import Submitted
from tests.contract.store_driver import PAUSE, PAUSE_NOW, TOOL_ERROR, StoreDriver


@dataclass
class Situation:
    """A run, the leases on its steps, and the lease of the run that is ahead of it."""

    run_id: str
    leases: tuple[Lease, ...] = ()
    ahead: Lease | None = None


async def _ready(driver: StoreDriver) -> Situation:
    return Situation((await driver.submit()).run_id)


async def _behind(driver: StoreDriver) -> Situation:
    _, lease = await driver.begin()
    return Situation((await driver.submit(conversation_id=lease.conversation_id)).run_id, ahead=lease)


async def _next(driver: StoreDriver) -> Situation:
    situation = await _behind(driver)
    assert situation.ahead is not None
    await driver.finish(situation.ahead)
    return Situation(situation.run_id)


async def _scheduled(driver: StoreDriver) -> Situation:
    submitted: Submitted = await driver.submit(start_after=datetime.now(UTC) + timedelta(hours=1))
    return Situation(submitted.run_id)


async def _model(driver: StoreDriver) -> Situation:
    run_id, lease = await driver.begin()
    return Situation(run_id, (lease,))


async def _tools(driver: StoreDriver) -> Situation:
    run_id, deliveries = await driver.turn("c1", "c2")
    return Situation(run_id, (await driver.claim(deliveries[0]),))


async def _backing_off(driver: StoreDriver) -> Situation:
    run_id, lease = await driver.begin()
    await driver.retry(lease)
    return Situation(run_id)


async def _tool_backing_off(driver: StoreDriver) -> Situation:
    run_id, (delivery,) = await driver.turn("c1")
    await driver.retry(await driver.claim(delivery), failure=TOOL_ERROR)
    return Situation(run_id)


async def _postponed(driver: StoreDriver) -> Situation:
    run_id, lease = await driver.begin()
    await driver.postpone(lease)
    return Situation(run_id)


async def _approval(driver: StoreDriver) -> Situation:
    return Situation((await driver.turn("p1", approval=["p1"]))[0])


async def _client(driver: StoreDriver) -> Situation:
    return Situation((await driver.turn("o1", client=["o1"]))[0])


async def _mixed(driver: StoreDriver) -> Situation:
    run_id, deliveries = await driver.turn("c1", "p1", "o1", approval=["p1"], client=["o1"])
    return Situation(run_id, (await driver.claim(deliveries[0]),))


SITUATIONS: dict[str, Callable[[StoreDriver], Awaitable[Situation]]] = {
    "ready": _ready,
    "behind": _behind,
    "next": _next,
    "scheduled": _scheduled,
    "model": _model,
    "tools": _tools,
    "backing off": _backing_off,
    "tool backing off": _tool_backing_off,
    "postponed": _postponed,
    "approval": _approval,
    "client": _client,
    "mixed": _mixed,
}
LEASED = ("model", "tools", "mixed")


async def put(driver: StoreDriver, name: str) -> Situation:
    """A run in that situation: ``paused behind`` is one that was paused when it was behind another, and so on."""
    how, _, rest = name.partition(" ")
    if how not in ("paused", "pausing", "aborting", "graceful", "cancelling", "ended"):
        return await SITUATIONS[name](driver)
    situation = await SITUATIONS[rest or "model"](driver)
    match how:
        case "paused" | "pausing":
            await driver.act(situation.run_id, PAUSE)
        case "aborting":
            await driver.act(situation.run_id, PAUSE_NOW)
        case "graceful" | "cancelling":
            await driver.store.runs.cancel(situation.run_id, mode="graceful" if how == "graceful" else "now")
        case "ended":
            await driver.give_up(situation.leases[0])
    return situation
