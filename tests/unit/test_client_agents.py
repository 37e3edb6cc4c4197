"""What the clients do about agents on the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from palaver.client import Conflict, NotFound
from palaver.schemas.models import AgentSpec
from tests.both_clients import RUN, RUNS, Call, async_client
from tests.scripted_api import CONVERSATION_ID, Reply, ScriptedAPI, answer, conversation_object, problem, run_object

AGENT = "/v1/agents/support"


def kept(version: int = 1, name: str = "support") -> dict[str, Any]:
    """An agent as the API answers it."""
    return {
        "name": name, "version": version, "newest": version, "oldest": 1, "created_at": "2026-01-31T12:00:00Z",
        "created_by": "ann", "agent": {"model": "fake/tool-1", "name": name, "version": version, "tools": ["send"]},
    }  # fmt: skip


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        yield server


@async_client
def test_one_is_put_and_a_lost_answer_is_asked_for_again(api: ScriptedAPI, call: Call) -> None:
    api.on("PUT", AGENT, Reply(cut=True), answer(kept(), 201))
    made = call(api.url, "put_agent", "support", AgentSpec(model="fake/tool-1"))
    assert (made.name, made.version, made.agent.tools) == ("support", 1, ("send",))
    assert [seen.body for seen in api.seen] == [{"model": "fake/tool-1"}] * 2
    assert "if-match" not in api.seen[0].headers


@async_client
def test_only_if_it_has_a_version(api: ScriptedAPI, call: Call) -> None:
    api.on("PUT", AGENT, problem(412, "agent_changed", "its newest version is 2"))
    api.on("DELETE", AGENT, Reply(204))
    for version in (1, 0):
        with pytest.raises(Conflict, match="its newest version is 2"):
            call(api.url, "put_agent", "support", {"model": "fake/x"}, version=version)
    call(api.url, "delete_agent", "support", version=2)
    conditions = [(seen.headers.get("if-match"), seen.headers.get("if-none-match")) for seen in api.seen]
    assert conditions == [('"1"', None), (None, "*"), ('"2"', None)]


@async_client
def test_they_are_read_and_listed(api: ScriptedAPI, call: Call) -> None:
    api.on("GET", f"{AGENT}%407", answer(kept(7)))
    api.on("GET", f"{AGENT}@7", answer(kept(7)))
    api.on("GET", "/v1/agents/nobody", problem(404, "agent_not_found"))
    pages = [
        {"data": [kept(name="a")], "next_cursor": "a", "has_more": True},
        {"data": [kept(name="b")], "next_cursor": None, "has_more": False},
    ]
    api.on("GET", "/v1/agents", *map(answer, pages))
    assert call(api.url, "agent", "support@7").agent.version == 7
    with pytest.raises(NotFound):
        call(api.url, "agent", "nobody")
    assert [agent.name for agent in call(api.url, "agents")] == ["a", "b"]


@async_client
def test_a_name_goes_in_the_place_of_an_agent(api: ScriptedAPI, call: Call) -> None:
    conversation = f"/v1/conversations/{CONVERSATION_ID}"
    api.on("POST", RUNS, answer(run_object("queued"), 202))
    api.on("POST", f"{RUN}/retry", answer(run_object("queued"), 202))
    api.on("POST", "/v1/conversations", answer(conversation_object(), 201))
    api.on("PATCH", conversation, answer(conversation_object()))
    api.on("POST", f"{conversation}/fork", answer(conversation_object(), 201))
    run_id = RUN.rpartition("/")[2]
    call(api.url, "submit", "hello", agent="support@7")
    call(api.url, "retry", run_id, agent="support")
    call(api.url, "create_conversation", agent="support")
    call(api.url, "change_conversation", CONVERSATION_ID, agent="support")
    call(api.url, "fork", CONVERSATION_ID, agent="support")
    assert [seen.body["agent"] for seen in api.seen] == ["support@7", *["support"] * 4]


@async_client
def test_a_named_agent_declares_its_client_tools_itself(api: ScriptedAPI, call: Call) -> None:
    def open_file(path: str) -> str:
        """Open a file."""
        return path

    with pytest.raises(ValueError, match="declares its client_tools itself"):
        call(api.url, "submit", "hello", agent="support", client_tools=[open_file])
    api.on("POST", RUNS, answer(run_object("completed"), 202))
    api.on("GET", RUN, answer(run_object("completed")))
    call(api.url, "run", "hello", agent="support", client_tools=[open_file])
    assert api.seen[0].body["agent"] == "support"
    with pytest.raises(ValueError, match="give either agent or model"):
        call(api.url, "submit", "hello", agent="support", max_steps=3)
