"""Runs in every situation that a request may find them in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from palaver.leases import Lease
from palaver.store.runs import Submitted
from tests.contract.desk import PAUSE, PAUSE_NOW, TOOL_ERROR, Desk


@dataclass
class Standing:
    """A run, the leases on its steps, and the lease of the run that is ahead of it."""

    run_id: str
    leases: tuple[Lease, ...] = ()
    ahead: Lease | None = None


async def _ready(desk: Desk) -> Standing:
    return Standing((await desk.submit()).run_id)


async def _behind(desk: Desk) -> Standing:
    _, lease = await desk.begin()
    return Standing((await desk.submit(conversation_id=lease.conversation_id)).run_id, ahead=lease)


async def _next(desk: Desk) -> Standing:
    standing = await _behind(desk)
    assert standing.ahead is not None
    await desk.finish(standing.ahead)
    return Standing(standing.run_id)


async def _scheduled(desk: Desk) -> Standing:
    submitted: Submitted = await desk.submit(start_after=datetime.now(UTC) + timedelta(hours=1))
    return Standing(submitted.run_id)


async def _model(desk: Desk) -> Standing:
    run_id, lease = await desk.begin()
    return Standing(run_id, (lease,))


async def _tools(desk: Desk) -> Standing:
    run_id, deliveries = await desk.turn("c1", "c2")
    return Standing(run_id, (await desk.claim(deliveries[0]),))


async def _backing_off(desk: Desk) -> Standing:
    run_id, lease = await desk.begin()
    await desk.retry(lease)
    return Standing(run_id)


async def _tool_backing_off(desk: Desk) -> Standing:
    run_id, (delivery,) = await desk.turn("c1")
    await desk.retry(await desk.claim(delivery), failure=TOOL_ERROR)
    return Standing(run_id)


async def _postponed(desk: Desk) -> Standing:
    run_id, lease = await desk.begin()
    await desk.postpone(lease)
    return Standing(run_id)


async def _approval(desk: Desk) -> Standing:
    return Standing((await desk.turn("p1", approval=["p1"]))[0])


async def _client(desk: Desk) -> Standing:
    return Standing((await desk.turn("o1", client=["o1"]))[0])


async def _mixed(desk: Desk) -> Standing:
    run_id, deliveries = await desk.turn("c1", "p1", "o1", approval=["p1"], client=["o1"])
    return Standing(run_id, (await desk.claim(deliveries[0]),))


SITUATIONS: dict[str, Callable[[Desk], Awaitable[Standing]]] = {
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


async def put(desk: Desk, situation: str) -> Standing:
    """A run in that situation: ``paused behind`` is one that was paused when it was behind another, and so on."""
    how, _, rest = situation.partition(" ")
    if how not in ("paused", "pausing", "aborting", "graceful", "cancelling", "ended"):
        return await SITUATIONS[situation](desk)
    standing = await SITUATIONS[rest or "model"](desk)
    match how:
        case "paused" | "pausing":
            await desk.act(standing.run_id, PAUSE)
        case "aborting":
            await desk.act(standing.run_id, PAUSE_NOW)
        case "graceful" | "cancelling":
            await desk.store.runs.cancel(standing.run_id, mode="graceful" if how == "graceful" else "now")
        case "ended":
            await desk.give_up(standing.leases[0])
    return standing
