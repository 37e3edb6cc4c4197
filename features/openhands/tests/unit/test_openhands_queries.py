"""Queries of OpenHands' clients: what is meant by a time, what is left out, and where a page begins."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from urllib.parse import quote
from uuid import uuid4

import pytest

from features.openhands.tests.unit.test_openhands_agents import AGENT
from features.openhands.tests.unit.test_openhands_api import PREFIX, begin
from tests.unit.api_world import World, call, in_one_world, world


async def test_times_are_compared_as_times() -> None:
    async with world() as api:
        talk = await begin(api)
        for each in "abc":
            await talk.say(each)
        everything = await talk.events()
        told = everything[2]["timestamp"]
        at = datetime.fromisoformat(told + "+00:00")
        abroad = at.astimezone(timezone(timedelta(hours=-11)))
        later = [event for event in everything if event["timestamp"] >= told]
        for form in (told, told + "Z", at.isoformat(), abroad.isoformat(), told.replace("T", " ")):
            assert await talk.events(f"&timestamp__gte={quote(form)}") == later, form
            assert await talk.events(f"&timestamp__lt={quote(form)}") == everything[: -len(later)], form
            assert await talk.ask("GET", f"/events/count?timestamp__gte={quote(form)}") == len(later), form
        for form in ("2020-01-01", "2020-01-01T00:00Z", "20200101T000000.5+0100", "0001-01-01T00:00:00"):
            assert await talk.events(f"&timestamp__gte={quote(form)}") == everything, form


@in_one_world(["yesterday", "2026-13-01", "", "0001-01-01T00:00:00+01:00", "x" * 1000])
async def test_what_is_no_time_is_refused_in_a_sentence(api: World, form: str) -> None:
    talk = await begin(api)
    for path in ("/events/search", "/events/count"):
        refused = await talk.ask("GET", f"{path}?timestamp__gte={quote(form)}", status=422)
        [fault] = refused["detail"]
        assert fault["loc"] == ["query", "timestamp__gte"]
        assert fault["msg"].startswith("must be")


async def test_fields_of_other_clients_are_left_out() -> None:
    async with world() as api:
        talk = await begin(api)
        for path in ("", "/events/search", "/events/count", "/agent_final_response"):
            await talk.ask("GET", f"{path}?include_skills=true&something=else")
        for path in (f"{PREFIX}/search", f"{PREFIX}/count", f"{PREFIX}?ids={talk.id}", "/openhands/server_info"):
            mark = "&" if "?" in path else "?"
            answer = await api.client.get(f"{path}{mark}include_skills=false&something=else")
            assert answer.status_code == 200, answer.text
        assert (await api.client.get("/v1/runs?something=else")).status_code == 400


async def test_a_page_that_nobody_has_named_is_the_first() -> None:
    async with world() as api:
        talks = [await begin(api) for _ in range(2)]
        for name in ("nothing", "a" * 2000, talks[0].id):
            found = (await api.client.get(f"{PREFIX}/search?sort_order=CREATED_AT&page_id={name}")).json()
            assert [each["id"] for each in found["items"]] == [talk.id for talk in talks]
            events = await talks[0].events()
            for order, expected in (("TIMESTAMP", events), ("TIMESTAMP_DESC", events[::-1])):
                page = await talks[0].ask("GET", f"/events/search?sort_order={order}&page_id={name}")
                assert page["items"] == expected


@pytest.mark.slow
async def test_a_page_begins_with_the_event_that_it_names_in_both_orders() -> None:
    async with world() as api:
        talk = await begin(api)
        for each in "ab":
            await talk.say(each, run=True)
            await api.finish(await talk.run(), f"{each}!")
        everything = await talk.events()
        for at, event in enumerate(everything):
            for order, expected in (("TIMESTAMP", everything[at:]), ("TIMESTAMP_DESC", everything[at::-1])):
                page = await talk.ask("GET", f"/events/search?sort_order={order}&page_id={event['id']}")
                assert page["items"] == expected


async def test_the_next_page_has_the_name_of_its_first_event_and_actions_may_begin_one_too() -> None:
    async with world() as api:
        talk = await begin(api)
        await talk.say("a", run=True)
        await api.ask(await talk.run(), call("one"), call("two"))
        everything = await talk.events()
        kinds = [event["kind"] for event in everything]
        assert kinds.count("ActionEvent") == 2
        for at, event in enumerate(everything):
            for order, expected in (("TIMESTAMP", everything[at:]), ("TIMESTAMP_DESC", everything[at::-1])):
                page = await talk.ask("GET", f"/events/search?sort_order={order}&page_id={event['id']}")
                assert page["items"] == expected, event["kind"]
            if at:
                page = await talk.ask("GET", f"/events/search?limit={at}")
                assert page["items"] == everything[:at]
                assert event["kind"] == "ActionEvent" or page["next_page_id"] == event["id"]


async def test_a_conversation_that_is_not_there_is_said_before_what_is_wrong_with_a_query() -> None:
    async with world() as api:
        talk = await begin(api)
        for path in ("events/search?limit=1000", "events/search?sort_order=x", "events/count?timestamp__gte=x"):
            absent = await api.client.get(f"{PREFIX}/{uuid4()}/{path}")
            assert absent.status_code == 404, absent.text
            there = await api.client.get(f"{PREFIX}/{talk.id}/{path}")
            assert there.status_code == 422, there.text


async def test_a_conversation_that_is_not_there_is_said_before_what_is_wrong_with_a_body() -> None:
    async with world() as api:
        talk = await begin(api)
        for path, body in (("events", {"content": 7}), ("confirmation_policy", {"policy": 1}), ("secrets", [])):
            absent = await api.client.post(f"{PREFIX}/{uuid4()}/{path}", json=body)
            assert absent.status_code == 404, absent.text
            there = await api.client.post(f"{PREFIX}/{talk.id}/{path}", json=body)
            assert there.status_code == 422, there.text


async def test_a_kind_is_named_by_itself_or_by_the_path_of_its_class() -> None:
    async with world() as api:
        talk = await begin(api)
        await talk.say("a", run=True)
        await api.ask(await talk.run(), call("one"))
        everything = await talk.events()
        for kind, module in (("ActionEvent", "llm_convertible.action"), ("ConversationStateUpdateEvent", "state")):
            wanted = [event for event in everything if event["kind"] == kind]
            assert wanted
            for name in (kind, f"openhands.sdk.event.{module}.{kind}", f"openhands.sdk.event.{kind}"):
                assert await talk.events(f"&kind={name}") == wanted, name
                assert await talk.ask("GET", f"/events/count?kind={name}") == len(wanted), name
        for name in ("Action", "openhands.sdk.event", "actionevent", "ActionEvent."):
            assert await talk.events(f"&kind={name}") == [], name


async def test_the_prompt_has_the_tools_that_the_agent_has() -> None:
    async with world() as api:
        show = {"name": "show", "description": "Show it.", "parameters": {"type": "object", "properties": {}}}
        for own in ([show], []):
            talk = await begin(api, client_tools=own, agent={**AGENT, "tools": [{"name": "calculator", "params": {}}]})
            prompt = (await talk.events())[0]
            assert prompt["kind"] == "SystemPromptEvent"
            assert [tool["title"] for tool in prompt["tools"]] == [
                "calculator",
                "finish",
                "think",
                *(["show"] if own else []),
            ]
            kinds = ["MCPToolDefinition", "FinishTool", "ThinkTool", *(["ClientTool"] if own else [])]
            assert [tool["kind"] for tool in prompt["tools"]] == kinds
            given = prompt["tools"][0]["mcp_tool"]
            assert (given["name"], given["inputSchema"]["type"]) == ("calculator", "object")
            assert prompt == (await talk.events("&kind=SystemPromptEvent"))[0]
        talk = await begin(api, agent={**AGENT, "tools": [], "include_default_tools": []})
        assert (await talk.events())[0]["tools"] == []
