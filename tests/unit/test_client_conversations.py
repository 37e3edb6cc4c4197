"""What the SDK and the command do with conversations."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from palaver.client import Conflict, NotFound, Unprocessable
from tests.both_clients import Call, async_client, both_clients
from tests.command_line import CommandResult
from tests.scripted_api import (
    CONVERSATION_ID,
    RUN_ID,
    Reply,
    ScriptedAPI,
    answer,
    conversation_object,
    placed_frame,
    problem,
    stream,
)

ALL = "/v1/conversations"
ONE = f"{ALL}/{CONVERSATION_ID}"
EVENTS = f"{ONE}/events"


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        yield server


@async_client
class TestClient:
    def test_one_is_begun_under_an_id(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", ALL, Reply(cut=True), answer(conversation_object(title="Mine"), 201))
        number = "0f8fad5b-d9cb-469f-a165-70867728950e"
        about: dict[str, Any] = {"title": "Mine", "tags": ["a"], "metadata": {"k": "v"}}
        assert call(api.url, "create_conversation", id=number, model="a/b", **about).title == "Mine"
        assert [seen.body for seen in api.seen] == [{"id": number, "agent": {"model": "a/b"}, **about}] * 2

    def test_what_is_given_is_changed(self, api: ScriptedAPI, call: Call) -> None:
        api.on("PATCH", ONE, answer(conversation_object(revision=1)))
        assert call(api.url, "change_conversation", CONVERSATION_ID, title=None).revision == 1
        call(api.url, "change_conversation", CONVERSATION_ID, tags=(), metadata={"a": "b"}, revision=3)
        call(api.url, "change_conversation", CONVERSATION_ID, model="a/b")
        call(api.url, "change_conversation", CONVERSATION_ID, agent=None)
        assert [seen.body for seen in api.seen] == [
            {"title": None},
            {"tags": [], "metadata": {"a": "b"}, "revision": 3},
            {"agent": {"model": "a/b"}},
            {"agent": None},
        ]
        api.on("PATCH", ONE, problem(409, "conversation_revised"))
        with pytest.raises(Conflict) as conflict:
            call(api.url, "change_conversation", CONVERSATION_ID, title="x", revision=0)
        assert conflict.value.code == "conversation_revised"

    def test_those_that_fit(self, api: ScriptedAPI, call: Call) -> None:
        page = {"data": [conversation_object()], "next_cursor": "more", "has_more": True}
        last = {"data": [conversation_object(title="x")], "next_cursor": None, "has_more": False}
        api.on("GET", ALL, answer(page), answer(last))
        since = datetime(2026, 1, 1, tzinfo=UTC)
        found = call(
            api.url, "conversations", title="x", status=["idle", "failed"], metadata={"a": "b"}, updated_after=since
        )
        assert [each.title for each in found] == [None, "x"]
        wanted = {
            "title": "x", "status": "idle,failed", "metadata": '{"a": "b"}', "order": "-updated", "limit": "100",
            "updated_after": "2026-01-01T00:00:00+00:00",
        }  # fmt: skip
        assert [seen.query for seen in api.seen] == [wanted, {**wanted, "cursor": "more"}]
        api.on("GET", f"{ALL}/count", answer({"count": 7, "complete": True}))
        assert call(api.url, "count_conversations", status="idle").count == 7
        unclear: list[dict[str, Any]] = [{"status": []}, {"updated_after": datetime(2026, 1, 1)}]
        for wrong in unclear:
            with pytest.raises(ValueError, match=r"status|zone"):
                call(api.url, "count_conversations", **wrong)

    def test_the_newest_messages_first(self, api: ScriptedAPI, call: Call) -> None:
        api.on("GET", f"{ONE}/messages", answer({"data": [], "next_after": 7, "has_more": True}),
               answer({"data": [], "next_after": 1, "has_more": False}))  # fmt: skip
        assert call(api.url, "messages", CONVERSATION_ID, newest_first=True) == []
        assert [seen.query for seen in api.seen] == [{"order": "-position"}, {"order": "-position", "after": "7"}]


@both_clients
class TestStream:
    def test_it_goes_on_where_it_broke(self, api: ScriptedAPI, call: Call) -> None:
        api.on(
            "GET",
            EVENTS,
            stream(
                b"retry: 10\n\n",
                placed_frame(4, 1, "run.created"),
                placed_frame(4, 2, "message.delta", text="a"),
                cut=True,
            ),
            problem(503, "unavailable"),
            stream(placed_frame(5, 3, "run.started"), cut=True),
            stream(placed_frame(5, 0, "conversation.deleted")),
        )
        events = call(api.url, "conversation_events", CONVERSATION_ID, 3)
        assert [(each.type, each.position) for each in events] == [
            ("run.created", 4), ("message.delta", 4), ("run.started", 5), ("conversation.deleted", 5),
        ]  # fmt: skip
        assert [seen.headers.get("last-event-id") for seen in api.seen] == ["3", "4.2", "4.2", "5"]

    def test_what_the_server_has_lost(self, api: ScriptedAPI, call: Call) -> None:
        rewound = placed_frame(4, 0, "stream.rewound", first=5, last=9)
        api.on("GET", EVENTS, stream(b"retry: 10\n\n", placed_frame(9, 7, "run.started"), rewound, cut=True),
               stream(placed_frame(4, 0, "conversation.deleted")))  # fmt: skip
        assert len(call(api.url, "conversation_events", CONVERSATION_ID)) == 3
        assert [seen.headers.get("last-event-id") for seen in api.seen] == [None, "4"]

    def test_a_place_that_the_server_lost_is_left(self, api: ScriptedAPI, call: Call) -> None:
        api.on(
            "GET", EVENTS, stream(b"retry: 10\n\n", placed_frame(9, 7, "run.started"), cut=True),
            problem(400, "invalid_cursor"),
            stream(placed_frame(1, 1, "run.created"), placed_frame(1, 0, "conversation.deleted")),
        )  # fmt: skip
        events = call(api.url, "conversation_events", CONVERSATION_ID, "8.2")
        assert [(each.type, each.position) for each in events] == [
            ("run.started", 9), ("stream.rewound", 0), ("run.created", 1), ("conversation.deleted", 1),
        ]  # fmt: skip
        assert (events[1].first, events[1].last) == (1, 9)
        assert [seen.headers.get("last-event-id") for seen in api.seen] == ["8.2", "9", None]

    def test_a_place_that_never_was(self, api: ScriptedAPI, call: Call) -> None:
        api.on("GET", EVENTS, problem(400, "invalid_cursor"))
        with pytest.raises(Unprocessable) as wrong:
            call(api.url, "conversation_events", CONVERSATION_ID, 99)
        assert wrong.value.code == "invalid_cursor"

    def test_it_is_deleted_while_nobody_looks(self, api: ScriptedAPI, call: Call) -> None:
        told = stream(b"retry: 10\n\n", placed_frame(9, 7, "run.started"), cut=True)
        api.on("GET", EVENTS, told, problem(404, "conversation_not_found"))
        events = call(api.url, "conversation_events", CONVERSATION_ID)
        assert [(each.type, each.position) for each in events] == [("run.started", 9), ("conversation.deleted", 9)]

    def test_there_is_none(self, api: ScriptedAPI, call: Call) -> None:
        api.on("GET", EVENTS, problem(404, "conversation_not_found"))
        with pytest.raises(NotFound):
            call(api.url, "conversation_events", CONVERSATION_ID)


class TestCommand:
    def test_list(self, api: ScriptedAPI) -> None:
        api.on("GET", ALL, answer({"data": [conversation_object(title="Trains", tags=["a"])], "next_cursor": None}))
        said = CommandResult(api, "conversations", "list", "--title", "tr", "-s", "idle", "--metadata", "k=v")
        assert said.code == 0
        assert all(each in said.out for each in (CONVERSATION_ID, "idle", "Trains"))
        assert api.seen[0].query == {
            "title": "tr", "status": "idle", "metadata": '{"k": "v"}', "order": "-updated", "limit": "20",
        }  # fmt: skip
        assert CommandResult(api, "conversations", "list", "--order", "title").code == 2
        api.on("GET", ALL, answer({"data": [], "next_cursor": None}))
        assert CommandResult(api, "conversations", "list").err == "No conversations.\n"

    def test_show_rename_and_tag(self, api: ScriptedAPI) -> None:
        found = conversation_object(title="Trains", metadata={"k": "v"}, active_run=RUN_ID, status="running")
        api.on("GET", ONE, answer(found))
        api.on("PATCH", ONE, answer(found))
        shown = CommandResult(api, "conversations", "show", CONVERSATION_ID).out
        assert all(each in shown for each in ("Trains", "k=v", RUN_ID, "running"))
        renamed = CommandResult(api, "conversations", "rename", CONVERSATION_ID, "Trains")
        assert renamed.out == f"{CONVERSATION_ID} is 'Trains'\n"
        CommandResult(api, "conversations", "rename", CONVERSATION_ID, "")
        CommandResult(api, "conversations", "tag", CONVERSATION_ID, "--tag", "a", "--metadata", "k=v")
        assert [seen.body for seen in api.asked("PATCH", ONE)] == [
            {"title": "Trains"}, {"title": None}, {"tags": ["a"], "metadata": {"k": "v"}},
        ]  # fmt: skip
        document = CommandResult(api, "conversations", "show", CONVERSATION_ID, "--json").documents[0]
        assert document["title"] == "Trains"

    def test_what_is_not_given_stays(self, api: ScriptedAPI) -> None:
        api.on("PATCH", ONE, answer(conversation_object()))
        CommandResult(api, "conversations", "tag", CONVERSATION_ID, "--tag", "a", "--tag", "b")
        CommandResult(api, "conversations", "tag", CONVERSATION_ID, "--metadata", "k=v")
        nothing = CommandResult(api, "conversations", "tag", CONVERSATION_ID)
        assert (nothing.code, "--tag" in nothing.err) == (2, True)
        assert [seen.body for seen in api.asked("PATCH", ONE)] == [{"tags": ["a", "b"]}, {"metadata": {"k": "v"}}]

    def test_delete_asks_first(self, api: ScriptedAPI) -> None:
        api.on("DELETE", ONE, Reply(204))
        assert CommandResult(api, "conversations", "delete", CONVERSATION_ID, input="n\n").code == 1
        assert not api.seen
        assert (
            CommandResult(api, "conversations", "delete", CONVERSATION_ID, "--yes").out
            == f"deleted {CONVERSATION_ID}\n"
        )

    def test_watch(self, api: ScriptedAPI) -> None:
        said = (
            placed_frame(4, 1, "run.created"),
            placed_frame(5, 2, "run.started"),
            placed_frame(6, 3, "message.created", message={"role": "user", "content": "hello"}),
            placed_frame(6, 4, "message.delta", text="hi"),
            placed_frame(7, 5, "message.created", message={"role": "assistant", "content": "hi"}),
            placed_frame(8, 6, "run.finished", status="completed", stop_reason="end_turn"),
            placed_frame(8, 0, "conversation.deleted"),
        )
        api.on("GET", EVENTS, stream(*said))
        shown = CommandResult(api, "watch", CONVERSATION_ID, "--after", "3.1")
        assert shown.code == 0
        assert all(each in shown.out for each in (RUN_ID, "hello", "hi", "completed"))
        assert api.seen[0].headers["last-event-id"] == "3.1"
        types = [each["type"] for each in CommandResult(api, "watch", CONVERSATION_ID, "--json").documents]
        assert types == ["run.created", "run.started", "message.created", "message.delta", "message.created",
                         "run.finished", "conversation.deleted"]  # fmt: skip
        assert CommandResult(api, "watch", RUN_ID, "--after", "1.2").code == 2
