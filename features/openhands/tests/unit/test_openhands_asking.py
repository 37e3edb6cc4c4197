"""OpenHands' dialect: what the agent's model is asked beside a client's runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from features.openhands.tests.unit.test_openhands_agents import AGENT
from features.openhands.tests.unit.test_openhands_api import Talk, begin
from features.openhands.verbs import title_in
from palaver.errors import ErrorClass
from palaver.steps.verdicts import Finish
from palaver.vocabulary.lifecycle import StopReason
from tests.unit.api_world import World, world
from tests.waiting import aeventually

CONDENSER = {"kind": "LLMSummarizingCondenser", "max_tokens": None}


async def _begun(api: World, tag: str) -> dict[str, Any]:
    """The run that a request has begun, once it is there."""

    async def found() -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = (await api.client.get(f"/v1/runs?tag={tag}")).json()["data"]
        return [run for run in runs if run["status"] == "queued"]

    run: dict[str, Any] = (await aeventually(found))[0]
    return run


async def _said(api: World, **agent: Any) -> Talk:
    """A conversation in which something was said."""
    talk = await begin(api, agent={**AGENT, **agent})
    for each in "ab":
        await talk.say(each, run=True)
        await api.finish(await talk.run(), f"{each}!")
    return talk


async def _refused(talk: Talk) -> str:
    """Why a conversation is not condensed."""
    return str((await talk.ask("POST", "/condense", status=409))["detail"])


async def test_the_agent_is_asked_and_the_conversation_does_not_know() -> None:
    async with world() as api:
        talk = await _said(api)
        before = (await talk.ask("GET"), await talk.events())
        asking = asyncio.create_task(talk.ask("POST", "/ask_agent", {"question": "What is this about?"}))
        await api.finish(await _begun(api, "ask"), "About trains.")
        assert await asking == {"response": "About trains."}
        assert (await talk.ask("GET"), await talk.events()) == before
        await talk.ask("POST", "/ask_agent", {"question": ""}, 422)


@pytest.mark.slow
async def test_a_title_is_made_and_not_set() -> None:
    async with world() as api:
        talk = await _said(api)
        body = {"max_length": 12, "llm": {"model": "other/model", "api_key": "sk-secret"}}
        asking = asyncio.create_task(talk.ask("POST", "/generate_title", body))
        await api.finish(await _begun(api, "ask"), '\n"Trains and their stations"\nThat is it.')
        assert await asking == {"title": "Trains and…"}
        assert (await talk.ask("GET"))["title"] == "a", "its first words"


@pytest.mark.parametrize(
    ("answer", "title"), [("**Trains**", "Trains"), ("", ""), ("123456789", "123456789"), ("1234567890", "12345678…")]
)
def test_a_title_is_one_short_line(answer: str, title: str) -> None:
    assert title_in(answer, 9) == title


@pytest.mark.slow
async def test_condensing_is_answered_when_it_is_done() -> None:
    async with world() as api:
        talk = await _said(api, condenser=CONDENSER)
        asking = asyncio.create_task(talk.ask("POST", "/condense"))
        run = await _begun(api, "condense")
        lease = await api.claim(run)
        assert lease.condenses
        assert (await talk.status(), asking.done()) == ("running", False)
        await api.store.steps.settle(lease, Finish(None, StopReason.END_TURN))
        assert await asking == {"success": True}
        assert await talk.status() == "finished"
        assert await talk.ask("GET", "/agent_final_response") == {"response": "b!"}


async def test_what_cannot_be_condensed_is_refused() -> None:
    async with world() as api:
        without = await _refused(await _said(api))
        assert without == "There is nothing to condense: The agent has no condenser."
        talk = await begin(api, agent={**AGENT, "condenser": CONDENSER})
        assert (await _refused(talk)).startswith("There is nothing to condense")
        await talk.say(run=True)
        await talk.api.finish(await talk.run(), "hello")
        await talk.say(run=True)
        assert "condense" not in await _refused(talk)


async def test_a_model_that_gives_no_summary_is_told_of() -> None:
    async with world() as api:
        talk = await _said(api, condenser=CONDENSER)
        asking = asyncio.create_task(_refused(talk))
        await api.fail(await _begun(api, "condense"), ErrorClass.AUTHENTICATION)
        assert (await asking).startswith("The model gave no answer")
