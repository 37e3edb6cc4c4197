"""Deleting a conversation through OpenHands' dialect: what goes on in it is cancelled, and waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from features.openhands import conversations
from features.openhands.tests.unit.test_openhands_api import Talk, begin
from palaver.steps.leases import Lease
from tests.unit.api_world import world
from tests.waiting import aeventually


@pytest.fixture
async def leased() -> AsyncIterator[tuple[Talk, Lease]]:
    """A conversation that a worker is at."""
    async with world() as api:
        talk = await begin(api)
        await talk.say(run=True)
        yield talk, await api.claim(await talk.run())


async def test_it_is_gone_once_its_worker_has_let_go(leased: tuple[Talk, Lease]) -> None:
    talk, lease = leased
    run = await talk.run()
    deleting = asyncio.create_task(talk.ask("DELETE"))
    await aeventually(lambda: _is(talk, "cancelling"))
    await talk.api.finish(run, lease=lease)
    assert await deleting == {"success": True}
    await talk.ask("GET", status=404)


async def test_runs_that_wait_are_cancelled_with_it(leased: tuple[Talk, Lease]) -> None:
    talk, lease = leased
    run = await talk.run()
    await talk.api.submit(agent=None, conversation_id=run["conversation_id"])
    deleting = asyncio.create_task(talk.ask("DELETE"))
    await aeventually(lambda: _is(talk, "cancelled"))
    await talk.api.finish(run, lease=lease)
    await deleting
    await talk.ask("GET", status=404)


@pytest.mark.parametrize("why", ["the worker needs too long", "the process ends"])
async def test_who_cannot_wait_is_told_so(
    leased: tuple[Talk, Lease], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk, lease = leased
    run = await talk.run()
    if why == "the process ends":
        talk.api.app.state.backend.closing.set()
    else:
        monkeypatch.setattr(conversations, "_LETTING_GO", 0.05)
    refused = await talk.ask("DELETE", status=409)
    assert "ask again" in refused["detail"]
    await talk.api.finish(run, lease=lease)
    await talk.ask("DELETE")
    await talk.ask("GET", status=404)


async def _is(talk: Talk, status: str) -> bool:
    runs = (await talk.api.client.get("/v1/runs")).json()["data"]
    return status in [run["status"] for run in runs]
