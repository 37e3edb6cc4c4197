"""What the clients ask, and when they ask again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from palaver.client import ConnectionFailed
from palaver.schemas.models import AgentSpec, Message
from tests.both_clients import RUN, RUNS, Call, async_client, both_clients
from tests.scripted_api import CONVERSATION_ID, RUN_ID, Reply, ScriptedAPI, answer, model_object, problem, run_object


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        yield server


@async_client
class TestCalls:
    def test_tools_that_are_no_list_are_refused_in_one_sentence(self, api: ScriptedAPI, call: Call) -> None:
        with pytest.raises(ValueError, match=r"^tools is a list of names: tools=\['calculator'\]$"):
            call(api.url, "submit", "hello", model="fake/echo", tools="calculator")
        assert api.seen == []

    def test_submit_sends_the_short_form_and_a_key(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", RUNS, answer(run_object("queued"), 202))
        run = call(
            api.url, "submit", "hello", model="fake/echo", tools=["calculator"], instructions="Be brief.",
            tags=["a"], metadata={"k": "v"}, start_by=datetime(2026, 1, 1, tzinfo=UTC), wait=3,
        )  # fmt: skip
        assert (run.id, run.status) == (RUN_ID, "queued")
        [seen] = api.seen
        assert seen.body == {
            "agent": {"model": "fake/echo", "tools": ["calculator"], "instructions": "Be brief."},
            "input": "hello",
            "tags": ["a"],
            "metadata": {"k": "v"},
            "start_by": "2026-01-01T00:00:00+00:00",
        }
        assert len(seen.headers["idempotency-key"]) == 32
        assert seen.headers["prefer"] == "wait=3"

    def test_submit_takes_specs_and_messages(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", RUNS, answer(run_object("queued"), 202))
        messages = [Message(role="user", content="hi"), {"role": "user", "content": "ho"}]
        call(api.url, "submit", messages, agent=AgentSpec(model="fake/echo"), idempotency_key="mine")
        assert api.seen[0].body == {
            "agent": {"model": "fake/echo"},
            "input": [{"role": "user", "content": "hi"}, {"role": "user", "content": "ho"}],
        }
        assert api.seen[0].headers["idempotency-key"] == "mine"

    @pytest.mark.parametrize(
        "arguments",
        [
            {"agent": {"model": "a/b"}, "model": "a/b"},
            {"tools": ["calculator"]},
            {"instructions": "Be brief."},
            {"model": "a/b", "deadline": datetime(2026, 1, 1)},
        ],
    )
    def test_arguments_that_do_not_fit(self, api: ScriptedAPI, call: Call, arguments: Any) -> None:
        with pytest.raises(ValueError, match=r"not both|without a model|time zone"):
            call(api.url, "submit", "hello", **arguments)
        assert not api.seen

    def test_a_conversation_is_not_made_twice(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", "/v1/conversations", Reply(cut=True))
        with pytest.raises(ConnectionFailed) as caught:
            call(api.url, "create_conversation", model="fake/echo")
        assert caught.value.perhaps_done
        assert len(api.seen) == 1

    def test_cancel_and_queues(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", f"{RUN}/cancel", answer(run_object("cancelling"), 202))
        api.on("GET", "/v1/queues", answer({"data": [{"name": "model", "ready": 3}]}))
        assert call(api.url, "cancel", RUN_ID, "enough").status == "cancelling"
        assert api.seen[0].body == {"mode": "now", "reason": "enough"}
        assert call(api.url, "queues") == {"data": [{"name": "model", "ready": 3}]}

    def test_statistics(self, api: ScriptedAPI, call: Call) -> None:
        api.on("GET", "/v1/statistics", answer({"window": "week", "data": []}))
        assert call(api.url, "statistics", window="week", tenant="acme") == {"window": "week", "data": []}
        assert api.asked("GET", "/v1/statistics")[-1].query == {"window": "week", "tenant": "acme"}
        call(api.url, "statistics")
        assert api.asked("GET", "/v1/statistics")[-1].query == {"window": "hour"}

    def test_models_follow_the_pages(self, api: ScriptedAPI, call: Call) -> None:
        page = {"data": [model_object("a/x"), model_object("a/y")], "next_cursor": "c1", "has_more": True}
        last = {"data": [model_object("b/*", price=None)], "next_cursor": None, "has_more": False}
        api.on("GET", "/v1/models", answer(page), answer(last))
        found = call(api.url, "models")
        assert [(each.id, each.price and each.price.input) for each in found] == [("a/x", 2), ("a/y", 2), ("b/*", None)]
        assert [seen.query for seen in api.seen] == [{"limit": "100"}, {"limit": "100", "cursor": "c1"}]

    def test_an_id_cannot_leave_its_place_in_the_path(self, api: ScriptedAPI, call: Call) -> None:
        api.on("GET", "/v1/runs/..%2Fqueues", answer(run_object()))
        assert call(api.url, "get", "../queues").id == RUN_ID
        for bad in ("", ".", ".."):
            with pytest.raises(ValueError, match="id"):
                call(api.url, "get", bad)


@both_clients
class TestBothClients:
    """Calls that are repeated, and pages."""

    def test_a_lost_answer_is_asked_for_again_with_the_same_key(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", RUNS, Reply(cut=True), problem(503, "unavailable"), answer(run_object("queued"), 202))
        assert call(api.url, "submit", "hello", model="fake/echo").id == RUN_ID
        assert len(api.seen) == 3
        assert len({seen.headers["idempotency-key"] for seen in api.seen}) == 1

    def test_conversations_and_their_messages(self, api: ScriptedAPI, call: Call) -> None:
        path = f"/v1/conversations/{CONVERSATION_ID}"
        found = {
            "id": CONVERSATION_ID,
            "agent": {"model": "a/b", "new": 1},
            "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z",
        }
        api.on("GET", path, answer(found))
        api.on("POST", "/v1/conversations", answer(found, 201))
        message = {
            "role": "user",
            "content": "hi",
            "position": 1,
            "run_id": RUN_ID,
            "at": "2026-01-01T00:00:00Z",
        }
        api.on(
            "GET",
            f"{path}/messages",
            answer({"data": [message], "next_after": 7, "has_more": True}),
            answer({"data": [{**message, "content": "ho", "withdrawn": True}], "next_after": 9, "has_more": False}),
        )
        assert call(api.url, "create_conversation", model="a/b").id == CONVERSATION_ID
        agent = call(api.url, "conversation", CONVERSATION_ID).agent
        assert (agent.model, agent.model_extra) == ("a/b", {"new": 1})
        said = call(api.url, "messages", CONVERSATION_ID)
        assert [(each.content, each.position, each.run_id, each.withdrawn) for each in said] == [
            ("hi", 1, RUN_ID, False), ("ho", 1, RUN_ID, True),
        ]  # fmt: skip
        assert [seen.query for seen in api.asked("GET", f"{path}/messages")] == [{}, {"after": "7"}]
        api.on("POST", RUNS, answer(run_object("queued"), 202))
        call(api.url, "submit", list(said), model="a/b")
        assert api.seen[-1].body["input"] == [{"role": "user", "content": "hi"}, {"role": "user", "content": "ho"}]

    def test_list_follows_the_pages_up_to_its_limit(self, api: ScriptedAPI, call: Call) -> None:
        page = {"data": [run_object(), run_object()], "next_cursor": "c1", "has_more": True}
        empty = {"data": [], "next_cursor": "c2", "has_more": True}
        api.on("GET", RUNS, answer(page), answer(empty), answer({"data": [run_object()], "next_cursor": None}))
        assert len(call(api.url, "list", status=["failed", "expired"], limit=10)) == 3
        assert [seen.query for seen in api.seen] == [
            {"status": "failed,expired", "limit": "10"},
            {"status": "failed,expired", "limit": "8", "cursor": "c1"},
            {"status": "failed,expired", "limit": "8", "cursor": "c2"},
        ]
        api.on("GET", RUNS, answer(page))
        assert len(call(api.url, "list", limit=3)) == 3
        assert len(call(api.url, "list", take=5)) == 5
