"""Who asks for a payment by OpenAI's API does not approve it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.test_api_second_person import AGENT, PAY, Office, office
from tests.unit.test_seen_agents import once_before
from tests.waiting import aeventually


@pytest.fixture
async def desk() -> AsyncIterator[Office]:
    async with office() as made:
        yield made


@pytest.mark.parametrize("changes", [{"temperature": 0.5}, {"instructions": "Be brief."}])
async def test_who_wrote_an_agent_of_the_server_that_a_response_changes(desk: Office, changes: dict[str, Any]) -> None:
    await desk.have("ann", "PUT", "/v1/agents/teller", {**AGENT, "instructions": PAY})
    asked = {"model": "teller", "input": "hello", "background": True, **changes}
    await desk.have("bob", "POST", "/openai/v1/responses", asked)
    (run,) = await desk.runs()
    await desk.check(await desk.pay(run), none_of="ann bob", but="cid")
    # The conversation has that agent now, also for the next person who goes on.
    await desk.have("bob", "POST", f"/v1/runs/{run['id']}/cancel")
    again = await desk.submit("dan", conversation_id=run["conversation_id"])
    await desk.check(await desk.pay(again), none_of="ann bob dan", but="cid")


async def test_who_wrote_an_agent_of_the_server_that_a_completion_changes(desk: Office) -> None:
    await desk.have("ann", "PUT", "/v1/agents/teller", {**AGENT, "instructions": PAY})
    body = {"model": "teller", "messages": [{"role": "user", "content": "hello"}], "temperature": 0.5, "stream": True}
    desk.asking.append(asyncio.create_task(desk.ask("bob", "POST", "/openai/v1/chat/completions", body)))
    await aeventually(desk.runs)
    (run,) = await desk.runs()
    assert (await desk.api.store.runs.agent_of(run["conversation_id"])).by == {"ann", "bob"}


async def test_who_wrote_the_agent_of_the_conversation_that_a_response_changes(desk: Office) -> None:
    made = await desk.have("ann", "POST", "/v1/conversations", {"agent": {**AGENT, "instructions": PAY}})
    asked = {"conversation": made["id"], "input": "hello", "temperature": 0.5, "background": True}
    await desk.have("bob", "POST", "/openai/v1/responses", asked)
    (run,) = await desk.runs()
    await desk.check(await desk.pay(run), none_of="ann bob", but="cid")


async def test_who_wrote_the_agent_that_a_response_changes_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async with office() as desk:
        made = await desk.have("ann", "POST", "/v1/conversations", {"agent": {**AGENT, "instructions": PAY}})

        async def other() -> None:
            await desk.submit("bob", conversation_id=made["id"], agent={**AGENT, "instructions": "hello"})

        once_before(desk.api.store.runs, "agent_of", other, monkeypatch)
        asked = {"conversation": made["id"], "input": "hello", "temperature": 0.5, "background": True}
        await desk.have("dan", "POST", "/openai/v1/responses", asked)
        run = (await desk.runs())[0]
        assert run["agent"]["instructions"] == "hello"
        assert (await desk.api.store.runs.agent_of(made["id"])).by == {"bob", "dan"}
