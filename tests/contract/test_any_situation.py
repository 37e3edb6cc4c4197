"""Every request to a run in every situation: what comes of it, and that the run ends afterwards as any other does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from palaver.errors import StateConflict
from palaver.schemas.filters import RunFilter
from palaver.schemas.models import Retry
from tests.contract.situations import Situation, put
from tests.contract.store_driver import PAUSE, PAUSE_NOW, RESUME, StoreDriver, approve, output, say

# Together: half a minute. What a request does by itself is in the file of its name, on every server.
pytestmark = pytest.mark.slow

STATUS = {
    "ready": "queued",
    "behind": "queued",
    "next": "queued",
    "scheduled": "queued",
    "model": "running",
    "tools": "running",
    "backing off": "running",
    "tool backing off": "running",
    "postponed": "running",
    "approval": "requires_action",
    "client": "requires_action",
    "mixed": "running",
    "paused ready": "paused",
    "paused behind": "paused",
    "paused next": "paused",
    "paused scheduled": "paused",
    "paused backing off": "paused",
    "paused tool backing off": "paused",
    "paused postponed": "paused",
    "paused approval": "paused",
    "paused client": "paused",
    "pausing model": "running",
    "pausing tools": "running",
    "pausing mixed": "running",
    "aborting model": "running",
    "graceful model": "cancelling",
    "graceful mixed": "cancelling",
    "cancelling model": "cancelling",
    "cancelling tools": "cancelling",
    "cancelling mixed": "cancelling",
    "ended": "failed",
}
"""The status of a run in that situation."""
OVER = ("graceful", "cancelling", "ended")
PAUSING = ("pausing", "aborting")
SEPARATE = ("scheduled", "paused scheduled")
"""Their turn in the conversation has not come, and it is free."""
Request = Callable[[StoreDriver, str], Awaitable[Any]]


async def _submit(driver: StoreDriver, run_id: str, how: Any) -> str:
    conversation = (await driver.get(run_id)).conversation_id
    submitted = await driver.submit("more", conversation_id=conversation, on_conflict=how)
    return "steered" if submitted.steered else "ready" if submitted.deliveries else "waits"


async def _retry(driver: StoreDriver, run_id: str, **wanted: Any) -> str:
    await driver.store.control.retry(run_id, Retry(**wanted))
    return "retried"


ACTS: dict[str, Request] = {
    "approve": lambda driver, run_id: driver.act(run_id, approve()),
    "output": lambda driver, run_id: driver.act(run_id, output("o1")),
    "say": lambda driver, run_id: driver.act(run_id, say("more")),
    "pause": lambda driver, run_id: driver.act(run_id, PAUSE),
    "pause now": lambda driver, run_id: driver.act(run_id, PAUSE_NOW),
    "resume": lambda driver, run_id: driver.act(run_id, RESUME),
    "graceful": lambda driver, run_id: driver.store.runs.cancel(run_id, mode="graceful"),
    "now": lambda driver, run_id: driver.store.runs.cancel(run_id, mode="now"),
    "rollback": lambda driver, run_id: driver.store.runs.cancel(run_id, mode="rollback"),
    "enqueue": lambda driver, run_id: _submit(driver, run_id, "enqueue"),
    "reject": lambda driver, run_id: _submit(driver, run_id, "reject"),
    "steer": lambda driver, run_id: _submit(driver, run_id, "steer"),
    "interrupt": lambda driver, run_id: _submit(driver, run_id, "interrupt"),
    "interrupt, withdrawing": lambda driver, run_id: _submit(driver, run_id, "rollback"),
    "retry": _retry,
    "fork": lambda driver, run_id: _retry(driver, run_id, from_step=1),
    "delete": lambda driver, run_id: driver.store.control.delete_run(run_id),
}


def expected(name: str, request: str) -> str:
    """The status of the run after the request, or why it is refused, or what came of a submit."""
    how, _, rest = name.partition(" ")
    over, status, what = how in OVER, STATUS[name], rest if how in ("paused", *PAUSING) else name
    match request:
        case "approve" | "output" | "say" | "pause" | "pause now" | "resume" if over:
            return "run_ended"
        case "approve":
            if what not in ("approval", "mixed"):
                return "no_pending_action"
            return "running" if status == "requires_action" else status
        case "output":
            if what not in ("client", "mixed"):
                return "unknown_action"
            return "running" if status == "requires_action" else status
        case "say":
            return status
        case "pause" | "pause now":
            return "running" if name in ("model", "tools", "mixed") or how in PAUSING else "paused"
        case "resume":
            return "not_paused" if status != "paused" and how not in PAUSING else STATUS[what]
        case "graceful" | "now" | "rollback":
            held = what in ("model", "tools", "mixed") or how in ("graceful", "cancelling")
            return "run_ended" if how == "ended" else "cancelling" if held else "cancelled"
        case "retry" | "fork" | "delete" if how != "ended":
            return "run_active"
        case "retry" | "fork":
            return "retried"
        case "delete":
            return "deleted"
    # A submit. The active run is this one, or the one ahead of it, which is worked on.
    if name in SEPARATE or how == "ended":
        return "ready"
    busy = what in ("model", "tools", "mixed", "behind") or how in ("graceful", "cancelling")
    match request:
        case "enqueue":
            return "pending_action" if status == "requires_action" else "waits"
        case "reject":
            return "conversation_busy"
        case "steer":
            return "waits" if over else "steered"
        case _:
            return "waits" if busy else "ready"


async def _came_of(driver: StoreDriver, situation: Situation, request: str) -> str:
    before = await driver.get(situation.run_id)
    try:
        answer = await ACTS[request](driver, situation.run_id)
    except StateConflict as conflict:
        assert await driver.get(situation.run_id) == before
        return conflict.code
    if isinstance(answer, str):
        return answer
    return "deleted" if request == "delete" else (await driver.get(situation.run_id)).status


@pytest.mark.parametrize("request_", ACTS)
@pytest.mark.parametrize("name", STATUS)
async def test_any_request_in_any_situation(driver: StoreDriver, name: str, request_: str) -> None:
    situation = await put(driver, name)
    before = await driver.get(situation.run_id)
    assert before.status == STATUS[name]

    came = await _came_of(driver, situation, request_)
    assert came == expected(name, request_)
    if came == "deleted":
        return
    after = await driver.get(situation.run_id)
    assert [event.seq for event in await driver.events(before.id)] == list(range(1, after.last_event_id + 1))
    page = await driver.store.runs.list(RunFilter(conversation_id=before.conversation_id), limit=10)
    await driver.drive_to_the_end([run.id for run in page.runs])


@pytest.mark.parametrize("name", [each for each in STATUS if each.partition(" ")[0] == "paused"])
async def test_pausing_and_resuming_is_as_if_nothing_had_been(driver: StoreDriver, name: str) -> None:
    situation = await put(driver, name.partition(" ")[2])
    before = await driver.get(situation.run_id)
    for _ in range(3):
        await driver.act(situation.run_id, PAUSE)
        assert (await driver.get(situation.run_id)).status == "paused"
        await driver.act(situation.run_id, RESUME)
        after = await driver.get(situation.run_id)
        for step in (*before.current_steps, *after.current_steps):
            step.since = None
        assert after.model_copy(update={"last_event_id": before.last_event_id}) == before
    await driver.drive_to_the_end([situation.run_id])
