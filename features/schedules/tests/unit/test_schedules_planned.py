"""Workers hear of schedules, and a schedule says that there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from palaver.cli.doing import lacked
from palaver.processes.tasks import end
from palaver.store.fleet.fleet import WorkerReport
from tests.unit.api_world import AGENT, World, world


@pytest.fixture
async def api() -> AsyncIterator[World]:
    async with world() as made:
        yield made


async def test_a_worker_hears_of_what_was_planned_and_of_no_run(api: World) -> None:
    heard = asyncio.Event()
    listener = api.store.fleet.cancels("w-1", on_planned=heard.set)

    async def listen() -> None:
        async for run in listener.listen():
            raise AssertionError(run)

    listening = asyncio.create_task(listen())
    await api.store.fleet.report(WorkerReport("w-1", ("model",), 0, 1, draining=False))
    await api.store.fleet.report(WorkerReport("w-2", ("tools",), 0, 1, draining=False))
    body = {"every": 3600, "run": {"agent": AGENT, "input": "hello"}}
    # Until it listens.
    while not heard.is_set():
        assert (await api.client.put("/v1/schedules/often", json=body)).status_code in (200, 201)
    assert not listening.done()
    await end(listening)
    await listener.close()


async def test_a_schedule_says_that_no_worker_is_there(api: World) -> None:
    body = {"every": 3600, "run": {"agent": AGENT, "input": "hello"}}
    kept = await api.client.put("/v1/schedules/often", json=body)
    waiting = kept.json()["waiting"]
    assert (waiting["reason"], waiting["code"]) == ("no_worker", "queue:model")
    assert lacked(waiting["code"]) == "no worker takes model steps: `palaver worker`"
    (listed,) = (await api.client.get("/v1/schedules")).json()["data"]
    assert listed["waiting"] == waiting
    assert (await api.client.post("/v1/schedules/often/pause")).json()["waiting"] is None
