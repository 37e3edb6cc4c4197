"""What the clients do to runs that are there: one at a time, and many at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from palaver.client import Conflict, ConnectionFailed, NotFound, Unprocessable
from palaver.schemas.actions import ApprovalDecision, Pause
from palaver.schemas.models import AgentSpec, Budget
from tests.both_clients import RUN, Call, async_client, both_clients
from tests.scripted_api import (
    CONVERSATION_ID,
    RUN_ID,
    Reply,
    ScriptedAPI,
    action_object,
    answer,
    conversation_object,
    problem,
    run_object,
)

INPUT = f"{RUN}/input"
ACTIONS = "/v1/runs/actions"
GONE = Reply(204)


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        server.on("POST", INPUT, answer(run_object("running"), 202))
        yield server


INPUTS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "approve all": ("approve", (), {"type": "approval", "action_id": "all", "decision": "approve"}),
    "approve one": ("approve", ("act_1",), {"type": "approval", "action_id": "act_1", "decision": "approve"}),
    "approve with other arguments": (
        "approve",
        ("act_1", {"to": "eve"}),
        {"type": "approval", "action_id": "act_1", "decision": "edit", "arguments": {"to": "eve"}},
    ),
    "approve with none": (
        "approve",
        ("act_1", {}),
        {"type": "approval", "action_id": "act_1", "decision": "edit", "arguments": {}},
    ),
    "deny all": ("deny", (), {"type": "approval", "action_id": "all", "decision": "deny"}),
    "deny one": (
        "deny",
        ("act_1", "not bob"),
        {"type": "approval", "action_id": "act_1", "decision": "deny", "reason": "not bob"},
    ),
    "answer": (
        "answer",
        ("call_1", {"lines": 12}),
        {"type": "tool_output", "call_id": "call_1", "output": {"lines": 12}, "is_error": False},
    ),
    "answer with an error": (
        "answer",
        ("call_1", None, True),
        {"type": "tool_output", "call_id": "call_1", "output": None, "is_error": True},
    ),
    "steer": ("steer", ("faster",), {"type": "message", "content": "faster"}),
    "pause": ("pause", (), {"type": "pause", "now": False}),
    "pause now": ("pause", (True,), {"type": "pause", "now": True}),
    "resume": ("resume", (), {"type": "resume"}),
}


@async_client
def test_words_without_a_run_are_taken_once(api: ScriptedAPI, call: Call) -> None:
    path = f"/v1/conversations/{CONVERSATION_ID}/messages"
    api.on("POST", path, Reply(cut=True), answer({"position": 3, "run_id": None}, 201))
    appended = call(api.url, "append", CONVERSATION_ID, "hello")
    assert (appended.position, appended.run_id) == (3, None)
    assert [seen.body for seen in api.seen] == [{"input": "hello"}] * 2
    assert len({seen.headers["idempotency-key"] for seen in api.seen}) == 1


@async_client
def test_a_question_beside_a_conversation(api: ScriptedAPI, call: Call) -> None:
    api.on("POST", f"/v1/conversations/{CONVERSATION_ID}/ask", answer({"answer": "Trains.", "usage": {}}))
    assert call(api.url, "ask", CONVERSATION_ID, "What about?", 5).answer == "Trains."
    assert api.seen[0].body == {"question": "What about?", "timeout": 5}


@async_client
def test_going_back_and_forking(api: ScriptedAPI, call: Call) -> None:
    path, found = f"/v1/conversations/{CONVERSATION_ID}", conversation_object()
    api.on("POST", f"{path}/withdraw", answer(found))
    api.on("POST", f"{path}/fork", Reply(cut=True), answer(found, 201))
    assert call(api.url, "withdraw", CONVERSATION_ID, 4).id == CONVERSATION_ID
    assert call(api.url, "fork", CONVERSATION_ID, 4, agent=AgentSpec(model="a/b")).id == CONVERSATION_ID
    assert [seen.body for seen in api.seen] == [{"after": 4}, *[{"through": 4, "agent": {"model": "a/b"}}] * 2]


@async_client
class TestInput:
    @pytest.mark.parametrize(("method", "arguments", "item"), INPUTS.values(), ids=INPUTS)
    def test_each_verb_is_one_item_and_takes_effect_once(
        self, api: ScriptedAPI, call: Call, method: str, arguments: tuple[Any, ...], item: dict[str, Any]
    ) -> None:
        api.on("POST", INPUT, Reply(cut=True), answer(run_object("running"), 202))
        assert call(api.url, method, RUN_ID, *arguments).status == "running"
        assert [seen.body for seen in api.seen] == [{"items": [item]}] * 2
        first, second = (seen.headers["idempotency-key"] for seen in api.seen)
        assert first == second
        assert len(first) == 32
        call(api.url, method, RUN_ID, *arguments)
        assert api.seen[-1].headers["idempotency-key"] != first
        call(api.url, method, RUN_ID, *arguments, idempotency_key="mine")
        assert api.seen[-1].headers["idempotency-key"] == "mine"

    def test_several_at_once_as_models_and_as_dicts(self, api: ScriptedAPI, call: Call) -> None:
        denial = ApprovalDecision(type="approval", action_id="act_1", decision="deny", reason="no")
        call(api.url, "send", RUN_ID, [denial, {"type": "message", "content": "why?"}, Pause(type="pause")])
        assert api.seen[0].body == {
            "items": [
                {"type": "approval", "action_id": "act_1", "decision": "deny", "reason": "no"},
                {"type": "message", "content": "why?"},
                {"type": "pause"},
            ]
        }

    @pytest.mark.parametrize("method", ["approve", "deny"])
    def test_a_decision_may_be_about_the_call_that_was_looked_at(
        self, api: ScriptedAPI, call: Call, method: str
    ) -> None:
        call(api.url, method, RUN_ID, "act_1", digest="abc")
        assert api.seen[0].body["items"][0]["digest"] == "abc"

    @pytest.mark.parametrize(
        ("method", "arguments", "options"),
        [
            ("send", ([],), {}),
            ("approve", ("all", {"to": "eve"}), {}),
            ("approve", (), {"digest": "abc"}),
            ("deny", (), {"digest": "abc"}),
        ],
    )
    def test_what_cannot_be_is_not_sent(
        self, api: ScriptedAPI, call: Call, method: str, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        with pytest.raises(ValueError, match=r"nothing to send|name its action_id|of one action"):
            call(api.url, method, RUN_ID, *arguments, **options)
        assert not api.seen

    @pytest.mark.parametrize(("status", "code"), [(409, "unknown_action"), (410, "action_expired")])
    def test_a_conflict_says_what_is_pending(self, api: ScriptedAPI, call: Call, status: int, code: str) -> None:
        actions = [action_object(1), action_object(2, "client_tool", "open_file")]
        api.on("POST", INPUT, problem(status, code, "No such.", run_id=RUN_ID, pending_actions=actions))
        with pytest.raises(Conflict) as caught:
            call(api.url, "approve", RUN_ID, "act_9")
        error = caught.value
        assert (error.status, error.code, error.detail, error.run_id) == (status, code, "No such.", RUN_ID)
        assert [action.id for action in error.pending_actions] == ["act_1", "act_2"]
        assert str(error) == "No such. Pending: send (approval act_1), open_file (client_tool act_2)."
        assert len(api.seen) == 1

    def test_pending_actions_that_this_version_does_not_understand(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", INPUT, problem(409, "unknown_action", "No such.", pending_actions=[{"id": 3}]))
        with pytest.raises(Conflict, match=r"^No such\.$"):
            call(api.url, "approve", RUN_ID)


@async_client
class TestEnds:
    def test_cancel_says_how_and_why(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", f"{RUN}/cancel", Reply(cut=True), answer(run_object("cancelling"), 202))
        assert call(api.url, "cancel", RUN_ID, mode="rollback").status == "cancelling"
        assert [seen.body for seen in api.seen] == [{"mode": "rollback"}] * 2
        assert len({seen.headers["idempotency-key"] for seen in api.seen}) == 1

    def test_retry_and_fork(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", f"{RUN}/retry", Reply(cut=True), answer(run_object("queued", retried_from=RUN_ID), 202))
        assert call(api.url, "retry", RUN_ID).retried_from == RUN_ID
        call(
            api.url, "retry", RUN_ID, 2, input="by train", agent=AgentSpec(model="a/b"), budget=Budget(tokens=5),
            deadline=datetime(2026, 1, 1, tzinfo=UTC), idempotency_key="mine",
        )  # fmt: skip
        assert [seen.body for seen in api.seen] == [
            {},
            {},
            {
                "from_step": 2,
                "input": "by train",
                "agent": {"model": "a/b"},
                "budget": {"tokens": 5},
                "deadline": "2026-01-01T00:00:00+00:00",
            },
        ]
        keys = [seen.headers["idempotency-key"] for seen in api.seen]
        assert keys[0] == keys[1] != keys[2] == "mine"

    @pytest.mark.parametrize(
        ("method", "path", "id"),
        [
            ("delete", RUN, RUN_ID),
            ("delete_conversation", f"/v1/conversations/{CONVERSATION_ID}", CONVERSATION_ID),
        ],
    )
    class TestDelete:
        def test_it_is_gone(self, api: ScriptedAPI, call: Call, method: str, path: str, id: str) -> None:
            api.on("DELETE", path, GONE)
            assert call(api.url, method, id) is None
            assert [(seen.method, seen.path) for seen in api.seen] == [("DELETE", path)]

        @pytest.mark.parametrize("first", [Reply(cut=True), problem(500, "internal")], ids=["cut", "500"])
        def test_what_a_lost_request_deleted_is_gone(
            self, api: ScriptedAPI, call: Call, method: str, path: str, id: str, first: Reply
        ) -> None:
            api.on("DELETE", path, first, problem(404, "run_not_found"))
            assert call(api.url, method, id) is None
            assert len(api.seen) == 2

        def test_what_was_never_there_is_told(
            self, api: ScriptedAPI, call: Call, method: str, path: str, id: str
        ) -> None:
            api.on("DELETE", path, problem(429, "later", Retry_After="0"), problem(404, "run_not_found"))
            with pytest.raises(NotFound):
                call(api.url, method, id)

        def test_what_is_going_on_is_not(self, api: ScriptedAPI, call: Call, method: str, path: str, id: str) -> None:
            api.on("DELETE", path, problem(409, "run_active"))
            with pytest.raises(Conflict) as caught:
                call(api.url, method, id)
            assert caught.value.code == "run_active"


def page(*run_ids: str, cursor: str | None = None, **changes: Any) -> Reply:
    """An answer to a bulk request."""
    done = len(run_ids)
    whole = {"matched": done, "done": done, "skipped": {}, "dry_run": False, "next_cursor": cursor}
    return answer({**whole, "run_ids": list(run_ids), **changes})


@async_client
class TestBulk:
    def test_goes_through_all_pages_and_adds_up(self, api: ScriptedAPI, call: Call) -> None:
        api.on(
            "POST",
            ACTIONS,
            page("r1", "r2", cursor="c1", matched=3, skipped={"run_ended": 1}),
            page(cursor="c2"),
            page("r3", matched=3, skipped={"run_ended": 1, "run_not_found": 1}),
        )
        result = call(
            api.url, "bulk", "cancel", status=["queued", "running"], tag="a", agent="b", older_than=60, mode="graceful",
            reason="enough", created_after=datetime(2026, 1, 1, tzinfo=UTC),
        )  # fmt: skip
        assert result.model_dump() == {
            "matched": 6,
            "done": 3,
            "skipped": {"run_ended": 2, "run_not_found": 1},
            "dry_run": False,
            "run_ids": ("r1", "r2", "r3"),
            "retried_as": {},
        }
        assert [seen.body.pop("cursor", None) for seen in api.seen] == [None, "c1", "c2"]
        assert [seen.body for seen in api.seen] == [
            {
                "action": "cancel",
                "filter": {
                    "status": ["queued", "running"],
                    "tag": "a",
                    "agent": "b",
                    "older_than": 60,
                    "created_after": "2026-01-01T00:00:00+00:00",
                },
                "mode": "graceful",
                "reason": "enough",
                "dry_run": False,
                "limit": 500,
            }
        ] * 3

    def test_all_and_a_dry_run(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", ACTIONS, page("r1", done=0, dry_run=True))
        result = call(api.url, "bulk", "delete", all=True, dry_run=True)
        assert (result.done, result.run_ids, result.dry_run) == (0, ("r1",), True)
        assert api.seen[0].body == {"action": "delete", "all": True, "dry_run": True, "limit": 500}

    def test_a_filter_that_names_nothing_is_the_apis_to_refuse(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", ACTIONS, problem(422, "validation_error", "/filter: admits every run"))
        with pytest.raises(Unprocessable, match="admits every run"):
            call(api.url, "bulk", "delete", tag="")
        assert api.seen[0].body["filter"] == {"tag": ""}, "or every run would go"

    @pytest.mark.parametrize("method", ["list", "bulk"])
    def test_a_list_of_statuses_that_came_out_empty_means_no_run(
        self, api: ScriptedAPI, call: Call, method: str
    ) -> None:
        arguments = ("delete",) if method == "bulk" else ()
        with pytest.raises(ValueError, match="status names none"):
            call(api.url, method, *arguments, status=[], tag="a")
        assert not api.seen

    @pytest.mark.parametrize(("action", "dry_run"), [("cancel", False), ("delete", False), ("retry", True)])
    def test_a_lost_answer_is_asked_for_again(self, api: ScriptedAPI, call: Call, action: str, dry_run: bool) -> None:
        api.on("POST", ACTIONS, Reply(cut=True), page("r1"))
        assert call(api.url, "bulk", action, tag="a", dry_run=dry_run).run_ids == ("r1",)
        assert len(api.seen) == 2

    def test_but_not_that_of_a_retry(self, api: ScriptedAPI, call: Call) -> None:
        """A run that it made may have failed by then, and would be retried in its turn."""
        api.on("POST", ACTIONS, Reply(cut=True), page("r1"))
        with pytest.raises(ConnectionFailed):
            call(api.url, "bulk", "retry", tag="a")
        assert len(api.seen) == 1

    def test_an_answer_that_is_none(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", ACTIONS, answer({"matched": "many"}))
        with pytest.raises(Exception, match="is the URL right"):
            call(api.url, "bulk", "cancel", tag="a")


@both_clients
def test_a_list_takes_the_same_filters(api: ScriptedAPI, call: Call) -> None:
    api.on("GET", "/v1/runs", answer({"data": [], "next_cursor": None}))
    before = datetime(2026, 1, 1, tzinfo=UTC)
    call(api.url, "list", agent="demo", error_class="rate_limited", created_before=before, limit=5)
    assert api.seen[0].query == {
        "agent": "demo", "error_class": "rate_limited", "created_before": before.isoformat(), "limit": "5",
    }  # fmt: skip
